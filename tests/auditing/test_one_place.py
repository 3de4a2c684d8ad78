"""An audit in one place: the same bits for any number of workers and after a stop; whose model judges whom."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedpca
from fedpca.auditing import run
from fedpca.auditing.data import audit_data
from fedpca.auditing.folds import folds_of
from fedpca.auditing.one_place import audit_source, net_maker
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.review import review_site
from fedpca.auditing.run import cross_fit
from fedpca.auditing.suspects import read_suspects, with_reviews, write_suspects
from fedpca.errors import DataError, RunError, SettingsError
from fedpca.runs.check import check_experiment

OPTIONS = AuditOptions(rounds=6, sample=10)
TABLE = {
    "data": {"clients": 8},
    "noise": {"clients": 0.25, "labels": 0.6},
    "model": {"name": "mlp"},
    "training": {"batch": 16, "lr": 0.1},
}


@pytest.fixture(scope="module")
def digits():
    experiment = check_experiment(TABLE, "test")
    data = audit_data(experiment)
    return experiment, data, net_maker(experiment, data, 0)


def test_any_number_of_workers_gives_the_same_bits(digits, tmp_path: Path):
    experiment, data, make = digits
    one = cross_fit(data, experiment, OPTIONS, tmp_path / "one", make, 1)
    two = cross_fit(data, experiment, OPTIONS, tmp_path / "two", make, 3)
    assert list(one) == list(data.shards)
    assert all(torch.equal(one[client], two[client]) for client in one)


def test_an_audit_that_is_stopped_anywhere_goes_on_to_the_same_bits(digits, tmp_path: Path, monkeypatch):
    experiment, data, make = digits
    whole = cross_fit(data, experiment, OPTIONS, tmp_path / "whole", make)
    monkeypatch.setattr(run, "PAUSE", -1.0)

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 9:  # in the middle of the second fold
            raise StopError

    with pytest.raises(StopError):
        cross_fit(data, experiment, OPTIONS, tmp_path / "part", make, 1, stop)
    assert (tmp_path / "part/work/fold-1/checkpoint/state.safetensors").exists()
    seen = []
    rest = cross_fit(data, experiment, OPTIONS, tmp_path / "part", make, 1, lambda done, total: seen.append(done))
    assert seen[0] == 6  # the first fold was kept
    assert 7 not in seen  # and the second goes on where it was
    assert all(torch.equal(whole[client], rest[client]) for client in whole)


def test_a_client_s_labels_do_not_change_what_it_is_judged_by(digits, tmp_path: Path):
    experiment, data, make = digits
    client = folds_of(list(data.shards), None, 0)[0][0]
    shard = data.shards[client]
    other = replace(data, shards={**data.shards, client: replace(shard, y=(shard.y + 1) % 10)})
    before = cross_fit(data, experiment, OPTIONS, tmp_path / "a", make)
    after = cross_fit(other, experiment, OPTIONS, tmp_path / "b", make)
    assert torch.equal(before[client], after[client])
    others = [c for c in data.shards if c not in folds_of(list(data.shards), None, 0)[0]]
    assert not torch.equal(before[others[0]], after[others[0]])


def test_a_folder_of_another_audit_is_refused(digits, tmp_path: Path):
    experiment, data, make = digits
    cross_fit(data, experiment, OPTIONS.model_copy(update={"rounds": 1}), tmp_path, make)
    with pytest.raises(RunError, match="other settings"):
        cross_fit(data, experiment, OPTIONS, tmp_path, make)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table of six sites in one file; a third of the labels of one are wrong."""
    rng = np.random.default_rng(0)
    path = tmp_path / "lake.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["site", "a", "b", "diagnosis"])
        for row in range(1200):
            a, b = rng.normal(size=2)
            label = int(a + b > 0) ^ int(row % 6 == 5 and row % 18 < 6)
            writer.writerow([f"site{row % 6}", round(a, 3), round(b, 3), ["well", "ill"][label]])
    return path


def test_a_file_with_a_site_column_is_audited_whole(lake: Path, tmp_path: Path):
    out = tmp_path / "audit"
    found = audit_source([str(lake)], None, ["training.lr=0.1"], OPTIONS.model_copy(update={"rounds": 8}), out)
    record = json.loads((out / "audit.json").read_text())
    assert record == found.record
    assert record["rows"] == "all"
    assert [own["images"] for own in record["clients"]] == [200] * 6
    assert [own["client"] for own in record["clients"] if own["verdict"] == "mislabeled"] == ["site5"]
    assert (out / "site5").stat().st_mode & 0o077 == 0
    suspects = read_suspects(out / "site5" / "suspects.csv")
    assert sorted(own.row for own in suspects) == list(range(5, 1200, 6))  # rows of the file
    assert sum(own.in_sample for own in suspects) == 10
    assert dict(suspects[0].columns).keys() == {"a", "b"}
    assert (out / "page.html").exists()
    assert (out / "site5" / "sheet.html").exists()
    names = [row["client"] for row in csv.DictReader((out / "clients.csv").open())]
    assert names == [f"site{i}" for i in range(6)]


