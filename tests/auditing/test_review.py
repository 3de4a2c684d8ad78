"""What readers found: unbiased shares, corrected labels that training takes, files that spreadsheets changed."""

from pathlib import Path

import pytest

from fedpca.auditing.files import site_folder
from fedpca.auditing.review import corrected_for_readers, review_of, share_of_sample, wilson, write_corrected
from fedpca.auditing.suspects import Suspect, read_suspects, write_suspects
from fedpca.data.corrected import read_corrections
from fedpca.errors import DataError

ROW = Suspect(0, "", "cat", "dog", 0.1, 0.01, True, True)


def rows(count: int, wrong: int, sampled: int) -> list[Suspect]:
    """Rows of which the first `sampled` are the random sample and were read; so many of these are wrong."""
    read = ["dog" if i < wrong else "cat" for i in range(sampled)] + [""] * (count - sampled)
    return [Suspect(i, f"{i}.png", "cat", "dog", 0.5, 0.5, False, i < sampled, read[i]) for i in range(count)]


def test_the_share_comes_from_the_random_sample_alone():
    chosen = [Suspect(1000 + i, "", "cat", "dog", 0.01, 0.01, True, False, "dog") for i in range(50)]
    found = review_of(rows(900, 10, 100) + chosen, ["cat", "dog"])
    assert found.rate.share == pytest.approx(0.1)
    assert found.rate.low < 0.1 < found.rate.high
    assert (found.read, found.sampled, found.changed, found.confirmed) == (150, 100, 60, (50, 50))


def test_without_a_sample_that_was_read_there_is_no_share():
    found = review_of([Suspect(1, "", "cat", "dog", 0.1, 0.1, True, False, "dog")], ["cat", "dog"])
    assert found.rate is None
    assert "random sample" in found.why_no_rate


def test_doubts_that_tell_narrow_the_interval_and_others_do_not():
    wrong = [1.0] * 30 + [0.0] * 70
    doubts = [0.9 - 0.001 * i for i in range(30)] + [0.1 + 0.001 * i for i in range(70)]
    plain = wilson(30, 100, 1000)
    told = share_of_sample(wrong, doubts, doubts * 10)
    assert told.how == "prediction-powered"
    assert told.high - told.low < 0.5 * (plain.high - plain.low)
    assert share_of_sample(wrong, [0.5] * 100, [0.5] * 1000).how == "binomial"
    assert wilson(3, 10, 10).low == wilson(3, 10, 10).high == 0.3


def test_readers_errors_are_taken_off():
    rate = corrected_for_readers(wilson(14, 100, 10_000), 0.05)
    assert 0.08 < rate.share < 0.11
    assert corrected_for_readers(wilson(2, 100, 10_000), 0.05).share == 0


def test_a_label_that_is_no_class_is_refused_by_row():
    with pytest.raises(DataError, match=r"row 0 was reviewed as 'cta', which is no class; there are cat, dog"):
        review_of([Suspect(0, "", "cat", "dog", 0.1, 0.1, True, True, "cta")], ["cat", "dog"])


def test_no_cell_is_a_formula_and_all_come_back(tmp_path: Path):
    names = ["=1+1", "+a", "-b", "@c", "'d", "plain, with a comma"]
    written = [Suspect(i, name, name, name, 0.1, 0.01, True, False, name) for i, name in enumerate(names)]
    write_suspects(tmp_path / "suspects.csv", written)
    text = (tmp_path / "suspects.csv").read_text()
    assert not any(cell[:1] in "=+-@" for line in text.splitlines()[1:] for cell in line.split(",") if cell)
    assert read_suspects(tmp_path / "suspects.csv") == written


def test_what_spreadsheets_do_is_read(tmp_path: Path):
    write_suspects(tmp_path / "a.csv", [ROW])
    text = (tmp_path / "a.csv").read_text().replace(",", ";").replace("0.1;", "0,1;").replace("True", "TRUE")
    (tmp_path / "b.csv").write_text("\ufeff" + text.replace("\n", "\r\n"), encoding="utf-8", newline="")
    assert read_suspects(tmp_path / "b.csv") == [ROW]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,path\n1,2\n", "must have the columns"),
        (None, "there is no"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text, message):
    if text:
        (tmp_path / "suspects.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_suspects(tmp_path / "suspects.csv")


def test_a_row_that_stands_there_twice_is_refused(tmp_path: Path):
    write_suspects(tmp_path / "suspects.csv", [ROW, ROW])
    with pytest.raises(DataError, match="row 0 stands there twice"):
        read_suspects(tmp_path / "suspects.csv")


def test_corrections_are_read_by_training_and_two_that_differ_are_refused(tmp_path: Path):
    write_corrected(tmp_path / "a" / "corrected.csv", [Suspect(4, "", "cat", "dog", 0.1, 0.1, True, True, "dog")])
    fixes = read_corrections(tmp_path, ("cat", "dog"))
    assert {row: (fix.given, fix.label) for row, fix in fixes.items()} == {4: (0, 1)}
    write_corrected(tmp_path / "b" / "corrected.csv", [Suspect(4, "", "cat", "eel", 0.1, 0.1, True, True, "eel")])
    with pytest.raises(DataError, match="in two ways"):
        read_corrections(tmp_path, ("cat", "dog", "eel"))
    with pytest.raises(DataError, match="is no class"):
        read_corrections(tmp_path / "b", ("cat", "dog"))
    with pytest.raises(DataError, match=r"neither a corrected\.csv nor a folder"):
        read_corrections(tmp_path / "absent", ("cat",))


def test_folders_of_sites_are_safe_and_tell_sites_apart():
    names = ["bonn", "a/b", "a:b", "..", "", "audit.json", "Zürich"]
    assert len({site_folder(name) for name in names}) == len(names)
    assert site_folder("bonn") == "bonn"
    assert all("/" not in site_folder(name) and not site_folder(name).startswith(".") for name in names)
