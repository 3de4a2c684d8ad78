"""What is taken for a dataset, and what is not."""

import pytest

from fedpca.data.formats.recognise import FORMATS, KINDS, recognise
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings

SETTINGS = DataSettings(clients=2)


def test_nothing_known_is_recognised_in_an_empty_folder_or_a_strange_file(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    assert recognise(tmp_path, SETTINGS) is None
    assert recognise(tmp_path / "notes.txt", SETTINGS) is None
    assert recognise(tmp_path / "absent", SETTINGS) is None


def test_a_folder_of_several_datasets_is_ambiguous(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.parquet").touch()
    with pytest.raises(DataError, match=r"one, two.*path of one"):
        recognise(tmp_path, SETTINGS)


def test_every_format_says_what_it_needs_and_refuses_what_is_not_its_own(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for name, known in FORMATS.items():
        assert known.name == name
        assert known.needs in KINDS
        assert known.recognise(tmp_path, SETTINGS) is known.recognise(tmp_path / "notes.txt", SETTINGS) is None
