"""`fedpca data` as a newcomer types it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from fedpca.cli.main import main
from fedpca.data.datasets import load
from fedpca.runs.check import read_experiment
from tests.data.made import encoded, isic_folder, rsna_folder, write
from tests.data.test_number_tables import rows_of, write_csv
from tests.unmeasured import unmeasured

Command = Callable[..., str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data folder; no other folder of the user is looked at."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("FEDPCA_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("FEDPCA_CACHE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "data"
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture
def fedpca(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process: to import PyTorch for every command would take too long."""

    def run(*words: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["fedpca", "data", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        assert end.value.code == code, shown
        return shown.out + shown.err

    return run


def test_check_of_a_whole_a_half_copied_and_an_empty_folder(here: Path, fedpca: Command):
    folder = isic_folder(here / "isic-2019", [row % 8 for row in range(16)])
    shown = fedpca("check", "isic-2019")
    assert shown.startswith("isic-2019: complete\n")
    for words in (str(folder), "17 (", "16 (8 train, 8 test)", "MEL 2, NV 2", "24x16", "fedpca data prepare isic-2019"):
        assert words in shown
    next((folder / "ISIC_2019_Training_Input").iterdir()).unlink()
    shown = fedpca("check", "isic-2019", code=1)
    assert shown.startswith("isic-2019: not complete\n")
    for words in ("1 of 16 images is missing", "https://challenge.isic-archive.com", "ISIC_2019_Training_Input.zip"):
        assert words in shown
    (here.parent / "empty" / "isic-2019").mkdir(parents=True)
    assert "is empty" in fedpca("check", "isic-2019", "--data-dir", here.parent / "empty", code=1)


def test_check_for_scripts(here: Path, fedpca: Command):
    rsna_folder(here / "rsna-ich", [0, 1] * 5)
    report = json.loads(fedpca("check", "rsna-ich", "--json", "--deep"))
    assert (report["name"], report["complete"], report["errors"]) == ("rsna-ich", True, [])
    assert report["classes"] == {"no haemorrhage": 5, "haemorrhage": 5}
    assert (report["files"], report["sizes"], report["decoded"]) == (11, {"8x8": 10}, None)
    report = json.loads(fedpca("check", "cifar10", "--json", code=1))
    assert not report["complete"]
    assert "not there" in report["errors"][0]
    assert report["page"].startswith("https://")
    assert report["get"]


def test_check_of_a_users_own_path_and_of_a_typo(here: Path, fedpca: Command):
    for name in ("cat", "dog"):
        for number in range(4):
            write(here.parent / "own" / name / f"{number}.png", encoded("PNG", number))
    assert "cat 4, dog 4" in fedpca("check", here.parent / "own")
    write(here.parent / "own" / "cat" / "2.png", b"no image")
    assert "2.png (not an image" in fedpca("check", here.parent / "own", code=1)
    assert "did you mean 'cifar10'" in fedpca("check", "cifar1", code=2)


def test_prepare_decodes_once_what_a_run_will_ask_for(here: Path, fedpca: Command):
    isic_folder(here / "isic-2019", [0, 1] * 10)
    settings = here.parent / "mine.toml"
    settings.write_text(
        'rounds = 1\nseeds = [0]\n[data]\ndataset = "isic-2019"\nclients = 2\nseed = 5\nimage_size = 16\n'
        '[model]\nname = "mlp"\n[training]\nbatch = 4\n'
    )
    first = fedpca("prepare", settings)
    (entry,) = (here.parent / "user/fedpca/decoded").iterdir()
    assert "isic-2019: 20 images of 3x16x16, 8 classes: decoded in" in first
    assert f"s into {entry} (" in first
    assert f"decoded before, in {entry}" in fedpca("prepare", settings)
    assert str(entry) in fedpca("check", settings)
    load(read_experiment(settings).data)
    assert list((here.parent / "user/fedpca/decoded").iterdir()) == [entry]
    fedpca("prepare", "isic-2019", "--image-size", 32)
    assert len(list((here.parent / "user/fedpca/decoded").iterdir())) == 2
    assert "nothing to decode" in fedpca("prepare", "digits")


def test_a_file_of_several_settings_counts_if_they_share_their_data(here: Path, fedpca: Command):
    isic_folder(here / "isic-2019", [0, 1] * 5)
    settings = here.parent / "two.toml"
    table = '[data]\ndataset = "isic-2019"\nclients = 2\n[setting.a.rare]\nshare = 0.5\n[setting.b.data]\n'
    settings.write_text(table + "clients = 3\n")
    assert "isic-2019: complete" in fedpca("check", settings)
    settings.write_text(table + "image_size = 32\n")
    assert "two.toml holds settings with different data" in fedpca("check", settings, code=2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "kill"])
def test_an_interrupted_prepare_leaves_nothing(here: Path, number: int, code: int):
    picture = encoded("PNG", 7, (600, 600))
    for part, name in product(("train", "test"), ("cat", "dog")):  # nothing to split, so that PyTorch is not imported
        for row in range(300):
            write(here.parent / "own" / part / name / f"{row}.png", picture)
    command = [sys.executable, "-m", "fedpca", "data", "prepare", str(here.parent / "own"), "--image-size", "64"]
    process = subprocess.Popen(command, env=unmeasured(), stderr=subprocess.PIPE, text=True)
    cache = here.parent / "user/fedpca/decoded"
    while process.poll() is None and not list(cache.glob(".*/train_images.npy")):
        time.sleep(0.005)
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == code, message
    assert "Traceback" not in message
    assert list(cache.iterdir()) == []


def test_a_table_is_described(here: Path, fedpca: Command):
    write_csv(here / "hospitals" / "all.csv", rows_of())
    shown = fedpca("check", "hospitals")
    for words in ("hospitals: complete", "60 (48 train, 12 test)", "age: number, ", "ca: number, ", "20 missing"):
        assert words in shown
    assert "pain: category of 2 (none, typical), " in shown
    assert "decoded" not in shown
    report = json.loads(fedpca("check", "hospitals", "--json"))
    assert list(report["columns"]) == ["center", "age", "pain", "ca"]
    assert "60 rows of 4 columns, 2 classes: a table" in fedpca("prepare", "hospitals")


def test_data_alone_lists_what_there_is(here: Path, fedpca: Command):
    isic_folder(here / "isic-2019", [0, 1] * 4)
    (here / "mine").mkdir()
    write(here / "mine" / "a.txt", "a")
    write_csv(here / "hospitals" / "all.csv", rows_of())
    shown = {line.split()[0]: line for line in fedpca().splitlines()}
    assert "embedded" in shown["digits"]
    assert str(here.parent / "data/isic-2019") in shown["isic-2019"]
    assert "missing" in shown["rsna-ich"]
    assert "yours" in shown["mine"]
    assert "table" in shown["hospitals"]
    assert "behind check" in fedpca("--data-dir", here.parent, "check", "digits", code=2)
