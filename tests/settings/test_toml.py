"""Settings files that are none, and `--set`."""

from pathlib import Path

import pytest

from fedpca.errors import SettingsError
from fedpca.runs.check import check_experiment
from fedpca.settings.toml import change, read_table


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\xff", "it must be a text file in UTF-8"),
        (b"\x00\x01\x02", "is not valid TOML"),
        (b"rounds: 3", "line 1"),
        (b'{"rounds": 3}', "is not valid TOML"),
        (b"rounds = " + b"9" * 5000, "an integer is too long"),
        (b"rounds = " + b"9" * 100, "an integer is too long"),
        (b"seeds = [-9223372036854775809]", "an integer is too long"),
        (b"seeds = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b"seeds = " + b"[" * 50 + b"]" * 50, "nested too deeply"),
        (b"data = " + b"{a=" * 3000 + b"1" + b"}" * 3000, "nested too deeply"),
        (b"[" + b"a." * 3000 + b"a]\nb = 1", "nested too deeply"),
    ],
)
def test_a_file_that_is_no_settings_file_is_named_in_one_line(tmp_path: Path, content: bytes, word: str):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_table(path)
    message = str(caught.value)
    assert str(path) in message
    assert word in message
    assert len(message) < 400
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rounds=" + "9" * 5000, "an integer is too long"),
        ("seeds=" + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a." * 3000 + "a=1", "nested too deeply"),
    ],
)
def test_a_change_without_end_names_set(text: str, word: str):
    with pytest.raises(SettingsError) as caught:
        change({}, text)
    assert str(caught.value).startswith("--set ")
    assert word in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["# a comment=1", "[rare]\n#=1", "[a]\nb.c=1\n[d]\ne=1"])
def test_a_change_that_names_no_single_key_is_refused(text: str):
    with pytest.raises(SettingsError):
        check_experiment(change({"methods": ["fedavg"]}, text), "--set")
