"""Each named dataset is defined once, in an entry that says all of it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedpca
from fedpca.data.formats.recognise import FORMATS
from fedpca.data.known import KNOWN

ROOT = Path(fedpca.__file__).parent


@pytest.mark.parametrize("name", KNOWN)
def test_an_entry_says_what_it_is_and_where_to_get_it(name: str):
    known = KNOWN[name]
    assert f"{known.images:,}" in known.summary
    assert known.page.startswith("https://")
    assert known.embedded or (known.folders and known.get and known.needs)
    assert known.format is None or known.format in FORMATS


@pytest.mark.parametrize("name", KNOWN)
def test_a_named_dataset_stands_in_one_file(name: str):
    """But for the default of the settings, and the words by which random numbers are drawn."""
    homes = [path for path in ROOT.rglob("*.py") if re.search(rf'^\s*"{name}": ', path.read_text(), re.MULTILINE)]
    assert [path.relative_to(ROOT).as_posix() for path in homes] == ["data/known.py"]


def test_the_list_of_datasets_needs_neither_torch_nor_numpy():
    code = "import sys, fedpca.data.known; print({'torch', 'numpy'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
