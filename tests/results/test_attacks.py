"""Runs under attack: what the tables say of the attackers and of those who are wrongly judged."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from fedpca.results.read.attacks import attack_name
from fedpca.results.read.runs import find_runs
from fedpca.results.tables import as_csv, as_json, as_markdown, as_rich, for_pages, for_terminal, tabulate
from fedpca.results.tables.rows import Results
from fedpca.settings.attack import AttackSettings
from tests.results.made import a_line, write_run

TRUTH = {"rare": ["c"], "mislabeled": ["d"], "attack": {"clients": ["a", "b"], "words": "backdoor", "since": 2}}
BEFORE = {"clients": [], "success": 0.0, "weight": 0.5, "judged": [], "innocents_judged": []}
DURING = {"clients": ["a", "b"], "success": 0.4, "weight": 0.3, "judged": ["a"], "innocents_judged": ["c"]}
LATER = {**DURING, "success": 0.6, "weight": 0.1, "innocents_judged": []}


def write(folder: Path, kind: str = "backdoor", method: str = "fedpca-d", since: int = 2, **more: object) -> Path:
    """Three rounds; in the last one an attacker is left out and the other one bounded."""
    during = [DURING, {**LATER, **more}] if since <= 3 else [BEFORE, BEFORE]
    named = {"left_out": {"b": "no numbers"}, "bounded": {"a": "weight 0.9 lowered to 0.3"}} if since <= 3 else {}
    lines = [a_line(1, attack=BEFORE), a_line(2, attack=during[0]), a_line(3, attack=during[1], **named)]
    attack = {"kind": kind, "clients": ["a", "b"], "since": since}
    return write_run(folder, lines, method=method, truth=TRUTH, attack=attack)


def tables_of(*folders: Path) -> list[Results]:
    return tabulate(find_runs(folders))


def test_what_attackers_gain_is_the_mean_over_the_rounds_of_the_attack(tmp_path: Path):
    ((row,),) = (results.rows for results in tables_of(write(tmp_path / "run")))
    own = row.attack
    assert (own.attackers, own.success) == (2, pytest.approx(100 * (0.0 + 0.4 + 0.6) / 3))  # last tested rounds
    assert (own.weight, own.largest_weight) == (pytest.approx(0.2), 0.3)
    assert (own.judged, own.left_out, own.bounded, own.innocents_judged) == (0.5, 0.25, 0.25, 0.5)


def test_what_a_method_does_not_record_is_none(tmp_path: Path):
    write(tmp_path / "run", weight=None, judged=None, innocents_judged=None, success=None)
    (results,) = tables_of(tmp_path)
    assert results.rows[0].attack.weight == 0.3  # of the other round
    (sheet,) = [sheet for sheet in for_terminal([results]) if sheet.title.startswith("Under attack")]
    assert len(sheet.lines) == 1


def test_attacks_stand_side_by_side_in_place_of_a_table_for_each(tmp_path: Path):
    for kind, since in (("backdoor", 2), ("size", 2), ("noise", 4)):
        write(tmp_path / kind, kind, since=since)
    write(tmp_path / "fedavg", method="fedavg")
    tables = tables_of(tmp_path)
    (sheet,) = for_terminal(tables)
    assert [(line.category, line.method) for line in sheet.lines] == [
        ("fedavg", "backdoor"),
        *(("fedpca-d (warmup=0)", name) for name in ("none", "backdoor", "size")),
    ]
    assert as_rich(sheet).renderables
    gains, found = for_pages(tables)
    assert [column.head for column in gains.columns] == ["none", "backdoor", "size"]
    assert gains.lines[1].cells == ("70.0 / 0 / 0.50", "70.0 / 33 / 0.20", "70.0 / 33 / 0.20")
    assert found.lines[1].cells == ("0.00 / 0.00 / 0.0", "0.50 / 0.25 / 0.5", "0.50 / 0.25 / 0.5")
    assert "70.0 / 33 / 0.20" in as_markdown([gains])


def test_one_attack_is_shown_below_the_usual_tables_and_no_attack_nowhere(tmp_path: Path):
    titles = [sheet.title for sheet in for_terminal(tables_of(write(tmp_path / "one")))]
    assert [title.startswith("Under attack") for title in titles] == [False, False, True]
    plain = tables_of(write_run(tmp_path / "plain", [a_line(1)]))
    assert not [sheet for sheet in (*for_terminal(plain), *for_pages(plain)) if "attack" in sheet.title]
    assert "backdoor" not in as_csv(plain)
    assert "attack" not in as_json(plain)[0]["rows"][0]


def test_csv_and_json_have_every_number(tmp_path: Path):
    tables = tables_of(write(tmp_path / "run"))
    (line,) = csv.DictReader(io.StringIO(as_csv(tables)))
    assert float(line["attackers_largest_weight"]) == 0.3
    assert float(line["innocents_judged"]) == 0.5
    assert as_json(tables)[0]["rows"][0]["attack"]["judged"] == 0.5


def test_attacks_that_are_called_alike_are_told_apart_by_their_settings(tmp_path: Path):
    write(tmp_path / "early")
    write(tmp_path / "late", since=3)
    gains, _ = for_pages(tables_of(tmp_path))
    assert [column.head for column in gains.columns] == ["backdoor (since=2)", "backdoor (since=3)"]


def test_an_attack_that_never_begins_is_none():
    assert attack_name(AttackSettings(kind="size", clients=("1",), since=5), rounds=4) == "none"
    assert (
        attack_name(AttackSettings(kind="size", clients=("1",), says={"loss": 2.0}), rounds=4) == "size, says loss 2.0"
    )
