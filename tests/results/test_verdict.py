"""The three lines for a coordinator, spelled from their meaning."""

from pathlib import Path

from fedpca.results.page.verdict import ALWAYS, verdict
from fedpca.results.read.clients import judging_began, unchanged_since
from fedpca.results.read.runs import Run, read_run
from tests.results.made import a_line, write_run
from tests.results.test_summary import COMMON, GUILTY

UNKNOWN: dict[str, list[str]] = {}
SLOPE = {"warmup": 0, "identify": "slope"}  # the rule with one threshold; auto's words are in test_estimates.py
SUSPICIONS = (0.01, 0.02, 0.11, 0.93)


def a_run(folder: Path, *groups: tuple[str, ...] | None, suspicion=SUSPICIONS, **options: object) -> Run:
    lines = [a_line(i + 1, groups=own, suspicion=suspicion if own else None) for i, own in enumerate(groups)]
    own = {"of_method": SLOPE} if options.get("method", "fedpca-hs-auto") == "fedpca-hs-auto" else {}
    return read_run(
        write_run(folder / "run", lines, **{"method": "fedpca-hs-auto", "truth": UNKNOWN, **own, **options})
    )


def test_somebody(tmp_path: Path):
    found = verdict(a_run(tmp_path, None, GUILTY, GUILTY, GUILTY))
    assert found.who == "1 of the 4 clients is judged mislabeled: client d."
    assert found.how_sure == (
        "Suspicion 0.93, threshold 0.25. Judged so without a break since round 2. Judging began in round 2."
    )
    assert found.next.startswith("Have this site re-read a random sample of its labels, 100 or all if there are fewer")


def test_several_with_the_least_and_the_largest_suspicion(tmp_path: Path):
    two = ("mislabeled", "common", "rare", "mislabeled")
    found = verdict(a_run(tmp_path, GUILTY, two, two, two, suspicion=(0.31, 0.02, 0.11, 0.88)))
    assert found.how_sure.startswith("Suspicion 0.31 (client a) to 0.88 (client d), threshold 0.25.")
    assert "since round 1, the latest since round 2." in found.how_sure
    assert found.next.startswith("Have each of these sites re-read")


def test_nobody(tmp_path: Path):
    found = verdict(a_run(tmp_path, COMMON, COMMON, COMMON, suspicion=(0.01, 0.02, 0.11, 0.2)))
    assert found.how_sure.startswith("The largest suspicion is 0.20, below the threshold of 0.25.")
    assert found.next == "Nothing."


def test_what_changed_lately_is_not_acted_upon(tmp_path: Path):
    assert verdict(a_run(tmp_path / "a", COMMON, COMMON, COMMON, GUILTY)).next == (
        "Play more rounds before you act: who is judged mislabeled has been the same only since round 4."
    )
    assert verdict(a_run(tmp_path / "b", GUILTY, GUILTY, COMMON, rounds=9)).next.startswith("Wait for more rounds: ")


def test_the_warm_up(tmp_path: Path):
    found = verdict(a_run(tmp_path, None, None, rounds=20, of_method={"warmup": 10}))
    assert found.who == "Nobody has been judged yet, after 2 rounds."
    assert found.how_sure == "It cannot be told yet: judging begins in round 11, after the warm-up."
    assert found.next == "Wait for more rounds."


def test_a_run_that_ended_without_a_judgement(tmp_path: Path):
    found = verdict(a_run(tmp_path, None, None))
    assert found.how_sure == "It cannot be told yet."
    assert found.next == "Run it again with more than 2 rounds."


def test_a_method_that_does_not_judge(tmp_path: Path):
    found = verdict(a_run(tmp_path, None, None, method="fedavg"))
    assert found.how_sure == "This run says nothing about anybody's labels."
    assert found.next.endswith("a method that judges clients, such as fedpca.")


def test_a_method_that_always_names_somebody_accuses_nobody_before_auto_was_asked(tmp_path: Path):
    found = verdict(a_run(tmp_path, GUILTY, GUILTY, GUILTY, method="fedpca-d"))
    assert found.how_sure.endswith(ALWAYS)
    assert found.next.endswith("run a method that asks, such as fedpca.")
    assert "re-read" not in found.next


def test_without_suspicion_or_threshold_there_is_no_number(tmp_path: Path):
    for method, suspicion in (("fedpca-hs-auto", None), ("fednoro", SUSPICIONS)):
        found = verdict(a_run(tmp_path / method, GUILTY, GUILTY, GUILTY, method=method, suspicion=suspicion, rounds=20))
        assert found.how_sure.startswith("There is no number for it")


def test_nothing_of_the_truth_is_said(tmp_path: Path):
    for number, truth in enumerate((None, UNKNOWN, {"rare": [], "mislabeled": []})):
        found = verdict(a_run(tmp_path / str(number), GUILTY, GUILTY, GUILTY, truth=truth))
        assert not {"truly", "wrongly", "precision"} & set(" ".join((found.who, found.how_sure, found.next)).split())


def test_when_judging_began_and_since_when_the_same_are_judged(tmp_path: Path):
    run = a_run(tmp_path, None, GUILTY, COMMON, COMMON)
    assert (judging_began(run), unchanged_since(run)) == (2, 3)
    nobody = a_run(tmp_path / "other", None, None, method="fedavg")
    assert (judging_began(nobody), unchanged_since(nobody)) == (None, 1)
