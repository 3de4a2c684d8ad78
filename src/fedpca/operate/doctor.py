"""What can be checked before a site joins: programs, keys, the way to the server, data, disk and clock."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from fedpca import __version__
from fedpca.errors import UserError, nearest
from fedpca.operate.check_server import check_server
from fedpca.operate.findings import Finding
from fedpca.operate.processes import STORE
from fedpca.settings.base import Names, Settings
from fedpca.settings.toml import read_table, validate

if TYPE_CHECKING:
    from fedpca.data.datasets import Dataset

READING = {"image_size", "image_column", "label_column", "column", "feature_columns"}  # how data are read
ENOUGH, LITTLE = 5 << 30, 1 << 30  # bytes of disk that are plenty, and that are too few


class Expected(Settings):
    """What the server's operator hands out as federation.toml: what every site must agree on."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int] | None = None  # channels, height, width of an image; not given for tables
    model: str = "cnn-small"
    image_size: int | None = None  # side of the square that images are resized to
    image_column: str = "image"
    label_column: str = "label"
    column: str | None = None  # of a table: one that is no feature
    feature_columns: Names | None = None  # of a table: its columns; all that have no other use if not given
    fedpca: str | None = None
    flwr: str | None = None
    nvflare: str | None = None


@dataclass(frozen=True)
class Machine:
    """What is known of a machine; what is None is not checked."""

    site: str | None = None
    data: Path | None = None
    server: str | None = None
    keys: Path | None = None
    federation: Path | None = None
    state: Path = Path()
    policy: Path | None = None
    engine: str = "flower"
    kit: Path | None = None  # NVFlare's startup kit
    store: Path | None = None  # where the site remembers things, if not where `fedpca deploy client` does


def examine(machine: Machine) -> Iterator[Finding]:
    """Everything that can be checked with what is given, from the simple to the far."""
    expected = None
    if machine.federation is not None:
        try:
            expected = read_expected(machine.federation)
            yield Finding("ok", f"{machine.federation}: {len(expected.classes)} classes, model {expected.model}")
        except UserError as error:
            yield Finding("error", str(error), "ask the server's operator for the file again")
    yield from check_versions(expected, _package(machine.engine))
    if machine.engine == "nvflare":
        from fedpca.operate.check_kit import check_kit, machine_of

        yield from _guard(check_kit(machine.kit))
        machine = machine_of(machine)
    if machine.keys is not None:
        from fedpca.operate.check_keys import check_keys  # here: only keys need `cryptography`

        yield from _guard(check_keys(machine.keys, machine.site))
    if machine.server is not None:
        yield from _guard(check_server(machine.server, machine.keys))
    yield check_disk(machine.state)
    yield from _guard(check_policy(machine))
    if expected is not None and expected.shape is not None:
        yield from _guard(check_model(expected.model, expected.shape, len(expected.classes)))
    if machine.data is not None:
        yield from _guard(check_data(machine.data, expected))


def _package(engine: str) -> str:
    """The package that carries the messages."""
    packages = {"flower": "flwr", "nvflare": "nvflare"}
    if engine not in packages:
        raise UserError(f"there is no engine {engine!r}{nearest(engine, packages)}")
    return packages[engine]


def _guard(check: Iterator[Finding]) -> Iterator[Finding]:
    """A check that cannot go on is an error of its own."""
    try:
        yield from check
    except UserError as error:
        yield Finding("error", str(error))


def read_expected(path: Path) -> Expected:
    """The operator's federation.toml."""
    return validate(Expected, read_table(path), str(path))


def check_versions(expected: Expected | None, engine: str = "flwr") -> Iterator[Finding]:
    """Python, PyTorch, what carries the messages, and fedpca, as installed."""
    yield Finding("ok", f"Python {sys.version.split()[0]}")
    yield _check_version("torch", None, "pip install -c constraints.txt fedpca")
    wanted = (expected and getattr(expected, engine)) or _required_version(engine)
    extra = {"flwr": "flower"}.get(engine, engine)
    remedy = f"pip install '{engine}=={wanted}'" if wanted else f"pip install 'fedpca[{extra}]'"
    yield _check_version(engine, wanted, remedy)
    own = expected.fedpca if expected else None
    if own in (None, __version__):
        yield Finding("ok", f"fedpca {__version__}")
    else:
        yield Finding("error", f"fedpca {__version__}, but the federation has {own}", f"pip install 'fedpca=={own}'")


