"""An experiment's settings: one TOML file, read into frozen values, with errors that say what to change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, cast

import tomli_w
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from fedpca.errors import SettingsError, nearest
from fedpca.settings.base import Count, Device, NonNegative, Positive, Settings, Share
from fedpca.settings.catalogue import Augmentation
from fedpca.settings.names import entry, parse

Table = dict[str, object]  # what a TOML table holds
NAME = r"^\w[\w .,+=-]*$"  # of an experiment and of a setting: both name folders
IMAGENET = Path("imagenet")  # as `model.weights`: those published for the model
PLAIN = {  # pydantic's words for Python's types, in TOML's
    "tuple_type": 'input should be a list, such as ["fedavg"]',
    "model_type": "input should be a table",
    "dict_type": "input should be a table",
    "string_pattern_mismatch": "input should be letters, digits, spaces and . , + = - _, since it names a folder",
}
Shares = Annotated[  # a list of shares, or one
    tuple[Share, ...], BeforeValidator(lambda came: came if isinstance(came, list | tuple) else [came])
]


class DataSettings(Settings):
    """Which images, and how they are spread over the clients."""

    dataset: str = "digits"
    clients: Count | None = None  # given by the data when the split is by column or by sizes
    split: Literal["iid", "dirichlet", "column", "sizes"] = "iid"
    alpha: Positive = 2.0  # of the Dirichlet split: small is uneven
    least: Count | None = None  # images per client of the Dirichlet split; two batches if not given and possible
    column: str | None = None  # whose values are the clients, for split = "column"
    sizes: tuple[Count, ...] | None = None  # images per client, for split = "sizes"
    seed: int = 0  # of split, corruption and label noise: the same federation for every training seed
    train_images: Count | None = None  # use only so many, drawn at random; all if not given
    test_images: Count | None = None
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of data that come without a test part
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of the training images of each class, set aside
    image_column: str = "image"
    label_column: str = "label"
    image_root: Path | None = None  # where the paths of a CSV start; the CSV's own folder if not given
    image_size: Annotated[int, Field(ge=4)] | None = None  # images are resized to this square when decoded

    @model_validator(mode="after")
    def _split_has_what_it_needs(self) -> DataSettings:
        needed = {"iid": "clients", "dirichlet": "clients", "column": "column", "sizes": "sizes"}[self.split]
        if getattr(self, needed) is None:
            raise ValueError(f"split = {self.split!r} needs data.{needed}")
        if self.split == "sizes" and self.clients not in (None, len(self.sizes or ())):
            raise ValueError(f"data.clients = {self.clients}, but data.sizes lists {len(self.sizes or ())} clients")
        return self


class RareSettings(Settings):
    """Which clients hold corrupted images, and how those are corrupted."""

    share: Share = 0.0  # of all clients
    corruption: str = "gaussian_noise"  # one of `fedpca list corruptions`, or package.module:name
    severity: Annotated[int, Field(ge=1, le=5)] = 3
    table: Literal["imagenet", "cifar"] = "imagenet"  # whose published constants a severity stands for
    sigma: NonNegative | None = None  # in place of table and severity; noise and Gaussian blur only
    clean: Shares = (0.0,)  # of a rare client's images stay clean: one share for all of them, or one each


class NoiseSettings(Settings):
    """Which clients have wrong labels, and how many."""

    clients: Share = 0.0  # rho: share of all clients
    labels: Share = 0.0  # eta: share of each such client's labels
    mode: Literal["exclusive", "inclusive"] = "exclusive"  # exact count and never the true class, or each by chance
    kind: str = "symmetric"  # any other class; pair: the next one; or package.module:name
    where: Literal["common", "anywhere", "evenly"] = "common"  # who may be mislabeled; evenly: of both kinds alike

    @model_validator(mode="after")
    def _both_or_neither(self) -> NoiseSettings:
        if (self.clients > 0) != (self.labels > 0):
            raise ValueError(f"noise.clients = {self.clients} and noise.labels = {self.labels}: give both, or neither")
        return self


class ModelSettings(Settings):
    """The network; its name, or `package.module:function` of your own."""

    name: str = "cnn-small"
    weights: Path | None = None  # .safetensors or torchvision's .pth to start from; "imagenet": the published ones
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")] | None = None  # of that file
    backbone: str | None = None  # frozen, with ImageNet weights: the model is trained on its features
    backbone_size: Annotated[int, Field(ge=32)] = 224  # side of the square that images are resized to for it

    @model_validator(mode="after")
    def _hash_is_of_a_file(self) -> ModelSettings:
        if self.sha256 and not self.weights:
            raise ValueError("model.sha256 is that of the file model.weights, which is not given")
        return self


class TrainingSettings(Settings):
    """What every client does with the samples it trains on."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive = 0.03
    momentum: Share = 0.9  # of SGD
    weight_decay: NonNegative = 5e-4
    batch: Annotated[int, Field(ge=2)] = 64
    epochs: Count = 1
    augment: Augmentation = "none"
    logit_adjustment: bool = False  # cross-entropy of f(x) + log of each class's share among the client's labels


