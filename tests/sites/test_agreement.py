"""Nodes become sites by name: who takes over, and who is turned away."""

from __future__ import annotations

import pytest

from fedpca.sites.agreement import Agreement, agree, assign, by_value
from fedpca.sites.messages import SiteHead

AGREED = Agreement(("cat", "dog"), (1, 8, 8))


def head(name: str, identity: str = "", **changes: object) -> SiteHead:
    base = {"name": name, "identity": identity or name, "classes": ["cat", "dog"], "shape": [1, 8, 8]}
    return SiteHead(**{**base, "train": 40, "test": 10, **changes})


def test_every_site_has_its_node():
    assert assign({5: head("b"), 3: head("a")}, {3: "", 5: "b"}, AGREED) == ({"b": 5, "a": 3}, {})


def test_a_site_that_restarts_takes_over_from_itself():
    nodes, refused = assign({1: head("a", "same"), 2: head("a", "same")}, {1: "", 2: ""}, AGREED)
    assert (nodes, refused) == ({"a": 2}, {})


def test_of_two_sites_with_one_name_the_second_waits_until_the_first_has_gone():
    known = {1: head("a", "one"), 2: head("a", "other")}
    nodes, refused = assign(known, {1: "", 2: ""}, AGREED)
    assert nodes == {"a": 1}
    assert refused == {"a (a second one)": "another site has the name 'a' already: rename one of them"}
    assert assign(known, {2: ""}, AGREED) == ({"a": 2}, {})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shape": [3, 8, 8]}, "its images are 3x8x8, those of the federation 1x8x8: set data.image_size"),
        ({"classes": ["cat", "cow"]}, "the federation has no class 'cow'; it has cat, dog"),
    ],
)
def test_a_site_that_does_not_fit_is_turned_away(changes: dict[str, object], why: str):
    assert assign({1: head("a", **changes)}, {1: ""}, AGREED) == ({}, {"a": why})


def test_a_site_cannot_take_a_name_that_its_key_does_not_stand_for():
    nodes, refused = assign({1: head("berlin"), 2: head("berlin", "other")}, {1: "berlin", 2: "bonn"}, AGREED)
    assert nodes == {"berlin": 1}
    assert refused == {"bonn": "it calls itself 'berlin', but its key is that of 'bonn': correct its settings"}


def test_a_site_may_lack_a_class():
    assert assign({1: head("a", classes=["dog"])}, {1: ""}, AGREED) == ({"a": 1}, {})


def test_classes_are_all_that_the_first_sites_have_unless_they_are_given():
    heads = [head("a", classes=["10", "9"]), head("b", classes=["x", "9"])]
    assert agree(heads, ()) == Agreement(("9", "10", "x"), (1, 8, 8))
    assert agree(heads, ("x", "9", "10", "11")).classes == ("x", "9", "10", "11")


def test_the_shape_is_that_of_most_sites():
    assert agree([head("a", shape=[3, 9, 9]), head("b"), head("c")], ()).shape == (1, 8, 8)


def test_names_that_are_numbers_are_ordered_by_value():
    assert sorted(["10", "b", "9", "a"], key=by_value) == ["9", "10", "a", "b"]
