"""A Dask scheduler and workers as real processes on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.unmeasured import unmeasured

PATIENCE = 60  # seconds
LACKING = "import sys; sys.modules['fedpca'] = None; from distributed.cli.dask_worker import main; main()"


@dataclass
class Dask:
    """A scheduler's process and its workers', which work in this folder."""

    folder: Path
    scheduler: subprocess.Popen[bytes]
    options: Sequence[str] = ()  # of all of them: TLS
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def file(self) -> str:
        return str(self.folder / "scheduler.json")

    def have_workers(self, count: int) -> None:
        """Starts as many as are missing; what was killed is forgotten."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        for _ in range(count - len(self.workers)):
            self.start_worker()

    def start_worker(self, *options: str, code: str | None = None) -> None:
        """One more worker; without a nanny, so that what is killed stays dead."""
        module = ["-c", code] if code else ["-m", "distributed.cli.dask_worker"]
        own = ["--scheduler-file", self.file, "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        words = [*module, *own, "--local-directory", str(self.folder), *self.options, *(options or ("--nthreads", "1"))]
        self.workers.append(process(self.folder, words))


def process(folder: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / "dask.log").open("ab") as log:
        return subprocess.Popen([sys.executable, *words], cwd=folder, env=unmeasured(), stdout=log, stderr=log)


@contextmanager
def dask(folder: Path, workers: int = 2, options: Sequence[str] = ()) -> Iterator[Dask]:
    """A cluster, until the end of the block."""
    words = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    scheduler = process(folder, [*words, "--scheduler-file", str(folder / "scheduler.json"), *options])
    cluster = Dask(folder, scheduler, options)
    try:
        deadline = time.monotonic() + PATIENCE
        while not Path(cluster.file).exists():
            assert time.monotonic() < deadline, (folder / "dask.log").read_text()
            time.sleep(0.05)
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        for each in (*cluster.workers, scheduler):
            each.kill()
            each.wait()
