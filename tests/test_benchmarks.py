"""The benchmarks compare like with like: the same models, the same number of steps, the same averages."""

import json
import os
import sys

import benchmarks.__main__
import pytest
import torch
from benchmarks import bounds, commits, cost, engines, entries, flower, memory, paper, start, systems, workers
from benchmarks.entries import ways_of
from benchmarks.race import ROOT, Entry, Result, race
from benchmarks.systems import fedpca, fedpca_hs, limit, naive
from benchmarks.table import table
from benchmarks.workloads import WORKLOADS, Workload, cores, crop_flip, data_of, fit, model_of, optimizer_of
from torch.optim.optimizer import register_optimizer_step_post_hook

from fedpca.models.build import build
from fedpca.parts.client.augment import CropFlip


def weights_after_a_round(system, workload):
    rounds = system(workload)
    next(rounds)
    weights = torch.cat([weight.detach().flatten() for weight in next(rounds)]).clone()
    rounds.close()
    return weights


@pytest.fixture
def equal_images(monkeypatch):
    """A client whose images are all one image: the order of its batches makes no difference, their number does."""
    x, y = torch.randn(1, 1, 8, 8).expand(20, 1, 8, 8).clone(), torch.full((20,), 3)
    monkeypatch.setattr(systems, "data_of", lambda workload: [(x, y)])
    return x, y


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W6"])
def test_models_have_the_tensors_of_fedpca_s(name):
    workload = WORKLOADS[name]
    theirs = build(workload.model, workload.shape, 10, seed=0).module.state_dict()
    ours = model_of(workload).state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}


def test_workloads_are_those_of_the_published_comparison():
    sizes = {name: (workload.clients, workload.images, workload.steps) for name, workload in WORKLOADS.items()}
    assert sizes == {
        "W1": (50, 200, 200),
        "W2": (10, 128, 20),
        "W3": (100, 18, 100),
        "W4-100": (100, 18, 100),
        "W4-1000": (1000, 18, 1000),
        "W4-5000": (5000, 18, 5000),
        "W6": (50, 400, 1250),
    }


