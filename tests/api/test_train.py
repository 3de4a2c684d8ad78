"""`fedpca.train`: the same bits as the command line for the same data, from whatever a person has in Python."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import fedpca
from fedpca.api.result import Result
from fedpca.data.datasets import digits
from fedpca.errors import DataError, RunError, SettingsError, UserError
from fedpca.results.read.runs import find_runs

CITIES = ("aachen", "berlin", "bonn", "köln")
Arrays = dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]
FAST = {"method": "fedpca-hs-auto", "rounds": 4, "settings": {"warmup": 2}, "progress": False}


@pytest.fixture(scope="module")
def hospitals() -> Arrays:
    """Four hospitals of 60 digits each; half of Köln's labels are wrong."""
    train = digits().train
    data = {
        city: (train.images[i * 60 : (i + 1) * 60], train.labels[i * 60 : (i + 1) * 60].copy())
        for i, city in enumerate(CITIES)
    }
    data["köln"][1][::2] += 1
    data["köln"][1][:] %= 10
    return data


@pytest.fixture(scope="module")
def result(hospitals: Arrays) -> Result:
    return fedpca.train(hospitals, "mlp", **FAST)


def record(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def equal(one: Result, other: Result) -> bool:
    """The same bits: every number of every round, and every weight."""
    weights = [(own.folder / "final.safetensors").read_bytes() for own in (one, other)]
    return record(one.folder) == record(other.folder) and weights[0] == weights[1]


def test_the_same_bits_as_the_command_line(hospitals: Arrays, result: Result, tmp_path: Path):
    rows = ["image,label,hospital"]
    for city, (images, labels) in hospitals.items():
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            name = f"{city}-{number}.png"
            Image.fromarray(image[0]).save(tmp_path / name)
            rows.append(f"{name},{label},{city}")
    (tmp_path / "images.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "own.toml").write_text(
        'rounds = 4\nmethods = ["fedpca-hs-auto"]\nseeds = [0]\nmodel = {name = "mlp"}\n'
        'data = {dataset = "images.csv", split = "column", column = "hospital"}\n'
        "[method.fedpca-hs-auto]\nwarmup = 2\n"
    )
    command = [sys.executable, "-m", "fedpca", "run", "own.toml", "--out", "out"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    folder = tmp_path / "out" / "fedpca-hs-auto" / "seed-0"
    assert record(folder) == record(result.folder)
    assert (folder / "final.safetensors").read_bytes() == (result.folder / "final.safetensors").read_bytes()


class Pairs(Dataset):
    """A person's own dataset: nothing but a length and pairs."""

    def __init__(self, x: NDArray[np.uint8], y: NDArray[np.int64]) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> tuple[NDArray[np.uint8], int]:
        return self.x[row], int(self.y[row])


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (torch.from_numpy(x), torch.from_numpy(y)),
        lambda x, y: (x[:, 0], y.tolist()),
        lambda x, y: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        Pairs,
    ],
    ids=["tensors", "grey images and a list", "tensor dataset", "own dataset"],
)
def test_the_same_bits_from_any_form_and_order(hospitals: Arrays, result: Result, form: Callable[..., object]):
    given = {city: form(*hospitals[city]) for city in reversed(CITIES)}
    assert equal(fedpca.train(given, "mlp", **FAST), result)


def test_a_run_says_what_it_found_and_nothing_of_a_truth(result: Result):
    assert result.clients.column_names[:3] == ["client", "images", "judged"]
    assert result.clients["client"].to_pylist() == list(CITIES)
    assert result.rounds.num_rows == 4
    assert {"round", "worst_acc", "average_acc", "mislabeled"} <= set(result.rounds.column_names)
    assert set(result.scores["round"].to_pylist()) == {1, 2, 3, 4}
    assert set(result.mislabeled) <= set(CITIES)
    shown = (result._repr_html_() + repr(result)).lower()
    assert "<table>" in shown
    assert {"rare", "mislabeled"}.isdisjoint(json.loads((result.folder / "about.json").read_text()))
    assert not [word for word in ("truly", "wrongly", "precision") if word in shown]


def test_a_notebook_shows_the_plane(result: Result):
    pytest.importorskip("matplotlib")
    assert "data:image/png;base64," in result._repr_html_()


