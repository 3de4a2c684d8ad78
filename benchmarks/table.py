"""What `speed` measured, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

COLUMNS = {
    "ratio": "time",
    "fastest": "fastest",
    "cpu": "CPU",
    "others": "others",
    "peak_mb": "peak MB",
    "start_s": "start s",
}


def table(figures: Mapping[str, object]) -> str:
    """A row for each way to run a system, over the limit; then what else was measured."""
    head = f"{'':10}{'':14}" + "".join(f"{title:>9}" for title in COLUMNS.values())
    return "\n".join([head, *_rows(figures), *_others(figures)])


def _rows(figures: Mapping[str, object]) -> Iterator[str]:
    for name, found in _comparisons(figures):
        for way, details in found["ways"].items():
            yield f"{name:10}{way:14}" + "".join(f"{details[key]:>9}" for key in COLUMNS)
        for way, words in found.get("broken", {}).items():
            yield f"{name:10}{way:14}broke: {words.splitlines()[-1]}"


def _comparisons(figures: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The parts of the figures that compare systems, each with its workload."""
    for name, found in figures.items():
        if isinstance(found, Mapping):
            yield from (
                [(name, found)] if "ways" in found else _comparisons({f"{name}-{k}": v for k, v in found.items()})
            )


def _others(figures: Mapping[str, object]) -> Iterator[str]:
    for name, found in figures.items():
        if isinstance(found, Mapping) and "ways" not in found:
            yield from (f"{name}, {key}: {value}" for key, value in found.items() if not isinstance(value, Mapping))
