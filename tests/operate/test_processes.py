"""Server, sites and a run as real processes, on loopback and, where the machine lets us, without any other network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedpca.errors import UserError
from fedpca.operate.keys import make_keys
from fedpca.operate.processes import Child, address, end, environment, free_port, is_loopback, without_chatter
from fedpca.operate.supervisor import alive, descendants
from tests.unmeasured import unmeasured

FEDPCA = [sys.executable, "-m", "fedpca"]
APP = {
    "pyproject.toml": """
        [project]
        name = "toy"
        version = "0.1.0"
        dependencies = ["a-package-that-nobody-has"]
        [tool.flwr.app]
        publisher = "fedpca"
        [tool.flwr.app.components]
        serverapp = "toy.server:app"
        clientapp = "toy.client:app"
        [tool.flwr.app.config]
        word = "none"
        """,
    "toy/__init__.py": "",
    "toy/server.py": """
        import time
        from flwr.app import Message, RecordDict
        from flwr.serverapp import ServerApp
        app = ServerApp()
        @app.main()
        def main(grid, context):
            if context.run_config["word"] != "two words":
                raise RuntimeError("told to fail: " + context.run_config["word"])
            limit = time.monotonic() + 240
            while not grid.get_node_ids() and time.monotonic() < limit:
                time.sleep(0.2)
            (node,) = grid.get_nodes()
            message = Message(RecordDict(), dst_node_id=node.node_id, message_type="query")
            (reply,) = grid.send_and_receive([message], timeout=240)
            print("from", node.name, dict(reply.content["answer"]), flush=True)
        """,
    "toy/client.py": """
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.clientapp import ClientApp
        app = ClientApp()
        @app.query()
        def answer(message, context):
            return Message(RecordDict({"answer": ConfigRecord(dict(context.node_config))}), reply_to=message)
        """,
}


@dataclass(frozen=True)
class Federation:
    """A server and a site that run."""

    folder: Path
    port: int
    prefix: list[str]  # before a command, to have it where they are
    server: subprocess.Popen[bytes]
    site: subprocess.Popen[bytes]

    def run(self, *command: str, limit: float = 300) -> subprocess.CompletedProcess[str]:
        """A command of the same machine and its end."""
        return subprocess.run(
            [*self.prefix, *command],
            cwd=self.folder,
            env=unmeasured(),
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()


def until(true: Callable[[], bool], limit: float = 300) -> None:
    """Waits, but not for ever."""
    stop = time.monotonic() + limit
    while not true():
        assert time.monotonic() < stop, "it did not come to pass"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, prefix: list[str]) -> Iterator[Federation]:
    folder, port = tmp_path_factory.mktemp("federation"), free_port()
    make_keys(["berlin", "rome"], folder / "keys")
    (folder / "keys" / "server" / "sites" / "rome.pub").unlink()
    (folder / "my data").mkdir()
    for name, text in APP.items():
        (folder / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "app" / name).write_text("\n".join(line.removeprefix(" " * 8) for line in text.splitlines()))
    started = []

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            command = [*prefix, *FEDPCA, "deploy", *options]
            started.append(subprocess.Popen(command, cwd=folder, env=unmeasured(), stdout=log, stderr=log))
        return started[-1]

    where = ["--server", f"127.0.0.1:{port}", "--data", "my data"]
    try:
        server = start("server", "server", "--keys", "keys/server", "--port", str(port))
        until(lambda: "ready at" in (folder / "server.log").read_text() or server.poll() is not None)
        site = start(
            "berlin", "client", "--site", "berlin", "--keys", "keys/sites/berlin", "--set", "threads=3", *where
        )
        made = Federation(folder, port, prefix, server, site)
        until(lambda: "connected to" in made.log("berlin") or server.poll() is not None)
        assert server.poll() is None, made.log("server")
        yield made
    finally:
        family = descendants(process.pid for process in started)
        for process in started:
            process.terminate()
        for process in started:
            process.wait(120)
        for pid in alive(family):
            os.kill(pid, signal.SIGKILL)


def test_a_run_gets_its_settings_names_its_sites_and_ends_with_0(federation: Federation):
    done = federation.run(*FEDPCA, "deploy", "run", "app", "--set", "word=two words")
    assert done.returncode == 0, done.stdout + done.stderr + federation.log("server")
    assert "from berlin" in done.stdout
    assert f"'data': '{federation.folder}/my data'" in done.stdout
    assert "'threads': 3" in done.stdout
    assert f"'store': '{federation.folder}/site-berlin/store'" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" completed")
    assert "Activated node_id=berlin" in federation.log("server"), "names, not numbers"


def test_a_run_that_fails_ends_with_1_and_says_why(federation: Federation):
    done = federation.run(*FEDPCA, "deploy", "run", "app", "--set", "word=no")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed: ServerApp failed with exception: told to fail: no" in done.stdout.splitlines()[-1]


def test_an_app_that_is_none_is_named(federation: Federation):
    done = federation.run(*FEDPCA, "deploy", "run", "my data")
    assert done.returncode == 1
    assert "`flwr run" in done.stderr
    assert "pyproject.toml" in done.stderr


def test_a_key_that_is_not_registered_is_refused(federation: Federation):
    where = ["--server", f"127.0.0.1:{federation.port}", "--data", "my data", "--keys", "keys/sites/rome"]
    done = federation.run(*FEDPCA, "deploy", "client", "--site", "rome", *where)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "does not know the key of rome" in done.stderr
    assert "connected to" not in done.stdout
    assert "node_id=rome" not in federation.log("server")


def test_from_outside_nobody_starts_runs(federation: Federation):
    """Flower itself would answer: its port for operators asks nobody for a name."""
    code = (
        "import httpx, ssl, sys; ca = ssl.create_default_context(cafile='keys/server/ca.crt')\n"
        "head = {'content-type': 'application/protobuf'}\n"
        "print(httpx.post(sys.argv[1], verify=ca, headers=head, trust_env=False).status_code)"
    )

    def ask(port: int | str, path: str) -> int:
        return int(federation.run(sys.executable, "-c", code, f"https://127.0.0.1:{port}{path}").stdout)

    inner = (federation.folder / "federation" / "flower" / "config.toml").read_text().partition("127.0.0.1:")[2]
    assert ask(federation.port, "/v1/control/list-nodes") == 403
    assert ask(federation.port, "/v1/runtime/acquire-task") == 403
    assert ask(federation.port, "/v1/fleet/%2e%2e/control/list-nodes") == 403
    assert ask(federation.port, "/v1/fleet/pull-messages?a=b") == 403
    assert ask(federation.port, "/v1/fleet/pull-messages") == 401
    assert ask(inner.partition('"')[0], "/v1/control/list-nodes") == 200
    assert "refused POST '/v1/control/list-nodes' from 127.0.0.1" in federation.log("server")


def test_the_doctor_finds_this_server_good(federation: Federation):
    where = ["--keys", "keys/sites/berlin", "--server", f"127.0.0.1:{federation.port}", "--site", "berlin"]
    done = federation.run(*FEDPCA, "doctor", *where)
    assert done.returncode == 0, done.stdout
    assert f"ok       127.0.0.1:{federation.port} is a fedpca server" in done.stdout


def test_a_second_server_in_the_same_folder_is_refused(federation: Federation):
    done = federation.run(*FEDPCA, "deploy", "server", "--keys", "keys/server", "--port", str(free_port()))
    assert (done.returncode, "another process uses federation" in done.stderr) == (1, True)


def test_all_of_this_worked_without_a_network(federation: Federation):
    if not federation.prefix:
        pytest.skip("this machine has no network namespaces for us")
    code = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert federation.run(sys.executable, "-c", code).stdout == "['lo']\n"


def test_without_being_told_to_everything_listens_on_loopback_alone(federation: Federation):
    """By the system's own table of sockets: the proxy, Flower behind it, and what Flower starts."""
    if not federation.prefix:
        pytest.skip("this machine has no network namespaces for us, and others' processes listen too")
    done = federation.run("cat", "/proc/net/tcp", "/proc/net/tcp6")
    heard = [row.split()[1] for row in done.stdout.splitlines() if " 0A " in row]
    assert len(heard) >= 2
    assert f"0100007F:{federation.port:04X}" in heard
    assert all(place.startswith(("0100007F:", f"{'0' * 24}01000000:")) for place in heard), heard


