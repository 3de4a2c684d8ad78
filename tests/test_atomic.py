from pathlib import Path

import pytest

from fedpca.atomic import write_whole


def test_whole_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "folder/file"
    write_whole(path, "old")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", dies)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    assert path.read_text() == "old"


def test_a_full_disk_leaves_the_old_file_and_no_part_of_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "file"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedpca.atomic.to_disk", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
