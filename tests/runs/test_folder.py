"""Lines of a run folder: appended, cut back, read while they are written."""

import json

import pytest

from fedpca.errors import RunError
from fedpca.runs.folder import ROUNDS, append_round, keep_rounds, locked_run, parse_rounds, read_rounds


def test_rounds_after_the_checkpoint_are_cut(tmp_path):
    for number in (1, 2, 3):
        append_round(tmp_path, {"round": number})
    with (tmp_path / ROUNDS).open("a") as file:
        file.write('{"round": 4, "gro')
    keep_rounds(tmp_path, 2)
    lines = (tmp_path / ROUNDS).read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]
    with pytest.raises(RunError, match="fewer than the 3 rounds"):
        keep_rounds(tmp_path, 3)


def test_a_second_writer_is_refused(tmp_path):
    with locked_run(tmp_path), pytest.raises(RunError, match="written by another process"), locked_run(tmp_path):
        pass
    with locked_run(tmp_path):
        pass


def test_numbers_that_json_does_not_know_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        append_round(tmp_path, {"loss": float("nan")})


def test_a_line_that_is_being_written_is_passed_over(tmp_path):
    for number in (1, 2):
        append_round(tmp_path, {"round": number})
    size = (tmp_path / ROUNDS).stat().st_size
    with (tmp_path / ROUNDS).open("a") as file:
        file.write('{"round": 3')
    assert read_rounds(tmp_path) == [{"round": 1}, {"round": 2}]
    assert parse_rounds((tmp_path / ROUNDS).read_bytes())[1] == size
    with pytest.raises(RunError, match="cannot be read"):
        read_rounds(tmp_path / "elsewhere")


@pytest.mark.parametrize("line", [b"null", b"[1]", b"3", b"{", b"[" * 100_000, b'{"round": ' + b"9" * 5000 + b"}"])
def test_a_line_that_is_no_round_is_one_message(tmp_path, line: bytes):
    (tmp_path / ROUNDS).write_bytes(line + b"\n")
    with pytest.raises(RunError, match="cannot be read"):
        read_rounds(tmp_path)
