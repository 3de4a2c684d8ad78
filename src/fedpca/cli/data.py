"""`fedpca data`: what is there of which dataset, and images decoded before a run needs them."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpca.errors import SettingsError

if TYPE_CHECKING:
    from fedpca.data.cache import Dataset
    from fedpca.data.check import Report
    from fedpca.settings.experiment import DataSettings

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Look at datasets, and decode them before a run.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A dataset's name, a path to your own, or a settings file with [data].")
]
ImageSize = Annotated[int | None, typer.Option(min=4, help="Side of the decoded images, as data.image_size.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of datasets.  [default: $FEDPCA_DATA, else the user's cache]")
]


@app.callback(invoke_without_command=True)
def _list(context: typer.Context, data_dir: DataDir = None) -> None:
    """Without a command: list the known datasets, and whether they are there."""
    if context.invoked_subcommand:
        if data_dir:
            raise typer.BadParameter(f"write it behind {context.invoked_subcommand}", param_hint="--data-dir")
        return
    from fedpca.data.check import states
    from fedpca.data.places import data_folder

    rows = list(states(data_dir))
    width = max(len(name) for name, _, _ in rows)
    print(f"data folder: {data_folder(data_dir)}")
    for name, state, place in rows:
        print(f"{name:<{width}}  {state:<8}  {place or ''}".rstrip())
    print("`fedpca data check NAME` looks at every file, and tells where to get what is missing")


@app.command()
def check(
    name: Name,
    data_dir: DataDir = None,
    image_size: ImageSize = None,
    deep: Annotated[bool, typer.Option("--deep", help="Decode every image; takes as long as `prepare`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is there of a dataset, what is missing or damaged, and where to get it.

    NAME is a known dataset, a path to your own, or a settings file with a [data] table. Tables are read whole, and of
    every image that a run would use the header and the end. Exit code 0 if all is there, 1 if not. Uses no network.
    """
    from fedpca.api.progress import counting_bar
    from fedpca.data.check import check as look

    settings = _settings(name, image_size)
    try:
        with counting_bar("checking", as_json) as progress:
            report = look(settings, data_dir, None, deep, progress)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        print("\n".join(_lines(report)))
    raise typer.Exit(1 if report.errors else 0)


@app.command()
def prepare(name: Name, data_dir: DataDir = None, image_size: ImageSize = None) -> None:
    """Decode a dataset's images into the cache, as `run` does at its start; once is enough.

    NAME is as for `check`; a settings file gives the seed and the image size that its runs will ask for.
    """
    from fedpca.api.progress import counting_bar, say
    from fedpca.data.cache import open_entry
    from fedpca.data.datasets import decode, files_of, is_embedded
    from fedpca.data.places import data_folder, find_layout

    settings = _settings(name, image_size)
    if is_embedded(settings.dataset):
        print(f"{settings.dataset}: embedded; there is nothing to decode")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that kill, too, clears away what is half written
    start = time.monotonic()
    try:
        with counting_bar("fetching") as progress:
            files = files_of(settings, find_layout(settings, data_folder(data_dir), progress))
        if files.layout.is_table:
            print(f"{_describe(decode(files, progress))}: a table, which runs read as it is; nothing to decode")
            return
        before = open_entry(files.entry, files.name)
        with counting_bar("decoding") as progress:
            dataset = before or decode(files, progress)
    except KeyboardInterrupt:
        say("stopped; nothing was kept")
        raise typer.Exit(130) from None
    how = "decoded before, in" if before else f"decoded in {time.monotonic() - start:.0f} s into"
    print(f"{_describe(dataset)}: {how} {files.entry} ({_bytes(_size(files.entry))})")
    for line in dataset.skipped[:5]:
        say(f"left out: {line}")


def _settings(name: str, image_size: int | None) -> DataSettings:
    """The settings of a dataset by name, or those in a settings file."""
    from fedpca.settings.experiment import DataSettings

    data = _data_in(Path(name)) if name.endswith(".toml") else DataSettings(dataset=name, clients=1)
    return data.model_copy(update={"image_size": image_size}) if image_size else data


def _data_in(path: Path) -> DataSettings:
    """What all settings in a file decode."""
    from fedpca.data.datasets import decoding_settings
    from fedpca.runs.check import read_settings

    found = [experiment.data for experiment in read_settings(path).values()]
    if any(decoding_settings(data, has_test=False) != decoding_settings(found[0], has_test=False) for data in found):
        raise SettingsError(f"{path} holds settings with different data: name the dataset in place of the file")
    return found[0]


def _describe(dataset: Dataset) -> str:
    count = len(dataset.train.labels) + len(dataset.test.labels)
    if dataset.table:
        return f"{dataset.name}: {count:,} rows of {len(dataset.table)} columns, {len(dataset.classes)} classes"
    shape = "x".join(map(str, dataset.train.images.shape[1:]))
    skipped = f", {len(dataset.skipped):,} unreadable ones left out" if dataset.skipped else ""
    return f"{dataset.name}: {count:,} images of {shape}, {len(dataset.classes)} classes{skipped}"


def _lines(report: Report) -> Iterator[str]:
    """The report for a person."""
    from fedpca.data.known import KNOWN

    yield f"{report.name}: {'not complete' if report.errors else 'complete'}"
    if report.place:
        yield f"  folder   {report.place}"
    if report.files:
        yield f"  files    {report.files:,} ({_bytes(report.bytes)})"
    if report.images:
        parts = ", ".join(f"{count:,} {part}" for part, count in report.images.items())
        yield f"  {'rows  ' if report.columns else 'images'}   {sum(report.images.values()):,} ({parts})"
        yield f"  classes  {', '.join(f'{name} {count:,}' for name, count in report.classes.items())}"
    if report.sizes:
        yield f"  size     {_sizes(report)}"
    yield from (f"  column   {name}: {what}" for name, what in report.columns.items())
    if report.files and report.images and not report.columns:
        yield f"  decoded  {report.decoded or f'not yet; `fedpca data prepare {report.name}` does it'}"
    yield from (f"  note     {note}" for note in report.notes)
    yield from (f"  error    {error}" for error in report.errors)
    if report.errors and (known := KNOWN.get(report.name)):
        yield f"  get it   {known.page}"
        yield from (f"           {command}" for command in known.get)


def _sizes(report: Report) -> str:
    sizes = sorted(report.sizes)
    text = f"{sizes[0][0]}x{sizes[0][1]}"
    return text if len(sizes) == 1 else f"{text} to {sizes[-1][0]}x{sizes[-1][1]}, {len(sizes)} sizes"


def _as_json(report: Report) -> dict[str, object]:
    from fedpca.data.known import KNOWN

    known = KNOWN.get(report.name)
    return {
        **vars(report),
        "complete": not report.errors,
        "place": report.place and str(report.place),
        "sizes": {f"{width}x{height}": count for (width, height), count in report.sizes.items()},
        "decoded": report.decoded and str(report.decoded),
        "page": known and known.page,
        "get": known.get if known else (),
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
