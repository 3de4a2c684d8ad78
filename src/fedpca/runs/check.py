"""From a settings file to an experiment of which every name is known; one run of it, complete; its plan and method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from fedpca.core import Method
from fedpca.errors import SettingsError
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.methods.registry import METHODS, facts, known_facts, parse, settings_of, upgrade_tables
from fedpca.models.registry import check_model
from fedpca.runs.metrics import check_metric
from fedpca.settings.base import Table, rounded
from fedpca.settings.experiment import DataSettings, Experiment
from fedpca.settings.paths import resolve_paths
from fedpca.settings.toml import change, read_table, setting_tables, shorten, upgrade, validate


def read_experiment(path: Path, changes: Sequence[str] = ()) -> Experiment:
    """The settings in a file, with `key=value` changes on top; its name is the file's unless it gives one.

    >>> from pathlib import Path
    >>> from fedpca import read_experiment
    >>> read_experiment(Path("experiments/digits.toml"), ["rounds=15"]).rounds
    15
    """
    settings = read_settings(path, changes)
    if "" not in settings:
        raise SettingsError(f"{path} holds several settings ({', '.join(settings)}): read_settings reads them")
    return settings[""]


def read_settings(
    path: Path, changes: Sequence[str] = (), only: Sequence[str] = (), options: Mapping[str, str] | None = None
) -> dict[str, Experiment]:
    """What a file holds, by name: each `[setting.NAME]` over the rest of the file, changes on top; `only` those named.

    A file without such tables holds one experiment, named "". Paths in the file are relative to it, those in changes to
    the current folder. `options` are changes that messages call something else than `--set`.

    >>> from pathlib import Path
    >>> from fedpca import read_settings
    >>> list(read_settings(Path("experiments/digits.toml")))  # one experiment, without a name
    ['']
    """
    tables = setting_tables({"name": path.stem, **read_table(path)}, only, str(path))
    settings = {}
    for name, own in tables.items():
        table = resolve_paths(own, path.parent)
        source = f"{path}, setting {name!r}" if name else str(path)
        try:
            settings[name] = _changed(table, changes, source)
        except SettingsError as error:
            raise SettingsError(_name_changes(str(error), table, changes, source, options or {})) from None
    _refuse_twins(settings, str(path))
    return settings


def _changed(table: Table, changes: Sequence[str], source: str) -> Experiment:
    for text in changes:
        table = change(table, text)
    return check_experiment(table, source)


def _name_changes(message: str, table: Table, changes: Sequence[str], source: str, options: Mapping[str, str]) -> str:
    """The message with the changes named in each line that would not be there without them."""
    lines = message.splitlines()
    without = [(text, _error_lines(table, [*changes[:i], *changes[i + 1 :]], source)) for i, text in enumerate(changes)]
    plain = _error_lines(table, (), source)

    def named(line: str) -> str:
        guilty = [text for text, left in without if line not in left and left <= {*lines}]
        if not guilty and line not in plain and plain <= {*lines}:
            guilty = list(changes)
        said = " ".join(options.get(text, f"--set {shorten(text)}") for text in guilty)
        return f"{said} on top of {line}" if guilty and line.startswith(source) else line

    return "\n".join(map(named, lines))


def _error_lines(table: Table, changes: Sequence[str], source: str) -> set[str]:
    try:
        _changed(table, changes, source)
    except SettingsError as error:
        return set(str(error).splitlines())
    return set()


def read_stored(path: Path) -> Experiment:
    """The settings of a run folder, of an earlier version too; nothing that they name is looked up or imported."""
    table = upgrade(Experiment, read_table(path))
    methods, own = table.get("methods"), table.get("method")
    if isinstance(methods, list) and isinstance(own, dict):
        table["method"] = upgrade_tables(own)
    return validate(Experiment, table, str(path))


def check_experiment(table: Mapping[str, object], source: str) -> Experiment:
    """An experiment from a plain table, of which every name is known; an error names `source`."""
    from fedpca.data.corrupt import check_corruption  # here: sites import this module, and corrupt no images
    from fedpca.data.noise import check_noise
    from fedpca.simulate.attack.kinds import check_attack

    experiment = validate(Experiment, table, source)
    try:
        _check_split(experiment.data)
        check_model(experiment.model)
        check_corruption(experiment.rare)
        check_noise(experiment.noise)
        check_attack(experiment.attack)
        check_metric(experiment.evaluation.accuracy)
        _check_augmentation(experiment.training.augment)
        for name in (*experiment.methods, *experiment.method):
            facts(name)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None
    for name in experiment.methods:
        check_method(name, experiment.method, experiment.rounds, source)
    _check_own_models(experiment, source)
    for name in experiment.method.keys() - {own for method in experiment.methods for own in parse(method).tables()}:
        settings_of(name, name, experiment.method[name], source)
    return experiment


def _check_split(data: DataSettings) -> None:
    """Refuses a number of clients that nobody would look at; here, so that run folders that hold one stay readable."""
    if data.split == "column" and data.clients is not None:
        raise SettingsError(
            f"data.clients = {data.clients}, but split = 'column' takes its clients from the column {data.column!r}: "
            "leave data.clients out"
        )


def _check_augmentation(name: str) -> None:
    if name != "none":  # so that nobody else waits for PyTorch
        from fedpca.parts.client.augment import AUGMENTATIONS

        AUGMENTATIONS[name]


def _check_own_models(experiment: Experiment, source: str) -> None:
    """Refuses to look into a global model of methods that have none."""
    asked = [key for key, own in _OF_THE_MODEL.items() if own(experiment)]
    for name in experiment.methods if asked else ():
        for part in (METHODS[own] for own in parse(name).simple):
            if part.own_models:
                raise SettingsError(
                    f"{source}: {' and '.join(asked)} look at the one model that a run ends with, and {part.name} ends "
                    f"with one for each client: leave {part.name} or {' and '.join(asked)} out"
                )


_OF_THE_MODEL: Mapping[str, Callable[[Experiment], bool]] = {
    "evaluation.features": lambda experiment: experiment.evaluation.features > 0,
    "attack": lambda experiment: experiment.attack.is_on,
}


def check_method(name: str, tables: Mapping[str, Table], rounds: int, source: str) -> None:
    """Refuses settings of a method that are wrong, or with which it would never come out of its warm-up."""
    for table in parse(name).tables():
        warmup = getattr(settings_of(table, name, tables.get(table, {}), source), "warmup", 0)
        if warmup and warmup >= rounds:
            raise SettingsError(
                f"{source}: rounds = {rounds}, but {table} warms up for {warmup}, so that it would be FedAvg: "
                f"play more rounds, or set method.{table}.warmup lower"
            )


def _refuse_twins(settings: Mapping[str, Experiment], source: str) -> None:
    """Refuses a run that two settings hold: in a table it would count as another seed."""
    holders: dict[str, str] = {}
    for name, experiment in settings.items() if len(settings) > 1 else ():
        for method, seed in product(experiment.methods, experiment.seeds):
            run = one_run(experiment, method, seed).model_dump_json()
            if run in holders:
                raise SettingsError(
                    f"{source}: the settings {holders[run]!r} and {name!r} hold the same run, {method} seed {seed}: "
                    "take the method out of one of them, or choose one with --setting"
                )
            holders[run] = name


def one_run(experiment: Experiment, method: str, seed: int) -> Experiment:
    """The part of an experiment that one run folder holds: one method, its settings spelled out, one seed."""
    own = {name: {**_oracle(experiment, name), **experiment.method.get(name, {})} for name in parse(method).tables()}
    tables = complete_tables(method, own)
    return experiment.model_copy(update={"methods": (method,), "seeds": (seed,), "method": tables})


def complete_tables(method: str, given: Mapping[str, Table]) -> dict[str, Table]:
    """A method's settings with every default spelled out."""
    own = {name: settings_of(name, method, given.get(name, {})) for name in parse(method).tables()}
    return {name: settings.model_dump(mode="json", exclude_none=True) for name, settings in own.items()}


