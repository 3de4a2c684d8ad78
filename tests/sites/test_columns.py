"""What sites tell about their tables: sums that no values can have are refused; the encoding is that of all rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedpca.data.columns import Column
from fedpca.data.standardise import encode
from fedpca.errors import DataError, RunError, WireError
from fedpca.sites.agreement import Agreement, agree, assign
from fedpca.sites.columns import MAX_COLUMNS, MAX_NAME, tell_columns
from fedpca.sites.encoding import encode_rows, read_encoding, write_encoding
from fedpca.sites.messages import SiteHead, read_site, write_site

COLUMNS = (Column("age"), Column("pain", ("none", "typical")), Column("ca"))
ROWS = np.array([[61.0, 0, 0.5], [47.5, 1, np.nan], [70.25, np.nan, -1.5], [33.0, 1, 2.0]])


def table_site(name: str, rows=ROWS, columns=COLUMNS, sums: bool = True, **changes: object) -> SiteHead:
    told = json.dumps([head.model_dump() for head in tell_columns(columns, rows, sums, name)])
    base = {"name": name, "identity": name, "classes": ["0", "1"], "shape": [len(columns), 1, 1], "test": 0}
    return SiteHead(**{**base, "train": len(rows), "table": told, **changes})


def with_column(**changes: object) -> SiteHead:
    """A site that tells something else about its column `age`."""
    message = write_site(table_site("a"))
    columns = json.loads(message.tables["site"]["table"])
    totals = columns[0]["totals"]
    columns[0] |= {key: value for key, value in changes.items() if key not in totals}
    totals |= {key: value for key, value in changes.items() if key in totals}
    return read_site(replace(message, tables={"site": {**message.tables["site"], "table": json.dumps(columns)}}))


def test_what_is_told_travels_to_the_bit():
    site = table_site("a")
    assert read_site(write_site(site)) == site
    age, pain, ca = site.table
    assert (age.kind, age.totals.count, age.totals.sum, age.totals.squares) == ("number", 4, 211.75, 12001.3125)
    assert (pain.kind, pain.totals.count, pain.totals.sum, pain.totals.levels) == (
        "category",
        3,
        0,
        ["none", "typical"],
    )
    assert (ca.totals.count, ca.totals.sum, ca.totals.squares) == (3, 1.0, 6.5)


def test_without_sums_only_names_and_kinds_are_told():
    site = table_site("a", sums=False)
    assert [head.model_dump(exclude_none=True) for head in site.table] == [
        {"name": "age", "kind": "number"},
        {"name": "pain", "kind": "category"},
        {"name": "ca", "kind": "number"},
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sum": float("nan")}, "finite|number"),
        ({"squares": float("inf")}, "finite|number"),
        ({"sum": 1e301}, "less than or equal"),
        ({"count": -1}, "greater than or equal"),
        ({"count": 5}, "'age' cannot have 5 values in 4 rows"),
        ({"count": 10**400}, "less than or equal|parse"),
        ({"count": 2.5}, "integer"),
        ({"squares": -1.0}, "greater than or equal"),
        ({"squares": 11000.0}, "4 values whose squares sum to 11000 cannot sum to 211.75"),
        ({"sum": -5000.0}, "cannot sum to -5000"),
        ({"count": 0}, "cannot sum to 211.75"),
        ({"count": 0, "sum": 0.0}, "no values cannot have squares"),
        ({"kind": "category"}, "sums are those of kind 'number', but it says 'category'"),
        ({"kind": "picture"}, "'number', 'category' or 'empty'"),
        ({"levels": ["a"]}, "a category has levels and no sums"),
        ({"levels": ["a", "a"], "sum": 0.0, "squares": 0.0}, "different levels"),
        ({"levels": list("abcde"), "sum": 0.0, "squares": 0.0}, "one for each of its 4 values, got 5"),
        ({"levels": ["x" * (MAX_NAME + 1)], "sum": 0.0, "squares": 0.0}, "at most 200 characters"),
        ({"name": "x" * (MAX_NAME + 1)}, "at most 200 characters"),
        ({"name": "pain"}, "two columns of its table have the same name"),
        ({"code": "import os"}, "[Ee]xtra"),
    ],
)
def test_what_no_table_can_have_is_refused(changes: dict[str, object], words: str):
    with pytest.raises(WireError, match=words):
        with_column(**changes)


def test_a_table_of_endless_columns_is_refused():
    many = [{"name": str(number), "kind": "empty"} for number in range(MAX_COLUMNS + 1)]
    message = write_site(table_site("a"))
    with pytest.raises(WireError, match="at most 10000 items"):
        read_site(replace(message, tables={"site": {**message.tables["site"], "table": json.dumps(many)}}))


def test_sums_of_equal_and_of_large_values_are_taken_for_what_they_are():
    rows = np.full((1000, 1), 0.1)
    assert table_site("a", rows, (Column("year"),)).table[0].totals.count == 1000
    table_site("a", np.array([[1e140], [-1e140], [0.0]]), (Column("far"),))


def test_a_site_keeps_to_itself_what_the_server_would_refuse():
    with pytest.raises(DataError, match=r"a, column 'far' cannot be told to others: .*finite.*data\.feature_columns"):
        table_site("a", np.array([[1e200], [1.0]]), (Column("far"),))
    text = Column("notes", ("x" * 300,))
    with pytest.raises(DataError, match=r"column 'notes' cannot be told to others: .*200 characters"):
        table_site("a", np.array([[0.0]]), (text,))


def test_the_encoding_is_that_of_all_rows_together():
    rng = np.random.default_rng(2)
    values = np.column_stack([rng.normal(50, 9, 60), rng.integers(0, 2, 60), rng.normal(size=60)])
    values[rng.random(values.shape) < 0.1] = np.nan
    agreement = agree([table_site(str(number), values[number::3]) for number in range(3)], ())
    assert agreement.shape == (7, 1, 1)  # age, pain (two levels) and ca, each with a column for what is missing
    age, pain, _ = agreement.table
    assert age.mean == pytest.approx(np.nanmean(values[:, 0]))
    assert age.deviation == pytest.approx(np.nanstd(values[:, 0]))
    assert pain.levels == ("none", "typical")
    assert read_encoding(write_encoding(agreement.table)) == agreement.table


def test_columns_may_be_in_another_order():
    order = [2, 0, 1]
    other = table_site("b", ROWS[:, order], [COLUMNS[number] for number in order])
    agreement = agree([table_site("a"), other], ())
    assert [column.name for column in agreement.table] == ["age", "pain", "ca"]
    assert agreement == agree([table_site("a"), table_site("b")], ())
    assert not agreement.mismatch(other)
    own = encode_rows(agreement.table, [COLUMNS[number] for number in order], ROWS[:, order], "b")
    np.testing.assert_array_equal(own, encode(agreement.table, COLUMNS, ROWS))


TWO = [table_site("a"), table_site("b")]


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (table_site("c", ROWS[:, :2], COLUMNS[:2]), "its table has no column 'ca'"),
        (table_site("c", ROWS[:, [0, 1, 2, 2]], (*COLUMNS, Column("cholesterol"))), "has a column 'cholesterol'"),
        (table_site("c", columns=(Column("Age"), *COLUMNS[1:])), "its table has no column 'age'"),
        (table_site("c", columns=(Column("age"), Column("pain"), Column("ca"))), "'pain' holds numbers, .* texts"),
        (
            table_site("c", np.array([[0.0, 0, 1]]), (Column("age", ("old",)), *COLUMNS[1:])),
            "'age' holds texts, .* numbers",
        ),
        (
            SiteHead(name="c", identity="c", classes=["0"], shape=[3, 8, 8], train=4, test=0),
            "its data are images, those of the federation a table of numbers",
        ),
        (table_site("c", classes=["0", "7"]), "no class '7'"),
    ],
)
def test_a_site_whose_table_differs_is_refused_by_name_and_its_sums_do_not_count(site: SiteHead, why: str):
    agreement = agree([*TWO, site], ("0", "1"))
    assert agreement == agree(TWO, ("0", "1"))
    nodes, refusals = assign({1: TWO[0], 2: TWO[1], 3: site}, {1: "", 2: "", 3: ""}, agreement)
    assert nodes == {"a": 1, "b": 2}
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refusals["c"])


def test_a_table_among_images_is_refused():
    images = Agreement(("0", "1"), (1, 8, 8))
    assert images.mismatch(TWO[0]) == "its data are a table of numbers, those of the federation images"


def test_a_column_without_any_value_fits_whatever_others_have():
    empty = table_site("c", np.full((3, 3), np.nan), (Column("age"), Column("pain"), Column("ca")))
    agreement = agree([*TWO, empty], ())
    assert not agreement.mismatch(empty)
    assert agreement.table[1].levels == ("none", "typical")
    assert all(column.marks_missing for column in agreement.table)


def test_a_site_that_tells_no_sums_takes_part_by_those_of_the_others():
    silent = table_site("c", ROWS * [100, 1, 1], sums=False)
    agreement = agree([*TWO, silent], ())
    assert agreement == agree(TWO, ())
    assert not agreement.mismatch(silent)
    with pytest.raises(RunError, match="no site tells the sums of its table"):
        agree([silent], ())


def named(site: str, count: int) -> SiteHead:
    """A site whose texts nobody else has."""
    column = Column("name", tuple(f"{site}{number:02}" for number in range(count)))
    return table_site(site, np.arange(float(count))[:, None], (column,))


def test_a_site_with_too_many_texts_is_refused_by_name_and_does_not_hold_up_the_others():
    few, many = [named("a", 3), named("b", 4)], named("c", 98)
    agreement = agree([*few, many], ())
    assert agreement == agree(few, ())
    assert [agreement.mismatch(site) for site in few] == [None, None]
    got = "its column 'name' has 98 different texts, 105 with those of other sites, but a category may have 100"
    assert agreement.mismatch(many).startswith(got)


def test_a_column_of_names_is_refused_at_nearly_every_site():
    sites = [named(name, 60) for name in "abcd"]
    agreement = agree(sites, ())
    assert [bool(agreement.mismatch(site)) for site in sites] == [True, True, True, False]


def test_a_table_that_changed_since_the_site_joined_is_an_error():
    agreement = agree(TWO, ())
    with pytest.raises(DataError, match=r"rows\.csv: the columns are no longer those with which the site joined: age"):
        encode_rows(agreement.table, COLUMNS[:1], ROWS[:, :1], "rows.csv")


@pytest.mark.parametrize("text", ["[{}]", "nonsense", '[{"name": 3}]'])
def test_an_encoding_that_is_none_is_refused(text: str):
    with pytest.raises(WireError, match="the encoding of the table cannot be read"):
        read_encoding(text)
