"""A Dask cluster that was found usable: reached, of the same versions, with or without the disk of the run folders."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fedpca.cluster.options import ClusterOptions
from fedpca.cluster.tasks import OURS, Demands, Greeting, difference, greet, kept, run_task, shown_versions, unseen
from fedpca.errors import FailedError, RunError, UserError
from fedpca.runs.processes import Failed

if TYPE_CHECKING:
    from distributed import Client, Future


@dataclass(frozen=True)
class Link:
    """The way to a cluster."""

    client: Client
    options: ClusterOptions
    demands: Demands
    shared: bool  # whether workers write the run folders themselves
    workers: int  # when it was looked at
    threads: int

    def submit(self, name: str, *values: Any, priority: int = 0, label: str = "") -> Future:  # noqa: ANN401
        """A task of `at_worker` on some worker."""
        key, resources = f"fedpca-{name}-{label}-{uuid4().hex}", dict(self.options.per_run) or None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a checkpoint is a large argument, and shall outlive a worker
            return self.client.submit(
                run_task, name, self.demands, *values, key=key, pure=False, priority=priority, resources=resources
            )

    def keep(self, data: bytes) -> Future:
        """Bytes that tasks of any worker can take, and that outlive a worker: the scheduler has them too."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return self.client.submit(kept, data, key=f"fedpca-state-{uuid4().hex}", pure=False, priority=1)

    def value(self, future: Future, label: str) -> Any:  # noqa: ANN401
        """What a task gave; its failure is an error that says whose it was."""
        if future.status == "cancelled":
            raise FailedError(
                f"the Dask scheduler at {self.options.address} went away while {label} was played: start it again, "
                "then --resume goes on from the last checkpoint"
            )
        try:
            result = future.result()
        except Exception as error:
            raise _explained(error, label) or error from None
        if "value" not in result:
            raise Failed(**result).as_exception()
        return result["value"]

    @property
    def words(self) -> str:
        """What was found, for people."""
        where = "on this machine" if self.options.local else f"at {self.options.address}"
        disk = "write the run folders" if self.shared else "send the runs here"
        threads = f" with {self.threads} threads" if self.threads != self.workers else ""
        disk = "train the clients of every run; models are tested here" if self.options.spread else disk
        return f"Dask {where}: {self.workers} workers{threads}, which {disk}"


def _explained(error: Exception, label: str) -> UserError | None:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return FailedError(
            f"{error.allowed_failures + 1} Dask workers died while they played {label}, the last one at "
            f"{error.last_worker.address} (if memory ran out, give a run more of it): --resume goes on from the last "
            "checkpoint"
        )
    if isinstance(error, ImportError) or isinstance(error.__cause__, ImportError):
        return UserError(_cannot_import("the Dask scheduler, or a worker,", error.__cause__ or error))
    return None


def _cannot_import(who: str, error: object) -> str:
    return f"{who} cannot import fedpca ({error}): pip install 'fedpca[dask]=={shown_versions()[OURS]}' there too"


@contextmanager
def connected(options: ClusterOptions, out: Path, say: Any) -> Iterator[Link]:  # noqa: ANN401
    """The way to the cluster, until the end of the block; what was started for it here ends with it."""
    _require_dask()
    with ExitStack() as stack:
        stack.enter_context(_silent())
        client = stack.enter_context(_client(options))
        probe = stack.enter_context(_probe(out))
        if not (info := _workers_of(client)):
            say(f"no worker at {options.address} yet: waiting for the first one")
            _first_greeting(client)
            info = _workers_of(client)
        greetings = _greetings(client, probe)
        shared = _is_shared(options, greetings, probe[0])
        if (missing := _missing(options.per_run, info.values())) is not None:
            say(f"no worker offers {missing} now: waiting for one that was started with --resources {missing!r}")
        demands: Demands = {"versions": shown_versions()}
        if shared:
            demands = {**demands, "probe": probe, "here": os.getcwd()}
        threads = sum(worker["nthreads"] for worker in info.values())
        yield Link(client, options, demands, shared, len(info), threads)