def test_a_notebook_without_matplotlib_shows_the_tables(result: Result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = result._repr_html_()
    assert "<table>" in shown
    assert "<img" not in shown


def test_the_model_is_trained_and_predicts(hospitals: Arrays):
    result = fedpca.train(hospitals, "mlp", "fedavg", rounds=5, training={"epochs": 10}, progress=False)
    x, y = hospitals["aachen"]
    chances = result.predict_proba(x)
    assert chances.shape == (60, 10)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.mean([int(name) for name in result.predict(x)] == y) > 0.8
    logits = result.model((torch.from_numpy(x).float() / 255 - 0.5) / 0.25)
    assert np.allclose(logits.softmax(dim=1).detach().numpy(), chances, atol=1e-5)


def own_model(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))


def test_a_module_is_copied_and_trained_from_its_own_weights(hospitals: Arrays):
    net = own_model((1, 8, 8), 10)
    before = copy.deepcopy(net.state_dict())
    runs = [fedpca.train(hospitals, net, "fedavg", rounds=1, seed=seed, progress=False) for seed in (0, 0)]
    assert equal(*runs)
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    trained = runs[0].model.state_dict()
    assert type(runs[0].model) is nn.Sequential
    assert any(not torch.equal(before[name], trained[name]) for name in before)
    assert all((before[name] - trained[name]).abs().max() < 0.5 for name in before), "it began elsewhere"


def test_a_function_makes_the_model_that_the_seed_draws(hospitals: Arrays):
    runs = [fedpca.train(hospitals, own_model, "fedavg", rounds=1, seed=seed, progress=False) for seed in (3, 3, 4)]
    assert equal(runs[0], runs[1])
    assert not equal(runs[0], runs[2])
    assert runs[0].run.settings.model.name.endswith(":own_model")


def test_a_saved_run_is_one_that_results_read(result: Result, tmp_path: Path):
    folder = result.save(tmp_path / "mine")
    (run,) = find_runs([tmp_path / "mine"])
    assert run.folder == folder
    assert "köln" in result.page(tmp_path / "page.html").read_text()
    with pytest.raises(RunError, match="is there already"):
        result.save(tmp_path / "mine")


def test_a_run_is_kept_and_continued(hospitals: Arrays, tmp_path: Path):
    call = {"model": "mlp", "method": "fedavg", "rounds": 2, "out": tmp_path, "progress": False}
    first = fedpca.train(hospitals, **call)
    with pytest.raises(RunError, match="holds a run already"):
        fedpca.train(hospitals, **call)
    assert equal(fedpca.train(hospitals, **call, resume=True), first)
    fewer = {city: own for city, own in hospitals.items() if city != "bonn"}
    with pytest.raises(RunError, match="begun with other clients"):
        fedpca.train(fewer, **call, resume=True)
    longer = fedpca.train(hospitals, **{**call, "rounds": 4}, resume=True)
    assert equal(longer, fedpca.train(hospitals, **{**call, "rounds": 4, "out": None}))


def test_own_test_parts_and_labels_of_any_kind(hospitals: Arrays):
    call = {"model": "mlp", "method": "fedavg", "rounds": 1, "progress": False}
    halves = {city: (x[:30], y[:30], x[30:], y[30:]) for city, (x, y) in hospitals.items()}
    plain = fedpca.train(halves, **call)
    assert plain.clients["images"].to_pylist() == [30] * 4
    scaled = {city: (x, 10 * y + 5, z, 10 * t + 5) for city, (x, y, z, t) in halves.items()}
    assert equal(fedpca.train(scaled, **call), plain)
    letters = {city: (x, [*map(chr, y + 97)], z, [*map(chr, t + 97)]) for city, (x, y, z, t) in halves.items()}
    named = fedpca.train(letters, **call)
    assert equal(named, plain)
    assert named.classes == list("abcdefghij")
    assert fedpca.train(scaled, **call).classes == [str(10 * digit + 5) for digit in range(10)]


def test_tables_of_numbers(hospitals: Arrays):
    flat = {city: (x.reshape(60, 64) / 128 - 1, y) for city, (x, y) in hospitals.items()}
    for model in ("mlp", nn.Linear(64, 10), lambda shape, classes: nn.Linear(*shape, classes)):
        result = fedpca.train(flat, model, "fedavg", rounds=2, progress=False)
        assert result.predict_proba(flat["bonn"][0]).shape == (60, 10)