def test_data_are_the_same_each_time_and_as_large_as_said():
    workload = Workload("mlp", 3, 18, (1, 8, 8), 18)
    first, second = data_of(workload), data_of(workload)
    assert all(
        torch.equal(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert sum(tensor.nbytes for client in first for tensor in client) == pytest.approx(workload.megabytes * 2**20)


def test_cropped_and_flipped_images_are_those_that_fedpca_makes():
    """Of an image whose pixels are all different: the same set of pictures, each about as often."""
    image = torch.arange(1.0, 10).view(1, 1, 3, 3)
    ours = crop_flip(image.expand(2000, 1, 3, 3), pad=1)
    theirs = CropFlip(pad=1)(image.expand(2000, 1, 3, 3).contiguous(), torch.Generator().manual_seed(0))
    (kinds, counts), (known, _) = (each.unique(dim=0, return_counts=True) for each in (ours, theirs))
    assert torch.equal(kinds, known)
    assert len(kinds) == 18
    assert counts.min() > 60


@pytest.mark.parametrize("system", [limit, naive])
def test_plain_loops_take_every_step(system):
    workload, steps = Workload("mlp", 3, 20, (1, 8, 8), 8), []
    hook = register_optimizer_step_post_hook(lambda *_: steps.append(1))
    weights_after_a_round(system, workload)
    hook.remove()
    assert len(steps) == workload.steps == 9


def test_all_take_the_same_number_of_steps(equal_images):
    workload = Workload("mlp", 1, 20, (1, 8, 8), 8)
    expected = weights_after_a_round(naive, workload)
    for system in (limit, fedpca):
        torch.testing.assert_close(weights_after_a_round(system, workload), expected, atol=1e-5, rtol=0)
    model = model_of(workload)
    fit(model, optimizer_of(model), *equal_images, batch=10)  # one step less
    assert (torch.cat([p.detach().flatten() for p in model.parameters()]) - expected).abs().max() > 1e-3


def test_fedpca_and_the_naive_loop_make_the_same_average():
    workload = Workload("mlp", 5, 18, (1, 8, 8), 18)  # one batch each: its order makes no difference
    torch.testing.assert_close(
        weights_after_a_round(fedpca, workload), weights_after_a_round(naive, workload), atol=1e-5, rtol=0
    )


def test_fedpca_hs_is_not_fedavg_from_the_first_round_on():
    workload = Workload("mlp", 5, 18, (1, 8, 8), 18)
    apart = weights_after_a_round(fedpca_hs, workload) - weights_after_a_round(fedpca, workload)
    assert apart.abs().max() > 1e-6


def test_a_race_times_every_system_and_names_those_that_break():
    results, broken = race(
        {
            "limit": ways_of("limit", "W3")["limit 1x1"],
            "absent": Entry([sys.executable, "-c", "raise SystemExit('no such engine')"]),
        },
        turns=2,
        max_wait=0,
    )
    assert broken == {"absent": "no such engine"}
    assert len(results["limit"].seconds) == 10
    assert min(results["limit"].seconds) > 0
    assert all(0 <= share <= 1 for share in results["limit"].others)
    assert results["limit"].peak_mb > 50


def test_the_table_has_a_row_for_each_way_and_a_line_for_each_other_figure():
    details = {"ratio": 0.07, "fastest": 0.06, "cpu": 0.1, "others": 0.0, "peak_mb": 300, "start_s": 3.1, "moved": 1.0}
    compared = {"ratio_to_limit": 0.07, "ways": {"fedpca": details}, "broken": {"fluke 1x2": "Traceback\nno module"}}
    text = table({"W3": compared, "W4": {"100": compared, "growth": 1.1}, "W5": {"W1": 2.1}})
    rows = [line.split() for line in text.splitlines()[1:]]
    assert rows[0] == ["W3", "fedpca", "0.07", "0.06", "0.1", "0.0", "300", "3.1"]
    assert rows[1] == ["W3", "fluke", "1x2", "broke:", "no", "module"]
    assert rows[2][:2] == ["W4-100", "fedpca"]
    assert rows[4:] == [["W4,", "growth:", "1.1"], ["W5,", "W1:", "2.1"]]


TINY = {"tiny": ("mlp", (1, 8, 8), 4, 6)}  # model, shape, clients, images each


@pytest.fixture
def call(monkeypatch, capsys):
    """The JSON that `python -m benchmarks WORDS --json` prints, in this process."""

    def called(*words: str) -> dict:
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words, "--json"])
        benchmarks.__main__.main()
        return json.loads(capsys.readouterr().out)

    return called


def test_workers_are_compared_with_one(call, monkeypatch):
    monkeypatch.setattr(workers, "WORKLOADS", TINY)
    monkeypatch.setattr(workers, "REPEATS", 1)
    ratios = call("workers")["workers"]["tiny"]
    assert ratios.keys() == {"threads", "processes"}
    assert min(ratios.values()) > 0


def test_the_cost_of_a_round_is_measured_part_by_part(call, monkeypatch):
    monkeypatch.setattr(cost, "WORKLOADS", TINY)
    monkeypatch.setattr(workers, "REPEATS", 1)
    ratios = call("cost")["cost"]["tiny"]
    assert ratios["fedavg"] == 1
    assert len(ratios) == 10
    assert min(ratios.values()) > 0


def test_the_cost_of_bounds_is_measured_for_each_method(call, monkeypatch):
    monkeypatch.setattr(bounds, "WORKLOADS", TINY)
    monkeypatch.setattr(bounds, "REPEATS", 1)
    ratios = call("bounds")["bounds"]["tiny"]
    assert ratios.keys() == {"fedavg", "fedpca-d", "fedpca"}
    assert min(ratios.values()) > 0


def test_memory_is_that_of_a_process(call, monkeypatch):
    monkeypatch.setattr(memory, "COUNTS", (2, 4))
    monkeypatch.setattr(memory, "RULES", ("median",))
    monkeypatch.setattr(memory, "MODEL_OF_RULES", "mlp")
    monkeypatch.setattr(memory, "CLIENTS_OF_RULES", 3)
    found = call("memory", "rules")
    assert found["memory"]["2 clients, MB"] > 50  # PyTorch alone
    assert found["memory"]["4 over 2"] == pytest.approx(1, abs=0.2)
    assert found["rules"]["median, MB"] > 50