def test_when_it_is_killed_nothing_of_a_site_is_left(federation: Federation):
    """Not even we can do anything at kill -9: its supervisor notices."""
    family = descendants([federation.site.pid])
    assert len(family) >= 3, "the supervisor, Flower's node and what it starts"
    federation.site.kill()
    until(lambda: not alive(family), 120)


def test_when_it_is_told_to_end_nothing_of_the_server_is_left(federation: Federation):
    family = descendants([federation.server.pid])
    assert len(family) >= 5, "Flower's server, what it starts, the proxy, and two supervisors"
    federation.server.terminate()
    assert federation.server.wait(120) == 0
    assert not alive(family)


# Without processes of Flower


STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(60)"
)
PARENT = (
    "import subprocess, sys, time\n"
    f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True)\n"
    "time.sleep({seconds})"
)


def child(code: str, lines: list[str]) -> tuple[Child, set[int]]:
    """A process of that code that has said something, and all of its family."""
    made = Child("a", [sys.executable, "-c", code], dict(os.environ), lines.append)
    until(lambda: bool(lines), 120)
    return made, {made.process.pid} | descendants([made.process.pid])


def test_what_refuses_to_end_is_ended():
    """Here a child that has left the session."""
    lines: list[str] = []
    made, family = child(PARENT.format(seconds=60), lines)
    assert len(family) == 3, "supervisor, parent, stubborn"
    end([made])
    assert not alive(family)
    assert lines == ["[a] here"]


