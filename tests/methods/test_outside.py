"""A method that somebody else wrote, used without touching fedpca."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedpca.errors import SettingsError
from fedpca.methods.registry import facts, parse

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "trimmed_mean.py"
FEW = ("--set", "rounds=2", "--set", 'model.name="mlp"', "--set", "data.clients=6", "--seed", "0")


def fedpca(*words: object, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fedpca", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with the example in it, as a user's own."""
    (tmp_path / "trimmed_mean.py").write_text(EXAMPLE.read_text())
    return tmp_path


def test_the_guide_shows_the_example_as_it_is():
    assert EXAMPLE.read_text() in (ROOT / "CONTRIBUTING.md").read_text()
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) < 25


def test_by_module_and_function_alone_in_a_pair_and_with_dropping(elsewhere: Path):
    own = "trimmed_mean:trimmed_mean"
    names = [own, f"qfedavg+{own}", f"{own}+d"]
    methods = [word for name in names for word in ("--method", name)]
    setting = ("--set", f'method."{own}".share=0.2', "--set", f'method."{own}+d".warmup=1')
    done = fedpca("run", "digits", *methods, *FEW, *setting, "--out", "runs", cwd=elsewhere)
    assert f"{own} (share=0.2)" in done.stdout
    for name in names:
        folder = elsewhere / "runs" / name.replace(":", "-") / "seed-0"
        settings = tomllib.loads((folder / "settings.toml").read_text())
        assert settings["method"][own] == {"share": 0.2}
        assert json.loads((folder / "summary.json").read_text())["rare_weight_times_not_mislabeled"] is None


def test_by_a_name_that_a_package_registers(elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", f"{elsewhere}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")  # it is installed
    registered = elsewhere / "trimmed-1.0.dist-info"
    registered.mkdir()
    (registered / "METADATA").write_text("Metadata-Version: 2.1\nName: trimmed\nVersion: 1.0\n")
    (registered / "entry_points.txt").write_text("[fedpca.methods]\ntrimmed-share = trimmed_mean:trimmed_mean\n")
    done = fedpca("run", "digits", "--method", "fedavg+trimmed-share", *FEW, "--out", "runs", cwd=elsewhere)
    assert "fedavg+trimmed-share" in done.stdout
    assert "trimmed-share  " in fedpca("list", "methods", cwd=elsewhere).stdout
    described = fedpca("list", "methods", "trimmed-share", cwd=elsewhere).stdout
    assert "without the largest and smallest values" in described
    assert "share  0.1" in described


def test_its_settings_are_checked(elsewhere: Path):
    wrong = ("--set", 'method."trimmed_mean:trimmed_mean".shares=0.2')
    done = fedpca("run", "digits", "--method", "trimmed_mean:trimmed_mean", *FEW, *wrong, cwd=elsewhere, code=2)
    assert "unknown key 'method.trimmed_mean:trimmed_mean.shares' (did you mean 'share'?)" in done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "the module 'own' cannot be imported"),
        ("other = 1", "has no 'method'"),
        ("method = 1", "must be a fedpca.Definition, got int"),
        (
            "def method(plan, settings): ...",
            "must be a fedpca.Definition, got function: write @fedpca.method() above it",
        ),
    ],
)
def test_what_is_not_a_method_is_refused(tmp_path: Path, monkeypatch, code: str | None, words: str):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    if code is not None:
        (tmp_path / "own.py").write_text(code)
    with pytest.raises(SettingsError) as caught:
        facts("own:method")
    assert words in str(caught.value)


def test_a_function_that_returns_something_else(tmp_path: Path):
    (tmp_path / "own.py").write_text("import fedpca\n\n\n@fedpca.method()\ndef method(plan, settings):\n    return 3")
    done = fedpca("run", "digits", "--method", "own:method", *FEW, cwd=tmp_path, code=2)
    assert "method 'own:method' must return a fedpca.Method, got int" in done.stderr


def test_names_are_taken_apart():
    assert parse("fedavg+own.module:method+d") == (("fedavg", "own.module:method"), True)
    assert parse("fedism++median") == (("fedism+", "median"), False)
    assert parse("fedism++d") == (("fedism+",), True)
    assert parse("rfa+rfa") == (("rfa", "rfa"), False)
