"""Runs benchmarks by name, all of them without a name."""

import argparse
import json

from benchmarks import cost, memory, workers

BENCHMARKS = {
    "workers": workers.measure,
    "memory": memory.measure,
    "rules": memory.measure_rules,
    "cost": cost.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    found = {name: BENCHMARKS[name]() for name in options.names or BENCHMARKS}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, figures in found.items():
        print(name)
        for key, value in figures.items():
            print(f"  {key}: {value}")


if __name__ == "__main__":
    main()