def test_what_people_read_is_kept_when_the_audit_is_made_again(lake: Path, tmp_path: Path):
    out, options = tmp_path / "audit", OPTIONS.model_copy(update={"rounds": 2})
    audit_source([str(lake)], "site", (), options, out)
    path = out / "site1" / "suspects.csv"
    row = read_suspects(path)[3].row
    write_suspects(path, with_reviews(read_suspects(path), {row: "ill"}))
    audit_source([str(lake)], "site", (), options.model_copy(update={"fdr": 0.2}), out)
    assert {own.row: own.reviewed for own in read_suspects(path) if own.reviewed} == {row: "ill"}


def test_corrected_labels_change_training_and_belong_to_their_data(lake: Path, tmp_path: Path):
    data = {"dataset": str(lake), "label_column": "diagnosis", "split": "column", "column": "site"}
    fixes = tmp_path / "corrected.csv"
    given = [row["diagnosis"] for row in csv.DictReader(lake.open())]
    other = {"well": "ill", "ill": "well"}
    lines = [f"{row},,{given[row]},{other[given[row]]}" for row in range(0, 60, 6)]
    fixes.write_text("row,path,given_label,label\n" + "\n".join(lines) + "\n")
    table = {"data": data, "model": {"name": "mlp"}}
    before = audit_data(check_experiment(table, "test"))
    after = audit_data(check_experiment({**table, "data": {**data, "corrected_labels": str(fixes)}}, "test"))
    changed = before.shards["site0"].y != after.shards["site0"].y
    assert before.rows["site0"][changed.numpy()].tolist() == list(range(0, 60, 6))
    assert torch.equal(before.shards["site1"].y, after.shards["site1"].y)
    fixes.write_text(f"row,path,given_label,label\n0,,{other[given[0]]},{given[0]}\n")
    with pytest.raises(DataError, match="belong to other data"):
        audit_data(check_experiment({**table, "data": {**data, "corrected_labels": str(fixes)}}, "test"))
    fixes.write_text("row,path,given_label,label\n5000,,well,ill\n")
    with pytest.raises(DataError, match="row 5000, which the data do not have"):
        audit_data(check_experiment({**table, "data": {**data, "corrected_labels": str(fixes)}}, "test"))


def test_a_run_does_not_go_on_with_other_corrected_labels(lake: Path, tmp_path: Path):
    fixes = tmp_path / "corrected.csv"
    fixes.write_text("row,path,given_label,label\n")
    (tmp_path / "own.toml").write_text(
        f'rounds = 1\nmethods = ["fedavg"]\nseeds = [0]\n[data]\ndataset = "{lake}"\nlabel_column = "diagnosis"\n'
        f'split = "column"\ncolumn = "site"\ncorrected_labels = "{fixes}"\n[model]\nname = "mlp"\n'
    )
    fedpca.run(tmp_path / "own.toml", out=tmp_path / "runs", progress=False)
    given = next(csv.DictReader(lake.open()))["diagnosis"]
    fixes.write_text(f"row,path,given_label,label\n0,,{given},{'ill' if given == 'well' else 'well'}\n")
    with pytest.raises(RunError, match="other corrected labels"):
        fedpca.run(tmp_path / "own.toml", changes=["rounds=2"], out=tmp_path / "runs", resume=True, progress=False)


def test_data_without_a_column_of_sites_are_refused(tmp_path: Path):
    (tmp_path / "own.csv").write_text("a,b,label\n" + "".join(f"{i},{i % 7},{i % 2}\n" for i in range(40)))
    with pytest.raises(SettingsError, match="--column"):
        audit_source([str(tmp_path / "own.csv")], None, (), OPTIONS, tmp_path / "out")
    with pytest.raises(SettingsError, match="there is no file, folder or experiment"):
        audit_source(["absent"], None, (), OPTIONS, tmp_path / "out")


def test_several_files_are_a_site_each(tmp_path: Path):
    rng = np.random.default_rng(1)
    for site in ("bonn", "graz", "lyon", "oslo"):
        x = rng.normal(size=(60, 2)).round(3)
        rows = [f"{a},{b},{int(a > b)}" for a, b in x]
        (tmp_path / f"{site}.csv").write_text("a,b,label\n" + "\n".join(rows) + "\n")
    names = [str(tmp_path / f"{site}.csv") for site in ("bonn", "graz", "lyon", "oslo")]
    found = audit_source(names, None, (), OPTIONS.model_copy(update={"rounds": 2}), tmp_path / "out")
    assert [own["client"] for own in found.record["clients"]] == ["bonn", "graz", "lyon", "oslo"]
    assert sorted(own.row for own in found.suspects["graz"]) == list(range(60))


