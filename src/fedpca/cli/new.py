"""`fedpca new`: a complete settings file to start from, written from looking at the data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpca.errors import UserError

if TYPE_CHECKING:
    from fedpca.data.guess import Guess

CLIENTS = 10  # where no column names them
LARGE = 64  # side of the square that larger images are resized to
SMALL = 32  # the same for images of different sizes, of which some are smaller
COMMENT = 34  # column in which comments begin
SHOWN = 8  # values in a comment

DIGITS = """\
# A first experiment: scikit-learn's 8x8 digits, spread over 20 clients, some of them rare and some mislabeled.
#   fedpca run {file} --dry-run                         what would happen, and how long it would take
#   fedpca run {file}                                   all methods and seeds, then the tables
#   fedpca results runs/{stem} --html page.html         one page to look at
# With data of your own: fedpca new --data PATH. Every key is in docs/settings.md.

rounds = 30                       # clients are judged once the model has learned enough
methods = ["fedavg", "fedpca"]    # fedpca list methods
seeds = [0]                       # several, such as [0, 1, 2], show what is chance

[data]
dataset = "digits"                # fedpca list datasets, or a path relative to this file
clients = 20
split = "iid"                     # or "dirichlet": classes differ between clients

[rare]
share = 0.2                       # of the clients: their images are corrupted
corruption = "gaussian_noise"     # fedpca list corruptions
sigma = 0.5                       # strength of the noise

[noise]
clients = 0.2                     # share of the clients that are mislabeled
labels = 0.8                      # share of their labels that are wrong

[model]
name = "cnn-small"                # fedpca list models, or package.module:function of your own

[training]
lr = 0.05
batch = 16
epochs = 1                        # per round
"""


def new(
    name: Annotated[
        Path | None, typer.Argument(metavar="[NAME.toml]", help="The file to write.  [default: named after the data]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Your data: a file, or a folder.  [default: digits]")
    ] = None,
) -> None:
    """Write a settings file to start from, complete and commented, from looking at the data; then edit and run it."""
    target = (name or Path(data.absolute().stem if data else "digits")).with_suffix(".toml")
    if target.exists():
        raise UserError(f"{target} is there already: choose another name, as in `fedpca new NAME.toml`, or remove it")
    if not target.parent.is_dir():
        raise UserError(f"{target} cannot be written: there is no folder {target.parent}")
    text = _from_data(data, target) if data else DIGITS.format(file=target, stem=target.stem)
    with target.open("x", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {target}; look at it, then\n  fedpca run {target} --dry-run\n  fedpca run {target}")


def _from_data(data: Path, target: Path) -> str:
    """The settings file for data of the user's own."""
    from fedpca.api.progress import counting_bar
    from fedpca.data.guess import guess

    if not data.exists():
        raise UserError(f"--data: there is no file or folder {data}")
    with counting_bar("looking at images") as progress:
        found = guess(data, progress)
    parts = (_head(found, target), _data(found, data, target), _model(found), _training(found))
    return "\n".join("\n".join(part) + "\n" for part in parts)


def _head(found: Guess, target: Path) -> Iterator[str]:
    counts, things = found.report.images, "rows" if found.is_table else "images"
    yield f"# Written by `fedpca new` from {sum(counts.values()):,} {things} of {len(found.report.classes)} classes."
    yield f"#   {f'fedpca run {target} --dry-run':<50}what would happen, and how long it would take"
    yield f"#   {f'fedpca run {target}':<50}all methods and seeds, then the tables"
    yield f"#   {f'fedpca results runs/{target.stem} --html page.html':<50}one page to look at"
    yield "# Every key is in docs/settings.md."
    yield ""
    yield _line("rounds", 30, "clients are judged once the model has learned enough")
    yield _line("methods", ["fedavg", "fedpca"], "fedpca list methods")
    yield _line("seeds", [0], "several, such as [0, 1, 2], show what is chance")


def _data(found: Guess, data: Path, target: Path) -> Iterator[str]:
    settings, report = found.settings, found.report
    yield "[data]"
    yield _line("dataset", _relative(data, target.parent), "relative to this file")
    if not found.is_table and settings.image_column != "image":
        yield _line("image_column", settings.image_column, "files of images")
    if settings.label_column != "label":
        yield _line("label_column", settings.label_column, "a guess: is this what is to be learned?")
    yield f"# classes: {_counted(report.classes)}"
    yield from _clients(found)
    if sides := {side for size in report.sizes for side in size}:
        yield from _image_size(sides, len(report.sizes))
    if found.patients:
        yield _line("group_column", found.patients, "rows of one patient stay on one side of every split")
    yield _line("test_share", 0.2, "kept for testing, where the data have no test part of their own")


def _clients(found: Guess) -> Iterator[str]:
    """How the data are spread over the clients."""
    if not found.silos:
        count = max(2, min(CLIENTS, found.report.images["train"] // 40))
        yield _line("split", "iid", "no column that names hospitals was found: dealt out at random")
        yield _line("clients", count, 'with such a column: split = "column", column = "its name"')
        return
    (column, counts), *others = found.silos.items()
    yield _line("split", "column", "every value of a column is a client")
    yield _line("column", column, _counted(counts))
    if others:
        yield f"# other columns that may name the clients: {', '.join(name for name, _ in others)}"


def _image_size(sides: set[int], sizes: int) -> Iterator[str]:
    low, high = min(sides), max(sides)
    if sizes == 1 and high <= LARGE:
        return
    size = LARGE if low >= LARGE else SMALL
    seen = f"{low} to {high}" if low < high else f"{low}"
    yield _line("image_size", size, f"images have sides of {seen}; larger ones say more and take longer")


def _model(found: Guess) -> Iterator[str]:
    small = any(min(size) < 8 for size in found.report.sizes)
    yield "[model]"
    name = "mlp" if found.is_table or small else "cnn-small"
    yield _line("name", name, "fedpca list models, or package.module:function of your own")


def _training(found: Guess) -> Iterator[str]:
    counts = next(iter(found.silos.values()), {})
    smallest = min(counts.values(), default=found.report.images["train"] // CLIENTS)
    yield "[training]"
    yield _line("lr", 0.03, "learning rate of SGD")
    yield _line("batch", 16 if smallest < 500 else 64, "samples per step")
    yield _line("epochs", 1, "per round")


def _relative(data: Path, folder: Path) -> str:
    """The path as it is written into a file in that folder; absolute where it is far away."""
    path = Path(os.path.relpath(data, folder)).as_posix()
    if path.startswith("../../../"):
        return data.absolute().as_posix()
    return path if path.startswith("..") else f"./{path}"


def _line(key: str, value: object, comment: str) -> str:
    return f"{f'{key} = {json.dumps(value, ensure_ascii=False)}':<{COMMENT - 1}} # {comment}"


def _counted(counts: Mapping[str, int]) -> str:
    some: Sequence[str] = [f"{' '.join(name.split())} {count:,}" for name, count in counts.items()]
    return ", ".join(some[:SHOWN]) + (f", and {len(some) - SHOWN} more" if len(some) > SHOWN else "")
