"""Trackers against the real stores: TensorBoard's event files and MLflow's database, read with their own readers."""

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedpca.atomic import write_json
from fedpca.errors import UserError
from fedpca.runs import folder as record
from fedpca.runs.cell import Cell, Watch, cells
from fedpca.runs.check import check_experiment, one_run
from fedpca.runs.run import prepare, run_cell
from fedpca.runs.trackers import choose
from fedpca.runs.trackers.base import Tracker, scalars_of, settings_of
from fedpca.runs.trackers.logs import tracking

LINE = {
    "round": 1,
    "groups": {"common": {"acc": 0.75, "auc": 0.875}, "rare": {"acc": 0.5, "auc": 1.0}},
    "clients": {"id": ["a", "b", "c"], "group": ["mislabeled", "common", "mislabeled"]},
    "identification": {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "accused_common": 1, "accused_rare": 0},
    "weights": {"rare": 0.25, "mislabeled": 0.125},
    "left_out": {"b": "not finite"},
    "seconds": 1.5,
}
NOTHING = {"groups": None, "identification": None, "weights": None, "left_out": {}}

Curves = dict[str, dict[int, list[float]]]  # by name and round: every value that was logged


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make one, so every test works in this one or in a copy."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    (tracker,) = choose([f"mlflow=sqlite:///{path}"], path.parent, "first")
    tracker.open_log(cell_of(path.parent, "fedavg", 1), None).end("finished")
    return path


@pytest.fixture(autouse=True)
def no_settings_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_PROJECT", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)


def cell_of(out: Path, method: str, rounds: int, seed: int = 0) -> Cell:
    settings = check_experiment({"name": "made", "rounds": rounds, "methods": [method]}, "made")
    return Cell(one_run(settings, method, seed), out / method / f"seed-{seed}")


def line_of(cell: Cell, round: int) -> record.RoundLine:
    """A line whose values tell the run and the round; the first round tests nothing and names no groups."""
    value = 1 / (round + 10 * len(cell.method))
    if round == 1:
        return {"round": 1, **NOTHING, "clients": {"id": ["a"], "group": None}, "seconds": value}
    groups = {"common": {"acc": value, "auc": 1.0}, "rare": {"acc": value / 2, "auc": value}}
    return {**LINE, "round": round, "groups": groups, "seconds": 2 * value}


def play(cell: Cell, watch: Watch, rounds: range) -> None:
    """Does what a run does with each round: first into the record, then to whoever watches, who is told no seconds."""
    for round in rounds:
        cell.folder.mkdir(parents=True, exist_ok=True)
        line = line_of(cell, round)
        record.append_round(cell.folder, line)
        watch(cell, {key: value for key, value in line.items() if key != "seconds"})


def expected(cell: Cell) -> Curves:
    """What the record says, by hand rather than by `scalars_of`."""
    curves: Curves = {}
    for text in (cell.folder / "rounds.jsonl").read_text().splitlines():
        line = json.loads(text)
        values = {"clients/left_out": len(line["left_out"]), "seconds": line["seconds"]}
        for metric in ("acc", "auc") if line["groups"] else ():
            common, rare = (line["groups"][group][metric] for group in ("common", "rare"))
            values |= {f"{metric}/common": common, f"{metric}/rare": rare}
            values |= {f"{metric}/worst": min(common, rare), f"{metric}/average": (common + rare) / 2}
        if line["weights"]:
            values |= {f"weight/{group}": line["weights"][group] for group in ("rare", "mislabeled")}
        if line["identification"]:
            values |= {f"identification/{key}": line["identification"][key] for key in ("precision", "recall", "f1")}
        if line["clients"]["group"]:
            values["clients/judged_mislabeled"] = sum(g == "mislabeled" for g in line["clients"]["group"])
        for name, value in values.items():
            curves.setdefault(name, {})[line["round"]] = [value]
    return curves


def in_events(folder: Path) -> Curves:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False).Reload()
    curves: Curves = {}
    for name in events.Tags()["scalars"]:
        for scalar in events.Scalars(name):
            curves.setdefault(name, {}).setdefault(scalar.step, []).append(scalar.value)
    return curves


