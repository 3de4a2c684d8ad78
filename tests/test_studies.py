"""The studies behind design decisions run, on federations far smaller than theirs."""

import json
import sys
from pathlib import Path

import pytest
import studies.claims
import studies.compare
import studies.golden
import studies.record
import studies.train

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
    for study in (studies.record, studies.compare):
        monkeypatch.setattr(study, "WARMUP", 2)
    monkeypatch.setattr(studies.record, "DATA", {10: ("digits", "mlp", 300, 0.5, 0.1)})
    for study in (studies.record, studies.train):
        monkeypatch.setattr(study, "grid", lambda: iter(SPECS))
    monkeypatch.setattr(studies.record, "cifar_grid", lambda: iter(()))


def test_reports_are_recorded_once_and_compared(short, call, tmp_path: Path):
    shown = call(studies.record, tmp_path, "--jobs", 1)
    assert shown.splitlines()[-1].startswith("2/2 clients10-splitiid-rare0.1-rho0.2")
    recording = json.loads(next(tmp_path.glob("*rho0.2*.json")).read_text())
    assert len(recording["rounds"]) == 4
    assert len(recording["truth"]["mislabeled"]) == 2
    assert all(0 <= report["agreement"] <= 1 for report in recording["rounds"][-1].values())
    written = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    call(studies.record, tmp_path, "--jobs", 1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == written

    rows = call(studies.compare, tmp_path).splitlines()
    assert rows[0] == "2 federations"
    assert [row[:33].strip() for row in rows[1:]] == list(studies.compare.RULES)
    assert all("none: nobody accused" in row and "eta>=0.5: mean F1" in row for row in rows[1:])


def test_the_grids_are_those_of_the_log():
    assert len(list(studies.record.grid())) == 3 * 2 * 3 * (6 + 16)
    assert len(list(studies.record.cifar_grid())) == 8
    assert len(list(studies.record.fresh_grid())) == 32
    assert len(list(studies.train.grid())) == 30 + 6 + 9 + 2


def test_every_federation_of_the_grids_can_be_played():
    for spec in (
        *studies.record.grid(),
        *studies.record.cifar_grid(),
        *studies.record.fresh_grid(),
        *studies.train.grid(),
    ):
        assert studies.train.experiment(spec).data.clients == spec["clients"]


def test_both_rules_train_and_the_table_compares_them(short, call, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(studies.record, "ROUNDS", 12)  # both rules warm up for ten
    monkeypatch.setattr(studies.train, "SEEDS", (0,))
    monkeypatch.setattr(studies.train, "LAST", 2)
    shown = call(studies.train, tmp_path, "--jobs", 1)
    assert shown.splitlines()[0] == "1/2 clients 10, split iid, rare 0.1, rho 0.0, eta 0.0"
    head, *rows = call(studies.train, tmp_path, "--table").splitlines()
    assert head.split()[0] == "federation"
    assert len(rows) == 2
    worst, auto, gain = map(float, rows[0].split()[-3:])
    assert 0 < worst <= 100
    assert gain == pytest.approx(auto - worst, abs=0.011)


CLAIMED = ("fedavg", "fedavg+d", "fedpca-wo-fairness", "fedpca-d")
CLAIMED_CHANGES = (
    "rounds=4",
    "data.clients=6",
    "data.train_images=240",
    "data.test_images=100",
    "rare.share=0.17",
    "noise.clients=0.17",
    *(f'method."{name}".warmup=2' for name in CLAIMED[1:]),
)


def test_claims_are_checked_on_runs(call, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(studies.golden, "METHODS", CLAIMED)
    monkeypatch.setattr(studies.golden, "CHANGES", CLAIMED_CHANGES)
    studies.golden.play("mlp", 1, tmp_path)
    title, *lines = call(studies.claims, tmp_path).splitlines()
    assert title.startswith("digits: digits, 6 clients")
    assert [line.partition(":")[0].strip() for line in lines] == [
        "fedpca-d minus the best rival, fedavg",
        "fedpca-d minus fedpca-wo-fairness",
        "fedavg+d minus fedavg",
        "dispersion of common minus rare clients",
    ]
    assert "over 1 seed," in lines[0]  # golden runs have one seed


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
