"""The command line as a process, as a newcomer types it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

import fedpca as fedpca_package
from tests.results.made import a_line, write_run
from tests.unmeasured import unmeasured

TINY = """
rounds = 2
seeds = [0, 1]
[data]
clients = 4
train_images = 120
test_images = 60
[model]
name = "mlp"
[rare]
share = 0.25
"""


def fedpca(*words: object, cwd: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedpca", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert code == 1 or "Traceback" not in done.stderr
    return done


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_run_then_results(tiny: Path, tmp_path: Path):
    shown = fedpca("run", tiny, cwd=tmp_path).stdout
    assert "tiny: digits, 4 clients, 1 rare, 2 rounds" in shown
    assert "fedavg" in shown
    assert (tmp_path / "runs/tiny/fedavg/seed-1/summary.json").exists()
    again = fedpca("results", "runs", "--csv", "table.csv", cwd=tmp_path).stdout
    assert again == shown
    assert (tmp_path / "table.csv").read_text().splitlines()[1].startswith('"tiny: digits')
    (table,) = json.loads(fedpca("results", "runs", "--json", cwd=tmp_path).stdout)
    (row,) = table["rows"]
    assert (row["method"], row["seeds"], row["unfinished"]) == ("fedavg", 2, 0)


def test_results_in_every_form(tmp_path: Path):
    noise = {"clients": 0.2, "labels": 1.0}
    write_run(tmp_path / "runs/fedpca-d/seed-0", [a_line(number) for number in (1, 2, 3)], noise=noise)
    forms = ("--html", "page.html", "--figures", "figures", "--markdown", "t.md", "--latex", "t.tex", "--csv", "t.csv")
    forms += ("--clients", "clients.csv")
    done = fedpca("results", "runs", *forms, "--paper-of", "cifar10", "--round", 2, cwd=tmp_path)
    assert "<title>" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "t.md").read_text().startswith("### Worst and average over the test groups; made: digits")
    assert len((tmp_path / "clients.csv").read_text().splitlines()) == 5
    assert "\\toprule" in (tmp_path / "t.tex").read_text()
    assert {path.name for path in (tmp_path / "figures").iterdir()} >= {"plane.png", "plane.pdf", "accuracy.png"}
    assert "warmup" in done.stderr  # which cannot be drawn, and why
    assert "the paper: CIFAR-10" in done.stdout


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    write_run(tmp_path / "runs/fedpca-d/seed-0", [a_line(1)])
    (tmp_path / "there").write_text("a file")
    message = fedpca("results", "runs", "--html", "there/page.html", cwd=tmp_path, code=2).stderr
    assert "there/page.html cannot be written" in message
    assert (tmp_path / "there").read_text() == "a file"


def test_watch_of_finished_runs_says_so_and_serves_until_ctrl_c(tmp_path: Path):
    write_run(tmp_path / "runs/fedpca-d/seed-0", [a_line(1)])
    command = [sys.executable, "-m", "fedpca", "watch", "runs", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert "shows runs; its runs are finished; Ctrl-C stops" in line
        with urlopen(line.split()[0]) as page:
            assert b"<title>" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_methods_are_compared_seed_by_seed(tmp_path: Path):
    for method in ("fedavg", "median"):
        for seed in (0, 1):
            write_run(tmp_path / f"runs/{method}/{seed}", [a_line(1, groups=None)], method=method, seed=seed)
    shown = fedpca("results", "runs", "--against", "fedavg", "--deviation", "seeds", cwd=tmp_path).stdout
    assert "Minus fedavg, seed by seed" in shown
    assert "+0.00 [+0.00, +0.00]" in shown
    assert "over the seeds, of each seed's mean" in shown
    assert "--against qfedavg" in fedpca("results", "runs", "--against", "qfedavg", cwd=tmp_path, code=2).stderr


def test_one_unreadable_run_does_not_hide_the_others(tmp_path: Path):
    write_run(tmp_path / "runs/fedpca-d/seed-0", [a_line(1)])
    write_run(tmp_path / "runs/fedpca-d/seed-1", [a_line(1)], seed=1)
    (tmp_path / "runs/fedpca-d/seed-0/about.json").write_text("{")
    done = fedpca("results", "runs", cwd=tmp_path)
    assert "fedpca-d" in done.stdout
    assert "passed over: the run folder runs/fedpca-d/seed-0 cannot be read" in done.stderr
    (tmp_path / "runs/fedpca-d/seed-1/about.json").write_text("{")
    message = fedpca("results", "runs", cwd=tmp_path, code=2).stderr
    assert "seed-0 cannot be read" in message
    assert "seed-1 cannot be read" in message
    assert "no run with a tested round below runs" in message


def test_a_run_is_logged_where_it_is_told_to(tiny: Path, tmp_path: Path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    fedpca("run", tiny, "--seed", 0, "--log-to", "tensorboard", "--out", "here", cwd=tmp_path)
    assert list((tmp_path / "here/tensorboard").rglob("events.out.tfevents.*"))
    message = fedpca("run", tiny, "--seed", 1, "--log-to", "tensorbord", "--out", "here", cwd=tmp_path, code=2).stderr
    assert "did you mean 'tensorboard'" in message


def test_options_narrow_and_change_the_experiment(tiny: Path, tmp_path: Path):
    fedpca("run", tiny, "--seed", 5, "--method", "fedavg", "--set", "rounds=1", "--out", "here", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "here/fedavg").iterdir()] == ["seed-5"]
    assert len((tmp_path / "here/fedavg/seed-5/rounds.jsonl").read_text().splitlines()) == 1


def test_settings_of_a_file_go_into_folders_and_tables_of_their_own(tmp_path: Path):
    settings = "".join(f"[setting.'rho={rho}']\nnoise = {{clients = {rho}, labels = 0.5}}\n" for rho in (0.5, 0.25))
    (tmp_path / "many.toml").write_text(TINY + settings)
    done = fedpca("run", "many.toml", "--setting", "rho=0.25", "--seed", 0, cwd=tmp_path)
    assert done.stderr.startswith("rho=0.25: 4 clients; ")
    assert [path.name for path in (tmp_path / "runs/many").iterdir()] == ["rho=0.25"]
    assert "[setting" not in (tmp_path / "runs/many/rho=0.25/fedavg/seed-0/settings.toml").read_text()
    done = fedpca("run", "many.toml", "--resume", cwd=tmp_path)
    assert "1 of 4 runs were finished before" in done.stderr
    assert "rho=0.5; rho=0.25: 4 clients; " in done.stderr
    places = [
        done.stderr.index(f"rho={rho}: fedavg seed {seed} round 2/2") for seed, rho in ((0, 0.5), (1, 0.5), (1, 0.25))
    ]
    assert places == sorted(places)
    assert "many, rho=0.5: digits, 4 clients, 1 rare, 2 mislabeled (50% of their labels), 2 rounds" in done.stdout
    assert "many, rho=0.25: digits, 4 clients, 1 rare, 1 mislabeled (50% of their labels), 2 rounds" in done.stdout
    assert fedpca("results", "runs", "--markdown", "t.md", cwd=tmp_path).stdout == done.stdout
    head = (tmp_path / "t.md").read_text().splitlines()[2]
    assert head.index("ρ = 0.25, η = 0.5<br>worst ACC") < head.index("ρ = 0.5, η = 0.5<br>worst ACC")


def test_a_fault_in_one_setting_comes_before_any_is_played(tmp_path: Path):
    (tmp_path / "many.toml").write_text(TINY + "[setting.fine]\n[setting.crowd]\ndata.clients = 500\n")
    message = fedpca("run", "many.toml", cwd=tmp_path, code=2).stderr
    assert "setting 'crowd': 500 clients need" in message
    assert not (tmp_path / "runs").exists()
    assert "did you mean 'crowd'?" in fedpca("run", "many.toml", "--setting", "crwd", cwd=tmp_path, code=2).stderr


def test_a_finished_run_is_neither_overwritten_nor_repeated(tiny: Path, tmp_path: Path):
    fedpca("run", tiny, "--seed", 0, cwd=tmp_path)
    before = (tmp_path / "runs/tiny/fedavg/seed-0/rounds.jsonl").read_bytes()
    message = fedpca("run", tiny, "--seed", 0, cwd=tmp_path, code=2).stderr
    assert "holds a run already: continue it with --resume" in message
    fedpca("run", tiny, "--resume", cwd=tmp_path)
    assert (tmp_path / "runs/tiny/fedavg/seed-0/rounds.jsonl").read_bytes() == before
    assert (tmp_path / "runs/tiny/fedavg/seed-1/summary.json").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data]\nclients = 3\nsplt = 'iid'", ["bad.toml", "data.splt", "did you mean 'split'?"]),
        ("rounds = 'many'", ["bad.toml", "rounds", "'many'"]),
        ("methods = ['fedavgs']", ["fedavgs", "did you mean 'fedavg'?"]),
        ("[data]\nclients = 5000", ["5000 clients", "fewer clients"]),
        ("[data]\nclients = 5\ndataset = 'nowhere'", ["nowhere"]),
        ("[model]\nname = 'resnet19'", ["resnet19", "resnet18"]),
    ],
)
def test_a_mistake_gets_one_clear_message_and_exit_code_2(tmp_path: Path, text: str, words: list[str]):
    (tmp_path / "bad.toml").write_text(text)
    message = fedpca("run", "bad.toml", cwd=tmp_path, code=2).stderr
    assert message.startswith("fedpca: ")
    for word in words:
        assert word in message
    assert not (tmp_path / "runs").exists(), "nothing is half written"


def test_an_absent_file_and_an_absent_folder(tmp_path: Path):
    assert "did you mean 'digits'?" in fedpca("run", "digit", cwd=tmp_path, code=2).stderr
    (tmp_path / "folder.toml").mkdir()
    assert "folder.toml cannot be read" in fedpca("run", "folder.toml", cwd=tmp_path, code=2).stderr
    assert "no settings file absent.toml" in fedpca("run", "absent.toml", cwd=tmp_path, code=2).stderr
    assert "no folder absent" in fedpca("results", "absent", cwd=tmp_path, code=2).stderr
    assert "no run with a tested round below ." in fedpca("results", ".", cwd=tmp_path, code=2).stderr


def test_a_users_own_model_and_data_beside_the_settings(tmp_path: Path):
    import numpy as np

    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    images = rng.integers(0, 60, (90, 10, 10, 3)).astype(np.uint8) + (80 * labels)[:, None, None, None].astype(np.uint8)
    np.savez(tmp_path / "mine.npz", x=images, y=labels)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def build(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(300, 20), nn.ReLU(), nn.Linear(20, classes))\n"
    )
    (tmp_path / "mine.toml").write_text(
        "rounds = 5\nseeds = [0]\n[data]\ndataset = 'mine.npz'\nclients = 3\n[model]\nname = 'mine:build'\n"
        "[training]\nbatch = 8\n"
    )
    (table,) = json.loads(
        (fedpca("run", "mine.toml", cwd=tmp_path), fedpca("results", "runs", "--json", cwd=tmp_path))[1].stdout
    )
    assert table["rows"][0]["acc"]["worst"]["mean"] > 80  # classes differ in brightness: easy


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path: Path):
    (tmp_path / "long.toml").write_text(TINY.replace("rounds = 2", "rounds = 100000"))
    command = [sys.executable, "-m", "fedpca", "run", "long.toml", "--workers", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=tmp_path, env=unmeasured(), stderr=pipe, stdout=pipe, text=True)
    rounds = tmp_path / "runs/long/fedavg/seed-0/rounds.jsonl"
    while process.poll() is None and not (rounds.exists() and rounds.stat().st_size):
        time.sleep(0.02)
    shown = fedpca("results", "runs", cwd=tmp_path).stdout
    assert "not finished" in shown
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume" in message
    assert "Traceback" not in message


def test_list_for_people_and_for_scripts():
    assert "Size-weighted mean" in fedpca("list", "methods").stdout
    assert "cnn-small" in fedpca("list", "models").stdout
    assert "the next class" in fedpca("list", "noise").stdout
    assert "20 clients" in fedpca("list", "experiments").stdout
    (method, *_) = json.loads(fedpca("list", "methods", "--json").stdout)
    assert method["name"] == "fedavg"
    assert set(method) == {"name", "summary", "family", "settings"}
    assert {entry["name"] for entry in json.loads(fedpca("list", "datasets", "--json").stdout)} >= {"digits", "cifar10"}


def test_experiments_in_folders_are_listed_and_found_where_the_package_is_installed(tmp_path: Path):
    """A copy of the package as it is installed: the experiments lie inside it."""
    package = tmp_path / "site" / "fedpca"
    shutil.copytree(Path(fedpca_package.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "experiments/lite").mkdir(parents=True)
    (package / "experiments/zebra.toml").write_text("# at the top\n" + TINY)
    (package / "experiments/lite/quick.toml").write_text("# two settings\n[setting.a]\n[setting.b]\nrounds = 'x'\n")

    def installed(*words: str) -> subprocess.CompletedProcess[str]:
        place = {**os.environ, "PYTHONPATH": str(package.parent)}
        command = [sys.executable, "-m", "fedpca", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=place)

    lines = installed("list", "experiments").stdout.splitlines()
    assert [line.split() for line in lines] == [["zebra", "at", "the", "top"], ["lite/quick", "two", "settings"]]
    assert f"{package}/experiments/lite/quick.toml, setting 'b': rounds" in installed("run", "lite/quick").stderr
    assert "did you mean 'lite/quick'?" in installed("run", "quick").stderr


def test_wrong_usage_has_exit_code_2():
    assert "No such option" in fedpca("run", "x.toml", "--sed", "3", code=2).stderr
    fedpca("list", "things", code=2)


def test_version_and_help():
    assert fedpca("--version").stdout.startswith("fedpca 0.")
    for command in ("demo", "run", "results", "list"):
        assert command in fedpca("--help").stdout
        assert "Usage" in fedpca(command, "--help").stdout


@pytest.mark.parametrize("words", [["--help"], ["list", "methods"], ["list", "experiments"], ["run", "--help"]])
def test_help_and_list_do_not_import_torch(words: list[str]):
    command = [sys.executable, "-X", "importtime", "-m", "fedpca", *words]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    names = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "fedpca.cli.main" in names
    assert not names & {"torch", "sklearn", "scipy", "pyarrow"}
