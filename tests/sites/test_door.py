"""What a site with a valid key can say when it joins and answers, beyond what any site has to say."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fedpca.core import Failure
from fedpca.errors import WireError, printable
from fedpca.sites import messages
from fedpca.sites.agreement import by_value
from fedpca.sites.audit_messages import read_summary
from fedpca.sites.memory import identity
from fedpca.sites.messages import MAX_NUMBERS, NUMBERS, SITE, Content, read_report, read_site

HELLO = {
    "name": "berlin",
    "identity": "x",
    "classes": ["no", "yes"],
    "shape": [1, 8, 8],
    "train": 10,
    "test": 0,
    "table": "[]",
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", ["9" * 5000]),
        ("classes", ["a"] * 100_001),
        ("classes", ["\x1b[2J all is well"]),
        ("classes", ["two\nlines"]),
        ("shape", [1] * 100),
        ("shape", [1, 10**9, 10**9]),
        ("train", 10**12),
        ("test", 10**12),
        ("identity", "x" * 65),
        ("name", "a\nb"),
    ],
)
def test_a_hello_beyond_its_bounds_is_refused_in_one_short_line(key: str, value: object):
    assert read_site(Content({SITE: HELLO})).train == 10
    with pytest.raises(WireError) as caught:
        read_site(Content({SITE: {**HELLO, key: value}}))
    assert key in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_class_name_of_thousands_of_digits_sorts_like_a_word():
    assert sorted(["10", "9" * 5000, "9"], key=by_value) == ["9", "10", "9" * 5000]


def test_texts_of_sites_have_no_control_characters():
    forged = Failure("no\x1b[31m\r\nround 7: all is well\x00\u202e" + "x" * 10_000)
    assert forged.reason.isprintable()
    assert forged.reason.startswith("no")
    assert len(forged.reason) <= 500
    assert Failure("it did not answer within 5 s").reason == "it did not answer within 5 s"
    assert printable("Köln: 3 µm") == "Köln: 3 µm"


def test_a_report_of_numbers_without_end_is_refused_before_it_is_looked_at():
    report = {str(number): 0.0 for number in range(MAX_NUMBERS + 1)}
    with pytest.raises(WireError, match=f"{MAX_NUMBERS + 1} numbers"):
        read_report(Content({NUMBERS: report}))


def test_a_store_is_for_its_owner_alone(tmp_path: Path):
    store = tmp_path / "state" / "store"
    identity(store)
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    store.chmod(0o755)  # as earlier versions made it
    identity(store)
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert messages.HELLO


@pytest.mark.parametrize("told", [[[]], ["x"], [None], [10**400], [True], "1", {"a": 1.0}, [{}]])
def test_a_summary_of_labels_that_holds_no_numbers_is_refused_in_one_short_line(told: object):
    """Over an engine that carries JSON a list may hold anything; what is no number once ended an audit."""
    with pytest.raises(WireError) as error:
        read_summary(Content({"summary": {"images": [1.0], "scores": [1.0], "number/loss": told}}), classes=2)
    assert len(str(error.value)) < 400


def test_the_size_of_any_text_can_be_counted():
    assert Content({"report": {"loss": "\ud800"}}).size == 3


@pytest.mark.parametrize("said", ["0.5", "x", None, True, [[1.0]], {"a": 1.0}, ["0.5"], "\x1b[2J\n", b"1", 1j])
def test_what_is_no_number_in_a_report_is_refused_in_one_short_line(said: object):
    with pytest.raises(WireError) as error:
        read_report(Content({NUMBERS: {"loss": said}}))
    assert "report.loss" in str(error.value)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


class Told:
    """A value that counts how often it is written out."""

    count = 0

    def __repr__(self) -> str:
        Told.count += 1
        return "told"


def test_of_a_value_without_end_no_more_is_written_out_than_is_shown():
    with pytest.raises(WireError, match=r"got \[\[told, told"):
        read_report(Content({NUMBERS: {"loss": [[Told()] * 100_000]}}))
    assert Told.count < 100
