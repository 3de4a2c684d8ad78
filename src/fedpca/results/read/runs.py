"""Run folders as values."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fedpca.data.known import noise_words, others_words, truth_source, truth_words
from fedpca.errors import RunError, SettingsError
from fedpca.methods.define import FAMILIES
from fedpca.methods.identify import IdentifySettings
from fedpca.methods.registry import METHODS, known_names
from fedpca.results.read.metrics import in_tables
from fedpca.runs.check import read_stored, stored_facts
from fedpca.runs.folder import ABOUT, ROUNDS, SETTINGS, About, RoundLine, is_run, read_about, read_rounds
from fedpca.settings.experiment import Experiment
from fedpca.settings.names import DROP
from fedpca.settings.toml import flatten

IN_EVERY_TITLE = {"rounds"}


@dataclass(frozen=True)
class Run:
    """One method and seed: its settings, what it works on, and its rounds so far."""

    folder: Path
    settings: Experiment
    about: About
    rounds: Sequence[RoundLine]
    varied: frozenset[str] = frozenset()  # settings in which other runs of its method differ: `with_differences`
    distinguishing: tuple[str, ...] = ()  # dotted settings in which the scenarios shown together differ: the same

    @property
    def method(self) -> str:
        """The method's name."""
        return self.settings.methods[0]

    @property
    def seed(self) -> int:
        """The training seed."""
        return self.settings.seeds[0]

    @property
    def accuracy(self) -> str:
        """The metric that everything shows: the one that `evaluation.accuracy` chose."""
        return self.settings.evaluation.accuracy

    @property
    def is_done(self) -> bool:
        """Whether all rounds were played."""
        return len(self.rounds) >= self.settings.rounds

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The method's summary, family and defaults, and whether it judges clients, as the run folder has them."""
        found: dict[str, Any] = self.about.get("method") or stored_facts(self.settings)
        return found

    @property
    def family(self) -> str:
        """The family that the method stands with in tables and figures."""
        return self.facts["family"] if self.facts["family"] in FAMILIES else "outside"

    @property
    def identify(self) -> IdentifySettings | None:
        """How the method compares suspicions with a threshold; None if it judges in another way, or nobody."""
        tables = self.settings.method
        rules = [own["identify"] for name, own in tables.items() if "identify" in own and _is_own(name)]
        others = [name for name in METHODS.own.keys() & tables.keys() if "identify" not in tables[name]]
        if len(rules) != 1 or any(METHODS.own[name].judges for name in others):
            return None
        return IdentifySettings.model_validate(rules[0])

    def scenario(self, but: Collection[str] = ()) -> str:
        """What must be equal for two runs to stand in one table: all but method, seed, device and saved features.

        Where scenarios stand beside each other, also `but` the settings, by their first names, in which they differ.
        """
        evaluation = self.settings.evaluation.model_copy(update={"features": 0})
        same = {"methods": ("-",), "seeds": (0,), "method": {}, "device": "cpu", "evaluation": evaluation}
        same |= {name: Experiment.model_fields[name].get_default(call_default_factory=True) for name in but}
        return self.settings.model_copy(update=same).model_dump_json()

    def distinction(self) -> dict[str, object]:
        """The settings that tell its scenario from the others shown with it, under dotted keys; None is "not set"."""
        table = _flat_scenario(self) if self.distinguishing else {}
        return {key: table.get(key) for key in self.distinguishing}

    def given(self) -> dict[str, object]:
        """The method's settings; nested ones with dotted names."""
        return self._settings(lambda table: self.settings.method.get(table, {}))

    def named(self) -> dict[str, object]:
        """The method's settings that differ from its defaults, or from those of other runs."""
        default = self._settings(lambda table: self.facts["defaults"].get(table, {}))
        given = self.given().items()
        return {key: value for key, value in given if key in self.varied or value != default.get(key)}

    def _settings(self, of: Callable[[str], Mapping[str, object]]) -> dict[str, object]:
        return {
            key if table == self.method else f"{table}.{key}": value
            for table in self.settings.method
            for key, value in flatten(of(table)).items()
        }

    def label(self) -> str:
        """The method's name, with its settings where they tell it from its defaults or from other runs."""
        named = ", ".join(f"{key}={value}" for key, value in self.named().items())
        return f"{self.method} ({named})" if named else self.method

    def rank(self) -> tuple[int, list[str | float]]:
        """The order of the list of methods, then that of the settings, numbers by their size."""
        parts = re.split(r"(\d+\.?\d*)", self.label())  # text, number, text, number, …
        return [*known_names(), self.method].index(self.method), [float(p) if i % 2 else p for i, p in enumerate(parts)]

    def last(self, metric: str | None = None) -> dict[str, list[float]]:
        """A metric, by default the accuracy, of each test group over the last tested rounds.

        A site that missed one of these rounds is left out.
        """
        last, name = self._last_tested(), metric or self.accuracy
        always = [group for group in (last[0] if last else {}) if all(group in groups for groups in last)]
        return {group: [groups[group][name] for groups in last] for group in always}

    def metrics(self) -> list[str]:
        """The metrics of the tables that all test groups have in the last tested rounds."""
        scores = [scores for groups in self._last_tested() for scores in groups.values()]
        return [name for name in (scores[0] if scores else {}) if in_tables(name) and all(name in s for s in scores)]

    def _last_tested(self) -> list[dict[str, dict[str, float]]]:
        tested = [line["groups"] for line in self.rounds if line["groups"]]
        return tested[-self.settings.evaluation.last_rounds :]

    def scene(self) -> str:
        """What the run works on, in one line."""
        about, noise = self.about, self.settings.noise
        text = f"{about['dataset']}, {len(about['clients']['id'])} clients"
        if about.get("rare"):
            text += f", {len(about['rare'])} rare"
        if about.get("mislabeled"):
            share = f" ({noise_words(noise)})" if about.get("truth") != "column" else ""
            text += f", {len(about['mislabeled'])} mislabeled{share}"
        if words := others_words(noise):
            text += f", others ({words})"
        held_out = ", on validation images" if self.settings.evaluation.on == "validation" else ""
        return f"{text}{self.truth_words()}, {self.settings.rounds} rounds{held_out}"

    def truth_words(self) -> str:
        """What the truth rests on, after a comma; nothing for known datasets, nor where nobody knows the truth."""
        if self.about.get("truth") not in ("assumed", "column"):
            return ""
        words = truth_words(self.settings.data, self.settings.noise)
        return f", {words}" if words else ""


