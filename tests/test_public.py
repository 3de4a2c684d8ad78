"""What the README promises to people who write Python."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedpca

README = Path(__file__).parents[1] / "README.md"


def test_every_public_name_is_there():
    for name in fedpca.__all__:
        assert getattr(fedpca, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = fedpca.absent


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def printed(code: str, folder: Path) -> list[str]:
    """What a process prints that runs this code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_readmes_example_runs_as_written(tmp_path: Path):
    (code,) = blocks(README)
    assert printed(code, tmp_path)[-1] == "['hospital 3']"
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert (tmp_path / "runs/mine/fedpca/seed-0/summary.json").exists()


def test_the_examples_of_the_page_on_python_run_as_written(tmp_path: Path):
    call, experiment, loop = blocks(README.parent / "docs" / "python.md")
    out = tmp_path / "out"
    assert printed(experiment.replace("runs/python", str(out)), README.parent)[-1].startswith("[{'method': 'fedavg', ")
    assert (out / "page.html").exists()
    assert printed(call, README.parent)[-1].startswith("{'round': 3, 'worst_acc': 0.")
    assert printed(loop.replace("rounds=20", "rounds=12"), README.parent)[-1].startswith("12 [")


def test_the_architecture_page_names_every_folder():
    text = (README.parent / "docs" / "architecture.md").read_text()
    folders = {path.parent.name for path in Path(fedpca.__file__).parent.rglob("*.py")} - {"fedpca"}
    assert [name for name in sorted(folders) if f"{name}/" not in text] == []


def test_the_readme_is_short_and_names_the_first_commands():
    lines = README.read_text().splitlines()
    assert len(lines) <= 155
    for command in ("make demo", "make test", ". .venv/bin/activate"):
        assert any(line.strip().startswith(command) for line in lines), command
