"""The studies behind design decisions run, on federations far smaller than theirs."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
import studies.candidates
import studies.compare
import studies.golden
import studies.liar
import studies.privacy
import studies.record
import studies.train
import torch
from studies.kinds import HELD_OUT, SEARCH, Case, cases

from fedpca.core import Verdict
from tests.results.made import a_line, write_run

FEW = {"clients": 10, "split": "iid", "rare": 0.1}
SPECS = ({**FEW, "rho": 0.0, "eta": 0.0, "seed": 0}, {**FEW, "rho": 0.2, "eta": 1.0, "seed": 0})


@pytest.fixture
def call(monkeypatch, capsys):
    """What `python -m studies.NAME WORDS` prints, in this process; the code it ends with must be as said."""

    def called(study, *words: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", [study.__name__, *map(str, words)])
        try:
            study.main()
            ended = 0
        except SystemExit as end:
            ended = int(end.code)
        printed = capsys.readouterr()
        assert ended == code, printed.err
        return printed.out + printed.err

    return called


@pytest.fixture
def short(monkeypatch):
    """Four rounds of an MLP on 300 digits, the first two to warm up."""
    monkeypatch.setattr(studies.record, "ROUNDS", 4)
    monkeypatch.setattr(studies.record, "WARMUP", 2)
    monkeypatch.setattr(studies.record, "DATA", {10: ("digits", "mlp", 300, 0.5, 0.1)})
    monkeypatch.setattr(studies.record, "grid", lambda: iter(SPECS))
    monkeypatch.setattr(studies.record, "cifar_grid", lambda: iter(()))


def small_case(kind: str, noise: str, **more: object) -> Case:
    """The first such federation, with ten clients that have 30 images each."""
    case = next(case for case in cases(SEARCH) if case.kind.name == kind and case.noise == noise)
    data = {**case.settings["data"], "clients": 10, "train_images": 300, "test_images": 100}
    return replace(case, settings={**case.settings, "data": data, **more})


TEN, TWO = "ten classes, digits, 10 clients", "two classes, halves of the digits, 8 clients"


def test_reports_of_the_grid_are_recorded_once_and_compared(short, call, tmp_path: Path):
    shown = call(studies.record, tmp_path, "--jobs", 1)
    assert shown.splitlines()[-1].startswith("2/2 clients10-splitiid-rare0.1-rho0.2")
    recording = json.loads(next(tmp_path.glob("*rho0.2*.json")).read_text())
    assert (recording["kind"], recording["noise"]) == ("digits with 10 clients", "symmetric 1.0")
    assert len(recording["rounds"]) == 2  # after the warm-up
    assert len(recording["truth"]["mislabeled"]) == 2
    assert all(0 <= report["agreement"] <= 1 for report in recording["rounds"][-1].values())
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    call(studies.record, tmp_path, "--jobs", 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written

    count, _, head, _, *rows = call(studies.compare, tmp_path).splitlines()
    assert count == "2 federations"
    assert head == "| all federations | nobody judged | recall | precision | error |"
    assert [row.split(" | ")[0][2:] for row in rows[: len(studies.compare.RULES)]] == list(studies.compare.RULES)


def test_federations_of_many_kinds_are_recorded_with_every_candidate(short, call, tmp_path: Path, monkeypatch):
    chosen = {0: small_case(TWO, "symmetric 0.8"), 100: small_case(TEN, "none")}
    monkeypatch.setattr(studies.record, "cases", lambda draws: (chosen[draw] for draw in draws if draw in chosen))
    call(studies.record, tmp_path, "--kinds", "--jobs", 1)
    (path,) = tmp_path.glob("*.json")
    recording = json.loads(path.read_text())
    assert (recording["kind"], recording["noise"]) == ("two classes", "symmetric 0.8")
    wrong = recording["truth"]["wrong_share"]
    assert {c for c, share in wrong.items() if share > 0.5} == set(recording["truth"]["mislabeled"]) != set()
    report = recording["rounds"][-1]["0"]
    asked = {"loss", "dispersion", "slope", "agreement", "variation", "plain_slope", "certainty", "calibration_gap"}
    assert asked | {"confident_errors", "uniform_share", "left_out_agreement"} <= set(report)

    call(studies.record, tmp_path, "--kinds", "--held-out", "--only", "digits", "--jobs", 1)
    assert len(list(tmp_path.glob("*.json"))) == 2
    shown = call(studies.compare, tmp_path, "--only", "both (auto)")
    assert "| nobody judged, by kind | ten classes |" in shown
    assert "| recall, by noise | symmetric 0.8 |" in shown
    assert "confident joint" not in shown
    missed = call(studies.compare, tmp_path, "--misses", "paper").splitlines()
    assert all(line.endswith("in client-rounds of the last 10 rounds") for line in missed[2:])


def test_two_measures_judge_as_auto_does(short, tmp_path: Path):
    for noise in ("none", "symmetric 0.8", "pair 0.9"):
        studies.record.record_case(small_case(TEN, noise, training={"batch": 16, "lr": 0.3}), tmp_path)
    both = studies.compare.measured(studies.compare.BY_SLOPE, studies.compare.BY_AGREEMENT)
    recordings = [studies.compare.read(path) for path in tmp_path.glob("*.json")]
    tallies = [studies.compare.judge(both, one) for one in recordings]
    assert sum(tally.found for tally in tallies) > 0  # else nothing was compared
    for one, tally in zip(recordings, tallies, strict=True):
        auto = studies.compare.judge(studies.compare.RULES["both (auto)"], one)
        assert replace(tally, error=0.0) == replace(auto, error=0.0)
        assert tally.error == pytest.approx(auto.error)


def recorded(mislabeled: str, **wrong_share: float) -> studies.compare.Recording:
    """A federation of one round, whose clients report nothing."""
    rounds = [{client: {} for client in wrong_share}]
    return studies.compare.Recording("one", "a kind", "a noise", frozenset(mislabeled), wrong_share, rounds)


def judging(clients: str) -> studies.compare.Rule:
    """A rule that judges these, whatever they report, and says that all have 0.1 wrong labels."""
    return studies.compare.Rule(
        lambda diagnosis, reports, when: {
            client: Verdict("mislabeled" if client in clients else "common", suspicion=0.1) for client in reports
        }
    )


def test_figures_are_those_of_hand_made_judgements():
    clean, some = recorded("", a=0.0, b=0.1), recorded("ab", a=0.5, b=0.15, c=0.0, d=0.0)  # b is below the bar
    tally = studies.compare.judge(judging("ac"), clean) + studies.compare.judge(judging("ac"), some)
    figures = {"nobody judged": "0.000 (1)", "recall": "1.000 (1)", "precision": "0.333 (3)"}
    assert tally.figures == {**figures, "error": f"{(0.1 + 0.0 + 0.4 + 0.05 + 0.1 + 0.1) / 6:.3f}"}
    assert studies.compare.judge(judging(""), clean).figures["nobody judged"] == "1.000 (1)"
    assert studies.compare.judge(judging("b"), some).figures["recall"] == "0.000 (1)"
    assert list(studies.compare.misses([clean, some], judging("ab"))) == [
        "one: 2 wrongly, 0 missed, in client-rounds of the last 10 rounds"
    ]


def test_a_confident_joint_is_that_of_a_table_made_by_hand():
    # levels: 0.6 for class 0, 0.8 for class 1, none for class 2, which nobody is given
    probs = torch.tensor([[0.9, 0.1, 0], [0.8, 0.2, 0], [0.1, 0.9, 0], [0.1, 0.9, 0], [0.3, 0.7, 0]]).double()
    labels = torch.tensor([0, 0, 0, 1, 1])  # the third is confidently wrong, the last is confidently nothing
    expected = torch.tensor([[0.4, 0.2, 0], [0, 0.4, 0], [0, 0, 0]]).double()
    torch.testing.assert_close(studies.candidates.confident_joint(probs, labels), expected)
    assert studies.candidates.confident_errors(probs, labels) == pytest.approx(0.2)


@pytest.mark.parametrize(("count", "width"), [(12, 30), (30, 5)])
def test_left_out_predictions_are_those_of_regressions_without_the_row(count: int, width: int):
    rng = torch.Generator().manual_seed(0)
    features = studies.candidates.scaled(torch.randn(count, width, generator=rng) + 3)
    targets = torch.rand(count, 4, generator=rng, dtype=torch.float64)
    found = studies.candidates.left_out(features, targets)
    for row in range(count):
        kept = torch.arange(count) != row
        x, mean = features[kept], features[kept].mean(dim=0)
        moments = (x - mean).T @ (x - mean) + studies.candidates.RIDGE * torch.eye(width).double()
        weights = torch.linalg.solve(moments, (x - mean).T @ targets[kept])
        torch.testing.assert_close(found[row], targets[kept].mean(dim=0) + (features[row] - mean) @ weights)


@pytest.mark.parametrize("sharpness", [0.6, 1.0, 1.7])  # of what the model says, against what is so
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_the_share_of_random_labels_is_recovered(share: float, sharpness: float):
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4000, 10, generator=rng, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=rng).squeeze(1)
    random = torch.rand(4000, generator=rng) < share
    labels = torch.where(random, torch.randint(10, (4000,), generator=rng), labels)
    found = studies.candidates.uniform_share((sharpness * logits).softmax(dim=1), labels)
    assert found == pytest.approx(0.9 * share, abs=0.05)


def test_a_client_is_as_certain_as_it_says():
    probs, labels = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]]).double(), torch.tensor([0, 1, 0, 1])
    assert studies.candidates.agreement(probs, labels) == 0.5
    assert studies.candidates.certainty(probs) == pytest.approx(0.75)
    assert studies.candidates.calibration_gap(probs, labels) == pytest.approx(0.25)


def test_what_the_own_images_say_counts_in_the_left_out_agreement():
    """A model that knows nothing, and features that tell the classes apart: labels are predicted from the others."""
    labels = torch.arange(40) % 2
    features = torch.eye(2)[labels] + 0.01 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    guess = torch.tensor([[0.501, 0.499]]).double().expand(40, 2)
    assert studies.candidates.left_out_agreement(guess, features, labels) == 1.0
    wrong = torch.where(torch.arange(40) < 8, 1 - labels, labels)
    assert studies.candidates.left_out_agreement(guess, features, wrong) == 0.8


def test_the_grids_are_those_of_the_log():
    assert len(list(studies.record.grid())) == 3 * 2 * 3 * (6 + 16)
    assert len(list(studies.record.cifar_grid())) == 8
    assert len(list(studies.record.fresh_grid())) == 32


def test_every_federation_of_the_grids_can_be_played():
    for spec in (*studies.record.grid(), *studies.record.cifar_grid(), *studies.record.fresh_grid()):
        assert studies.record.settings(spec).data.clients == spec["clients"]


def test_no_federation_of_many_kinds_is_both_searched_and_held_out():
    search, held_out = ({case.name for case in cases(draws)} for draws in (SEARCH, HELD_OUT))
    assert len(search) == len(list(cases(SEARCH)))
    assert not search & held_out


def test_rules_train_and_the_table_compares_them(call, tmp_path: Path, monkeypatch):
    evaluation = {"every": 12, "last_rounds": 1}
    chosen = [small_case(TEN, noise, rounds=12, evaluation=evaluation) for noise in ("none", "symmetric 0.8")]
    monkeypatch.setattr(studies.train, "chosen_cases", lambda: chosen)
    monkeypatch.setattr(studies.train, "SEEDS", (0,))
    shown = call(studies.train, tmp_path, "--jobs", 1)
    assert shown.splitlines()[-1] == f"2/2 {chosen[1].name}"
    head, _, *rows, _, end = call(studies.train, tmp_path, "--table").splitlines()
    assert head.split(" | ")[1:-1] == [f"{rule}: wrongly, missed, worst ACC" for rule in studies.train.RULES]
    assert [row.split(" | ")[0] for row in rows] == [f"| {TEN}, none", f"| {TEN}, symmetric 0.8"]
    assert end.startswith("2 federations; mean difference")


@pytest.fixture
def few_golden(monkeypatch):
    """Two methods, one model, one and two workers."""
    monkeypatch.setattr(studies.golden, "METHODS", ("fedavg", "median"))
    monkeypatch.setattr(studies.golden, "MODELS", ("mlp",))
    changes = ("rounds=2", "data.clients=6", "data.train_images=120", "data.test_images=60")
    monkeypatch.setattr(studies.golden, "CHANGES", changes)


def test_golden_runs_are_equal_when_nothing_changed_and_say_what_did(few_golden, call, tmp_path: Path, monkeypatch):
    file = tmp_path / "golden.json"
    shown = call(studies.golden, "record", file)
    found = json.loads(file.read_text())
    assert shown.splitlines()[-1] == f"{len(found)} digests written to {file}"
    one, two = ({key: d for key, d in found.items() if f"{n} workers" in key} for n in (1, 2))
    assert list(one.values()) == list(two.values())
    assert call(studies.golden, "compare", file).splitlines()[-1] == f"equal: {len(found)} digests of 4 runs"

    monkeypatch.setattr(studies.golden, "all_runs", lambda: {**found, "median, mlp, 2 workers: round 2": "0" * 16})
    last = call(studies.golden, "compare", file, code=1).splitlines()[-1]
    assert last == "median, mlp, 2 workers differs from round 2 on"


def test_golden_names_the_first_difference_of_each_run():
    before = {"a: round 1": "1", "a: round 2": "2", "b: round 1": "1", "b: tensor w": "5", "c: round 1": "1"}
    now = {**before, "a: round 2": "3", "b: tensor w": "6"}
    assert studies.golden.differences(before, now) == ["a differs from round 2 on", "b differs from tensor w on"]
    assert studies.golden.differences(before, {k: v for k, v in now.items() if k[0] != "c"})[-1] == (
        "c differs from round 1 on"
    )
    assert studies.golden.differences(before, before) == []


def test_golden_asks_for_a_recording_first(call, tmp_path: Path):
    assert "record first" in call(studies.golden, "compare", tmp_path / "none.json", code=2)


def test_what_an_epsilon_costs_is_a_row_for_each(call, monkeypatch):
    for name, value in (
        ("EPSILONS", (None, 8.0)),
        ("REPORTING", ("fedavg", "qfedavg")),
        ("AVERAGING", (("fedavg", 1.0),)),
    ):
        monkeypatch.setattr(studies.privacy, name, value)
    printed = call(studies.privacy, "--seeds", 1, "--rounds", 1).splitlines()
    assert printed[0] == "| epsilon of all reports | fedavg | qfedavg |"
    assert [line.split(" | ")[0] for line in printed if "---" not in line and line][1:3] == ["| no noise", "| 8"]
    assert "| epsilon of the weights | fedavg, clip 1 |" in printed


def test_the_study_of_a_liar_names_every_promise_that_is_missed(call, tmp_path: Path):
    def play(name: str, since: int, **gains: object) -> None:
        now = {"clients": ["a"], "success": 0.05, "weight": 0.6, "judged": [], "innocents_judged": [], **gains}
        before = {**now, "clients": [], "weight": 0.25, "success": 0.0, "innocents_judged": []}
        lines = [a_line(n, attack=now if since <= n else before) for n in (1, 2)]
        about = {"rare": [], "mislabeled": ["d"], "attack": {"clients": ["a"], "words": "backdoor", "since": since}}
        attack = {"kind": "backdoor", "clients": ["a"], "since": since}
        bounds = {"max_weight": 3.0, "rule": "median"}
        write_run(tmp_path / name, lines, truth=about, attack=attack, aggregation=bounds)

    play("none", since=3)
    play("kept", since=2)
    assert "1 of 1" in call(studies.liar, tmp_path)
    assert ": 0 of 1" not in call(studies.liar, tmp_path)
    rmtree(tmp_path / "kept")
    play("missed", since=2, weight=0.9, success=0.5, innocents_judged=["b"])
    said = call(studies.liar, tmp_path)
    assert "no more than 3 equal shares: 0 of 1\n  one of 4, median: fedpca-d (warmup=0), backdoor: 3.60" in said
    assert "judged mislabeled: 0 of 1\n  one of 4, median: fedpca-d (warmup=0), backdoor: 1.00" in said
    assert "average accuracy within 3 points: 1 of 1" in said
    assert "with a robust rule: 0 of 1\n  one of 4, median: fedpca-d (warmup=0), backdoor: 25.00" in said
