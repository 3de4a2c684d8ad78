"""Each claim compared with runs: every single comparison, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from fedpca.results.claims.claims import Claim, Claims, Kind, read_claims
from fedpca.results.claims.scene import Scene, scenes
from fedpca.results.claims.values import LOWER_IS_BETTER, kind_means, values
from fedpca.results.read.differences import Difference, difference
from fedpca.results.read.runs import Run
from fedpca.results.read.sweeps import sweeps
from fedpca.results.tables.facts import Facts, read_facts
from fedpca.results.tables.rows import WEIGHT

Verdict = Literal["holds", "holds in part", "does not", "cannot be checked"]


@dataclass(frozen=True)
class Comparison:
    """One number that a claim speaks of, here and in the paper."""

    scenario: str
    what: str
    score: str
    ours: Difference
    holds: bool
    paper: float | None = None


@dataclass(frozen=True)
class Checked:
    """A claim, all of its comparisons, and why there are none."""

    claim: Claim
    comparisons: tuple[Comparison, ...]
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the comparisons add up to."""
        held = [comparison.holds for comparison in self.comparisons]
        if not held:
            return "cannot be checked"
        return "holds" if all(held) else "holds in part" if any(held) else "does not"


def check_claims(runs: Sequence[Run]) -> list[Checked]:
    """Every claim of the paper, checked on all scenarios of these runs."""
    facts, claims = read_facts(), read_claims()
    found = scenes(runs, facts)
    return [_check(claim, claims, found, facts) for claim in claims.claims]


def _check(claim: Claim, claims: Claims, found: Sequence[Scene], facts: Facts) -> Checked:
    asked = [scene for scene in found if scene.is_asked(claim)]
    comparisons = tuple(KINDS[claim.kind](claim, claims, asked))
    return Checked(claim, comparisons, "" if comparisons else _why_not(claim, asked, facts))


def _why_not(claim: Claim, asked: Sequence[Scene], facts: Facts) -> str:
    if claim.kind == "picture":
        return f"it is a picture: look at the figure {claim.figure}"
    if not asked and claim.only_without_noise:
        return "no runs of a federation in which it is known that nobody is mislabeled"
    if not asked:
        kinds = [*claim.studies, *(facts.datasets[key].title for key in claim.datasets)]
        return f"no runs of {', '.join(kinds)}" if kinds else "nobody is mislabeled in these runs"
    return LACKING[claim.kind].format(setting=claim.setting)


LACKING: Mapping[Kind, str] = {
    "compare": "no scenario has the methods that it compares, with a seed in common and these numbers",
    "rho": "no two scenarios that differ in rho alone have the method and its weights",
    "setting": "no method has runs with two values of {setting}, all else the same",
    "clients": "no run of these methods has clients of both kinds that report it",
    "found": "no run of these methods judges clients of whom it is known who is mislabeled",
    "std": "no method was tested",
    "share": "no such run has weights, and clients that are known to be rare or mislabeled",
}


