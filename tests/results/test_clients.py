"""The export of clients: a line for each client of each run."""

import csv
import io
from pathlib import Path

from fedpca.results.read.runs import find_runs
from fedpca.results.tables.clients import clients_as_csv
from tests.results.made import a_line, write_run


def exported(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(clients_as_csv(find_runs([folder])))))


def test_a_line_says_who_is_judged_how_since_when_and_what_it_weighs(tmp_path: Path):
    lines = [
        a_line(1, groups=["common"] * 4),
        a_line(2, suspicion=[0.0, 0.1, 0.25, 0.9], weights=[0.5, 0.25, 0.25, 0.0]),
    ]
    write_run(tmp_path / "a", lines, truth={})
    *_, c, d = exported(tmp_path)
    assert (d["experiment"], d["setting"], d["method"], d["seed"]) == ("made", "", "fedpca-d (warmup=0)", "0")
    assert (d["client"], d["images"], d["judgement"], d["since_round"]) == ("d", "10", "mislabeled", "2")
    assert (d["suspicion"], d["suspicion_low"], d["suspicion_high"], d["weight"]) == ("0.9", "", "", "0.0")
    assert (c["judgement"], c["suspicion"], c["weight"]) == ("rare", "0.25", "0.25")


def test_the_truth_has_columns_only_where_somebody_knows_it(tmp_path: Path):
    write_run(tmp_path / "own/a", [a_line(1)], truth={})
    assert not {"truly", "wrong_labels"} & exported(tmp_path)[0].keys()
    write_run(tmp_path / "known/a", [a_line(1)], seed=1)
    own, known = exported(tmp_path / "own")[0], exported(tmp_path)
    assert "truly" not in own
    assert {line["seed"]: line["truly"] for line in known if line["client"] == "d"} == {"0": "", "1": "mislabeled"}


def test_an_interval_of_the_suspicion_is_given_where_the_run_records_one(tmp_path: Path):
    line = a_line(1, suspicion=[0.1, 0.2, 0.3, 0.4])
    line["clients"] |= {"suspicion_low": [0.0, 0.1, 0.2, 0.3], "suspicion_high": [0.2, 0.3, 0.4, 0.5]}
    write_run(tmp_path / "a", [line])
    last = exported(tmp_path)[-1]
    assert (last["suspicion_low"], last["suspicion"], last["suspicion_high"]) == ("0.3", "0.4", "0.5")


def test_methods_that_judge_nobody_have_empty_judgements(tmp_path: Path):
    write_run(tmp_path / "a", [a_line(1, groups=None)], method="fedavg")
    line = exported(tmp_path)[0]
    assert (line["judgement"], line["since_round"], line["suspicion"], line["weight"]) == ("", "", "", "0.25")


def test_runs_of_several_scenarios_have_columns_that_tell_them_apart(tmp_path: Path):
    write_run(tmp_path / "a", [a_line(1)], model={"name": "mlp"})
    write_run(tmp_path / "b", [a_line(1)], model={"name": "cnn-small"})
    assert [line["model.name"] for line in exported(tmp_path)] == ["mlp"] * 4 + ["cnn-small"] * 4
