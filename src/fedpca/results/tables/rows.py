"""What was measured: one row per method, one table per scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fedpca.methods.define import FAMILIES
from fedpca.methods.registry import known_names
from fedpca.results.read.attacks import AttackScores, attack_scores
from fedpca.results.read.groups import GroupScores, group_scores, uncounted_groups
from fedpca.results.read.judgements import Judgements, judgements
from fedpca.results.read.metrics import metric_head
from fedpca.results.read.runs import Run, by_scenario, distinction_words, title
from fedpca.runs.scores import Headline, Spread, fairness_robustness, headline, spread
from fedpca.settings.experiment import Experiment

if TYPE_CHECKING:
    from fedpca.results.tables.against import Against
    from fedpca.results.tables.paper import PaperNumbers

Deviation = Literal["rounds", "seeds"]  # over the last rounds of all seeds together, or over the seeds


@dataclass(frozen=True)
class Row:
    """One method in one scenario, over its seeds."""

    method: str  # with the settings that tell it from its defaults or from other rows
    name: str
    category: str  # heading of its family
    scores: Mapping[str, Headline]  # of each recorded metric, in percent
    weight: float | None  # w_r (1 - w_m); None for rules without weights, and where nobody is known to be rare
    judged: Judgements | None  # None for methods that judge nobody
    seeds: int
    unfinished: int  # runs that are still under way
    replanned: int  # runs that went on with another number of rounds, which their method depends on
    groups: GroupScores  # the accuracy in each test group
    attack: AttackScores | None = None  # where anybody attacks


@dataclass(frozen=True)
class Results:
    """All methods in one scenario."""

    title: str
    groups: tuple[str, ...]
    rows: tuple[Row, ...]
    scenario: str  # what all runs have in common, as JSON
    settings: Experiment  # of one of the runs
    dataset: str
    clients: int
    rare: int | None  # None where the truth is not known
    mislabeled: tuple[str, ...] | None
    distinction: Mapping[str, object]  # the settings that tell it from the scenarios shown with it, dotted
    deviation: Deviation = "rounds"
    uncounted: Mapping[str, str] = field(default_factory=dict)  # test groups that are too small to count, and why
    classes: tuple[str, ...] = ()
    published: PaperNumbers | None = None  # what the paper has, if asked for
    against: Against | None = None  # each method's gain over one of them, if asked for

    @property
    def accuracy(self) -> str:
        """The metric that `evaluation.accuracy` chose."""
        return self.settings.evaluation.accuracy


@dataclass(frozen=True)
class Score:
    """One column of the tables."""

    head: str
    of: Callable[[Row], Spread | float | None]
    digits: int = 2
    best: Literal["most", "least"] | None = None
    is_spread: bool = False  # a mean with its deviation, in percent


WEIGHT = "w_r_times_not_w_m"
OVER_GROUPS: dict[str, tuple[str, Literal["most", "least"]]] = {  # in the names of scores: head, and what is best
    "worst": ("worst", "most"),
    "average": ("average", "most"),
    "std": ("STD", "least"),
}


def _judged(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.judged, name) if row.judged else None


OTHERS = {  # scores that are not of a metric
    WEIGHT: Score("w_r(1-w_m)", lambda row: row.weight, digits=4, best="most"),
    "precision": Score("precision", _judged("precision")),
    "recall": Score("recall", _judged("recall")),
    "f1": Score("F1", _judged("f1")),
    "accused_common": Score("wrong common", _judged("accused_common"), digits=1),
    "accused_rare": Score("wrong rare", _judged("accused_rare"), digits=1),
}


def _attacked(name: str) -> Callable[[Row], float | None]:
    return lambda row: getattr(row.attack, name) if row.attack else None


ATTACKED = {  # scores of runs under attack
    "backdoor_success": Score("backdoor", _attacked("success"), digits=1, best="least"),
    "attackers_weight": Score("attackers' weight", _attacked("weight"), best="least"),
    "attackers_largest_weight": Score("largest weight", _attacked("largest_weight"), best="least"),
    "attackers_judged": Score("attackers judged", _attacked("judged"), best="most"),
    "attackers_left_out": Score("attackers left out", _attacked("left_out"), best="most"),
    "attackers_bounded": Score("attackers bounded", _attacked("bounded")),
    "innocents_judged": Score("innocents judged", _attacked("innocents_judged"), digits=1, best="least"),
}


def names_of(metrics: Sequence[str], kinds: Sequence[str] = tuple(OVER_GROUPS)) -> list[str]:
    """The names of these metrics' scores over the test groups, such as worst_acc."""
    return [f"{kind}_{metric}" for metric in metrics for kind in kinds]