def test_the_start_takes_longer_than_importing_pytorch(call, monkeypatch):
    monkeypatch.setattr(start, "REPEAT", 1)
    figures = call("start")["start"]
    assert figures["first_round_s"] > figures["import_torch_s"] > 0


def test_speed_is_measured_against_the_limit(call, monkeypatch):
    monkeypatch.setattr(entries, "WAYS_OF_SMALL", {"limit": [entries.ONE], "naive": [entries.ONE]})
    found = call("speed", "--workloads", "W3", "--repeat", "1", "--max-wait", "0")
    assert found["machine"]["cores"] == cores()
    assert found["W3"]["ratio_to_limit"] > 0
    assert found["W3"]["ways"]["fedpca"]["moved"] == pytest.approx(found["W3"]["ways"]["naive 1x1"]["moved"], rel=1e-3)


def test_flower_and_fedpca_take_turns(call, monkeypatch):
    monkeypatch.setattr(flower, "SITES", 2)
    monkeypatch.setattr(flower, "TURNS", 1)
    figures = call("flower")["flower"]
    assert figures["train_to_fedavg"] > 0
    traffic = figures["bytes_per_site_and_round"]
    assert traffic["fedpca, report and training"] < 1.01 * traffic["flower_fedavg, training and evaluation"]


def test_engines_take_turns_and_the_first_one_changes(monkeypatch):
    monkeypatch.setattr(engines, "TURNS", 2)
    asked: list[tuple[str, str]] = []

    def engine(name: str, seconds: float):
        return lambda kind: asked.append((name, kind)) or seconds

    seconds = engines.take_turns({"flower": engine("flower", 2.0), "nvflare": engine("nvflare", 0.5)})
    assert seconds == {kind: {"flower": [2.0] * 2, "nvflare": [0.5] * 2} for kind in ("train", "report")}
    trained = [name for name, kind in asked if kind == "train"]
    assert trained == ["flower", "nvflare", "nvflare", "flower", "flower", "nvflare"]


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_SLOW" not in os.environ, reason="takes minutes: set FEDPCA_SLOW=1")
def test_nvflare_and_flower_take_turns(call, monkeypatch):
    monkeypatch.setattr(engines, "TURNS", 1)
    figures = call("engines")["engines"]
    assert min(figures["train, flower over nvflare"], figures["report, flower over nvflare"]) > 0


def test_the_price_of_a_table_is_a_product(call, monkeypatch):
    monkeypatch.setattr(paper, "_seconds", lambda work: 2.0)
    found = call("paper")["paper"]
    assert found["runs"] == 144
    assert found["seconds_per_round"] == {"fedavg": 140, "fedpca-hs": 140}
    assert found["core_hours"]["fedavg"] == 144 * 500 * 140 / 3600


def test_unknown_names_are_refused_with_what_there_is(call, capsys):
    with pytest.raises(SystemExit):
        call("speeds")
    assert "there is no benchmark speeds; there are workers, memory" in capsys.readouterr().err


def test_two_commits_take_turns(call):
    figures = call("commits", str(ROOT), "--workloads", "W3", "--repeat", "1", "--max-wait", "0")["W3, fedpca"]
    assert figures["seconds"].keys() == {"old", "old again", "new"}
    assert figures["new_over_old"] > 0
    assert figures["old_over_old"] >= 1
    assert figures["same_work"] is True


def test_a_new_side_is_slower_only_beyond_what_equal_sides_differ():
    old, again, new = (Result(1.0, 2.0, [seconds] * 3, others=[0.0]) for seconds in (1.0, 1.1, 1.12))
    figures = commits._figures(old, again, new)
    assert (figures["new_over_old"], figures["old_over_old"], figures["slower"]) == (1.067, 1.1, False)
    slow = commits._figures(old, again, Result(1.0, 2.5, [1.2] * 3, others=[0.0]))
    assert (slow["slower"], slow["same_work"]) == (True, False)
    assert commits.table({"W3, fedpca": figures}).splitlines()[1].split()[2:4] == ["1.067", "1.1"]


def test_what_is_no_checkout_is_refused(call, tmp_path, capsys):
    with pytest.raises(SystemExit):
        call("commits", str(tmp_path))
    assert "is no checkout of fedpca: it has no src/fedpca and no benchmarks/systems.py" in capsys.readouterr().err