def test_a_table_gives_the_same_bits_as_its_file(tmp_path: Path):
    rng = np.random.default_rng(0)
    x, y = {city: rng.normal(size=(40, 3)) for city in CITIES}, {city: np.arange(40) % 2 for city in CITIES}
    x["bonn"][4, 1] = np.nan
    rows = [
        f"{a!r},{'' if np.isnan(b) else b},{c!r},{k},{city}"
        for city in CITIES
        for (a, b, c), k in zip(x[city].tolist(), y[city], strict=True)
    ]
    (tmp_path / "table.csv").write_text("\n".join(["0,1,2,label,hospital", *rows]) + "\n")
    (tmp_path / "own.toml").write_text(
        'rounds = 2\nseeds = [0]\nmodel = {name = "mlp"}\n'
        'data = {dataset = "table.csv", split = "column", column = "hospital"}\n'
    )
    (run,) = fedpca.run(tmp_path / "own.toml", out=tmp_path / "out", progress=False).runs
    result = fedpca.train({city: (x[city], y[city]) for city in CITIES}, "mlp", "fedavg", rounds=2, progress=False)
    assert record(run.folder) == record(result.folder)
    assert result.predict_proba(x["bonn"]).shape == (40, 2)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda data: {}, DataError, "at least two names"),
        (lambda data: {"bonn": data["bonn"]}, DataError, "at least two names to data.*got 1 client"),
        (lambda data: {**data, "bonn": data["bonn"][:1]}, UserError, "client 'bonn' must give"),
        (lambda data: {**data, "bonn": (data["bonn"][0], None)}, DataError, "client 'bonn': the labels are missing"),
        (lambda data: {**data, "bonn": (data["bonn"][0], data["bonn"][1][1:])}, DataError, "client 'bonn': each image"),
        (
            lambda data: {**data, "bonn": (data["bonn"][0], [float("nan")] * 60)},
            DataError,
            "client 'bonn', label of image 0",
        ),
        (lambda data: {**data, "bonn": (data["bonn"][0][:, :, :4], data["bonn"][1])}, DataError, "one shape.*'bonn'"),
        (
            lambda data: {**data, "bonn": (data["bonn"][0] / 255, data["bonn"][1])},
            DataError,
            "one shape.*'bonn': float32",
        ),
        (
            lambda data: {**data, "bonn": (data["bonn"][0].astype(int), data["bonn"][1])},
            DataError,
            "'bonn': images must be uint8",
        ),
        (
            lambda data: {**data, "bonn": (*data["bonn"], *data["bonn"])},
            DataError,
            "'bonn' has a test part, but client 'aachen'",
        ),
    ],
)
def test_data_that_cannot_be_used_are_named(hospitals: Arrays, change: Callable, error: type, words: str):
    with pytest.raises(error, match=words):
        fedpca.train(change(hospitals), "mlp", "fedavg", rounds=1, progress=False)


def test_a_picture_that_is_not_finite_is_named(hospitals: Arrays):
    floats = {city: (x / 255, y) for city, (x, y) in hospitals.items()}
    floats["bonn"][0][7, 0, 0, 0] = np.nan
    with pytest.raises(DataError, match="client 'bonn': image 7"):
        fedpca.train(floats, "mlp", "fedavg", rounds=1, progress=False)


def test_a_model_that_does_not_fit_is_refused(hospitals: Arrays):
    with pytest.raises(UserError, match=r"must give 10 outputs .* got 5"):
        fedpca.train(hospitals, nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Linear(10, 5)), rounds=20)
    with pytest.raises(UserError, match=r"a name, an nn\.Module or a function"):
        fedpca.train(hospitals, 7)
    with pytest.raises(SettingsError, match="there is no model 'mpl'"):
        fedpca.train(hospitals, "mpl")
    with pytest.raises(SettingsError, match=r"fedpca\.train"):
        fedpca.train(hospitals, "mlp", training={"learning_rate": 1})


def test_a_notebook_sees_each_round(hospitals: Arrays, monkeypatch):
    shown: list[str] = []

    class Handle:
        def update(self, html: str) -> None:
            shown.append(html)

    display = ModuleType("IPython.display")
    display.HTML, display.display = str, lambda html, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("fedpca.api.progress.err.is_jupyter", True)
    fedpca.train(hospitals, "mlp", "fedavg", rounds=2)
    assert "fedavg seed 0 round 2/2" in shown[-1]
    assert '<progress value="2" max="2">' in shown[-1]
