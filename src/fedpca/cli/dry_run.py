"""`fedpca run --dry-run`: what would happen, without a run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedpca.api.progress import counting_bar
from fedpca.runs.part import WHOLE, Part

if TYPE_CHECKING:
    from fedpca.core import ClientId
    from fedpca.data.datasets import Dataset
    from fedpca.data.federation import Federation
    from fedpca.data.truth import Truth
    from fedpca.runs.cell import Cell
    from fedpca.runs.trial import Trial
    from fedpca.settings.experiment import Experiment, NoiseSettings

SLOWEST = 2.5  # a round of FedPCA with its sharpness over one of FedAvg: docs/speed.md, W3
SHOWN = 8  # names of clients in a line


def describe_runs(
    settings: Mapping[str, Experiment],
    out: Path,
    jobs: int,
    workers: int | None,
    resume: bool,
    data_dir: Path | None,
    part: Part = WHOLE,
) -> None:
    """Prints what every setting would do, and how long all runs would take; writes no run folder."""
    from fedpca.runs.cell import is_done
    from fedpca.runs.jobs import default_workers, every_run
    from fedpca.runs.replan import going_on
    from fedpca.runs.run import Prepared
    from fedpca.runs.trial import try_out

    cells = every_run(settings, out, resume, part)
    todo, prepared, seconds = [cell for cell in cells if not is_done(cell)], Prepared(data_dir), 0.0
    jobs = min(jobs, max(1, len(todo)))
    for name, experiment in settings.items():
        own = [cell for cell in todo if cell.setting == name]
        if not own:
            continue
        with counting_bar("reading images") as progress:
            dataset, federation = prepared.of(own[0], progress)
        count = workers or default_workers(experiment, federation, jobs)
        trial = try_out(experiment, federation, count)
        seconds += len(own) * experiment.rounds * trial.seconds / jobs
        print("\n".join([f"setting {name!r}"] * bool(name) + list(_lines(own, dataset, federation, trial, count))))
    print("\n".join([*going_on(todo), *_totals(cells, todo, out, jobs, seconds)]))


def _lines(
    cells: Sequence[Cell], dataset: Dataset, federation: Federation, trial: Trial, workers: int
) -> Iterator[str]:
    """One setting, in words and numbers."""
    experiment, sizes = cells[0].settings, sorted(len(shard.y) for shard in federation.shards.values())
    methods, seeds = (len({getattr(cell, key) for cell in cells}) for key in ("method", "seed"))
    spread = f"{sizes[0]} to {sizes[-1]}, median {sizes[len(sizes) // 2]}" if sizes[0] < sizes[-1] else f"{sizes[0]}"
    things = "rows" if dataset.table else "images"
    shape = f"{federation.shape[0]} inputs" if dataset.table else "x".join(map(str, federation.shape))
    yield f"  data         {dataset.name}: {sum(sizes):,} {things} of {shape} to train on"
    yield f"  classes      {len(federation.classes)}: {_named(federation.classes)}"
    yield f"  clients      {len(sizes)}: {_named(list(federation.shards))}; {things} each: {spread}"
    yield from _scenario(experiment, federation)
    tests = ", ".join(f"{group} {len(test.y):,}" for group, test in federation.tests.items())
    yield f"  {f'test {things}':<12} {tests}"
    yield f"  model        {experiment.model.name}, {trial.weights:,} weights"
    counted = f"{_count(methods, 'method')} x {_count(seeds, 'seed')}, {experiment.rounds} rounds each"
    yield f"  runs         {len(cells)}: {counted}"
    yield from _privacy(cells, federation)
    yield f"  a round      about {duration(trial.seconds)} with {_count(workers, 'worker')}, by a short trial of FedAvg"
    if trial.memory is not None:
        yield f"  memory       about {trial.memory / 1e9:.1f} GB a run, as in the trial"


def _privacy(cells: Sequence[Cell], federation: Federation) -> Iterator[str]:
    """What each method promises; refuses one that cannot keep it."""
    from fedpca.runs.check import method_of
    from fedpca.runs.private import privacy_of

    for cell in {cell.method: cell for cell in cells}.values():
        own = cell.settings
        privacy = privacy_of(own.privacy, method_of(own), own.rounds, list(federation.shards))
        for words in privacy.words():
            yield f"  privacy      {cell.method}, {words}"


def _scenario(experiment: Experiment, federation: Federation) -> Iterator[str]:
    """Who is made rare or mislabeled, and what is known of whose labels are true."""
    from fedpca.data.known import noise_words, others_words, truth_words
    from fedpca.runs.attacked import attack_words
    from fedpca.runs.jobs import rounded_away

    data, rare, noise, truth = experiment.data, experiment.rare, experiment.noise, federation.truth
    if truth.rare:
        yield f"  rare         {len(truth.rare)}: {_named(truth.rare)}; {rare.corruption}"
    are_made = " are made wrong" if noise.has_rates else ""
    made = f"{noise_words(noise, ' %')}{are_made}"
    if truth.mislabeled:
        why = f"by column {data.truth_column}" if data.truth_column else made + _wrong(noise, truth, truth.mislabeled)
        yield f"  mislabeled   {len(truth.mislabeled)}: {_named(truth.mislabeled)}; {why}"
    elif noise.clients > 0 and truth.mislabeled is None:
        yield f"  mislabeled   {100 * noise.clients:.0f} % of the clients; {made}"
    if words := others_words(noise, " %"):
        others = [client for client in federation.shards if client not in (truth.mislabeled or ())]
        yield f"  others       {words}{are_made}{_wrong(noise, truth, others)}"
    if words := attack_words(experiment, federation):
        yield f"  attack       {words}"
    if not truth.rare and not truth.mislabeled and not noise.injects:
        yield "  scenario     the data as they are: nobody is made rare or mislabeled"
    if words := truth_words(data, noise):
        yield f"  truth        {words}"
    yield from rounded_away(experiment, federation).splitlines()[1:]


def _wrong(noise: NoiseSettings, truth: Truth, clients: Sequence[ClientId]) -> str:
    """The share of these clients' labels that is truly wrong, where it is known and the settings do not say it."""
    shares = [] if noise.has_rates else [share for client, share in truth.wrong_share.items() if client in clients]
    spread = dict.fromkeys(f"{100 * share:.0f}" for share in (min(shares), max(shares))) if shares else {}
    return f"; wrong are {' to '.join(spread)} %" if spread else ""


def _totals(cells: Sequence[Cell], todo: Sequence[Cell], out: Path, jobs: int, seconds: float) -> Iterator[str]:
    done = f"; {len(cells) - len(todo)} of {len(cells)} are finished already" if len(todo) < len(cells) else ""
    yield f"{_count(len(todo), 'run')} would be written to {out}{done}"
    if todo:
        at_a_time = f", {jobs} at a time" if jobs > 1 else ""
        slower = f"; up to {SLOWEST} times as long for methods that do more in a round than FedAvg"
        yield f"about {duration(seconds)} in all{at_a_time}{slower}"
    yield "nothing was written but decoded images in the cache"


def duration(seconds: float) -> str:
    """A time in the unit that people would use.

    >>> duration(0.0123), duration(75), duration(7300)
    ('12 ms', '75 s', '2.0 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _named(names: Sequence[ClientId]) -> str:
    more = f", … ({len(names) - SHOWN} more)" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
