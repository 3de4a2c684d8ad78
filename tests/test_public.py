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


def test_the_readmes_example_runs_as_written(tmp_path: Path):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = code.replace("rounds=20", "rounds=12")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=README.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("12 [")


def test_the_readmes_tree_names_every_module():
    text = README.read_text()
    for path in Path(fedpca.__file__).parent.rglob("*.py"):
        if not path.name.startswith("__"):
            assert path.name in text, path
