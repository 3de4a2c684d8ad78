"""A site's memory outlives its processes, and is as it was when a round is asked for again."""

from pathlib import Path

import pytest
import torch

from fedpca.errors import RunError
from fedpca.sites.memory import identity, recall, remember


def kept(store: Path, round: int, half: str, value: int) -> None:
    remember(store, "run", round, half, {"value": torch.tensor([value])})


def found(store: Path, round: int, half: str) -> int | None:
    memory = recall(store, "run", round, half)
    return int(memory["value"]) if memory else None


def test_a_half_of_a_round_finds_what_the_half_before_left(tmp_path: Path):
    assert found(tmp_path, 1, "report") is None
    kept(tmp_path, 1, "report", 10)
    assert found(tmp_path, 1, "train") == 10
    kept(tmp_path, 1, "train", 11)
    assert found(tmp_path, 2, "report") == 11
    assert found(tmp_path, 9, "report") == 11, "also after rounds that it missed"


def test_a_round_that_is_asked_for_again_finds_what_it_found_at_first(tmp_path: Path):
    for round in (1, 2, 3):
        kept(tmp_path, round, "report", 10 * round)
        kept(tmp_path, round, "train", 10 * round + 1)
    assert found(tmp_path, 3, "report") == 21
    kept(tmp_path, 3, "report", 99)
    assert found(tmp_path, 3, "train") == 99


def test_what_no_round_can_need_is_removed(tmp_path: Path):
    for round in range(1, 30):
        kept(tmp_path, round, "report", round)
        kept(tmp_path, round, "train", round)
    assert len(list((tmp_path / "run").iterdir())) == 5  # of this round, of the one before, and what that began with
    assert found(tmp_path, 28, "report") == 27


def test_a_method_without_memory_leaves_no_files(tmp_path: Path):
    remember(tmp_path, "run", 1, "train", {})
    assert not (tmp_path / "run").exists()


def test_an_emptied_memory_stays_empty(tmp_path: Path):
    kept(tmp_path, 1, "train", 1)
    remember(tmp_path, "run", 2, "train", {})
    assert found(tmp_path, 3, "report") is None


def test_runs_do_not_see_each_others_memory(tmp_path: Path):
    kept(tmp_path, 1, "train", 1)
    assert recall(tmp_path, "another", 2, "train") == {}


def test_a_damaged_memory_is_named(tmp_path: Path):
    kept(tmp_path, 1, "train", 1)
    path = tmp_path / "run" / "000001-1.safetensors"
    path.write_bytes(b"\x80\x04damaged")
    with pytest.raises(RunError, match=f"cannot be read from {path}"):
        recall(tmp_path, "run", 2, "report")


def test_a_store_has_one_identity_and_another_store_another(tmp_path: Path):
    assert identity(tmp_path / "a") == identity(tmp_path / "a") != identity(tmp_path / "b")
