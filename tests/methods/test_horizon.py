"""Whether rounds would have been others under another plan: what is said of a method is what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest

import fedpca
from fedpca.core import Method, Report, Server, Site
from fedpca.loop import play
from fedpca.methods.base import base, one_stage
from fedpca.methods.compose import compose
from fedpca.methods.define import Plan
from fedpca.methods.horizon import depends_on_rounds, reads_rounds
from fedpca.methods.registry import method_names
from fedpca.models.build import build
from fedpca.models.flat import params_of
from fedpca.parts.client.augment import AUGMENTATIONS
from fedpca.runs.check import method_of
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from tests.methods.test_methods import ROUNDS, easy, easy_federation, played, same, settings  # noqa: F401 (fixtures)

PARTS = Path(fedpca.__file__).parent / "parts"


def first_rounds(method: Method, federation, planned: int) -> list[Server]:
    crew = Workers([build("mlp", federation.shape, 10, 0)])
    clients = InProcess(method, federation.shards, crew, seed=0)
    return list(islice(play(method, clients, Server(params_of(crew.nets[0])), planned), ROUNDS))


@pytest.mark.parametrize("name", method_names())
def test_a_method_depends_on_the_number_of_rounds_if_twice_as_many_change_the_first(
    name: str,
    easy_federation,  # noqa: F811
):
    longer = easy(rounds=2 * ROUNDS)
    other = first_rounds(method_of(longer, name), easy_federation, 2 * ROUNDS)
    methods = method_of(easy(), name), method_of(longer, name)
    for count, (one, two) in enumerate(zip(played(name), other, strict=True), start=1):
        changed = not same(one, two) or one.diagnosis != two.diagnosis
        assert depends_on_rounds(*methods, count) >= changed, f"round {count}"
    assert depends_on_rounds(*methods, ROUNDS) == changed, "no warning without a reason"


def test_before_a_stage_that_depends_on_it_the_number_does_not_matter():
    short, long = (compose("fedpca-hs", Plan(rounds)) for rounds in (30, 60))
    assert [depends_on_rounds(short, long, count) for count in (10, 11)] == [False, True]


def test_a_setting_that_makes_the_number_irrelevant_is_seen():
    for name, own, depends in (
        ("fedcorr", {"stages": [5, 5]}, False),
        ("fednoro", {"end": "proportional"}, True),
        ("fedism+", {"sharpness": {"growth": 0.0}}, False),
        ("fedga", {"step": 0.0}, False),
        ("fedga+fedcorr", {}, True),
    ):
        short, long = (compose(name, Plan(rounds), {name: own}) for rounds in (30, 60))
        assert depends_on_rounds(short, long, 30) is depends, name


def classes_that_read_rounds() -> Iterator[str]:
    """The classes of parts whose code has `.rounds` of anything in it, or calls a function of its file that has."""
    for path in PARTS.rglob("*.py"):
        tree = ast.parse(path.read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _reads(node, set())}
        yield from (
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef) and _reads(node, functions | {"radius_in"})
        )


def _reads(node: ast.AST, functions: set[str]) -> bool:
    return any(
        (isinstance(inner, ast.Attribute) and inner.attr == "rounds")
        or (isinstance(inner, ast.Name) and inner.id in functions)
        for inner in ast.walk(node)
    )


def test_every_part_that_reads_the_number_of_rounds_says_so():
    saying = {
        node.name
        for path in PARTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(getattr(inner, "name", "") == "reads_rounds" for inner in node.body)
    }
    known = {"GSAM", "Sharpness", "PerformanceAndCapacity", "RaiseByGap", "SelfRegularised"}
    assert known == set(classes_that_read_rounds())
    assert saying - {"ReadsRounds"} == set(classes_that_read_rounds())


def test_no_augmentation_of_the_package_is_taken_for_foreign():
    assert not any(reads_rounds(augment) for augment in AUGMENTATIONS.own.values())


@dataclass(frozen=True)
class Told:
    """A report of another package."""

    def __call__(self, site: Site) -> Report:
        return {"loss": 1 / site.order.rounds}


@dataclass(frozen=True)
class Indifferent(Told):
    reads_rounds = False

    def __call__(self, site: Site) -> Report:
        return {"loss": 1.0}


@pytest.mark.parametrize(
    ("change", "depends"),
    [
        ({"report": Told()}, True),
        ({"report": Indifferent()}, False),
        ({"select": lambda site: None}, True),
        ({"aggregate": compose("median", Plan(3)).recipe(1).aggregate}, False),
    ],
)
def test_parts_of_other_packages_may_read_it_unless_they_say_no(change: dict, depends: bool):
    method = one_stage(replace(base(Plan(3)), **change))
    assert depends_on_rounds(method, method, 3) is depends


def test_an_aggregation_of_another_package_is_never_told():
    method = one_stage(replace(base(Plan(3)), aggregate=lambda server: None))
    assert not depends_on_rounds(method, method, 3)