def mlflow_runs(database: Path, experiment: str) -> list[tuple[str, str, Curves, dict[str, str]]]:
    """Name, status, curves and parameters of each run, the oldest first."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    stored = client.get_experiment_by_name(experiment)
    runs = []
    for run in client.search_runs([stored.experiment_id], order_by=["attributes.start_time"]) if stored else ():
        curves: Curves = {}
        for name in run.data.metrics:
            for metric in client.get_metric_history(run.info.run_id, name):
                curves.setdefault(name, {}).setdefault(metric.step, []).append(metric.value)
        runs.append((run.info.run_name, run.info.status, curves, run.data.params))
    return runs


def same(found: Curves, wanted: Curves, digits: float) -> bool:
    """Whether the same rounds have the same values, none of them twice."""
    values, truth = ({(name, round): c[name][round] for name in c for round in c[name]} for c in (found, wanted))
    return values.keys() == truth.keys() and all(values[at] == pytest.approx(truth[at], rel=digits) for at in truth)


def broken_off(trackers: Sequence[Tracker], played: Sequence[tuple[Cell, int]], by: BaseException) -> None:
    """Plays so many rounds of each cell, then ends by an exception."""
    with tracking(trackers, [cell for cell, _ in played], refuse) as watch:
        for cell, rounds in played:
            play(cell, watch, range(1, rounds + 1))
        raise by


def refuse(message: str) -> None:
    raise AssertionError(message)


def test_names_of_what_is_logged():
    assert scalars_of(LINE, "acc") == {
        "acc/common": 0.75,
        "acc/rare": 0.5,
        "acc/worst": 0.5,
        "acc/average": 0.625,
        "auc/common": 0.875,
        "auc/rare": 1.0,
        "auc/worst": 0.875,
        "auc/average": 0.9375,
        "weight/rare": 0.25,
        "weight/mislabeled": 0.125,
        "identification/precision": 0.5,
        "identification/recall": 1.0,
        "identification/f1": pytest.approx(2 / 3),
        "clients/left_out": 1.0,
        "clients/judged_mislabeled": 2.0,
        "seconds": 1.5,
    }


def test_what_is_not_known_is_not_logged():
    line = {"round": 1, **NOTHING, "clients": {"id": ["a"], "group": None}, "seconds": 0.1}
    assert scalars_of(line, "acc") == {"clients/left_out": 0.0, "seconds": 0.1}
    half = {**line, "groups": {"all": {"acc": 0.5, "auc": None}}}
    assert set(scalars_of(half, "acc")) == {"clients/left_out", "seconds", "acc/all", "acc/worst", "acc/average"}


def test_the_accuracy_that_the_settings_choose_is_logged(tmp_path: Path):
    groups = {"common": {"acc": 0.75, "bacc": 0.5, "auc": 0.875}, "rare": {"acc": 0.5, "bacc": 0.25, "auc": 1.0}}
    logged = scalars_of({**LINE, "groups": groups}, "bacc")
    assert logged["bacc/worst"] == 0.25
    assert logged["bacc/average"] == 0.375
    assert logged["auc/worst"] == 0.875
    assert not any(name.startswith("acc/") for name in logged)
    settings = check_experiment({"rounds": 2, "evaluation": {"accuracy": "bacc"}}, "made")
    cell = Cell(one_run(settings, "fedavg", 0), tmp_path / "fedavg/seed-0")
    with tracking(choose(["tensorboard"], tmp_path, "made"), [cell], refuse) as watch:
        record.append_round(cell.folder, {**LINE, "groups": groups})
        watch(cell, LINE)
    assert in_events(tmp_path / "tensorboard/fedavg/seed-0")["bacc/worst"] == {1: [0.25]}


def test_settings_are_plain_values_under_names_that_every_tracker_takes(tmp_path: Path):
    table = {"methods": ["qfedavg+d"], "data": {"split": "sizes", "sizes": [30, 40]}}
    cell = Cell(one_run(check_experiment(table, "made"), "qfedavg+d", 3), tmp_path)
    settings = settings_of(cell)
    assert settings["method"] == "qfedavg+d"
    assert settings["seed"] == 3
    assert settings["data.sizes"] == "[30, 40]"
    assert settings["method.qfedavg_plus_d.warmup"] == 10
    assert "data.clients" not in settings, "was not given"
    assert not {"methods", "seeds"} & set(settings)
    assert all(isinstance(value, str | int | float) for value in settings.values())


def test_two_runs_at_the_same_time(tmp_path: Path, database: Path):
    cells = [cell_of(tmp_path, "fedavg", 4), cell_of(tmp_path, "qfedavg+d", 14)]
    trackers = choose(["tensorboard", f"mlflow=sqlite:///{database}"], tmp_path, "two")
    with tracking(trackers, cells, refuse) as watch:
        for rounds in (range(1, 3), range(3, 5)):
            for cell in cells:
                play(cell, watch, rounds)
        play(cells[1], watch, range(5, 15))
    runs = {name: (status, curves, params) for name, status, curves, params in mlflow_runs(database, "two")}
    for cell, name in zip(cells, ("fedavg/seed-0", "qfedavg+d/seed-0"), strict=True):
        assert same(in_events(tmp_path / "tensorboard" / name), expected(cell), 1e-6)  # single precision
        status, curves, params = runs[name]
        assert status == "FINISHED"
        assert same(curves, expected(cell), 1e-12)
        assert params == {key: str(value) for key, value in settings_of(cell).items()}


def test_tensorboard_shows_the_settings(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    cell = cell_of(tmp_path, "fedavg", 1)
    with tracking(choose([f"tensorboard={tmp_path}/there"], tmp_path, "made"), [cell], refuse) as watch:
        play(cell, watch, range(1, 2))
    events = EventAccumulator(str(tmp_path / "there/fedavg/seed-0")).Reload()
    (content,) = events.PluginTagToContent("hparams").values()
    shown = HParamsPluginData.FromString(content).session_start_info.hparams
    assert shown["method"].string_value == "fedavg"
    assert shown["training.lr"].number_value == 0.03
    assert not shown["training.logit_adjustment"].bool_value


@pytest.mark.parametrize("rounds_kept", [0, 2, 4])
def test_a_resumed_run_goes_on_in_the_same_place(tmp_path: Path, database: Path, rounds_kept: int):
    """It goes on from its last checkpoint, so that some rounds are played twice; none is logged twice."""
    name, cell = f"resumed-{rounds_kept}", cell_of(tmp_path, "fedavg", 6)
    wanted = ["tensorboard", f"mlflow=sqlite:///{database}"]
    with pytest.raises(KeyboardInterrupt):
        broken_off(choose(wanted, tmp_path, name), [(cell, 4)], KeyboardInterrupt())
    ((_, status, *_),) = mlflow_runs(database, name)
    assert status == "KILLED"
    record.keep_rounds(cell.folder, rounds_kept)
    with tracking(choose(wanted, tmp_path, name), [cell], refuse) as watch:
        play(cell, watch, range(rounds_kept + 1, 6))
        ((_, status, *_),) = mlflow_runs(database, name)
        assert status == "RUNNING"
        play(cell, watch, range(6, 7))
    ((run, status, curves, _),) = mlflow_runs(database, name)
    assert (run, status) == ("fedavg/seed-0", "FINISHED")
    assert same(curves, expected(cell), 1e-12)
    assert [path.name for path in (tmp_path / "tensorboard/fedavg").iterdir()] == ["seed-0"]
    assert same(in_events(tmp_path / "tensorboard/fedavg/seed-0"), expected(cell), 1e-6)


def test_rounds_before_the_first_log_are_caught_up_with(tmp_path: Path):
    cell = cell_of(tmp_path, "fedavg", 5)
    play(cell, lambda *_: None, range(1, 4))
    with tracking(choose(["tensorboard"], tmp_path, "made"), [cell], refuse) as watch:
        play(cell, watch, range(4, 6))
    assert same(in_events(tmp_path / "tensorboard/fedavg/seed-0"), expected(cell), 1e-6)


def test_a_log_that_is_gone_is_begun_again(tmp_path: Path, database: Path):
    cell, wanted = cell_of(tmp_path, "fedavg", 4), ["tensorboard", f"mlflow=sqlite:///{database}"]
    write_json(cell.folder / "trackers.json", {wanted[0]: "fedavg/seed-0", wanted[1]: 32 * "0"})
    play(cell, lambda *_: None, range(1, 3))
    with tracking(choose(wanted, tmp_path, "gone"), [cell], refuse) as watch:
        play(cell, watch, range(3, 5))
    ((_, _, curves, _),) = mlflow_runs(database, "gone")
    assert same(curves, expected(cell), 1e-12)
    assert same(in_events(tmp_path / "tensorboard/fedavg/seed-0"), expected(cell), 1e-6)


def test_an_event_file_that_was_cut_off(tmp_path: Path):
    cell, folder = cell_of(tmp_path, "fedavg", 6), tmp_path / "tensorboard/fedavg/seed-0"
    with pytest.raises(KeyboardInterrupt):
        broken_off(choose(["tensorboard"], tmp_path, "made"), [(cell, 3)], KeyboardInterrupt())
    (events,) = folder.iterdir()
    events.rename(folder / "events.out.tfevents.0.cut")  # so that it is the first, as after a later start
    os.truncate(folder / "events.out.tfevents.0.cut", (folder / "events.out.tfevents.0.cut").stat().st_size - 9)
    with tracking(choose(["tensorboard"], tmp_path, "made"), [cell], refuse) as watch:
        play(cell, watch, range(4, 7))
    assert same(in_events(folder), expected(cell), 1e-6)


def test_a_new_run_leaves_an_older_one_of_its_name_alone(tmp_path: Path, database: Path):
    wanted = [f"tensorboard={tmp_path}/shared", f"mlflow=sqlite:///{database}"]
    cells = [cell_of(tmp_path / name, "fedavg", 2 + i) for i, name in enumerate(("first", "second"))]
    for cell in cells:
        with tracking(choose(wanted, tmp_path, "again"), [cell], refuse) as watch:
            play(cell, watch, range(1, cell.settings.rounds + 1))
    runs = mlflow_runs(database, "again")
    for cell, name, run in zip(cells, ("seed-0", "seed-0-2"), runs, strict=True):
        assert same(in_events(tmp_path / "shared/fedavg" / name), expected(cell), 1e-6)
        assert same(run[2], expected(cell), 1e-12)


def test_mlflow_works_in_the_runs_folder_unless_told_otherwise(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
):
    own = tmp_path / "mlruns/mlflow.db"
    own.parent.mkdir()
    shutil.copy(database, own)
    monkeypatch.chdir(tmp_path)
    cell = cell_of(tmp_path, "fedavg", 1)
    with tracking(choose(["mlflow"], tmp_path, "default"), [cell], refuse) as watch:
        play(cell, watch, range(1, 2))
    assert [name for name, *_ in mlflow_runs(own, "default")] == ["fedavg/seed-0"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    other = cell_of(tmp_path, "fedavg", 1, seed=1)
    with tracking(choose(["mlflow"], tmp_path, "environment"), [other], refuse) as watch:
        play(other, watch, range(1, 2))
    assert [name for name, *_ in mlflow_runs(database, "environment")] == ["fedavg/seed-1"]
    assert {path.name for path in tmp_path.iterdir()} == {"fedavg", "mlruns"}


def test_an_exception_marks_the_run_as_failed(tmp_path: Path, database: Path):
    cells = [cell_of(tmp_path, "fedavg", 2), cell_of(tmp_path, "median", 2)]
    trackers = choose([f"mlflow=sqlite:///{database}"], tmp_path, "broken")
    with pytest.raises(ZeroDivisionError):
        broken_off(trackers, [(cells[0], 2), (cells[1], 1)], ZeroDivisionError())
    assert [(name, status) for name, status, *_ in mlflow_runs(database, "broken")] == [
        ("fedavg/seed-0", "FINISHED"),
        ("median/seed-0", "FAILED"),
    ]


def test_a_tracker_that_fails_in_mid_run_is_told_once_and_stops_nothing(tmp_path: Path, database: Path):
    broken = tmp_path / "broken.db"
    shutil.copy(database, broken)
    cells = [cell_of(tmp_path, "fedavg", 4), cell_of(tmp_path, "median", 4)]
    told: list[str] = []
    with tracking(choose([f"mlflow=sqlite:///{broken}", "tensorboard"], tmp_path, "made"), cells, told.append) as watch:
        play(cells[0], watch, range(1, 3))
        with sqlite3.connect(broken) as connection:
            connection.execute("DROP TABLE metrics")
        play(cells[0], watch, range(3, 5))
        play(cells[1], watch, range(1, 5))
    (message,) = told
    assert message.startswith(f"--log-to mlflow=sqlite:///{broken} fails: ")
    assert "the training goes on" in message
    for cell in cells:
        assert same(in_events(tmp_path / "tensorboard" / cell.method / "seed-0"), expected(cell), 1e-6)


def test_a_server_that_cannot_be_reached_stops_the_run_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    cell = cell_of(tmp_path, "fedavg", 1)
    trackers = choose(["mlflow=http://me:secret@127.0.0.1:9"], tmp_path, "made")
    with pytest.raises(UserError) as caught, tracking(trackers, [cell], refuse):
        raise AssertionError("trains")
    assert "--log-to mlflow=http://…@127.0.0.1:9 does not start" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not cell.folder.exists()


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "tensorboard"), ("mlflow", "mlflow"), ("mlflow", "alembic"), ("wandb", "wandb")],
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
):
    for known in [known for known in sys.modules if known.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"--log-to {name} needs .*{module}.*pip install 'fedpca\[{name}\]'"):
        choose([name], tmp_path, "made")


def test_a_folder_called_wandb_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if "wandb" in sys.modules or any((Path(path) / "wandb/sdk").is_dir() for path in sys.path):
        pytest.skip("wandb is installed")
    (tmp_path / "wandb").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"fedpca\[wandb\]"):
        choose(["wandb"], tmp_path, "made")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tensorbord=x", ["'tensorbord'", "did you mean 'tensorboard'?", "mlflow, tensorboard, wandb"]),
        ("comet", ["'comet'", "there are mlflow, tensorboard, wandb"]),
        ("tensorboard=", ["tensorboard=", "leave the = out"]),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, words: list[str]):
    with pytest.raises(UserError) as caught:
        choose([text], tmp_path, "made")
    assert all(word in str(caught.value) for word in words)


def test_nothing_is_told_to_the_makers_unless_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    choose(["mlflow"], tmp_path, "made")
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    choose(["mlflow"], tmp_path, "made")
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"


def test_a_real_run_interrupted_and_resumed(tmp_path: Path, database: Path):
    table = {
        "rounds": 5,
        "checkpoint_every": 2,
        "methods": ["fedpca-d"],
        "seeds": [0],
        "data": {"clients": 6, "train_images": 120, "test_images": 60},
        "rare": {"share": 0.2},
        "noise": {"clients": 0.3, "labels": 0.8},
        "model": {"name": "mlp"},
        "method": {"fedpca-d": {"warmup": 2}},
        "evaluation": {"every": 2, "last_rounds": 1},
    }
    experiment = check_experiment(table, "made")
    dataset, federation = prepare(experiment)
    (cell,) = cells(experiment, tmp_path)
    wanted = ["tensorboard", f"mlflow=sqlite:///{database}"]

    def run(stop: int) -> None:
        with tracking(choose(wanted, tmp_path, "real"), [cell], refuse) as log:

            def watch(cell: Cell, line: record.RoundLine) -> None:
                log(cell, line)
                if line["round"] == stop:
                    raise KeyboardInterrupt

            run_cell(cell, dataset, federation, 1, watch)

    with pytest.raises(KeyboardInterrupt):
        run(stop=3)
    first = expected(cell)["seconds"][3]
    run(stop=0)
    wanted_curves = expected(cell)
    wanted_curves["seconds"][3] = first  # played twice, logged the first time
    ((_, status, curves, _),) = mlflow_runs(database, "real")
    assert status == "FINISHED"
    assert same(curves, wanted_curves, 1e-12)
    assert set(curves["acc/worst"]) == {2, 4, 5}
    assert set(curves["identification/f1"]) == {3, 4, 5}
    assert same(in_events(tmp_path / "tensorboard/fedpca-d/seed-0"), wanted_curves, 1e-6)
