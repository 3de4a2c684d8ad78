"""Nodes become sites by name: who takes over, who is turned away, who is waited for."""

from __future__ import annotations

import pytest
from flwr.app import ConfigRecord, Context, Error, Message

from fedpca.errors import RunError
from fedpca.flower import roster as sites
from fedpca.flower.roster import Agreed, Roster, agree, assigned, in_order
from fedpca.flower.wire import SiteHead, site_to_records
from tests.flower.grid import Loopback

AGREED = Agreed(("cat", "dog"), (1, 8, 8))


def head(name: str, identity: str = "", **changes: object) -> SiteHead:
    base = {"name": name, "identity": identity or name, "classes": ["cat", "dog"], "shape": [1, 8, 8]}
    return SiteHead(**{**base, "train": 40, "test": 10, **changes})


def test_every_site_has_its_node():
    assert assigned({5: head("b"), 3: head("a")}, {3: "", 5: "b"}, AGREED) == ({"b": 5, "a": 3}, {})


def test_a_site_that_restarts_takes_over_from_itself():
    nodes, refused = assigned({1: head("a", "same"), 2: head("a", "same")}, {1: "", 2: ""}, AGREED)
    assert (nodes, refused) == ({"a": 2}, {})


def test_of_two_sites_with_one_name_the_second_waits_until_the_first_has_gone():
    known = {1: head("a", "one"), 2: head("a", "other")}
    nodes, refused = assigned(known, {1: "", 2: ""}, AGREED)
    assert nodes == {"a": 1}
    assert refused == {"a (a second one)": "another site has the name 'a' already: rename one of them"}
    assert assigned(known, {2: ""}, AGREED) == ({"a": 2}, {})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shape": [3, 8, 8]}, "its images are 3x8x8, those of the federation 1x8x8: set data.image_size"),
        ({"classes": ["cat", "cow"]}, "the federation has no class 'cow'; it has cat, dog"),
    ],
)
def test_a_site_that_does_not_fit_is_turned_away(changes: dict[str, object], why: str):
    assert assigned({1: head("a", **changes)}, {1: ""}, AGREED) == ({}, {"a": why})


def test_a_site_cannot_take_a_name_that_its_key_does_not_stand_for():
    nodes, refused = assigned({1: head("berlin"), 2: head("berlin", "other")}, {1: "berlin", 2: "bonn"}, AGREED)
    assert nodes == {"berlin": 1}
    assert refused == {"bonn": "it calls itself 'berlin', but its key is that of 'bonn': correct its node config"}


def test_a_site_may_lack_a_class():
    assert assigned({1: head("a", classes=["dog"])}, {1: ""}, AGREED) == ({"a": 1}, {})


def test_classes_are_all_that_the_first_sites_have_unless_they_are_given():
    heads = [head("a", classes=["10", "9"]), head("b", classes=["x", "9"])]
    assert agree(heads, ()) == Agreed(("9", "10", "x"), (1, 8, 8))
    assert agree(heads, ("x", "9", "10", "11")).classes == ("x", "9", "10", "11")


def test_the_shape_is_that_of_most_sites():
    assert agree([head("a", shape=[3, 9, 9]), head("b"), head("c")], ()).shape == (1, 8, 8)


def test_names_that_are_numbers_are_ordered_by_value():
    assert sorted(["10", "b", "9", "a"], key=in_order) == ["9", "10", "a", "b"]


# The roster, over a grid


def answering(site: SiteHead):
    def app(message: Message, context: Context) -> Message:
        return Message(site_to_records(site), reply_to=message)

    return app


def failing(message: Message, context: Context) -> Message:
    return Message(Error(2, "DataError"), reply_to=message)


@pytest.fixture
def grid() -> Loopback:
    return Loopback({number: (answering(head(name)), {}) for number, name in ((11, "bonn"), (12, "aachen"))})


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def roster(grid: Loopback, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Roster:
    monkeypatch.setattr(sites, "POLL", 0.01)
    return Roster(grid, ConfigRecord(), 60.0, said.append)


def test_sites_are_asked_once_and_have_an_order(roster: Roster, grid: Loopback, said: list[str]):
    roster.gather(2, 2, 5)
    roster.refresh(at_once=True)
    assert roster.names == ["aachen", "bonn"]
    assert roster.nodes == {"bonn": 11, "aachen": 12}
    assert len(grid.sent) == 2
    assert sorted(said) == ["aachen is there", "bonn is there"]


def test_a_site_that_leaves_keeps_its_name_and_comes_back_under_another_number(roster: Roster, grid: Loopback):
    roster.gather(2, 2, 5)
    del grid.nodes[11]
    roster.refresh(at_once=True)
    assert (roster.names, roster.nodes) == (["aachen", "bonn"], {"aachen": 12})
    grid.nodes[77] = answering(head("bonn")), {}
    roster.refresh(at_once=True)
    assert roster.nodes == {"aachen": 12, "bonn": 77}


def test_a_site_that_cannot_say_who_it_is_is_asked_again(roster: Roster, grid: Loopback, said: list[str]):
    grid.nodes[13] = failing, {}
    roster.refresh(at_once=True)
    assert "a site cannot join: it failed: DataError" in said
    grid.nodes[13] = answering(head("celle")), {}
    roster.refresh(at_once=True)
    assert roster.names == ["aachen", "bonn", "celle"]


def test_a_silent_node_holds_nobody_up(roster: Roster, grid: Loopback):
    grid.nodes[13] = answering(head("celle")), {}
    grid.silent.add(13)
    roster.gather(2, 2, 5)
    assert roster.names == ["aachen", "bonn"]


def test_who_is_missing_at_the_start_is_not_waited_for_for_ever(roster: Roster, said: list[str]):
    roster.gather(3, 2, 0.1)
    assert "2 of 3 sites came within 0.1 s; beginning without the others" in said


def test_below_the_quorum_nothing_begins(roster: Roster):
    with pytest.raises(RunError, match=r"2 of 4 sites came within 0.1 s \(.*\), the quorum is 3"):
        roster.gather(4, 3, 0.1)


def test_below_the_quorum_of_those_that_fit_nothing_begins(roster: Roster):
    roster.gather(2, 2, 5)
    with pytest.raises(RunError, match=r"0 sites fit together, the quorum is 2 \(.*aachen: its images are 1x8x8"):
        roster.settle(Agreed(("cat", "dog"), (3, 8, 8)), 2)
