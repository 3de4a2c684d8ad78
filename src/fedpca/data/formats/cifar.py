"""CIFAR's batches, as its authors publish them for Python. They are pickles, read as a list of opcodes: never run."""

import pickletools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedpca.data.formats.files import require_files
from fedpca.data.formats.source import Format, Layout, Source, array_source
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

_INTEGERS = ("BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1")
_ARRAY_GLOBALS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct", "numpy ndarray",
                  "numpy dtype", "_codecs encode")  # fmt: skip
_OTHER_GLOBALS = ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    train, test = [place / f"data_batch_{number}" for number in range(1, 6)], place / "test_batch"
    if not any(path.is_file() for path in (*train, test)):
        return None
    require_files([*train, test])
    return Layout((*train, test), True, lambda: (_source(train), _source([test])))


def _source(files: list[Path]) -> Source:
    batches = [_batch(path) for path in files]
    rows = np.concatenate([pixels for pixels, _ in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return array_source(str(files[0]), "'labels'", rows, [label for _, labels in batches for label in labels])


def _batch(path: Path) -> tuple[NDArray[np.uint8], list[int]]:
    """Pixels (n, 3072) and labels of one batch."""
    try:
        texts, labels = _texts_and_labels(path)
    except DataError:
        raise
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is not one of CIFAR's python batches ({error}): fetch it again") from None
    found = [(text, fortran) for text, fortran in texts if labels and len(text) == len(labels) * 3072]
    if len(found) != 1:
        raise DataError(f"{path} is not one of CIFAR's python batches: it needs 'labels' and as many times 3072 pixels")
    text, fortran = found[0]
    data = text.encode("latin-1") if isinstance(text, str) else text
    return np.frombuffer(data, np.uint8).reshape(len(labels), 3072, order="F" if fortran else "C"), labels


def _texts_and_labels(path: Path) -> tuple[list[tuple[str | bytes | bytearray, bool]], list[int]]:
    """All texts of a pickle, each with the last boolean before it, and the integers that follow the text 'labels'.

    Found by walking the opcodes: nothing is executed. A NumPy array's state ends with a boolean, whether its order is
    Fortran's, and the bytes.
    """
    texts: list[tuple[str | bytes | bytearray, bool]] = []
    labels: list[int] = []
    reading = fortran = False
    for opcode, argument, _ in pickletools.genops(path.read_bytes()):
        _refuse_strange_global(path, opcode.name, argument)
        if opcode.name in ("NEWTRUE", "NEWFALSE"):
            fortran = opcode.name == "NEWTRUE"
        if isinstance(argument, str | bytes | bytearray) and opcode.name != "GLOBAL":
            reading = argument in ("labels", b"labels")
            texts.append((argument, fortran))
        elif reading and isinstance(argument, int) and opcode.name in _INTEGERS:
            labels.append(argument)
    return texts, labels


def _refuse_strange_global(path: Path, opcode: str, argument: object) -> None:
    """Stops at a pickle that names anything but NumPy's arrays: it is not CIFAR's, and may be meant to do harm."""
    if opcode in _OTHER_GLOBALS or (opcode == "GLOBAL" and argument not in _ARRAY_GLOBALS):
        named = f"names {argument!r}" if argument else "is of a newer pickle protocol"
        raise DataError(f"{path} {named}, which CIFAR's own batches do not; it was not run. Fetch the batches again")


CIFAR = Format("cifar", "CIFAR's python batches", _recognise)