def _require_dask() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise UserError(f"--dask needs a package that is not installed ({error}): pip install 'fedpca[dask]'") from None


@contextmanager
def _silent() -> Iterator[None]:
    """Keeps Dask's own messages off the screen: what matters is said by ours."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _client(options: ClusterOptions) -> Iterator[Client]:
    """A client of the scheduler; with its TLS certificates where Dask's configuration names them."""
    from distributed import Client

    with ExitStack() as stack, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mismatched versions")  # which ours says of what matters
        target: Any = stack.enter_context(_local_cluster(options.local)) if options.local else options.address
        way = {"scheduler_file": target} if str(target).endswith(".json") else {"address": target}
        try:
            client = stack.enter_context(Client(**way, set_as_default=False))
        except (OSError, RuntimeError, ValueError, TypeError, ImportError) as error:
            raise RunError(_unreachable(options.address, error)) from None
        yield client


def _unreachable(address: str, error: Exception) -> str:
    why = str(error.__cause__ or error).strip().splitlines()[-1:] or [type(error).__name__]
    tls = address.startswith("tls://") or "TLS" in str(error) or "ssl" in str(error).lower()
    more = ", and that Dask's configuration names this cluster's certificates (distributed.comm.tls)" if tls else ""
    return f"no Dask scheduler answers at {address} ({why[0]}): check that it runs and that this is its address{more}"


@contextmanager
def _local_cluster(workers: int) -> Iterator[Any]:
    """Processes of this machine, which listen on 127.0.0.1 alone; without a limit of memory, as `--jobs` has none."""
    from dask import config
    from distributed import LocalCluster

    own = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    keeping = config.set(
        {"distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1}}
    )  # Dask's own gives memory back
    with keeping, LocalCluster(n_workers=workers, silence_logs=logging.CRITICAL + 1, **own) as cluster:
        yield cluster


@contextmanager
def _probe(out: Path) -> Iterator[tuple[str, str]]:
    """A file beside the run folders that only workers with the same disk can read, and what stands in it."""
    token = uuid4().hex
    try:
        out.mkdir(parents=True, exist_ok=True)
        path = (out / f".dask-{token}").resolve()
        path.write_text(token, encoding="utf-8")
    except OSError as error:
        raise RunError(f"the folder {out} cannot be made or written ({error.strerror}): choose another --out") from None
    try:
        yield str(path), token
    finally:
        with suppress(OSError):
            path.unlink()


def _workers_of(client: Client) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = client.scheduler_info(n_workers=-1)["workers"]
    return found


def _first_greeting(client: Client) -> None:
    """Returns once a worker has answered; a cluster that grows with its tasks grows by this one."""
    try:
        client.submit(greet, pure=False).result()
    except Exception as error:
        raise _explained(error, "") or error from None


def _greetings(client: Client, probe: tuple[str, str]) -> Mapping[str, Greeting]:
    """What each worker is like; one that lacks the package, or has other versions, is an error that names it."""
    here, found = shown_versions(), dict[str, Greeting]()
    for address, greeting in client.run(greet, probe, on_error="return").items():
        if isinstance(greeting, BaseException):
            raise UserError(_cannot_import(f"the Dask worker {address}", greeting))
        if message := difference(here, greeting["versions"]):
            raise UserError(f"the Dask worker {address} {message}")
        found[address] = greeting
    return found


def _is_shared(options: ClusterOptions, greetings: Mapping[str, Greeting], probe: str) -> bool:
    """Whether workers write the run folders themselves: as was asked for, else where all of them can."""
    blind = [address for address, greeting in greetings.items() if not greeting["sees"]]
    if options.disk == "shared" and blind:
        raise UserError(unseen(blind[0], probe))
    return options.disk != "stream" and not blind


def _missing(per_run: Mapping[str, float], workers: Any) -> str | None:  # noqa: ANN401
    """What a run takes that no worker offers."""
    if not per_run or any(
        all(worker["resources"].get(name, 0) >= amount for name, amount in per_run.items()) for worker in workers
    ):
        return None
    return ",".join(f"{name}={amount:g}" for name, amount in per_run.items())
