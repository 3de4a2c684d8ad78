"""A FedAvg round against the plain-PyTorch limit, the naive loop and peers; ratios of medians, measured in turns.

The limit is the same SGD steps in one PyTorch loop without any federation, on all cores, in the default memory format.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.race import ROOT, Entry, Result, race
from benchmarks.workloads import WORKLOADS, cores

TURNS = {"W1": (5, 1), "W2": (3, 1), "W3": (9, 5), "W4-100": (9, 5), "W4-1000": (5, 1), "W4-5000": (3, 1)}  # rounds each
SIZES = (100, 1000, 5000)
NAMES = ("W1", "W2", "W3", "W4", "W5")
PEERS: dict[str, dict[str, tuple[str, ...]]] = {  # the ways to run each: workers x cores of each
    "flower": {f"flower {workers}x{cores() // workers}": (str(workers),) for workers in dict.fromkeys((cores(), 1))},
    "pfl": {f"pfl {processes}x{cores() // processes}": (str(processes),) for processes in dict.fromkeys((cores(), 1))},
    "fluke": {"fluke": ()},
    "fedlab": {"fedlab": ()},
}
SLOW = {"W4-1000", "W4-5000"}  # only the first way, else Flower alone takes minutes


def measure(names: Sequence[str] = NAMES, peers: bool = False, repeat: int | None = None) -> dict[str, object]:
    """Per workload: fedpca's, the naive loop's and the peers' time of a round over the limit's; W5 over FedAvg's."""
    load = os.getloadavg()[0]
    figures: dict[str, object] = {}
    for name in names:
        how = {"W4": _growth, "W5": _fedpca_cost}.get(name, lambda *given, name=name: _compare(name, *given)[0])
        figures[name] = how(peers, repeat)
    return {"machine": _machine(load), **figures}


def missing_peers() -> list[str]:
    """Those whose virtual environment is not there."""
    return [peer for peer in PEERS if not _python_of(peer).exists()]


def _compare(
    name: str, peers: bool, repeat: int | None, more: Mapping[str, Entry] | None = None
) -> tuple[dict[str, object], dict[str, Result]]:
    """The figures of one workload, and the results that they come from."""
    turns, rounds = TURNS[name]
    entries = {system: Entry(_ours(system, name), rounds) for system in ("limit", "naive", "fedpca")}
    ways = {peer: dict(list(ways.items())[: 1 if name in SLOW else None]) for peer, ways in PEERS.items()}
    if peers:
        entries |= {
            way: Entry([str(_python_of(peer)), "-m", f"benchmarks.peers.{peer}", name, *given], rounds)
            for peer in ways
            if _python_of(peer).exists()
            for way, given in ways[peer].items()
        }
    results, broken = race(entries | dict(more or {}), repeat or turns)
    if lost := broken.keys() & {"limit", "naive", "fedpca"}:
        raise RuntimeError("\n".join(f"{name}, {system}: {broken[system]}" for system in lost))
    figures = _figures(results, ways if peers else {})
    return {**figures, **({"broken": broken} if broken else {})}, results


def _figures(results: Mapping[str, Result], ways: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    limit = results["limit"]
    best = {peer: [results[way].median for way in ways[peer] if way in results] for peer in ways}
    return {
        "ratio_to_limit": _round(results["fedpca"].median / limit.median),
        "naive": _round(results["naive"].median / limit.median),
        "peers": {peer: _round(min(medians) / limit.median) for peer, medians in best.items() if medians},
        "systems": {
            system: {
                "ratio": _round(result.median / limit.median),
                "fastest": _round(min(result.seconds) / min(limit.seconds)),
                "cpu": _round(result.median_cpu / limit.median_cpu),
                "peak_mb": round(result.peak_mb),
                "start_s": round(result.start, 1),
                "moved": round(result.moved, 4),
            }
            for system, result in results.items()
        },
    }


def _growth(peers: bool, repeat: int | None) -> dict[str, object]:
    """W3 with ever more clients; what a client costs at 5,000 over what it costs at 100, both in one race."""
    figures: dict[str, object] = {}
    results: dict[str, Result] = {}
    few, many = f"W4-{SIZES[0]}", f"W4-{SIZES[-1]}"
    for size in SIZES:
        more = {few: Entry(_ours("fedpca", few), 25)} if size == SIZES[-1] else {}
        figures[str(size)], results = _compare(f"W4-{size}", peers, repeat, more)
    above = {name: results[who].peak_mb - WORKLOADS[name].megabytes for name, who in ((few, few), (many, "fedpca"))}
    return {
        **figures,
        "time_per_client_5000_over_100": _round(
            results["fedpca"].median / SIZES[-1] / (results[few].median / SIZES[0])
        ),
        "peak_memory_above_data_5000_over_100": _round(above[many] / above[few]),
        "peak_memory_above_data_grows_mb": round(above[many] - above[few], 1),
    }


def _fedpca_cost(peers: bool, repeat: int | None) -> dict[str, float]:
    """A round of FedPCA (HS) with GSAM over a round of FedAvg, both by fedpca."""
    ratios = {}
    for name in ("W1", "W3"):
        turns, rounds = TURNS[name]
        results, broken = race({way: Entry(_ours(way, name), rounds) for way in ("fedpca", "fedpca-hs")}, repeat or turns)
        if broken:
            raise RuntimeError(f"W5 on {name}: {broken}")
        ratios[name] = _round(results["fedpca-hs"].median / results["fedpca"].median)
    return ratios


def _ours(system: str, workload: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.systems", system, workload]


def _python_of(peer: str) -> Path:
    return ROOT / ".venvs" / peer / "bin" / "python"


def _round(ratio: float) -> float:
    return round(ratio, 3 if ratio < 1 else 2)


def _machine(load: float) -> dict[str, object]:
    """Where and when this was measured, and what else ran: the load before and after."""
    import torch

    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": cores(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def table(figures: Mapping[str, object]) -> str:
    """What was measured as a text table, a row for each system."""
    rows = []
    for name, found in figures.items():
        for size, part in _parts(name, found):
            rows += [
                f"{size:8} {system:12} {row['ratio']:8} {row['fastest']:8} {row['cpu']:8} {row['peak_mb']:8} {row['start_s']:8}"
                for system, row in part["systems"].items()
            ]
            rows += [f"{size:8} {system:12} broke: {words.splitlines()[-1]}" for system, words in part.get("broken", {}).items()]
    head = f"{'':8} {'system':12} {'time':>8} {'fastest':>8} {'cpu':>8} {'peak MB':>8} {'start s':>8}"
    return "\n".join([head, *rows, *_rest(figures)])


def _parts(name: str, found: object) -> list[tuple[str, dict]]:
    """The comparisons among the figures of a workload, each with its name."""
    if not isinstance(found, dict):
        return []
    if "systems" in found:
        return [(name, found)]
    return [(f"{name}-{size}", part) for size, part in found.items() if isinstance(part, dict) and "systems" in part]


def _rest(figures: Mapping[str, object]) -> list[str]:
    """The figures that are no comparison, a line each."""
    lines = []
    for name, found in figures.items():
        known = {size for size, part in found.items() if isinstance(part, dict)} if name == "W4" else set()
        if not _parts(name, found) or known:
            lines += [f"{name} {key}: {value}" for key, value in found.items() if key not in known]
    return lines
