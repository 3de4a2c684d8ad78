"""Slurm on this machine alone: munge, controller and one node as processes of this user, which listen on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldParameters=enable_configless
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing() -> list[str]:
    """The programs that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` and its kin reach it, until the end of the block."""
    for name in ("state", "spool"):
        (folder / name).mkdir(mode=0o700)
    host, user = socket.gethostname().partition(".")[0], subprocess.check_output(["id", "-un"], text=True).strip()
    conf = folder / "slurm.conf"
    conf.write_text(
        CONF.format(folder=folder, host=host, user=user, cpus=os.cpu_count(), ports=_free_ports(2)).strip() + "\n"
    )
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    env = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    own = [f"--{option}={folder}/munge.{ending}" for option, ending in files.items()]
    with ExitStack() as stack:
        for words in (["munged", "-F", "--force", *own], ["slurmctld", "-D", "-i"], ["slurmd", "-D"]):
            stack.enter_context(_process(words, env, folder))
        _await_node(env, folder)
        yield env
        subprocess.run(["scancel", "--user", user], env=env, check=False)


@contextmanager
def _process(words: list[str], env: dict[str, str], folder: Path) -> Iterator[None]:
    with (folder / f"{words[0]}.out").open("wb") as log:
        process = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        time.sleep(1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for own in sockets:
            own.bind(("127.0.0.1", 0))
        return [own.getsockname()[1] for own in sockets]


def _await_node(env: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 60
    look = partial(subprocess.run, ["sinfo", "-h"], env=env, capture_output=True, text=True, check=False)
    while "idle" not in (seen := look().stdout):
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log")))
            raise AssertionError(f"the node never became idle: {seen}\n{logs}")
        time.sleep(0.5)