def _compare(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    for scene in asked:
        for left, right in claim.pairs:
            for score in claim.scores:
                yield from _pair(claim, scene, (claims.members(left), claims.members(right)), score)


def _pair(claim: Claim, scene: Scene, sides: tuple[Sequence[str], Sequence[str]], score: str) -> Iterator[Comparison]:
    """One side's best method minus the other's, over the seeds of both."""
    sign = -1 if score in LOWER_IS_BETTER else 1
    ours = [{name: values(scene.methods[name], score) for name in side if name in scene.methods} for side in sides]
    paper = [{name: own[score] for name in side if score in (own := scene.paper.get(name, {}))} for side in sides]
    known = [{name: own for name, own in side.items() if own} for side in ours]
    if not all(known):
        return
    one, other = (max(side, key=lambda name: sign * fmean(side[name].values())) for side in known)
    gains = [known[0][one][seed] - known[1][other][seed] for seed in known[0][one].keys() & known[1][other].keys()]
    printed = None
    if all(paper):
        tops = [max(side.values(), key=lambda value: sign * value) for side in paper]
        printed = tops[0] - tops[1]
    if not gains or (claim.expect == "as-printed" and printed is None):
        return
    found = difference(gains)
    expected = (
        printed if claim.expect == "as-printed" and printed is not None else -1 if claim.expect == "below" else sign
    )
    holds = found.mean * expected > 0 or (claim.expect == "as-printed" and printed == 0)
    yield Comparison(scene.title, f"{one} minus {other}", score, found, holds, printed)


def _with_rho(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    """Each setting minus the one with the next smaller rho, where they differ in the noise alone."""
    alike: dict[tuple[object, ...], list[Scene]] = {}
    for scene in asked:
        alike.setdefault(_without_noise(scene), []).append(scene)
    for own in alike.values():
        for method in claim.methods:
            for score in claim.scores:
                ordered = sorted(
                    (s for s in own if method in s.methods), key=lambda s: s.results.settings.noise.clients
                )
                for before, after in pairwise(ordered):
                    yield from _step(claim, before, after, method, score)


def _without_noise(scene: Scene) -> tuple[object, ...]:
    settings = scene.results.settings
    return (settings.data.model_dump_json(), settings.rare.model_dump_json(), settings.rounds, settings.noise.where)


def _step(claim: Claim, before: Scene, after: Scene, method: str, score: str) -> Iterator[Comparison]:
    rho = [scene.results.settings.noise.clients for scene in (before, after)]
    sides = [values(scene.methods[method], score) for scene in (before, after)]
    if rho[0] == rho[1] or not all(sides):
        return
    found = difference([sides[1][seed] - sides[0][seed] for seed in sides[0].keys() & sides[1].keys()])
    printed = [scene.paper.get(method, {}).get(score) for scene in (before, after)]
    paper = None if printed[0] is None or printed[1] is None else printed[1] - printed[0]
    holds = found.mean > 0 if claim.expect == "above" else found.mean < 0
    yield Comparison(after.title, f"{method}, rho {rho[1]} minus {rho[0]}", score, found, holds, paper)


def _with_setting(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    for scene in asked:
        runs = [run for run in scene.runs if run.method in claim.methods]
        for label, sweep in sweeps(runs, claim.setting or "").items():
            for number, score in enumerate(claim.scores):
                yield from _sweep(claim, scene, label, sweep, number, score)


def _sweep(
    claim: Claim, scene: Scene, label: str, sweep: Mapping[float, Sequence[Run]], number: int, score: str
) -> Iterator[Comparison]:
    """The largest value's score minus the smallest's; how far all are apart, where they must be alike."""
    tables = {value: values(runs, score) for value, runs in sweep.items()}
    ends = min(tables), max(tables)
    if claim.within is not None:
        means = {value: fmean(own.values()) for value, own in tables.items() if own}
        ends = min(means, key=lambda v: means[v]), max(means, key=lambda v: means[v])
    seeds = tables[ends[0]].keys() & tables[ends[1]].keys()
    if not seeds:
        return
    found = difference([tables[ends[1]][seed] - tables[ends[0]][seed] for seed in seeds])
    holds = found.mean > 0 if claim.within is None else found.mean <= claim.within
    what = f"{label}, {claim.setting} {ends[1]:g} minus {ends[0]:g}"
    if claim.slower:
        slow = [values(sweep[end], claim.slower[number]) for end in ends]
        rise = difference([slow[1][seed] - slow[0][seed] for seed in seeds])
        holds, what = found.mean > rise.mean, f"{what} ({claim.slower[number]} {rise.mean:+.2f})"
    yield Comparison(scene.title, what, score, found, holds)


def _of_clients(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    for scene in asked:
        for method in (name for name in claim.methods if name in scene.methods):
            for quantity, more, less in claim.higher:
                means = [kind_means(run, quantity) for run in scene.methods[method]]
                gains = [own[more] - own[less] for own in means if more in own and less in own]
                if gains:
                    found = difference(gains)
                    yield Comparison(scene.title, f"{method}, {more} minus {less}", quantity, found, found.mean > 0)


def _found(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    for scene in asked:
        rows = {row.name: row for row in reversed(scene.results.rows)}
        for row in (rows[name] for name in claim.methods if name in rows):
            if row.judged and row.judged.f1 is not None and scene.results.mislabeled:
                f1 = Difference(row.judged.f1, None, None, None, row.seeds)
                yield Comparison(scene.title, row.name, "F1", f1, row.judged.f1 > 1 - 1e-9, 1.0)


def _std(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    for scene in asked:
        for method, runs in scene.methods.items():
            worst, average, std = (values(runs, f"{kind}_acc") for kind in ("worst", "average", "std"))
            if worst and len(next(iter(runs)).last()) > 1:
                found = difference([average[seed] - worst[seed] - std[seed] for seed in worst])
                yield Comparison(
                    scene.title, f"{method}, average - worst - STD", "std_acc", found, abs(found.mean) <= 0.01
                )


def _share(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    for scene in asked:
        settings, about = scene.results.settings, scene.results
        for method in (name for name in claim.methods if name in scene.methods):
            own = values(scene.methods[method], WEIGHT)
            if own and about.rare and about.mislabeled is not None:
                expected = about.rare / about.clients * (1 - len(about.mislabeled) / about.clients)
                found = difference(list(own.values()))
                close = abs(found.mean - expected) <= 0.001 or settings.participation < 1
                yield Comparison(scene.title, method, WEIGHT, found, close, scene.paper.get(method, {}).get(WEIGHT))


def _picture(claim: Claim, claims: Claims, asked: Sequence[Scene]) -> Iterator[Comparison]:
    yield from ()


KINDS: Mapping[Kind, Callable[[Claim, Claims, Sequence[Scene]], Iterator[Comparison]]] = {
    "compare": _compare,
    "rho": _with_rho,
    "setting": _with_setting,
    "clients": _of_clients,
    "found": _found,
    "std": _std,
    "share": _share,
    "picture": _picture,
}
