"""The architecture stays as it was measured; `python -m tests.architecture` prints the table."""

import ast
from pathlib import Path

import pytest

from tests.architecture import asks_for_class, defaults, measure, table

ROWS = {row.name: row for row in measure()}
OPEN = ("lines of `src`",)  # bounds that are not reached yet


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.most is not None and name not in OPEN])
def test_what_the_design_allows(name: str):
    assert ROWS[name].now <= ROWS[name].most


def test_the_table_has_a_line_for_each_measure():
    head, rule, *rows = table(list(ROWS.values())).splitlines()
    assert head.count("|") == rule.count("|") == 5
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(ROWS)


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("isinstance(part, Median)", True),
        ("isinstance(part, (int, parts.Median))", True),
        ("isinstance(part, Median | None)", True),
        ("type(part) is Median", True),
        ("type(part) is not other.Thing", True),
        ("isinstance(value, float)", False),
        ("type(layer) is nn.Linear", False),
        ("type(value) is bytes", False),
        ("hasattr(part, 'of_many')", False),
    ],
)
def test_asking_for_a_class_is_recognised(code: str, asked: bool):
    assert asks_for_class(ast.parse(code, mode="eval").body, {"Median"}) is asked


def test_defaults_are_found_in_fields_and_parameters(tmp_path: Path):
    (tmp_path / "part.py").write_text(
        "class A:\n"
        "    a: float = 0.5\n"
        "    b: float\n"
        "    c: float | None = None\n"
        "    d: ClassVar[int] = 1\n"
        "    e: tuple[int, int] = (1, 2)\n"
        "def f(a, b=-1, *, c='x', d=None): ...\n"
    )
    assert defaults(tmp_path) == ["part.py:2", "part.py:6", "part.py:7", "part.py:7"]
