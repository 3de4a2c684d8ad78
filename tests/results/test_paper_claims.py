"""The paper's own numbers, written as if they were runs: its claims must come out as counted in the paper."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpca.cli.results import show_claims
from fedpca.errors import SettingsError
from fedpca.methods.registry import known_names
from fedpca.results.claims import Checked, as_csv, check_claims, claims_sheet, read_claims
from fedpca.results.claims.claims import CLAIMS
from fedpca.results.read.runs import find_runs
from fedpca.results.tables.facts import Facts, PaperCell, read_facts
from tests.results.test_rows import ABOUT, write_run

WEIGHT = "w_r_times_not_w_m"
COUNTED = {  # claim: comparisons that hold and all comparisons, counted by hand in the paper's main tables
    "1": (28, 28),
    "1a": (26, 28),
    "2": (7, 7),
    "2a": (7, 7),
    "3": (14, 14),
    "4": (8, 28),
    "5": (16, 28),
    "5a": (20, 28),
    "6": (5, 7),
    "8": (28, 28),
    "9": (12, 14),
    "10": (12, 14),
    "12": (7, 7),
    "12a": (6, 7),
    "13": (7, 7),
    "14": (4, 4),
    "14a": (4, 4),
    "15": (7, 7),
    "16": (9, 9),
    "19": (16, 16),
    "20": (2, 2),
    "21": (32, 32),
    "22": (12, 12),
    "23": (8, 8),
}
NOT_IN_TABLES = ("17", "17a", "18", "18a", "24", "25", "25a", "26", "27", "28", "28a", "29", "30", "31", "32", "33")


def cells(facts: Facts) -> Iterator[tuple[PaperCell, dict[str, dict[str, float]]]]:
    """Each setting of the main study with the numbers of every table."""
    for cell in facts.tables["main"].cells:
        same = [
            own
            for table in facts.tables.values()
            for own in table.cells
            if table.study == "iid" and (own.dataset, own.rho, own.eta) == (cell.dataset, cell.rho, cell.eta)
        ]
        numbers: dict[str, dict[str, float]] = {}
        for own in same:
            for method, scores in own.methods.items():
                numbers.setdefault(method, {}).update(scores.printed())
        yield cell, numbers


def write_paper(folder: Path) -> None:
    """A run of one round for each row of the paper: the rare group has the worst, the common 2 average - worst."""
    facts = read_facts()
    for cell, numbers in cells(facts):
        dataset = facts.datasets[cell.dataset]
        ids = [str(i) for i in range(dataset.clients)]
        rare, wrong = round(dataset.rare * dataset.clients), round(cell.rho * dataset.clients)
        about = {**ABOUT, "dataset": cell.dataset, "clients": {"id": ids}}
        about |= {"rare": ids[:rare], "mislabeled": ids[rare : rare + wrong]}
        for method, own in numbers.items():
            place = folder / f"{cell.dataset} {cell.rho}" / method
            write_run(
                place,
                method=method,
                rounds=12,
                about=about,
                noise={"clients": cell.rho, "labels": cell.eta},
                rare={"share": dataset.rare},
                data={"dataset": cell.dataset, "clients": dataset.clients},
                evaluation={"accuracy": dataset.accuracy},
            )
            groups = {
                "common": {
                    metric: (2 * own[f"average_{metric}"] - own[f"worst_{metric}"]) / 100 for metric in ("acc", "auc")
                },
                "rare": {metric: own[f"worst_{metric}"] / 100 for metric in ("acc", "auc")},
            }
            if dataset.accuracy == "bacc":
                groups = {group: {"acc": 0.5, "bacc": v["acc"], "auc": v["auc"]} for group, v in groups.items()}
            weights = {"rare": own[WEIGHT], "mislabeled": 0} if WEIGHT in own else None
            line = {"round": 1, "groups": groups, "clients": {"id": ids, "group": None}}
            (place / "rounds.jsonl").write_text(json.dumps({**line, "identification": None, "weights": weights}) + "\n")


@pytest.fixture(scope="module")
def of_the_paper(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checked]:
    folder = tmp_path_factory.mktemp("paper")
    write_paper(folder)
    return {one.claim.number: one for one in check_claims(find_runs([folder]))}


def test_the_papers_own_numbers_bear_its_claims_out_as_counted(of_the_paper: dict[str, Checked]):
    found = {
        number: (sum(one.holds for one in of_the_paper[number].comparisons), len(of_the_paper[number].comparisons))
        for number in COUNTED
    }
    assert found == COUNTED


def test_the_papers_number_of_a_comparison_is_its_own(of_the_paper: dict[str, Checked]):
    """Ours are the paper's here; STD was rounded on its own."""
    both = [one for own in of_the_paper.values() for one in own.comparisons if one.paper is not None]
    assert len(both) > 200
    for one in both:
        assert one.ours.mean == pytest.approx(one.paper, abs=0.025 if one.score.startswith("std") else 1e-6)


def test_claims_of_figures_cannot_be_checked_on_tables(of_the_paper: dict[str, Checked]):
    for number in NOT_IN_TABLES:
        if number not in ("17", "17a", "18", "18a"):  # made of the product alone, these runs have weights
            assert of_the_paper[number].verdict == "cannot be checked"
            assert of_the_paper[number].reason
    assert of_the_paper["30"].reason == "it is a picture: look at the figure features"
    assert {*COUNTED, *NOT_IN_TABLES, "7", "11"} == of_the_paper.keys()


