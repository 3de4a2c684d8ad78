"""Run folders that version 0.1 wrote are still read: `run-0.1` holds some, simulated and over Flower.

They were written by that version's code and hold every settings key that was renamed since; their weights are left out.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpca.errors import RunError
from fedpca.runs.cell import Cell, check_folder
from fedpca.runs.check import one_run, read_stored

RUNS = Path(__file__).parent / "run-0.1"
SIMULATED = (  # worst and average accuracy and F1, as version 0.1 showed them
    ("fedavg", 30.5, 38.75, None),
    ("fedga", 27.5, 35.5, None),
    ("rfa", 29.5, 34.0, None),
    ("fedcorr", 26.0, 33.5, 0.0),
    ("fedce+rfa", 27.5, 33.75, None),
    ("hnobs", 26.0, 31.25, None),
    ("hnobs", 22.5, 29.25, None),  # which screens out two
    ("fedpca-hs", 31.0, 41.75, 0.0),
    ("fedpca-hs-auto", 30.5, 42.25, 5 / 6),
)
OVER_FLOWER = (("fedpca-hs", 14.0625, 33.44975490196079, None),)  # where the truth is unknown


def results(*words: object) -> str:
    command = [sys.executable, "-m", "fedpca", "results", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("kind", "expected"), [("simulated", SIMULATED), ("flower", OVER_FLOWER)])
def test_its_numbers_are_those_that_0_1_showed(kind: str, expected: tuple[tuple[str | float | None, ...], ...]):
    (table,) = json.loads(results(RUNS / kind, "--json"))
    rows = [
        (row["name"], row["acc"]["worst"]["mean"], row["acc"]["average"]["mean"], (row["found"] or {}).get("f1"))
        for row in table["rows"]
    ]
    assert rows == [(name, *map(pytest.approx, numbers)) for name, *numbers in expected]


def test_settings_that_were_renamed_since_tell_runs_apart():
    (table,) = json.loads(results(RUNS / "simulated", "--json"))
    labels = [row["method"] for row in table["rows"]]
    assert len(labels) == len(set(labels)) == 9
    assert any("min_margin=3.0" in label for label in labels)  # what was mixture.gate


def test_a_setting_that_means_something_else_now_keeps_its_name_and_value():
    (table,) = json.loads(results(RUNS / "simulated", "--json"))
    labels = [row["method"] for row in table["rows"] if row["name"].startswith("fedpca")]
    assert all("dispersion_depth=3.0" in label and "max_lift" not in label for label in labels)


def test_a_run_that_weighed_by_another_bound_is_not_continued(tmp_path: Path):
    folder = tmp_path / "runs" / "fedpca-hs" / "seed-0"
    shutil.copytree(RUNS / "simulated" / "fedpca-hs" / "seed-0", folder)
    settings = read_stored(folder / "settings.toml")
    own = {key: value for key, value in settings.method["fedpca-hs"].items() if key != "dispersion_depth"}
    wanted = one_run(settings.model_copy(update={"method": {"fedpca-hs": own}}), "fedpca-hs", 0)
    with pytest.raises(RunError, match="was begun with other settings") as refusal:
        check_folder(Cell(wanted, folder), resume=True)
    assert "dispersion_depth was 3.0, is now None" in str(refusal.value)
    assert "max_lift was None, is now 5.0" in str(refusal.value)


def test_the_page_and_the_tables_show_them(tmp_path: Path):
    shown = results(RUNS, "--html", tmp_path / "page.html", "--csv", tmp_path / "table.csv")
    page, csv = (tmp_path / "page.html").read_text(), (tmp_path / "table.csv").read_text()
    for method, *_ in SIMULATED:
        assert all(method in text for text in (shown, page, csv))
    assert "dessau" in page
    assert "30.50" in shown


def test_every_key_that_was_renamed_is_in_them():
    text = "".join(path.read_text() for path in sorted(RUNS.rglob("settings.toml")))
    old = ("least", "least_confidence", "least_samples", "least_distance", "gate", "screened", "averaged", "corrected")
    assert [key for key in (*old, "centred", "clean", "report_augmented") if f"\n{key} = " not in text] == []