class EvaluationSettings(Settings):
    """When and how the global model is tested."""

    every: Count = 1  # rounds; the last `last_rounds` are always tested
    last_rounds: Count = 5  # over which results are averaged
    on: Literal["test", "validation"] = "test"  # images of the test part, or those of data.validation_share
    accuracy: str = "acc"  # the metric that everything shows as accuracy, such as bacc: the mean over the classes
    features: Annotated[int, Field(ge=0)] = 0  # images per client whose features are saved at the end; 0: none


class Experiment(Settings):
    """Everything that determines an experiment's numbers."""

    name: Annotated[str, Field(pattern=NAME)] = "experiment"  # also of its folder
    rounds: Count = 60
    methods: tuple[str, ...] = ("fedavg",)
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1, 2)
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0  # share of the clients that take part in a round
    checkpoint_every: Count = 1  # rounds
    device: Device = "cpu"  # where models are trained
    data: DataSettings = DataSettings(clients=20)
    rare: RareSettings = RareSettings()
    noise: NoiseSettings = NoiseSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    method: dict[str, Table] = Field(default_factory=dict)  # [method.NAME]: settings of one method

    @field_validator("methods", "seeds")
    @classmethod
    def _something_once(cls, values: tuple[object, ...]) -> tuple[object, ...]:
        if not values or len(set(values)) < len(values):
            raise ValueError("needs at least one entry, and none twice")
        return values

    @model_validator(mode="after")
    def _validation_has_images(self) -> Experiment:
        if self.evaluation.on == "validation" and self.data.validation_share == 0:
            raise ValueError('evaluation.on = "validation" needs a data.validation_share above 0, such as 0.1')
        return self

    @model_validator(mode="after")
    def _features_are_no_images(self) -> Experiment:
        if self.model.backbone and self.training.augment != "none":
            came = f"training.augment = {self.training.augment!r}"
            raise ValueError(f'{came}, but with model.backbone clients have no images to change: set it to "none"')
        return self

    def settings_of(self, method: str) -> Settings:
        """The settings of one method, checked, with its defaults for what the file does not say."""
        return entry(method).settings.model_validate(self.method.get(method, {}))

    def complete(self) -> Experiment:
        """The same experiment with every method's settings spelled out, as a run folder stores it."""
        names = dict.fromkeys(table for name in self.methods for table in parse(name).tables())
        tables = {name: self.settings_of(name).model_dump(mode="json", exclude_none=True) for name in names}
        return self.model_copy(update={"method": tables})

    def cell(self, method: str, seed: int) -> Experiment:
        """The part of the experiment that one run folder holds: one method, one seed."""
        return self.model_copy(update={"methods": (method,), "seeds": (seed,)}).complete()


def read_experiment(path: Path, changes: Sequence[str] = ()) -> Experiment:
    """The settings in a file, with `key=value` changes on top; its name is the file's unless it gives one."""
    settings = read_settings(path, changes)
    if "" not in settings:
        raise SettingsError(f"{path} holds several settings ({', '.join(settings)}): read_settings reads them")
    return settings[""]


def read_settings(path: Path, changes: Sequence[str] = (), only: Sequence[str] = ()) -> dict[str, Experiment]:
    """What a file holds, by name: each `[setting.NAME]` over the rest of the file, changes on top; `only` those named.

    A file without such tables holds one experiment, named "".
    """
    table = {"name": path.stem, **_parsed(path)}
    tables = _chosen(_setting_tables(table.pop("setting", None), str(path)), only, str(path))
    settings = {}
    for name, own in tables.items():
        whole = deepcopy(_merged(table, own))
        for change in changes:
            _apply(change, whole)
        settings[name] = check_experiment(whole, f"{path}, setting {name!r}" if name else str(path))
    _refuse_twins(settings, str(path))
    return settings


def _parsed(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"there is no settings file {path}") from None
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None


def _setting_tables(found: object, source: str) -> dict[str, Table]:
    """The `[setting.NAME]` tables by name; one without changes, named "", for a file that has none."""
    if found is None:
        return {"": {}}
    if not isinstance(found, dict) or not found:
        raise SettingsError(f'{source}: setting: needs tables such as [setting."rho=.2 eta=1"] (came: {found!r})')
    for name, own in found.items():
        where = f"{source}, setting {name!r}"
        if not re.fullmatch(NAME, name):
            raise SettingsError(f"{where}: its name {PLAIN['string_pattern_mismatch'].removeprefix('input ')}")
        if not isinstance(own, dict):
            raise SettingsError(f"{where}: {PLAIN['dict_type']} (came: {own!r})")
        if fixed := [key for key in ("name", "setting") if key in own]:
            raise SettingsError(f"{where}: a setting may change anything but name and setting: remove {fixed[0]!r}")
    return found


