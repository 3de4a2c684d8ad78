"""Runs benchmarks by name, all of them without a name; `commits` compares two checkouts."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping

from benchmarks import audit, bounds, cluster, commits, cost, engines, flower, memory, paper, speed, start, workers
from benchmarks.table import table

BENCHMARKS: dict[str, Callable[[], Mapping[str, object]]] = {
    "workers": workers.measure,
    "memory": memory.measure,
    "rules": memory.measure_rules,
    "cost": cost.measure,
    "bounds": bounds.measure,
    "start": start.measure,
    "flower": flower.measure,
    "engines": engines.measure,
    "audit": audit.measure,
    "cluster": cluster.measure,
    "paper": paper.measure,
}
NAMES = (*BENCHMARKS, "speed")


def main() -> None:
    if sys.argv[1:2] == ["commits"]:
        commits.main(sys.argv[2:])
        return
    options = _options()
    names, pace = options.names or NAMES, speed.Pace(options.repeat, options.max_wait)
    speeds = speed.measure(options.workloads, options.peers, pace) if "speed" in names else {}
    found = {name: BENCHMARKS[name]() for name in names if name in BENCHMARKS}
    if options.json:
        print(json.dumps({**speeds, **found}, indent=2))
        return
    if speeds:
        print(table(speeds))
    for name, figures in found.items():
        print(name)
        for key, value in figures.items():
            print(f"  {key}: {value}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; or `commits CHECKOUT`")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    group = parser.add_argument_group("for speed")
    group.add_argument("--workloads", default=",".join(speed.NAMES), help="some of %(default)s", type=_split)
    group.add_argument("--peers", action="store_true", help="with the peers that `make bench-peers` installs")
    group.add_argument("--repeat", type=int, help="turns of each system")
    group.add_argument("--max-wait", type=float, default=speed.Pace.max_wait, help="seconds to wait for quiet")
    options = parser.parse_args()
    for kind, given, known in (("benchmark", options.names, NAMES), ("workload", options.workloads, speed.NAMES)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
    if options.peers and (missing := speed.missing_peers()):
        parser.error(f"not installed: {', '.join(missing)}; `make bench-peers` does it")
    return options


def _split(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