def _oracle(experiment: Experiment, table: str) -> Table:
    """The number of mislabeled clients in a round, for the method that is told it, where the settings tell."""
    clients = client_count(experiment)
    key = METHODS[table].oracle if table in METHODS else ""
    if not key or clients is None:
        return {}
    return {key: rounded(experiment.noise.clients * max(1, rounded(experiment.participation * clients)))}


def facts_of(run: Experiment) -> Table:
    """What a run folder says of its method, so that whoever reads it needs none of the method's code."""
    name = run.methods[0]
    known = facts(name)
    defaults = {own: settings_of(own, name, _oracle(run, own)) for own in parse(name).tables()}
    return {
        "summary": known.summary,
        "family": known.family,
        "judges": known.judges,
        "defaults": {own: settings.model_dump(mode="json") for own, settings in defaults.items()},
    }


def stored_facts(run: Experiment) -> Table:
    """The same for a folder that does not say it; of a method of another package nothing is known."""
    if known_facts(run.methods[0]):
        return facts_of(run)
    return {"summary": "", "family": "outside", "judges": False, "defaults": {}}


def client_count(experiment: Experiment) -> int | None:
    """How many clients there are, where the settings say so."""
    return experiment.data.clients or len(experiment.data.sizes or ()) or None


def plan_of(experiment: Experiment) -> Plan:
    """What methods may know of an experiment.

    >>> from fedpca import Experiment, plan_of
    >>> plan_of(Experiment(rounds=5)).clients
    20
    """
    clients, seed = client_count(experiment), experiment.seeds[0]
    own = (experiment.rounds, experiment.training, experiment.participation, seed, clients)
    return Plan(*own, experiment.aggregation)


def method_of(experiment: Experiment, name: str = "") -> Method:
    """The experiment's method of this name, its first one if none is given, as its settings say.

    >>> from fedpca import Experiment, method_of
    >>> method_of(Experiment(methods=("fedavg", "median")), "median").name
    'median'
    """
    run = one_run(experiment, name or experiment.methods[0], experiment.seeds[0])
    return compose(run.methods[0], plan_of(run), run.method)
