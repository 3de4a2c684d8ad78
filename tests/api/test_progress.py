"""The bar over the rounds of all runs, and what it shows of them."""

import subprocess
import sys
from pathlib import Path

from fedpca.api.progress import RoundsBar
from fedpca.runs.cell import Cell, cells
from fedpca.runs.folder import RoundLine
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import write_table


def runs(experiment: Experiment, out: Path, accuracy: str = "acc") -> list[Cell]:
    evaluation = experiment.evaluation.model_copy(update={"accuracy": accuracy})
    return cells(experiment.model_copy(update={"rounds": 12, "seeds": (0, 1), "evaluation": evaluation}), out)


def line(number: int, acc: float | None) -> RoundLine:
    groups = None if acc is None else {"common": {"acc": acc, "bacc": acc / 2}, "rare": {"acc": acc, "bacc": acc}}
    return {"round": number, "groups": groups, "left_out": {}, "clients": {"id": ["0"]}}


def test_it_counts_rounds_of_runs_side_by_side(small: Experiment, tmp_path: Path):
    one, two = todo = runs(small, tmp_path)
    progress = RoundsBar(todo)
    with progress as watch:
        (task,) = progress.bar.tasks
        assert task.total == 2 * 12
        watch(one, line(1, 0.5))
        watch(two, line(7, 0.25))  # resumed: six rounds were played before
        assert task.completed == 1 + 7
        watch(one, line(2, None))
        assert task.completed == 2 + 7
        assert task.fields["scores"] == "ACC worst 50.0 average 50.0"  # its own, when last tested


def test_it_shows_the_accuracy_that_the_settings_choose(small: Experiment, tmp_path: Path):
    one, _ = todo = runs(small, tmp_path, "bacc")
    progress = RoundsBar(todo)
    with progress as watch:
        watch(one, line(1, 0.5))
        assert progress.bar.tasks[0].fields["scores"] == "balanced ACC worst 25.0 average 37.5"


def test_a_run_shows_and_logs_the_accuracy_that_its_settings_choose(small: Experiment, tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "small.toml").write_text(write_table(small))
    command = [sys.executable, "-m", "fedpca", "run", "small.toml", "--out", "out", "--log-to", "tensorboard"]
    command += ["--set", "evaluation.accuracy=bacc"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "fedavg seed 0 round 3/3: balanced ACC worst " in done.stderr
    assert "balanced ACC" in done.stdout
    logged = EventAccumulator(str(tmp_path / "out/tensorboard/fedavg/seed-0")).Reload().Tags()["scalars"]
    assert {"bacc/worst", "bacc/average", "auc/worst"} < set(logged)
    assert "acc/worst" not in logged
    refused = subprocess.run(
        [*command, "--set", "evaluation.accuracy=f1"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "evaluation.accuracy: there is no metric 'f1'; there are acc, bacc, auc, auc_ovo" in refused.stderr