def _is_own(table: str) -> bool:
    """Whether a table holds settings of this package: those of its methods, or of `X+d`."""
    return table in METHODS.own or table.endswith(DROP)


def name_of(runs: Sequence[Run]) -> str:
    """The experiment's name, with that of its setting where all these runs are of one."""
    settings = {run.about.get("setting") for run in runs}
    only = settings.pop() if len(settings) == 1 else None
    return f"{runs[0].settings.name}, {only}" if only else runs[0].settings.name


def title(runs: Sequence[Run]) -> str:
    """The scenario of these runs in one line."""
    return f"{name_of(runs)}: {runs[0].scene()}{distinction_words(runs[0].distinction())}"


def distinction_words(settings: Mapping[str, object]) -> str:
    """What follows a scenario's title: the settings that tell it from others, but for what every title has."""
    others = {key: value for key, value in settings.items() if key not in IN_EVERY_TITLE}
    words = [f"{key} not set" if value is None else f"{key}={value}" for key, value in others.items()]
    return f"; {', '.join(words)}" if words else ""


def by_scenario(runs: Sequence[Run], but: Collection[str] = ()) -> list[list[Run]]:
    """Runs that may stand in one table, together; scenarios in the order in which they first occur.

    Scenarios that differ only in the settings `but` count as one.
    """
    scenarios: dict[str, list[Run]] = {}
    for run in runs:
        scenarios.setdefault(run.scenario(but), []).append(run)
    return list(scenarios.values())


def _to_stderr(words: str) -> None:
    print(words, file=sys.stderr)


