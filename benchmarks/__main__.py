"""Runs benchmarks by name, all of them without a name."""

import argparse
import json

from benchmarks import cost, memory, speed, workers

BENCHMARKS = {
    "workers": workers.measure,
    "memory": memory.measure,
    "rules": memory.measure_rules,
    "cost": cost.measure,
}
NAMES = (*BENCHMARKS, "speed")


def main() -> None:
    options = _options()
    found = {name: BENCHMARKS[name]() for name in options.names or NAMES if name in BENCHMARKS}
    fast = {}
    if "speed" in (options.names or NAMES):
        fast = speed.measure(options.workloads, options.peers, options.repeat)
    if options.json:
        print(json.dumps({**found, **fast}, indent=2))
        return
    for name, figures in found.items():
        print(name)
        for key, value in figures.items():
            print(f"  {key}: {value}")
    if fast:
        print(speed.table(fast))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    speeds = parser.add_argument_group("speed")
    speeds.add_argument(
        "--workloads", type=lambda text: text.split(","), default=list(speed.NAMES), help="such as W1,W3; all if not given"
    )
    speeds.add_argument("--peers", action="store_true", help="with the peers that `make bench-peers` installs")
    speeds.add_argument("--repeat", type=int, help="turns of each system")
    options = parser.parse_args()
    for kind, given, known in (("benchmark", options.names, NAMES), ("workload", options.workloads, speed.NAMES)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {kind} {', '.join(unknown)}; there are {', '.join(known)}")
    if options.peers and (missing := speed.missing_peers()):
        parser.error(f"not installed: {', '.join(missing)}; `make bench-peers` does it")
    return options


if __name__ == "__main__":
    main()