def score_of(name: str) -> Score:
    """The score of this name: worst, average or std of a metric, or one of the others."""
    if name in OTHERS or name in ATTACKED:
        return {**OTHERS, **ATTACKED}[name]
    kind, _, metric = name.partition("_")
    head, best = OVER_GROUPS[kind]

    def of(row: Row) -> Spread | None:
        return getattr(row.scores[metric], kind) if metric in row.scores else None

    return Score(f"{head} {metric_head(metric)}", of, best=best, is_spread=True)


def tabulate(runs: Sequence[Run], deviation: Deviation = "rounds") -> list[Results]:
    """One table per scenario, rows by family and in the order of the list of methods; scores in percent."""
    return [_results(members, deviation) for members in by_scenario(runs)]


def place(row: Row) -> tuple[int, int]:
    """Where a row stands: by family, then as in the list of methods."""
    return [*FAMILIES.values()].index(row.category), [*known_names(), row.name].index(row.name)


def common_title(scenarios: Sequence[Results]) -> str:
    """What these scenarios have in common; the title of the one, where there is no other."""
    if len(scenarios) == 1:
        return scenarios[0].title
    first = scenarios[0]
    rare = f", {first.rare} rare" if first.rare else ""
    held_out = ", on validation images" if first.settings.evaluation.on == "validation" else ""
    shared = {
        key: value
        for key, value in first.distinction.items()
        if all(results.distinction.get(key) == value for results in scenarios)
    }
    words = distinction_words(shared)
    return f"{first.dataset}, {first.clients} clients{rare}, {first.settings.rounds} rounds{held_out}{words}"


def _results(runs: Sequence[Run], deviation: Deviation) -> Results:
    by_label: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=Run.rank):
        by_label[run.label()].append(run)
    rows = sorted((_row(label, members, deviation) for label, members in by_label.items()), key=place)
    first = runs[0]
    rare, mislabeled = first.about.get("rare"), first.about.get("mislabeled")
    return Results(
        title(runs),
        tuple(first.last()),
        tuple(rows),
        first.scenario(),
        first.settings,
        first.about["dataset"],
        clients=len(first.about["clients"]["id"]),
        rare=None if rare is None else len(rare),
        mislabeled=None if mislabeled is None else tuple(mislabeled),
        distinction=first.distinction(),
        deviation=deviation,
        uncounted=uncounted_groups(runs),
        classes=tuple(first.about.get("classes", ())),
    )


def _row(label: str, runs: Sequence[Run], deviation: Deviation) -> Row:
    known = [run.rounds for run in runs if run.about.get("rare") and all(line["weights"] for line in run.rounds)]
    products = [fairness_robustness([line["weights"] or {} for line in lines]) for lines in known]
    return Row(
        label,
        runs[0].method,
        FAMILIES[runs[0].family],
        {metric: _pooled(runs, metric, deviation) for metric in _common_metrics(runs)},
        weight=spread(products).mean if products else None,
        judged=judgements(runs),
        seeds=len(runs),
        unfinished=sum(not run.is_done for run in runs),
        replanned=sum(bool(run.about.get("earlier_plans")) for run in runs),
        groups=group_scores(runs),
        attack=attack_scores(runs),
    )


def _common_metrics(runs: Sequence[Run]) -> list[str]:
    return [metric for metric in runs[0].metrics() if all(metric in run.metrics() for run in runs)]


def _pooled(runs: Sequence[Run], metric: str, deviation: Deviation) -> Headline:
    """The headline over the last rounds of every seed together, with deviations as asked for."""
    pooled: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for group, values in run.last(metric).items():
            pooled[group] += [100 * value for value in values]
    if deviation == "rounds":
        return headline(pooled)
    return headline(pooled, [len(next(iter(run.last(metric).values()))) for run in runs])
