"""Every sentence is spelled here from its meaning; numbers are those of the made runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedpca.results.page.summary import comparison, headline, notes
from fedpca.results.page.words import clients, enumeration, percent, quantity
from fedpca.results.read.clients import client_states, judged_since, threshold
from fedpca.results.read.runs import Run, read_run
from fedpca.results.tables.rows import tabulate
from tests.results.made import a_line, write_run

COMMON = ("common",) * 4
GUILTY = ("common", "common", "rare", "mislabeled")


def a_run(folder: Path, *groups: tuple[str, ...] | None, **options: object) -> Run:
    lines = [a_line(i + 1, groups=own) for i, own in enumerate(groups)]
    return read_run(write_run(folder / "run", lines, **options))


def told(run: Run, head: str, seeds: int = 3) -> str:
    return {note.head: note.text for note in notes(run, seeds)}.get(head, "")


def test_words_for_none_one_and_many():
    assert [quantity(n, "client") for n in (0, 1, 2)] == ["0 clients", "1 client", "2 clients"]
    assert [clients(names) for names in ("", "a", "ab", "abc")] == [
        "nobody",
        "client a",
        "clients a and b",
        "clients a, b and c",
    ]
    assert enumeration([str(i) for i in range(40)], most=3) == "0, 1 and 38 others"
    assert enumeration([str(i) for i in range(4)], most=4) == "0, 1, 2 and 3"
    assert [percent(share) for share in (0.5, 0.1234, 1)] == ["50 %", "12.3 %", "100 %"]


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (COMMON, "None of the 4 clients is judged mislabeled."),
        (GUILTY, "1 of the 4 clients is judged mislabeled: client d."),
        (("mislabeled", "common", "rare", "mislabeled"), "2 of the 4 clients are judged mislabeled: clients a and d."),
        (None, "Nobody has been judged yet, after 1 round."),
    ],
)
def test_the_headline_says_who(tmp_path: Path, groups: tuple[str, ...] | None, said: str):
    assert headline(a_run(tmp_path, groups)) == said


def test_a_method_that_judges_nobody_says_so(tmp_path: Path):
    run = a_run(tmp_path, None, method="fedavg")
    assert headline(run) == "fedavg judges nobody: it does not ask whose labels are wrong."
    assert told(run, "How clear") == ""
    assert told(run, "Beside the truth") == "Truly mislabeled is client d."


def test_since_when_is_the_first_round_without_a_break(tmp_path: Path):
    run = a_run(tmp_path, None, GUILTY, COMMON, GUILTY, GUILTY)
    assert judged_since(run) == [2, 2, 4, 4]
    assert told(run, "Since when") == "It has been judged so in every round since round 4."


def test_since_when_of_several(tmp_path: Path):
    two = ("mislabeled", "common", "rare", "mislabeled")
    assert (
        told(a_run(tmp_path / "a", two, two), "Since when") == "All have been judged so in every round since round 1."
    )
    assert told(a_run(tmp_path / "b", GUILTY, two), "Since when") == "Client d since round 1. Client a since round 2."


def test_those_who_were_accused_once_are_not_forgotten(tmp_path: Path):
    run = a_run(tmp_path, GUILTY, COMMON)
    assert told(run, "Since when") == "Client d was judged mislabeled in an earlier round, but no longer."


@pytest.mark.parametrize(
    ("method", "line"), [("fedpca-d", 0.5), ("fedpca-hs-auto", 0.1), ("fedavg+d", 0.5), ("fednoro", None)]
)
def test_the_threshold_is_the_methods_own(tmp_path: Path, method: str, line: float | None):
    assert threshold(a_run(tmp_path, GUILTY, method=method, rounds=20)) == line


def test_how_clear_names_the_extremes(tmp_path: Path):
    two = ("mislabeled", "common", "rare", "mislabeled")
    lines = [a_line(1, groups=two, suspicion=[0.31, 0.02, 0.11, 0.88])]
    slope = {"warmup": 0, "identify": "slope"}
    run = read_run(write_run(tmp_path / "run", lines, method="fedpca-d-auto", of_method=slope))
    text = told(run, "How clear")
    assert "from 0.25 on a client is judged mislabeled." in text
    assert "For the 2 judged mislabeled it lies between 0.31 (client a) and 0.88 (client d)." in text
    assert text.endswith("The largest among the others is 0.11 (client c).")


def test_what_is_not_recorded_is_said(tmp_path: Path):
    assert "does not record suspicions" in told(a_run(tmp_path / "a", GUILTY), "How clear")
    assert "without a threshold" in told(a_run(tmp_path / "b", GUILTY, method="fednoro", rounds=20), "How clear")


def test_groups_and_weights_fare(tmp_path: Path):
    lines = [a_line(i, weights=[0.2, 0.2, 0.5, 0.1]) for i in (1, 2)]
    text = told(read_run(write_run(tmp_path / "run", lines)), "Rare and common")
    assert text.startswith("Client c is judged rare. In the last 2 tested rounds, on average, the accuracy is")
    assert "80 % on the common test images and 60 % on the rare test images." in text
    assert "the truly rare have 50 % of the weight with 25 % of the images" in text
    assert "the truly mislabeled have 10 % of the weight with 25 % of the images" in text


@pytest.mark.parametrize(
    ("groups", "truth", "said"),
    [
        (GUILTY, None, "All who are mislabeled are judged so, and nobody else is."),
        (COMMON, None, "Of 1 mislabeled client, 0 are judged so. Missed: client d."),
        (
            ("mislabeled", "common", "mislabeled", "mislabeled"),
            None,
            "Of 1 mislabeled client, 1 is judged so. "
            "Wrongly judged mislabeled: client a (truly common) and client c (truly rare).",
        ),
        (COMMON, {"rare": [], "mislabeled": []}, "Nobody is mislabeled, and nobody is judged so."),
        (
            GUILTY,
            {"rare": [], "mislabeled": []},
            "Nobody is mislabeled. Wrongly judged mislabeled: client d (truly common).",
        ),
    ],
)
def test_beside_the_truth(tmp_path: Path, groups: tuple[str, ...], truth: dict[str, list[str]] | None, said: str):
    assert said in told(a_run(tmp_path, groups, truth=truth), "Beside the truth")


def test_without_the_truth_nothing_is_claimed(tmp_path: Path):
    run = a_run(tmp_path, GUILTY, truth={}, rounds=9)
    assert told(run, "Beside the truth") == ""
    assert {client.truth for client in client_states(run)} == {None}
    unknown = told(run, "Not known", seeds=1)
    assert "How it ends: 1 of 9 rounds have been played." in unknown
    assert "the truth is not recorded" in unknown
    assert "always judges somebody mislabeled" in unknown
    assert "one seed" in unknown
    assert "the judged rare have 25 % of the weight" in told(run, "Rare and common")


def test_auto_does_not_name_somebody_in_any_case(tmp_path: Path):
    assert "always judges" not in told(a_run(tmp_path, GUILTY, method="fedpca-d-auto"), "Not known")


def test_who_was_left_out_and_why(tmp_path: Path):
    lines = [a_line(1, left_out={"a": "it gave no answer", "b": "it gave no answer"})]
    run = read_run(write_run(tmp_path / "run", lines))
    assert told(run, "Left out") == "Of round 1: clients a and b (it gave no answer)."


def test_runs_are_compared(tmp_path: Path):
    low = {"common": {"acc": 0.5, "bacc": 0.5, "auc": 0.5, "auc_ovo": 0.5}}
    runs = [
        read_run(write_run(tmp_path / "a", [a_line(1)])),
        read_run(write_run(tmp_path / "b", [a_line(1, groups=("mislabeled", "common", "rare", "mislabeled"))], seed=1)),
        read_run(write_run(tmp_path / "c", [a_line(1, groups=None) | {"groups": low}], method="fedavg")),
    ]
    (table,) = tabulate(runs)
    said = {note.head: note.text for note in comparison(table, runs)}
    assert said["Accuracy of the worst test group"] == (
        "Of 2 methods, fedpca-d (warmup=0) serves it best, with 60.00 ± 0.00 %."
    )
    assert said["Do the runs agree?"] == (
        "2 runs judge. All of them judge client d mislabeled. "
        "Only some judge client a (1) mislabeled; in brackets, how many."
    )
    assert comparison(replace(table, rows=table.rows[:1]), runs[:1]) == []


def test_what_a_method_chose_is_said_with_its_round(tmp_path: Path):
    lines = [a_line(number, groups=GUILTY) for number in range(1, 6)]
    for line, lift in zip(lines, (1.0, 1.0, 2.0, 2.2, 2.1), strict=True):
        line["choices"] = [
            {"what": "lift", "value": lift, "text": f"The rare client weighs {lift:.1f} times as much: it gained."},
            {"what": "dropped", "value": 0.0, "text": "0 of the clients judged mislabeled are left out: none."},
        ]
    run = read_run(write_run(tmp_path / "run", lines))
    assert told(run, "Chosen by itself") == "The rare client weighs 2.1 times as much: it gained (since round 3)."


def test_nothing_is_said_of_choices_where_a_method_makes_none(tmp_path: Path):
    assert told(a_run(tmp_path, GUILTY), "Chosen by itself") == ""
