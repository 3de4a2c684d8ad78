"""A FedAvg round against the plain-PyTorch limit, the naive loop and peers; ratios of medians, measured in turns.

The limit is the same SGD steps in one PyTorch loop without any federation, in the default memory format, on all cores;
or on one core, if that is faster.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.entries import PEERS, TURNS, Ways, python_of, ways_of
from benchmarks.race import Result, race
from benchmarks.workloads import WORKLOADS, cores

NAMES = ("W1", "W2", "W3", "W4", "W5", "W6")
SIZES = (100, 1000, 5000)  # clients in W4

Figures = dict[str, Any]


@dataclass(frozen=True)
class Pace:
    """How often to measure, and how long to wait for a quiet machine."""

    repeat: int | None = None  # turns of each system; as many as the workload says if not given
    max_wait: float = 120.0  # seconds that a workload waits, in all, for others to leave the machine


def measure(names: Sequence[str], peers: bool, pace: Pace) -> Figures:
    """Each system's time of a round over the limit's; for W4 also how it grows, for W5 FedPCA's over FedAvg's."""
    load = os.getloadavg()[0]
    systems = ("limit", "naive", "fedpca", *(PEERS if peers else ()))
    figures: Figures = {}
    for name in names:
        if name == "W4":
            figures[name] = _growth(systems, pace)
        elif name == "W5":
            figures[name] = {workload: _cost_of_fedpca(workload, pace) for workload in ("W1", "W3")}
        else:
            figures[name] = _compare(name, systems, pace)
    return {"machine": _machine(load), **figures}


def missing_peers() -> list[str]:
    """Those whose virtual environment is not there."""
    return [peer for peer in PEERS if not python_of(peer).exists()]


def _compare(name: str, systems: Sequence[str], pace: Pace) -> Figures:
    """The ratios of one workload. Flower has a race of its own with the limit, since Ray never rests."""
    groups = [[system for system in systems if system != "flower"], ["limit", "flower"]]
    details: dict[str, dict[str, Figures]] = {}
    broken: dict[str, str] = {}
    for group in groups if "flower" in systems else groups[:1]:
        results, lost = _race(name, {system: ways_of(system, name) for system in group}, pace)
        limit = min(results["limit"].values(), key=lambda result: result.median)
        ratios = {
            system: {way: _details(result, limit) for way, result in ways.items()} for system, ways in results.items()
        }
        details, broken = ratios | details, broken | lost
    return _figures({system: details[system] for system in systems}) | ({"broken": broken} if broken else {})


def _race(name: str, systems: Mapping[str, Ways], pace: Pace) -> tuple[dict[str, dict[str, Result]], dict[str, str]]:
    """The results of each system's ways on a workload, and the last words of those that broke."""
    turns = pace.repeat or TURNS[name]
    print(f"{name}, {turns} turns", file=sys.stderr)
    results, broken = race(
        {way: entry for ways in systems.values() for way, entry in ways.items()}, turns, pace.max_wait
    )
    found = {system: {way: results[way] for way in ways if way in results} for system, ways in systems.items()}
    if lost := [system for system in systems if system not in PEERS and not found[system]]:
        raise RuntimeError(f"{name}: {', '.join(lost)} broke: {broken}")
    return found, broken


def _figures(details: Mapping[str, Mapping[str, Figures]]) -> Figures:
    """The fastest way of each system, and all of them."""
    best = {system: min(details["ratio"] for details in ways.values()) for system, ways in details.items() if ways}
    return {
        "ratio_to_limit": best["fedpca"],
        "naive": best["naive"],
        "peers": {peer: best[peer] for peer in PEERS if peer in best},
        "ways": {way: figures for ways in details.values() for way, figures in ways.items()},
    }


def _details(result: Result, limit: Result) -> Figures:
    return {
        "ratio": _round(result.median / limit.median),
        "fastest": _round(min(result.seconds) / min(limit.seconds)),  # of the shortest rounds: hardly touched by load
        "cpu": _round(result.median_cpu / limit.median_cpu),
        "others": round(statistics.median(result.others), 2),
        "peak_mb": round(result.peak_mb),
        "start_s": round(result.start, 1),
        "moved": round(result.moved, 5),
    }


def _growth(systems: Sequence[str], pace: Pace) -> Figures:
    """W3 with ever more clients, and what a client costs fedpca where they are many over where they are few."""
    figures = {str(size): _compare(f"W4-{size}", systems, pace) for size in SIZES}
    few, many = f"W4-{SIZES[0]}", f"W4-{SIZES[-1]}"
    results, _ = _race(many, {size: {size: ways_of("fedpca", size)["fedpca"]} for size in (few, many)}, pace)
    at_few, at_many = results[few][few], results[many][many]
    above_few, above_many = at_few.peak_mb - WORKLOADS[few].megabytes, at_many.peak_mb - WORKLOADS[many].megabytes
    return figures | {
        "time_per_client_5000_over_100": _round(at_many.median / SIZES[-1] / (at_few.median / SIZES[0])),
        "peak_memory_above_data_5000_over_100": _round(above_many / above_few),
        "peak_memory_above_data_grows_mb": round(above_many - above_few, 1),
    }


def _cost_of_fedpca(name: str, pace: Pace) -> float:
    """A round of FedPCA (HS) with GSAM over a round of FedAvg, both by fedpca."""
    results, _ = _race(name, {system: ways_of(system, name) for system in ("fedpca", "fedpca-hs")}, pace)
    return _round(results["fedpca-hs"]["fedpca-hs"].median / results["fedpca"]["fedpca"].median)


def _round(ratio: float) -> float:
    return round(ratio, 3 if ratio < 1 else 2)


def _machine(load: float) -> Figures:
    """Where and when this was measured, and what ran besides: the load before and after."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return {
        "cpu": next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
        ),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }
