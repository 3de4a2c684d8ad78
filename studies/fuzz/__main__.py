"""Nonsense for every door: `python -m studies.fuzz [TARGET …] [--seed N] [--cases N | --case N]`.

| target | cases | what is tried |
|---|---|---|
| settings | 10,000 | settings files and `--set`, read and checked as by `fedpca run`; some through the command line |
| data | 2,000 | data files of every layout, loaded and looked at as by `fedpca data check` |
| replies | 2,000 | reports, updates and hellos of sites, over both engines' bytes; each is also played in a round |
| port | 1,000 | what a stranger sends to the public port: a real process, on loopback |

A case is accepted, or refused in plain lines. All else is a finding: another exception, a warning on the screen, a case
that takes too long, a process that dies, memory that grows. Each target has a process of its own. A finding names its
seed and case, which `--case` plays again. Exit code 1 with findings.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from studies.fuzz.cases import MAX_GROWTH, Tally, Target, bound_memory, play_cases
from studies.fuzz.data_files import DATA
from studies.fuzz.port import PORT
from studies.fuzz.replies import REPLIES
from studies.fuzz.settings_files import SETTINGS

TARGETS = {target.name: target for target in (SETTINGS, DATA, REPLIES, PORT)}
MEMORY = 8 << 30  # bytes of address space: libraries take most of it and never touch it
DEAF = 30.0  # seconds that a case may take beyond its limit before its process is ended


def here(target: Target, seed: int, numbers: range, progress: Path) -> Tally:
    """Plays cases in this process, and says in a file which one is under way."""
    bound_memory(MEMORY)
    with TemporaryDirectory() as folder, progress.open("w", encoding="ascii") as file:

        def tell(number: int) -> None:
            file.seek(0)
            file.write(f"{number:12}")
            file.flush()

        return play_cases(target, seed, numbers, Path(folder), tell)


def apart(target: Target, seed: int, numbers: range) -> Tally:
    """Plays cases in processes of their own: one that dies or hears no alarm is a finding, and the next goes on."""
    whole, first = Tally(target.name), numbers.start
    while first < numbers.stop:
        with TemporaryDirectory() as folder:
            found, reached, end = _one_process(target, seed, range(first, numbers.stop), Path(folder))
        if found is None:
            whole.findings.append(f"{target.name} --seed {seed} --case {reached}: {end}")
            whole.cases, first = whole.cases + reached + 1 - first, reached + 1
            continue
        whole.cases, whole.seconds = whole.cases + found.cases, whole.seconds + found.seconds
        whole.refused, whole.accepted = whole.refused + found.refused, whole.accepted + found.accepted
        whole.findings, whole.memory = whole.findings + found.findings, found.memory
        break
    return whole


def _one_process(target: Target, seed: int, numbers: range, folder: Path) -> tuple[Tally | None, int, str]:
    """What the process found; else the case that it had reached, and how it ended."""
    progress, result = folder / "progress", folder / "result"
    command = [sys.executable, "-m", "studies.fuzz", target.name, "--seed", str(seed), "--within", str(folder)]
    command += ["--first", str(numbers.start), "--cases", str(len(numbers))]
    with subprocess.Popen(command) as process:
        reached, since = numbers.start, time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            now = int(progress.read_text(encoding="ascii").strip() or reached) if progress.exists() else reached
            reached, since = (now, time.monotonic()) if now != reached else (reached, since)
            if time.monotonic() - since > target.seconds + DEAF:
                process.kill()
                return None, reached, f"it took more than {target.seconds + DEAF:g} s and heard no alarm"
    if process.returncode:
        return None, reached, f"the process ended with code {process.returncode}"
    return Tally(**json.loads(result.read_text(encoding="utf-8"))), reached, ""


def table(tallies: list[Tally]) -> str:
    """The tallies as a table."""
    lines = ["| target | cases | refused | accepted | findings | seconds | memory, second half / first |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    for own in tallies:
        growth = "-" if own.growth is None else f"{own.growth:.3f}"
        counts = f"{own.cases:,} | {own.refused:,} | {own.accepted:,} | {len(own.findings)}"
        lines.append(f"| {own.target} | {counts} | {own.seconds:.0f} | {growth} |")
    return "\n".join(lines)


def main() -> None:
    """Plays the targets and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all if not given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="so many of each target, in place of the full form")
    parser.add_argument("--case", type=int, help="this one alone, in this process")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.targets if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]!r}: choose of {', '.join(TARGETS)}")
    chosen = [TARGETS[name] for name in options.targets or TARGETS]
    if options.within:
        numbers = range(options.first, options.first + options.cases)
        found = here(chosen[0], options.seed, numbers, options.within / "progress")
        (options.within / "result").write_text(json.dumps(asdict(found)), encoding="utf-8")
        return
    if options.case is not None:
        with TemporaryDirectory() as folder:
            numbers = range(options.case, options.case + 1)
            tallies = [play_cases(target, options.seed, numbers, Path(folder)) for target in chosen[:1]]
    else:
        tallies = []
        for target in chosen:
            tallies.append(apart(target, options.seed, range(options.cases or target.cases)))
            print(
                "\n".join([f"{target.name}: {len(tallies[-1].findings)} findings", *tallies[-1].findings]), flush=True
            )
    print(table(tallies))
    grew = [own.target for own in tallies if own.grew]
    print(f"memory grew beyond {MAX_GROWTH} in {', '.join(grew)}" if grew else f"memory within {MAX_GROWTH} everywhere")
    sys.exit(bool(grew or any(own.findings for own in tallies)))


if __name__ == "__main__":
    main()
