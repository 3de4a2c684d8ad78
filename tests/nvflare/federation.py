"""A provisioned federation on this machine: kits with certificates, the processes that their operators start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import tomli_w
from benchmarks.nvflare_kits import ADMIN, SERVER, kit_of, project_of

from fedpca.operate.supervisor import descendants, send
from fedpca.settings.toml import nest
from tests.real import LIMIT, Parties, write_data
from tests.unmeasured import unmeasured

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "nvflare-hospitals" / "job"
NAMES = ("aachen", "bonn", "celle", "dessau")
BIN = str(Path(sys.executable).parent)


class Federation(Parties):
    """Each is started as its operator would."""

    @property
    def env(self) -> dict[str, str]:
        own = {"FEDPCA_CACHE": str(self.folder / "cache"), "HOME": str(self.folder), "PYTHONPATH": str(ROOT)}
        return {**unmeasured(), **own, "OMP_NUM_THREADS": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def kit(self, name: str, project: str = "kits") -> Path:
        return kit_of(self.folder / project, name)

    def provision(self, project: str = "kits", names: Sequence[str] = NAMES) -> None:
        """Certificates and kits, by NVFlare's own command; each operator then allows fedpca's classes."""
        path = self.folder / f"{project}.json"
        path.write_text(json.dumps(project_of(self.port, names)))
        self.do("nvflare", "provision", "-p", str(path), "-w", str(self.folder / project), "--force")
        self.do("fedpca", "deploy", "kit", str(self.kit(SERVER, project)))
        for name in names:
            data = self.folder / "data" / name
            own = ["--data", str(data), "--set", f"store={json.dumps(str(self.folder / 'store' / name))}"]
            self.do("fedpca", "deploy", "kit", str(self.kit(name, project)), *own)
            resources = self.kit(name, project) / "local" / "resources.json"
            table = json.loads(resources.read_text())
            table["class_allow_list"].append("tests.nvflare.faulty.")
            resources.write_text(json.dumps(table))

    def do(self, *command: str) -> str:
        done = subprocess.run(
            command, check=False, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        return self.spawn(name, command, self.env)

    def start_party(self, name: str, project: str = "kits") -> None:
        self.start(name, "bash", str(self.kit(name, project) / "startup" / "sub_start.sh"), "--once")

    def end(self) -> None:
        family = {process.pid for process in self.started.values()}
        family |= descendants(family)
        send(list(family), signal.SIGKILL)
        for process in self.started.values():
            process.wait(120)

    def run(self, site: str = "", **config: object) -> subprocess.Popen[bytes]:
        """Starts a run, which shows its log to the end; `site` is the class of another site."""
        return self.start(
            "run", "fedpca", "deploy", "nvflare", str(self.write_job(site, **config)), "--kit", str(self.kit(ADMIN))
        )

    def write_job(self, site: str = "", **config: object) -> Path:
        folder = self.folder / "job"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(JOB, folder)
        table = {"name": "trial", "seeds": 0, "model.name": "mlp", "training.batch": 16, "deploy.wait": 120.0, **config}
        (folder / "app" / "config" / "fedpca.toml").write_text(tomli_w.dumps(nest(table)))
        if site:
            path = folder / "app" / "config" / "config_fed_client.json"
            path.write_text(path.read_text().replace("fedpca.nvflare.apps.FedPCASite", site))
        return folder


def started(federation: Federation) -> Iterator[Federation]:
    """The same federation, with kits and processes."""
    try:
        write_data(federation.folder / "data", federation.shards)
        federation.provision()
        for name in (SERVER, *federation.shards):
            federation.start_party(name)
        yield federation
    finally:
        federation.end()