def test_what_a_process_leaves_behind_is_ended():
    made, family = child(PARENT.format(seconds=2), [])
    assert len(family) == 3
    until(lambda: made.ended() is not None, 120)
    assert made.ended() == 0, "its own exit code"
    assert not alive(family)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["server", "--host", "0.0.0.0"], "would be readable and open to anyone on the network"),
        (
            ["client", "--site", "a", "--data", ".", "--server", "192.0.2.1:8000"],
            "would be readable and open to anyone",
        ),
        (["client", "--site", "a b", "--data", ".", "--server", "127.0.0.1:8000"], "a site's name must be letters"),
        (["client", "--site", "a", "--data", "none", "--server", "127.0.0.1:8000"], "there is no none"),
        (["server", "--keys", "."], "must be the folder server/ of `fedpca deploy keys`"),
    ],
)
def test_what_should_not_start_does_not(options: list[str], message: str, tmp_path: Path):
    done = subprocess.run([*FEDPCA, "deploy", *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not any(tmp_path.iterdir())


def test_a_run_needs_a_server(tmp_path: Path):
    done = subprocess.run([*FEDPCA, "deploy", "run", "app"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "belongs to no server" in done.stderr) == (1, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_is_known(host: str):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "fl.example.org", "localhost.example.org", ""])
def test_all_else_is_the_network(host: str):
    assert not is_loopback(host)


def test_addresses_are_host_and_port():
    assert address("fl.example.org:8000") == ("fl.example.org", 8000)
    assert address("[::1]:8000") == ("::1", 8000)
    for wrong in ("fl.example.org", "fl.example.org:x", ":8000", "https://fl.example.org:8000", "a:70000"):
        with pytest.raises(UserError, match="HOST:PORT"):
            address(wrong)


def test_flower_calls_nobody_and_finds_loopback_past_a_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_PROXY", "intra.example.org")
    seen = environment(tmp_path)
    assert seen["FLWR_TELEMETRY_ENABLED"] == "0"
    assert seen["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert seen["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert seen["NO_PROXY"] == seen["no_proxy"] == "intra.example.org,127.0.0.1,localhost"


def test_logs_keep_what_a_person_needs():
    assert without_chatter("WARNING :   Connection attempt failed, retrying in 1.17 seconds") is not None
    assert (
        without_chatter('2026-11-16T08:58:10Z INFO [uvicorn.access] "POST /v1/fleet/pull-messages HTTP/1.1" 200')
        is None
    )
    assert without_chatter("INFO :      ") is None


def test_without_the_extra_the_remedy_is_named(tmp_path: Path):
    """Python without its installed packages but with typer and fedpca, as after a plain `pip install fedpca`."""
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'flwr' else real(name, *rest)\n"
        "import fedpca.cli.main; sys.argv = ['fedpca', 'deploy', 'keys', 'berlin']; fedpca.cli.main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "pip install 'fedpca[flower]'" in done.stderr) == (2, True)


def test_the_command_line_starts_without_flower():
    heavy = ("flwr", "cryptography", "torch")
    code = f"import sys, fedpca.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
