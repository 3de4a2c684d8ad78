"""Images that are files of their own, in one folder per class."""

from collections.abc import Mapping
from pathlib import Path

from fedpca.data.formats.pictures import SUFFIXES
from fedpca.data.formats.source import Format, Layout, Source, image_layout
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings


def _recognise(place: Path, settings: DataSettings) -> Layout | None:
    if not place.is_dir():
        return None
    train, test = place / "train", place / "test"
    if not train.is_dir():
        return _layout(place, None)
    return _layout(train, test if test.is_dir() else None)


def _layout(train: Path, test: Path | None) -> Layout | None:
    """One folder of images per class; None where there are no images to train on."""
    found = _images_by_class(train)
    if not any(found.values()):
        return None
    classes = tuple(sorted(found, key=lambda name: (0, int(name), name) if name.isdecimal() else (1, 0, name)))
    trained = _source(train, found, classes)
    return image_layout((), trained, _source(test, _images_by_class(test), classes) if test else None)


def _images_by_class(folder: Path) -> dict[str, list[Path]]:
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return {
        path.name: sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        for path in inner
    }


def _source(folder: Path, found: Mapping[str, list[Path]], classes: tuple[str, ...]) -> Source:
    for name, files in found.items():
        if not files:
            raise DataError(f"class folder {folder / name} holds no image ({', '.join(SUFFIXES)}): fill or remove it")
        if name not in classes:
            raise DataError(f"{folder / name}: there is no class {name!r} to train on; there are {', '.join(classes)}")
    rows = [(label, path) for label, name in enumerate(classes) for path in found.get(name, [])]
    if not rows:
        raise DataError(f"{folder} holds no class folders with images; it needs the classes {', '.join(classes)}")
    pictures = [(str(path.relative_to(folder.parent)), path) for _, path in rows]
    return Source(str(folder), "the class folders", [label for label, _ in rows], lambda: iter(pictures), {}, classes)


FOLDER = Format("folder", "train/CLASS/* and test/CLASS/* or CLASS/*", _recognise)