def _chosen(tables: dict[str, Table], only: Sequence[str], source: str) -> dict[str, Table]:
    """The tables of these names, or all without a name, in the file's order."""
    for name in only:
        if name not in tables or not name:
            there = [known for known in tables if known]
            none = "" if there else "; it has none, so leave --setting out"
            raise SettingsError(f"{source}: there is no setting {name!r}{nearest(name, there)}{none}")
    return {name: own for name, own in tables.items() if not only or name in only}


def _merged(below: Table, above: Table) -> Table:
    """Both tables in one, deeply; where both have a value, that of `above`."""
    both = dict(below)
    for key, value in above.items():
        under = both.get(key)
        both[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both


def _refuse_twins(settings: Mapping[str, Experiment], source: str) -> None:
    """Refuses a run that two settings hold: in a table it would count as another seed."""
    holders: dict[str, str] = {}
    for name, experiment in settings.items() if len(settings) > 1 else ():
        for method, seed in product(experiment.methods, experiment.seeds):
            run = experiment.cell(method, seed).model_dump_json()
            if run in holders:
                raise SettingsError(
                    f"{source}: the settings {holders[run]!r} and {name!r} hold the same run, {method} seed {seed}: "
                    "take the method out of one of them, or choose one with --setting"
                )
            holders[run] = name


def check_experiment(table: Table, source: str) -> Experiment:
    """Settings from a plain table; an error names `source`."""
    try:
        experiment = Experiment.model_validate(table)
    except ValidationError as error:
        raise _refusal(source, Experiment, error) from None
    for name in (*experiment.methods, *experiment.method):
        try:
            entry(name)
        except SettingsError as error:
            raise SettingsError(f"{source}: {error}") from None
    for name in dict.fromkeys(
        (*experiment.method, *(table for m in experiment.methods for table in parse(m).tables()))
    ):
        _check_settings(experiment, name, source)
    return experiment


def _check_settings(experiment: Experiment, name: str, source: str) -> None:
    """Refuses settings of a method that are wrong, or of one that is to run and would never come out of its warm-up."""
    try:
        warmup = getattr(experiment.settings_of(name), "warmup", 0)
    except ValidationError as error:
        raise _refusal(source, entry(name).settings, error, prefix=("method", name)) from None
    running = [method for method in experiment.methods if name in parse(method).tables()]
    if running and warmup and warmup >= experiment.rounds:
        raise SettingsError(
            f"{source}: rounds = {experiment.rounds}, but {name} warms up for {warmup}, so that it would be FedAvg: "
            f"play more rounds, or set method.{name}.warmup lower"
        )


def write_experiment(experiment: Experiment) -> str:
    """Settings as TOML that `read_experiment` reads back to an equal value; what is None is left out."""
    return tomli_w.dumps(experiment.model_dump(mode="json", exclude_none=True))


def leaves(table: Mapping[str, object], prefix: str = "") -> Table:
    """The values of nested tables under dotted keys."""
    flat: Table = {}
    for key, value in table.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _apply(change: str, table: Table) -> None:
    """Sets one `a.b=c` in place; c is read as TOML and, failing that, as a plain string."""
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise SettingsError(f"--set {change!r}: write it as key=value, such as --set noise.clients=0.4")
    *path, last = _path(key.strip())
    for part in path:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"--set {change!r}: {part!r} is a value, not a table")
        table = inner
    try:
        table[last] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = text.strip()


def _path(key: str) -> list[str]:
    """The parts of a dotted key; those with dots of their own are quoted, as in TOML."""
    try:
        inner: object = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:  # a bare fedavg+d is no TOML, but plain enough
        return key.split(".")
    path = []
    while isinstance(inner, dict):
        part, inner = next(iter(inner.items()))
        path.append(part)
    return path


def _refusal(source: str, root: type[Settings], error: ValidationError, prefix: tuple[str, ...] = ()) -> SettingsError:
    """All faults of a settings table in one message, a line each."""
    lines = [_explain(root, details, prefix) for details in error.errors()]
    return SettingsError("\n".join(f"{source}: {line}" for line in lines))


def _explain(root: type[Settings], details: ErrorDetails, prefix: tuple[str, ...]) -> str:
    place = tuple(str(part) for part in details["loc"])
    key = ".".join((*prefix, *place))
    if details["type"] != "extra_forbidden":
        reason = PLAIN.get(details["type"]) or details["msg"].removeprefix("Value error, ")
        return f"{key}: {reason[0].lower() + reason[1:]} (came: {details['input']!r})" if place else reason
    allowed = _keys(root, place[:-1])
    table = ".".join((*prefix, *place[:-1]))
    where = f"[{table}]" if table else "the file's top level"
    listed = ", ".join(allowed) if allowed else "no key at all"
    close = nearest(place[-1], allowed).partition(";")[0]
    return f"unknown key {key!r}{close}; {where} takes {listed}"


def _keys(root: type[Settings], place: Sequence[str]) -> list[str]:
    for part in place:
        root = cast("type[Settings]", root.model_fields[part].annotation)
    return list(root.model_fields)