def _check_version(package: str, wanted: str | None, remedy: str) -> Finding:
    try:
        found = version(package)
    except PackageNotFoundError:
        return Finding("error", f"{package} is not installed", remedy)
    if wanted not in (None, found):
        return Finding("error", f"{package} {found}, but the federation needs {wanted}", remedy)
    return Finding("ok", f"{package} {found}")


def _required_version(package: str) -> str | None:
    """The one version that fedpca was made for."""
    lines = [line.partition(";")[0].strip() for line in requires("fedpca") or ()]
    return next((line.partition("==")[2] for line in lines if line.startswith(f"{package}==")), None)


def check_disk(state: Path) -> Finding:
    """Room where the site keeps its things."""
    place = next(folder for folder in (state.resolve(), *state.resolve().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    what = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < LITTLE:
        return Finding("error", what, "decoded images and the site's memory need room: free some")
    return Finding("ok" if free >= ENOUGH else "warning", what, "" if free >= ENOUGH else "large images may need more")


def check_policy(machine: Machine) -> Iterator[Finding]:
    """The site's own rules: those of the file that is named, or of the one where `fedpca deploy client` looks."""
    from fedpca.sites.policy import POLICY, policy_file, read_policy, told

    usual = Path(f"site-{machine.site}") if machine.site and machine.state == Path() else machine.state
    store = machine.store or usual / STORE
    if path := policy_file(machine.policy, store):
        yield Finding("ok", told(policy := read_policy(path), path))
        if policy.max_epsilon is not None:
            from fedpca.sites.budget import spent_in_store

            total, runs = spent_in_store(store, policy.delta)
            what = f"reports have spent epsilon {total:.3g} of {policy.max_epsilon:g}, in {runs} runs ({store})"
            yield Finding("ok", what)
    elif machine.site or machine.policy:
        yield Finding("ok", f"no policy: this site does what a run asks; {store / POLICY} would say what it may")


def check_model(name: str, shape: tuple[int, int, int], classes: int) -> Iterator[Finding]:
    """Whether the model can be built here."""
    from fedpca.models.build import build

    net = build(name, shape, classes, seed=0)
    count = sum(part.numel() for part in net.module.parameters())
    yield Finding("ok", f"model {name} of {count} weights can be built")


def check_data(data: Path, expected: Expected | None) -> Iterator[Finding]:
    """Data and labels as the run will read them; decodes images into the cache, as the first round would."""
    from fedpca.data.datasets import load
    from fedpca.settings.experiment import DataSettings

    how = expected.model_dump(include=READING) if expected else {}
    dataset = load(DataSettings(dataset=str(data.resolve()), clients=1, **how))
    if dataset.table:
        from fedpca.operate.check_table import check_table

        yield from check_table(dataset, data, expected.model if expected else None)
        if expected is not None and expected.shape is not None:
            remedy = "ask for a federation.toml without shape, or give the site images"
            yield Finding("error", f"{data} is a table, but the federation's data are images", remedy)
    else:
        yield from _check_images(dataset, data, expected)
    if expected is not None:
        yield from _check_classes(dataset.classes, expected.classes)


def _check_images(dataset: Dataset, data: Path, expected: Expected | None) -> Iterator[Finding]:
    shape = dataset.train.images.shape[1:]
    counts = f"{len(dataset.train.labels)} images to train on, {len(dataset.test.labels)} to test on"
    yield Finding("ok", f"{data}: {counts}, {_times(shape)}, {len(dataset.classes)} classes")
    if dataset.skipped:
        what = f"{len(dataset.skipped)} images cannot be read, the first is {dataset.skipped[0]}"
        yield Finding("warning", what, "they are left out: mend or remove them")
    if expected is None:
        return
    if expected.shape is None:
        yield Finding("error", f"{data} has images, but the federation's data are tables: federation.toml has no shape")
    elif tuple(shape) != expected.shape:
        remedy = "convert them, or ask for image_size in federation.toml"
        yield Finding("error", f"images are {_times(shape)}, but the federation's {_times(expected.shape)}", remedy)
    else:
        yield Finding("ok", f"images are {_times(shape)}, as the federation's")


def _check_classes(own: Sequence[str], expected: Sequence[str]) -> Iterator[Finding]:
    if unknown := [name for name in own if name not in expected]:
        what = f"the federation has no class {unknown[0]!r}{nearest(unknown[0], expected)}"
        yield Finding("error", what, "rename the class, or leave its images out")
    elif lacking := [name for name in expected if name not in own]:
        yield Finding("warning", f"no images of {', '.join(lacking)}", "right, if the site has none")
    else:
        yield Finding("ok", f"classes are the federation's: {', '.join(own)}")


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
