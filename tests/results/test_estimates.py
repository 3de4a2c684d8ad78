"""What is said of estimated shares of wrong labels, spelled from its meaning; numbers are those of the made runs."""

import csv
import io
import json
from pathlib import Path

import pytest

from fedpca.results.page.data import run_data
from fedpca.results.page.summary import notes
from fedpca.results.page.verdict import Verdict, verdict
from fedpca.results.read.clients import has_estimates
from fedpca.results.read.runs import Run, find_runs, read_run
from fedpca.results.tables import for_terminal, tabulate
from fedpca.results.tables.clients import clients_as_csv
from fedpca.results.tables.plain import as_csv, as_json
from fedpca.runs.trackers.base import scalars_of
from tests.results.made import a_line, write_run

CLEAR, GOOD = (0.34, 0.22, 0.47, "mislabeled"), (0.0, 0.0, 0.12, "not mislabeled")
UNCLEAR, ALONE = (0.2, 0.0, 0.62, "cannot tell"), (None, 0.0, 0.5, "cannot tell")
REFERENCE = {"slope": 1.25, "agreement": 0.93}
OLD = Path(__file__).parents[1] / "run-0.1/simulated/fedpca-hs-auto/seed-0"


def a_run(folder: Path, *estimates: tuple, sizes: list[int] | None = None, groups=None, **options: object) -> Run:
    """Three rounds with the same estimates; whoever is found mislabeled is judged so, unless groups say otherwise."""
    names = [chr(ord("a") + i) for i in range(len(estimates))]
    judged = groups or ["mislabeled" if own is CLEAR else "common" for own in estimates]
    reference = REFERENCE if any(own[0] is not None for own in estimates) else None
    lines = [a_line(i, names, judged, estimates=estimates, reference=reference) for i in (1, 2, 3)]
    settings = {"method": "fedpca-hs-auto", "truth": {}, **options}
    write_run(folder / "run", lines, names, **settings)
    about = json.loads((folder / "run/about.json").read_text())
    about["clients"]["size"] = sizes or [100] * len(names)
    (folder / "run/about.json").write_text(json.dumps(about))
    return read_run(folder / "run")


def said(run: Run) -> str:
    return " ".join((*vars(verdict(run)).values(), *(note.text for note in notes(run, 1))))


def test_who_and_how_sure(tmp_path: Path):
    assert verdict(a_run(tmp_path, GOOD, GOOD, GOOD, CLEAR)) == Verdict(
        "1 of the 4 clients is judged mislabeled: client d.",
        "Wrong by estimate, at least (in brackets the 95 % interval): client d: 0.34 of its labels (0.22 to 0.47). "
        "Judged so without a break since round 1. Judging began in round 1.",
        "Have this site re-read a random sample of its labels, 100 or all if there are fewer: "
        "only that shows whether they are wrong.",
    )


def test_the_largest_share_where_nobody_is_judged_mislabeled(tmp_path: Path):
    found = verdict(a_run(tmp_path, GOOD, GOOD, (0.04, 0.0, 0.16, "not mislabeled")))
    assert found.how_sure.startswith(
        "The largest estimated share of wrong labels is 0.04 (client c; 95 % interval 0.00 to 0.16)."
    )
    assert found.next == "Nothing."


def test_somebody_with_too_few_images_is_named_and_not_acquitted(tmp_path: Path):
    found = verdict(a_run(tmp_path, GOOD, GOOD, GOOD, UNCLEAR, sizes=[100, 100, 100, 10]))
    assert found.who == "None of the 4 clients is judged mislabeled; client d cannot be told."
    why = "Cannot be told: client d (too few images: 10; 0.00 to 0.62 of its labels may be wrong)."
    assert why in found.how_sure
    assert "of those who can be told is 0.00" in found.how_sure
    assert found.next == "Only more images, or reading labels again, can tell of client d."


def test_several_that_cannot_be_told_have_their_images_and_intervals_in_order(tmp_path: Path):
    found = verdict(a_run(tmp_path, GOOD, GOOD, UNCLEAR, (0.1, 0.0, 0.3, "cannot tell"), sizes=[90, 90, 8, 12]))
    why = "clients c and d (too few images: 8 and 12; 0.00 to 0.62 and 0.00 to 0.30 of their labels may be wrong)"
    assert why in found.how_sure


def test_two_clients_cannot_be_compared(tmp_path: Path):
    run = a_run(tmp_path, ALONE, ALONE)
    found = verdict(run)
    assert found.who == "It cannot be told of any of the 2 clients whether its labels are wrong."
    assert found.how_sure.startswith("Cannot be told: clients a and b (too few clients: ")
    assert found.next.startswith("Let 3 or more clients take part, or have each site re-read")
    assert "There was nothing to compare labels with in the last round." in said(run)
    assert "None of" not in said(run), "nobody is acquitted"


def test_a_model_that_learned_nothing_is_no_lack_of_clients(tmp_path: Path):
    found = verdict(a_run(tmp_path, ALONE, ALONE, ALONE))
    assert "(nothing to compare with: the model does not predict" in found.how_sure
    assert found.next.startswith("Play more rounds, or train a model")