def test_python_data_are_numbered_by_their_own_index(tmp_path: Path):
    x, y = np.random.default_rng(0).normal(size=(90, 3)), np.arange(90) % 2
    audit = fedpca.audit({f"c{i}": (x[i::3], y[i::3]) for i in range(3)}, "mlp", rounds=2, out=tmp_path, progress=False)
    assert sorted(audit.suspects("c1")["row"].to_pylist()) == list(range(30))
    assert audit.clients["verdict"].to_pylist() == ["cannot tell"] * 3
    assert audit.page(tmp_path / "copy.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    assert audit.record["clients"][0]["why_no_interval"]
    with pytest.raises(ValueError, match="there is no client 'c9'"):
        audit.suspects("c9")


def test_a_site_with_noisy_images_and_right_labels_is_not_judged_mislabeled(tmp_path: Path):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = (x / 16).astype("float32").reshape(-1, 1, 8, 8)
    rng = np.random.default_rng(0)
    clients = {f"site {i}": (images[i::8], y[i::8].copy()) for i in range(8)}
    noisy = images[2::8] + rng.normal(0, 0.45, images[2::8].shape).astype("float32")
    clients["site 2"] = (noisy.clip(0, 1), y[2::8])
    given = clients["site 5"][1]
    given[::2] = (given[::2] + 3) % 10
    found = fedpca.audit(clients, "mlp", training={"lr": 0.1, "batch": 16}, out=tmp_path, progress=False)
    entries = {own["client"]: own for own in found.record["clients"]}
    assert found.mislabeled == ["site 5"]
    assert entries["site 2"]["verdict"] == "cannot tell"
    assert "less sure of its images" in entries["site 2"]["reason"]
    assert entries["site 2"]["low"] == 0.0  # its labels may all be right
    assert "right labels look doubtful too" in entries["site 2"]["list_warning"]
    assert entries["site 2"]["suspects"] == 0
    assert "The list is left empty" in next(tmp_path.glob("site_2*/sheet.html")).read_text()
    assert entries["site 5"]["list_warning"] is None
    assert found.record["reference"]["clients"] == 6


def test_options_of_an_experiment_are_refused_with_those_of_an_audit(lake: Path, tmp_path: Path):
    with pytest.raises(SettingsError, match="its own is --rounds"):
        audit_source([str(lake)], None, ["rounds=3"], OPTIONS, tmp_path / "out")


def test_a_folder_of_folders_is_told_to_name_each_as_a_site(tmp_path: Path):
    for name in ("bonn", "graz"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "own.csv").write_text("a,label\n1,0\n2,1\n")
    with pytest.raises((DataError, SettingsError), match=r"fedpca audit .*all/bonn .*all/graz"):
        audit_source([str(tmp_path / "all")], None, (), OPTIONS, tmp_path / "out")


def test_an_audit_of_corrected_labels_keeps_what_was_read_and_corrected(lake: Path, tmp_path: Path):
    out, options = tmp_path / "audit", OPTIONS.model_copy(update={"rounds": 2})
    audit_source([str(lake)], "site", (), options, out)
    path = out / "site1" / "suspects.csv"
    first, second = [own for own in read_suspects(path) if own.given == "ill"][:2]
    write_suspects(path, with_reviews(read_suspects(path), {first.row: "well"}))
    corrected, _ = review_site(out / "site1")
    assert corrected.read_text().splitlines()[1:] == [f"{first.row},,ill,well"]
    changes = [f"data.corrected_labels={corrected}"]
    again = options.model_copy(update={"seed": 1})
    (out / "work").rename(tmp_path / "earlier work")
    audit_source([str(lake)], "site", changes, again, out)
    rows = {own.row: own for own in read_suspects(path)}
    assert (rows[first.row].given, rows[first.row].reviewed) == ("well", "well")
    write_suspects(path, with_reviews(list(rows.values()), {second.row: "well"}))
    review_site(out / "site1")
    expected = sorted([first.row, second.row])
    assert corrected.read_text().splitlines()[1:] == [f"{row},,ill,well" for row in expected]


def test_a_review_of_nothing_writes_no_corrections(lake: Path, tmp_path: Path):
    audit_source([str(lake)], "site", (), OPTIONS.model_copy(update={"rounds": 1}), tmp_path / "audit")
    path, found = review_site(tmp_path / "audit" / "site1")
    assert found.read == 0
    assert not path.exists()
