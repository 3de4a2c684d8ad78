"""Runs that differ in one setting of their method and in nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from fedpca.results.read.runs import Run

Sweep = dict[float, list[Run]]  # the seeds of each value


def sweeps(runs: Sequence[Run], key: str) -> dict[str, Sweep]:
    """The tested runs of each method by the value of a setting, values ascending; other settings are the same."""
    found: dict[str, Sweep] = {}
    for run in runs:
        for table, own in run.settings.method.items():
            value = own.get(key)
            if isinstance(value, int | float) and run.last():
                found.setdefault(_rest(run, table, key), {}).setdefault(float(value), []).append(run)
    return {name: dict(sorted(own.items())) for name, own in found.items() if len(own) > 1}


def _rest(run: Run, table: str, key: str) -> str:
    """The run's label without this setting."""
    name = key if table == run.method else f"{table}.{key}"
    others = ", ".join(f"{other}={value}" for other, value in run.named().items() if other != name)
    varied = f", {name}" if table != run.method else ""
    return run.method + varied + (f" ({others})" if others else "")