def find_runs(folders: Sequence[Path], warn: Callable[[str], None] = _to_stderr) -> list[Run]:
    """Every run below these folders that has tested at least one round, in the order of their paths.

    A run folder that cannot be read is named by `warn` and passed over. If none is left, that is an error.
    """
    paths = {found.parent for folder in folders for found in _check_folder(folder).rglob(ROUNDS)}
    errors: list[str] = []
    runs = [run for run in read_runs(filter(_is_begun, sorted(paths)), errors) if run.last()]
    if not runs:
        listed = ", ".join(str(folder) for folder in folders)
        none = f"no run with a tested round below {listed}; `fedpca run` makes them"
        raise RunError("\n".join((*errors, none)))
    for error in errors:
        warn(f"passed over: {error}")
    return with_differences(_refuse_twins(runs))


def read_runs(folders: Iterable[Path], errors: list[str]) -> Iterator[Run]:
    """These run folders; what is wrong with those that cannot be read goes to `errors`."""
    for folder in folders:
        try:
            yield read_run(folder)
        except RunError as error:
            errors.append(str(error))


def with_differences(runs: Sequence[Run]) -> list[Run]:
    """The same runs, each knowing which settings of its method, and of the scenarios, are not the same in all of them.

    A setting that only some of them have counts as one that differs.
    """
    given: dict[str, list[dict[str, object]]] = {}
    for run in runs:
        given.setdefault(run.method, []).append(run.given())
    varied = {method: frozenset(_differing(tables)) for method, tables in given.items()}
    scenarios = tuple(_differing([_flat_scenario(members[0]) for members in by_scenario(runs)]))
    return [replace(run, varied=varied[run.method], distinguishing=scenarios) for run in runs]


def _differing(tables: Sequence[Mapping[str, object]]) -> list[str]:
    """The keys whose values are not the same in all tables, in the tables' order."""
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({repr(table.get(key)) for table in tables}) > 1]


def _flat_scenario(run: Run) -> dict[str, object]:
    """The settings of a run's scenario under dotted keys, without the experiment's name: every title begins with it."""
    return {key: value for key, value in flatten(json.loads(run.scenario())).items() if key != "name"}


def _refuse_twins(runs: list[Run]) -> list[Run]:
    """The same runs, if none is there twice: it would count as another seed."""
    seen: dict[str, Path] = {}
    for run in runs:
        key = run.settings.model_dump_json()
        if key in seen:
            raise RunError(f"{seen[key]} and {run.folder} hold the same run (settings and seed): name only one of them")
        seen[key] = run.folder
    return runs


def read_run(folder: Path) -> Run:
    """One run folder; a line that is still being written is passed over."""
    try:
        settings = read_stored(folder / SETTINGS)
    except SettingsError as error:
        raise RunError(f"the run folder {folder} cannot be read: {error}") from None
    about, rounds = read_about(folder), read_rounds(folder)
    _check_entries(folder, f"{ABOUT} has", about, ("dataset", "clients"))
    _check_entries(folder, f"clients of {ABOUT} has", about["clients"], ("id",))
    for line in rounds:
        require_round(folder, line)
    return Run(folder, settings, _known(about, settings), rounds)


def require_round(folder: Path, line: RoundLine) -> None:
    """Refuses a line of the record that lacks what everybody reads."""
    place = f"a line of {ROUNDS}, round {line.get('round')!s:.20},"
    _check_entries(folder, f"{place} has", line, ("round", "groups", "clients"))
    _check_entries(folder, f"clients in {place} has", line["clients"], ("id",))


def _check_entries(folder: Path, what: str, found: object, keys: Sequence[str]) -> None:
    lacking = [key for key in keys if not isinstance(found, dict) or key not in found]
    if lacking:
        raise RunError(f"the run folder {folder} cannot be read: {what} no {lacking[0]!r}")


def _is_begun(folder: Path) -> bool:
    """Whether a folder holds a run; one without a round may still be writing its first files."""
    return is_run(folder) or (folder / ROUNDS).stat().st_size > 0


def _known(about: About, settings: Experiment) -> About:
    """What is known of the run; earlier versions wrote down that nobody of a user's own data is mislabeled."""
    if about.get("truth") or truth_source(settings.data, settings.noise) != "unknown":
        return about
    clients = {name: column for name, column in about["clients"].items() if name != "wrong_labels"}
    left = {key: value for key, value in about.items() if key != "mislabeled" and (key != "rare" or value)}
    return cast("About", {**left, "clients": clients})


def _check_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}")
    return folder
