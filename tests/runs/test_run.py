"""Runs as users run them: real files, real processes, really killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from fedpca.errors import RunError
from fedpca.runs import folder as record
from fedpca.runs.cell import Cell, cells, cells_of_all, check_folder, is_done
from fedpca.runs.check import one_run, read_experiment
from fedpca.runs.checkpoint import load_checkpoint
from fedpca.runs.run import Prepared, prepare, run_cell
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import write_table


def silent(cell: Cell, line: dict) -> None:
    pass


def run(experiment: Experiment, out: Path, workers: int = 1, watch=silent) -> Cell:
    dataset, federation = prepare(experiment)
    (cell,) = cells(experiment, out)
    run_cell(cell, dataset, federation, workers, watch)
    return cell


def rounds(folder: Path) -> list[dict]:
    """What was recorded, but for the time it took."""
    lines = [json.loads(line) for line in (folder / record.ROUNDS).read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def same_run(one: Path, two: Path) -> bool:
    return rounds(one) == rounds(two) and (one / record.FINAL).read_bytes() == (two / record.FINAL).read_bytes()


def test_a_run_folder_holds_all_it_promises(small: Experiment, tmp_path):
    cell = run(small, tmp_path)
    assert cell.folder == tmp_path / "fedavg" / "seed-0"
    assert read_experiment(cell.folder / "settings.toml") == one_run(small, "fedavg", 0)
    lines = rounds(cell.folder)
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert set(lines[0]["groups"]) == {"common", "rare"}
    assert set(lines[0]["groups"]["rare"]) == {"acc", "bacc", "auc", "auc_ovo"}
    assert lines[0]["clients"]["id"] == [str(i) for i in range(6)]
    assert sum(lines[0]["clients"]["weight"]) == pytest.approx(1)
    assert lines[0]["clients"]["loss"] is None  # FedAvg asks for no report
    assert lines[0]["identification"] is None
    assert lines[0]["weights"] == {"rare": pytest.approx(1 / 6), "mislabeled": pytest.approx(1 / 6)}
    about = json.loads((cell.folder / "about.json").read_text())
    assert about["rare"] == ["5"]
    assert sum(about["clients"]["wrong_labels"]) == 32  # of 40 labels, 80 %
    assert "torch" in about["versions"]
    summary = json.loads((cell.folder / "summary.json").read_text())
    means = {group: sum(line["groups"][group]["acc"] for line in lines) / 3 for group in ("common", "rare")}
    assert summary["acc"]["worst"] == pytest.approx(min(means.values()))
    assert summary["acc"]["average"] == pytest.approx(sum(means.values()) / 2)
    assert load_file(cell.folder / "final.safetensors")["1.weight"].shape == (64, 64)
    kept = (cell.folder / record.CHECKPOINT).stat().st_size
    assert kept < (cell.folder / record.FINAL).stat().st_size / 4, "weights are kept once"
    assert is_done(cell)


def test_workers_do_not_change_a_byte(small: Experiment, tmp_path):
    one, two = run(small, tmp_path / "one", workers=1), run(small, tmp_path / "two", workers=2)
    assert same_run(one.folder, two.folder)


def test_an_interrupted_run_goes_on_to_the_same_bytes(small: Experiment, tmp_path):
    def stop(cell: Cell, line: dict) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    whole = run(small, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(small, tmp_path / "cut", watch=stop)
    (cut,) = cells(small, tmp_path / "cut")
    assert len(rounds(cut.folder)) == 2
    assert not is_done(cut)
    run(small, tmp_path / "cut")
    assert same_run(whole.folder, cut.folder)


def test_a_finished_run_is_left_as_it_is_even_if_asked_again(small: Experiment, tmp_path):
    cell = run(small, tmp_path)
    before = {path: path.read_bytes() for path in cell.folder.rglob("*") if path.is_file()}
    run(small, tmp_path)
    assert {path: path.read_bytes() for path in cell.folder.rglob("*") if path.is_file()} == before


def test_evaluation_may_be_rarer_but_never_in_the_last_rounds(small: Experiment, tmp_path):
    settings = small.model_copy(
        update={"rounds": 8, "evaluation": small.evaluation.model_copy(update={"every": 3, "last_rounds": 2})}
    )
    cell = run(settings, tmp_path)
    assert [line["round"] for line in rounds(cell.folder) if line["groups"]] == [3, 6, 7, 8]


def test_partial_participation_is_recorded(small: Experiment, tmp_path):
    cell = run(small.model_copy(update={"participation": 0.5}), tmp_path)
    for line in rounds(cell.folder):
        assert sorted(line["clients"]["weight"])[:3] == [0, 0, 0]
        assert sum(weight > 0 for weight in line["clients"]["weight"]) == 3


def test_a_folder_with_a_run_is_not_overwritten(small: Experiment, tmp_path):
    cell = run(small, tmp_path)
    with pytest.raises(RunError, match=r"holds a run already.*--resume"):
        check_folder(cell, resume=False)
    check_folder(cell, resume=True)
    other = Cell(cell.settings.model_copy(update={"participation": 0.5}), cell.folder)
    with pytest.raises(RunError, match=r"participation was 1.0, is now 0.5\): choose another --out$"):
        check_folder(other, resume=True)


def test_cells_go_seed_by_seed(small: Experiment, tmp_path):
    found = cells(small.model_copy(update={"seeds": (0, 1)}), tmp_path)
    assert [(cell.method, cell.seed) for cell in found] == [("fedavg", 0), ("fedavg", 1)]


def test_cells_of_settings_go_seed_by_seed_then_setting_by_setting(small: Experiment, tmp_path):
    both = small.model_copy(update={"seeds": (3, 1), "methods": ("fedavg", "median")})
    late = small.model_copy(update={"seeds": (1, 7)})
    found = cells_of_all({"b": both, "a": late}, tmp_path)
    assert [cell.name for cell in found] == [
        "b: fedavg seed 3",
        "b: median seed 3",
        "b: fedavg seed 1",
        "b: median seed 1",
        "a: fedavg seed 1",
        "a: fedavg seed 7",
    ]
    assert found[4].folder == tmp_path / "a" / "fedavg" / "seed-1"
    assert cells_of_all({"": small}, tmp_path) == cells(small, tmp_path)


def test_data_are_kept_while_consecutive_cells_agree_in_them(small: Experiment, tmp_path):
    longer = small.model_copy(update={"methods": ("median",), "seeds": (1,), "rounds": 9, "participation": 0.5})
    noisier = small.model_copy(update={"noise": small.noise.model_copy(update={"clients": 0.5})})
    first, second, third = (cells(settings, tmp_path)[0] for settings in (small, longer, noisier))
    prepared = Prepared()
    _, federation = prepared.of(first)
    assert prepared.of(second)[1] is federation
    assert len(prepared.of(third)[1].truth.mislabeled) == 3
    assert len(prepared.kept) == 1, "the one before is let go"
    again = prepared.of(first)[1]
    assert again is not federation
    assert again.truth.mislabeled == federation.truth.mislabeled


@pytest.mark.parametrize(
    ("table", "changed"),
    [
        ("data", {"seed": 5}),
        ("rare", {"sigma": 0.1}),
        ("noise", {"mode": "inclusive"}),
        ("model", {"name": "cnn-small"}),  # its backbone makes the images
        ("training", {"batch": 8}),  # a Dirichlet split gives two batches to everybody
        ("evaluation", {"every": 2}),  # it says which images test
    ],
)
def test_every_table_that_may_change_the_data_counts(small: Experiment, tmp_path, table: str, changed: dict):
    other = small.model_copy(update={table: getattr(small, table).model_copy(update=changed)})
    prepared = Prepared()
    federation = prepared.of(cells(small, tmp_path)[0])[1]
    assert prepared.of(cells(other, tmp_path)[0])[1] is not federation


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments_and_resumed_it_ends_in_the_same_bytes(small: Experiment, tmp_path, workers: int):
    """SIGKILL, several times, at moments that a seeded generator draws; then once to the end."""
    settings = small.model_copy(update={"rounds": 40})
    whole = run(settings, tmp_path / "whole", workers)
    (tmp_path / "kill.toml").write_text(write_table(settings))
    (cut,) = cells(settings, tmp_path / "cut")
    command = [sys.executable, "-m", "fedpca", "run", str(tmp_path / "kill.toml"), "--out", str(tmp_path / "cut")]
    command += ["--workers", str(workers), "--resume"]
    rng, kills = random.Random(workers), 0
    while kills < 4:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = recorded(cut.folder)
        while (
            process.poll() is None and recorded(cut.folder) < begun + 3
        ):  # until it trains: killing imports shows nothing
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert 0 < recorded(cut.folder) < 40, "it must have been killed in the middle"
    subprocess.run(command, check=True, capture_output=True)
    assert same_run(whole.folder, cut.folder)


def test_corrected_labels_survive_a_kill(small: Experiment, tmp_path):
    """SIGKILL in FedCorr's first stage, once a client has corrected labels; they are in the checkpoint, and used."""
    settings = small.model_copy(
        update={
            "rounds": 30,
            "methods": ("fedcorr",),
            "noise": small.noise.model_copy(update={"clients": 0.5}),
            "method": {"fedcorr": {"stages": [20, 5], "confidence": 0.2}},
        }
    )
    whole = run(settings, tmp_path / "whole")
    (tmp_path / "kill.toml").write_text(write_table(settings))
    (cut,) = cells(settings, tmp_path / "cut")
    command = [sys.executable, "-m", "fedpca", "run", str(tmp_path / "kill.toml"), "--out", str(tmp_path / "cut")]
    process = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and recorded(cut.folder) < 8:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    server, memory, _ = load_checkpoint(cut.folder)
    assert 7 <= server.round < 20, "in the middle of the first stage"
    given = prepare(settings)[1].shards
    corrected = [client for client, own in memory.items() if "labels" in own]
    assert any((memory[client]["labels"] != given[client].y).any() for client in corrected)
    assert all(server.diagnosis[client].report["noise"] > 0 for client in corrected), "nobody else corrects"
    subprocess.run([*command, "--resume"], check=True, capture_output=True)
    assert same_run(whole.folder, cut.folder)


def recorded(folder: Path) -> int:
    path = folder / record.ROUNDS
    return path.read_bytes().count(b"\n") if path.exists() else 0