def test_a_judgement_that_the_last_round_does_not_confirm(tmp_path: Path):
    groups = ["common", "common", "common", "mislabeled"]
    found = verdict(a_run(tmp_path, GOOD, GOOD, GOOD, UNCLEAR, groups=groups))
    assert found.who == "1 of the 4 clients is judged mislabeled: client d."
    assert "The last round alone does not confirm it of client d; after 3 such rounds in a row" in found.how_sure


def test_an_answer_that_is_not_yet_a_judgement(tmp_path: Path):
    run = a_run(tmp_path, GOOD, GOOD, GOOD, CLEAR, groups=["common"] * 4)
    assert verdict(run).who == "None of the 4 clients is judged mislabeled."
    assert "Client d is so by the last round, but not long enough yet." in said(run)


def test_what_the_number_means_what_it_is_compared_with_and_what_it_cannot_show(tmp_path: Path):
    text = said(a_run(tmp_path, GOOD, GOOD, GOOD, CLEAR))
    assert "is at least 0.1 and exceeds zero by 2.5 standard errors in 2 rounds in a row" in text
    assert "slope 1.25 of labels on predictions, 0.93 of labels as predicted" in text
    assert "errors that most clients share do not show" in text
    assert "uspicion" not in text


def test_the_rule_is_told_by_its_own_settings(tmp_path: Path):
    auto = {"share": 0.2, "certainty": 3.0, "enter": 1, "leave": 4}
    own = {"warmup": 0, "identify": {"rule": "auto", "auto": auto}}
    rule = run_data(a_run(tmp_path, GOOD, GOOD, CLEAR, of_method=own), 0)["rule"]
    assert "at least 0.2 and exceeds zero by 3 standard errors in 1 round in a row" in rule
    assert "after 4 rounds in a row" in rule


@pytest.mark.parametrize(("clients", "too_few"), [(4, True), (10, True), (11, False)])
def test_nobody_is_called_rare_among_too_few(tmp_path: Path, clients: int, too_few: bool):
    text = said(a_run(tmp_path, *[GOOD] * (clients - 1), CLEAR))
    assert ("Nobody is called rare, since there are too few clients to tell" in text) == too_few
    assert ("Nobody is judged rare." in text) != too_few


def test_runs_of_version_0_1_had_another_rule_under_this_name():
    run = read_run(OLD)
    assert run.identify.rule == "auto"
    assert not has_estimates(run)
    text = said(run)
    assert "threshold 0.25" in text or "threshold of 0.25" in text
    assert "carry no information" in text
    assert not any(word in text for word in ("interval", "standard errors", "cannot be told", "too few clients"))


def test_before_judging_begins_a_run_of_auto_will_estimate(tmp_path: Path):
    lines = [a_line(1, groups=None)]
    run = read_run(write_run(tmp_path / "run", lines, method="fedpca-hs-auto", rounds=20, truth={}))
    assert has_estimates(run)
    assert not has_estimates(read_run(write_run(tmp_path / "other", lines, method="fedpca-hs", rounds=20)))


def test_the_terminal_says_who_cannot_be_told_and_how_much_is_wrong(tmp_path: Path):
    a_run(tmp_path, GOOD, GOOD, UNCLEAR, CLEAR)
    sheet = for_terminal(tabulate(find_runs([tmp_path])))[-1]
    assert [column.head for column in sheet.columns][-1] == "cannot be told"
    assert sheet.lines[0].cells[-2:] == ("d", "c")
    assert any("d 0.34 (0.22 to 0.47)" in note for note in sheet.notes)


def test_a_table_without_anybody_that_cannot_be_told_has_no_such_column(tmp_path: Path):
    a_run(tmp_path, GOOD, GOOD, GOOD, CLEAR)
    sheet = for_terminal(tabulate(find_runs([tmp_path])))[-1]
    assert "cannot be told" not in [column.head for column in sheet.columns]


def test_files(tmp_path: Path):
    run = a_run(tmp_path, GOOD, GOOD, UNCLEAR, CLEAR)
    *_, c, d = csv.DictReader(io.StringIO(clients_as_csv([run])))
    assert [c[name] for name in ("suspicion", "suspicion_low", "suspicion_high", "answer")] == [*map(str, UNCLEAR)]
    assert [d[name] for name in ("judgement", "answer")] == ["mislabeled", "mislabeled"]
    tables = tabulate([run])
    (row,) = csv.DictReader(io.StringIO(as_csv(tables)))
    assert (row["judged_mislabeled"], row["cannot_tell"]) == ("d", "c")
    found = json.loads(json.dumps(as_json(tables)))[0]["rows"][0]["found"]
    assert found["accused"] == {"d": 1}
    assert found["cannot_tell"] == {"c": 1}
    assert found["estimates"] == {"d": {"share": 0.34, "low": 0.22, "high": 0.47}}


def test_trackers(tmp_path: Path):
    scalars = scalars_of(a_run(tmp_path, GOOD, UNCLEAR, CLEAR).rounds[-1], "acc")
    assert scalars["clients/cannot_tell"] == 1
    assert (scalars["reference/slope"], scalars["reference/agreement"]) == (1.25, 0.93)
    assert "clients/cannot_tell" not in scalars_of(read_run(OLD).rounds[-1], "acc")