def test_the_verdict_says_how_many_comparisons_hold(of_the_paper: dict[str, Checked]):
    assert of_the_paper["1"].verdict == "holds"
    assert of_the_paper["1a"].verdict == "holds in part"
    lines = {line.method: line.cells for line in claims_sheet([*of_the_paper.values()]).lines}
    assert lines["4"][0] == "holds in part"
    assert lines["4"][2].startswith("8 of 28; one seed; worst ACC -17.79 to +23.40")


def test_the_csv_file_has_every_comparison(of_the_paper: dict[str, Checked]):
    rows = [*csv.DictReader(io.StringIO(as_csv([*of_the_paper.values()])))]
    own = [row for row in rows if row["claim"] == "2" and row["scenario"].startswith("made: cifar10")]
    assert [float(row["ours"]) for row in own] == pytest.approx([15.79, 22.37, 26.53])
    assert {row["holds"] for row in own} == {"True"}
    (picture,) = (row for row in rows if row["claim"] == "30")
    assert (picture["verdict"], picture["ours"]) == ("cannot be checked", "")


def clients_line(losses: list[float], dispersions: list[float], identification: dict | None) -> str:
    groups = {group: {"acc": 0.8, "auc": 0.9} for group in ("common", "rare")}
    clients = {"id": ["0", "1", "10"], "loss": losses, "dispersion": dispersions, "group": ["common"] * 3}
    line = {"round": 1, "groups": groups, "clients": clients, "identification": identification, "weights": None}
    return json.dumps(line) + "\n"


def test_what_clients_report_is_compared_kind_by_kind(tmp_path: Path):
    write_run(tmp_path / "a", method="fedpca-d", rounds=12, noise={"clients": 0.3, "labels": 1.0})
    perfect = {"precision": 1, "recall": 1, "f1": 1, "accused_common": 0, "accused_rare": 0}
    # client 0 is common, 1 mislabeled, 10 rare
    (tmp_path / "a/rounds.jsonl").write_text(clients_line([0.5, 2.0, 1.0], [5.0, 4.0, 4.5], perfect))
    found = {one.claim.number: one for one in check_claims(find_runs([tmp_path]))}
    assert found["27"].verdict == "holds"
    assert [one.ours.mean for one in found["27"].comparisons] == [1.5, 0.5]
    assert found["28"].verdict == "holds in part"  # the mislabeled client is less dispersed than the rare one
    assert found["28a"].verdict == "holds"
    assert found["29"].verdict == "holds"


def test_sweeps_compare_the_ends_of_a_setting(tmp_path: Path):
    for q, rare in ((0.5, 0.70), (1.0, 0.72), (3.0, 0.75)):
        given = {"settings": {"fedpca-d": {"q": q}}, "noise": {"clients": 0.3, "labels": 1.0}}
        write_run(tmp_path / f"q{q}", 0, [(0.9, rare)], rounds=12, method="fedpca-d", **given)
    found = {one.claim.number: one for one in check_claims(find_runs([tmp_path]))}
    (acc, _) = found["24"].comparisons
    assert (acc.what, acc.ours.mean) == ("fedpca-d, q 3 minus 0.5", pytest.approx(5))
    assert found["25a"].verdict == "holds"  # the average rises by half of that
    assert found["26"].reason == "no method has runs with two values of warmup, all else the same"


def test_without_mislabeled_clients_only_the_claim_about_that_is_asked(tmp_path: Path):
    about = {**ABOUT, "mislabeled": []}
    write_run(tmp_path / "a", 0, [(0.9, 0.7)], rounds=12, about=about)
    write_run(tmp_path / "b", 0, [(0.9, 0.8)], rounds=12, method="fedism", about=about)
    found = {one.claim.number: one for one in check_claims(find_runs([tmp_path]))}
    assert found["33"].verdict == "holds"
    assert {one.claim.number for one in found.values() if one.comparisons} == {"33"}
    assert found["1"].reason == "nobody is mislabeled in these runs"


def test_every_method_that_a_claim_names_exists():
    claims = read_claims()
    assert len({claim.number for claim in claims.claims}) == len(claims.claims)
    names = {*known_names()} | {f"{name}+d" for name in ("qfedavg", "fedce", "fedga", "fedism")}
    for claim in claims.claims:
        sides = [side for pair in claim.pairs for side in pair]
        assert {name for side in (*sides, *claim.methods) for name in claims.members(side)} <= names


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "compare"', 'kind = "contrast"', "kind"),
        ('scores = ["worst_acc", "average_acc", "worst_auc", "average_auc"]', "", "needs scores"),
        ("[groups]", "[groups", "cannot be used"),
    ],
)
def test_a_wrong_file_of_claims_is_refused(tmp_path: Path, old: str, new: str, message: str):
    (tmp_path / "claims.toml").write_text(CLAIMS.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SettingsError, match=message):
        read_claims(tmp_path / "claims.toml")


def test_the_command_prints_the_table_and_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_run(tmp_path / "a", 0, [(0.9, 0.7)], noise={"clients": 0.3, "labels": 1.0})
    show_claims([tmp_path], tmp_path / "claims.md", tmp_path / "claims.csv")
    assert "cannot be checked" in capsys.readouterr().out
    assert "| `1` | cannot be checked |" in (tmp_path / "claims.md").read_text()
    assert (tmp_path / "claims.csv").read_text().startswith("claim,topic,says,verdict,scenario,")
