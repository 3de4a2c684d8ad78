"""A finished run goes on with more rounds: to the same bits where the method does not depend on their number."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open

from fedpca.errors import RunError
from fedpca.runs import checkpoint, folder
from fedpca.runs.cell import Cell, cells, check_folder, is_done
from fedpca.runs.check import check_experiment, read_stored
from fedpca.runs.replan import Change, earlier_plans, going_on
from fedpca.runs.run import prepare, run_cell
from fedpca.settings.experiment import Experiment


def ignore(cell: Cell, line: dict) -> None:
    pass


def with_rounds(experiment: Experiment, rounds: int, name: str = "fedavg", **changes: object) -> Experiment:
    return experiment.model_copy(update={"rounds": rounds, "methods": (name,), **changes})


def play(experiment: Experiment, out: Path, watch=ignore) -> Cell:
    (cell,) = cells(experiment, out)
    check_folder(cell, resume=True)
    run_cell(cell, *prepare(experiment), 1, watch)
    return cell


def record(cell: Cell) -> dict[str, object]:
    """All files of a run but for the time that it took."""
    found: dict[str, object] = {
        name: (cell.folder / name).read_bytes() for name in (folder.SETTINGS, folder.ABOUT, folder.FINAL)
    }
    with safe_open(cell.folder / folder.CHECKPOINT, "pt") as file:
        found[folder.CHECKPOINT] = json.loads(file.metadata()["server"])
        found |= {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118 (not a dict)
    found[folder.ROUNDS] = [{**line, "seconds": 0} for line in folder.read_rounds(cell.folder)]
    return found | {folder.SUMMARY: {**json.loads((cell.folder / folder.SUMMARY).read_text()), "seconds": 0}}


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg", {}),
        ("fedavg", {"participation": 0.5, "checkpoint_every": 4}),
        ("rfa", {}),
        ("fedce", {}),  # clients remember their models
        ("fedce+median", {}),  # the server keeps and shows a vector
        ("fedpca-d-auto", {"method": {"fedpca-d-auto": {"warmup": 2}}}),
    ],
)
def test_a_finished_run_that_goes_on_ends_in_the_bytes_of_a_longer_one(
    small: Experiment, tmp_path: Path, method: str, changes: dict
):
    straight = play(with_rounds(small, 6, method, **changes), tmp_path / "straight")
    play(with_rounds(small, 3, method, **changes), tmp_path / "twice")
    longer = play(with_rounds(small, 6, method, **changes), tmp_path / "twice")
    assert is_done(longer)
    assert record(longer) == record(straight)


@pytest.mark.parametrize("model", ["cnn-small", "tests.runs.test_replan:normed"])
def test_final_weights_come_back_into_their_places(small: Experiment, tmp_path: Path, model: str):
    """Of convolutions, which lie channels last, of running statistics, of frozen weights and of counters."""
    other = check_experiment({**small.model_dump(mode="json", exclude_none=True), "model": {"name": model}}, "other")
    straight = play(with_rounds(other, 2), tmp_path / "straight")
    play(with_rounds(other, 1), tmp_path / "twice")
    assert record(play(with_rounds(other, 2), tmp_path / "twice")) == record(straight)


def normed(shape: tuple[int, ...], classes: int):
    from torch import nn

    frozen = nn.Conv2d(shape[0], 3, 3).requires_grad_(False)
    return nn.Sequential(frozen, nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, classes))


def test_features_are_those_of_the_last_model(small: Experiment, tmp_path: Path):
    settings = small.model_copy(update={"evaluation": small.evaluation.model_copy(update={"features": 4})})
    straight = play(with_rounds(settings, 4), tmp_path / "straight")
    play(with_rounds(settings, 2), tmp_path / "twice")
    longer = play(with_rounds(settings, 4), tmp_path / "twice")
    assert (longer.folder / folder.FEATURES).read_bytes() == (straight.folder / folder.FEATURES).read_bytes()


def test_where_the_method_depends_on_their_number_it_is_said_and_recorded(small: Experiment, tmp_path: Path):
    play(with_rounds(small, 3, "fedga"), tmp_path)
    for rounds in (5, 7):
        (cell,) = cells(with_rounds(small, rounds, "fedga"), tmp_path)
        words = list(going_on([cell]))
        assert words[0] == f"fedga seed 0 goes on after round {rounds - 2}: rounds was {rounds - 2}, is now {rounds}"
        assert f"fedga: rounds 1 to {rounds - 2} were played under a plan of {rounds - 2} rounds" in words[1]
        play(cell.settings, tmp_path)
    assert folder.read_about(cell.folder)["earlier_plans"] == [{"rounds": 3, "until": 3}, {"rounds": 5, "until": 5}]
    assert [line["round"] for line in folder.read_rounds(cell.folder)] == list(range(1, 8))
    assert not list(going_on([cell])), "nothing more to say"


def test_runs_that_go_on_alike_are_said_in_one_line(small: Experiment, tmp_path: Path):
    three = [play(with_rounds(small, 2, name), tmp_path).method for name in ("fedavg", "fedga", "fedism+")]
    words = list(going_on(cells(small.model_copy(update={"rounds": 4, "methods": tuple(three)}), tmp_path)))
    assert words[0] == "3 runs go on after round 2: rounds was 2, is now 4"
    assert words[1].startswith("warning: fedga, fedism+: ")
    assert len(words) == 2


def test_an_unfinished_run_may_go_on_with_more_rounds_or_fewer(small: Experiment, tmp_path: Path):
    def stop(cell: Cell, line: dict) -> None:
        if line["round"] == 4:
            raise KeyboardInterrupt

    straight = play(with_rounds(small, 5), tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        play(with_rounds(small, 9), tmp_path / "cut", stop)
    assert record(play(with_rounds(small, 5), tmp_path / "cut")) == record(straight)


def test_earlier_plans_are_those_that_rounds_were_played_under():
    plans = earlier_plans([], Change(played=20, before=30, now=60))
    assert plans == [{"rounds": 30, "until": 20}]
    assert earlier_plans(plans, Change(20, 60, 90)) == plans, "none of 60"
    assert earlier_plans(plans, Change(20, 60, 30)) == [], "as it was"
    assert earlier_plans(plans, Change(50, 60, 60)) == plans, "an interruption"
    assert earlier_plans(plans, Change(50, 60, 90)) == [*plans, {"rounds": 60, "until": 50}]
    assert earlier_plans([], Change(0, 30, 60)) == []


def test_refusals_leave_the_folder_as_it_is(small: Experiment, tmp_path: Path):
    cell = play(with_rounds(small, 3), tmp_path)
    before = record(cell)
    with pytest.raises(RunError, match=r"has 3 rounds, and rounds = 2 would take .* set rounds to 3 or more"):
        play(with_rounds(small, 2), tmp_path)
    with pytest.raises(RunError, match=r"participation was 1.0, is now 0.5.*: choose another --out$"):
        play(with_rounds(small, 6, participation=0.5), tmp_path)
    assert record(cell) == before
    shutil.rmtree(cell.folder / "checkpoint")  # as an earlier version left it
    refusal = r"finished after 3 rounds and kept only its final weights.* --out for a run of 6, set rounds = 3 again"
    with pytest.raises(RunError, match=refusal):
        play(with_rounds(small, 6), tmp_path)
    assert is_done(cell)
    check_folder(cell, resume=True)


def test_weights_that_do_not_fit_the_model_are_refused_before_anything_is_removed(small: Experiment, tmp_path: Path):
    cell = play(with_rounds(small, 2), tmp_path)
    (cell.folder / folder.FINAL).unlink()
    with pytest.raises(RunError, match="cannot go on from its final weights"):
        play(with_rounds(small, 4), tmp_path)
    assert is_done(cell)
    assert read_stored(cell.folder / folder.SETTINGS).rounds == 2


@pytest.mark.parametrize("keep", [False, True])
def test_what_is_larger_than_the_model_is_kept_on_request(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
):
    monkeypatch.setattr(checkpoint, "SMALL", 0)
    settings = with_rounds(small, 2, "fedce", keep_large_checkpoint=keep)
    cell = play(settings, tmp_path)
    assert (cell.folder / "checkpoint").exists() is keep
    if not keep:
        with pytest.raises(RunError, match="keep_large_checkpoint was not set"):
            play(settings.model_copy(update={"rounds": 4}), tmp_path)
