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
