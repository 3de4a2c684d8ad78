import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fedpca.results.found import as_rich, identifications
from fedpca.results.runs import find_runs
from fedpca.scenario import check_experiment, write_experiment


def write_run(folder: Path, seed: int, groups: list[str], f1: float, rare_accused: int = 0):
    settings = check_experiment({"name": "made", "rounds": 11, "seeds": [seed], "methods": ["fedpca-d"]}, "made")
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(write_experiment(settings.cell("fedpca-d", seed)))
    about = {"dataset": "digits", "clients": {"id": ["0", "1", "10"]}, "rare": ["10"], "mislabeled": ["1"]}
    (folder / "about.json").write_text(json.dumps(about))
    named = {"f1": f1, "precision": 1, "recall": 1, "accused_common": 0, "accused_rare": rare_accused}
    line = {
        "round": 1,
        "groups": {"common": {"acc": 0.5, "auc": 0.5}},
        "clients": {"id": ["0", "1", "10"], "group": groups},
        "identification": named if groups else None,
        "weights": None,
    }
    (folder / "rounds.jsonl").write_text(json.dumps(line) + "\n")


def test_accusations_over_seeds(tmp_path: Path):
    write_run(tmp_path / "a", 0, ["common", "mislabeled", "rare"], f1=1.0)
    write_run(tmp_path / "b", 1, ["common", "mislabeled", "mislabeled"], f1=0.5, rare_accused=1)
    (table,) = identifications(find_runs([tmp_path]))
    (row,) = table.rows
    assert table.mislabeled == ("1",)
    assert row.accused == {"1": 2, "10": 1}
    assert (row.f1, row.accused_rare, row.accused_common) == pytest.approx((0.75, 0.5, 0))
    console = Console(width=140, file=io.StringIO())
    console.print(as_rich(table))
    shown = console.file.getvalue()
    assert "truly: 1)" in shown
    assert "1, 10 (1)" in shown


def test_methods_without_groups_have_no_table(tmp_path: Path):
    write_run(tmp_path / "a", 0, [], f1=0)
    assert identifications(find_runs([tmp_path])) == []
