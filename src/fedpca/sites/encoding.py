"""How the columns of all sites' tables go into one model: agreed on from their sums, sent to them, used by them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fedpca.data.columns import MAX_LEVELS, Column, Values
from fedpca.data.standardise import ColumnSums, EncodedColumn, add_sums, encode, encoding_of
from fedpca.errors import DataError, RunError, WireError
from fedpca.sites.columns import ColumnHead, Kind
from fedpca.sites.messages import SiteHead

Encoding = tuple[EncodedColumn, ...]  # of a table; none of images

ENCODING = TypeAdapter(Encoding)
WORDS = {"number": "numbers", "category": "texts"}
REMEDY = "all sites must have the same, or data.feature_columns lists those to use"


def agree_on_encoding(sites: Sequence[SiteHead]) -> Encoding:
    """How columns go into the model, from the sums of these sites, which all have columns of the same names.

    Columns are in the order of the first site, and each is what it is at most sites. Others do not count.
    """
    kinds = _kinds(sites)
    fitting = [site for site in sites if not _other_kind(site.table, kinds)]
    told = [_sums_of(site, list(kinds)) for site in fitting if all(head.totals for head in site.table)]
    if not told:
        raise RunError("no site tells the sums of its table, by which numbers are standardised: set sums = true at one")
    return encoding_of(list(kinds), _add_within_limit(told))


def mismatch(table: Sequence[ColumnHead], encoding: Encoding) -> str | None:
    """In which column a site's table differs from what was agreed on, or None."""
    own, agreed = [head.name for head in table], [column.name for column in encoding]
    if missing := [name for name in agreed if name not in own]:
        return f"its table has no column {missing[0]!r:.80}, which those of the federation have: {REMEDY}"
    if unknown := [name for name in own if name not in agreed]:
        return f"its table has a column {unknown[0]!r:.80}, which those of the federation have not: {REMEDY}"
    kinds: dict[str, Kind] = {column.name: "category" if column.levels else "number" for column in encoding}
    if other := _other_kind(table, kinds):
        there, here = WORDS[kinds[other.name]], WORDS[other.kind]
        remedy = "write its values alike at all sites"
        return f"its column {other.name!r:.80} holds {here}, that of the federation {there}: {remedy}"
    return _too_many_levels(table, encoding)


def width(encoding: Encoding) -> int:
    """How many inputs of the model the columns become."""
    return sum(len(column.names) for column in encoding)


def write_encoding(encoding: Encoding) -> str:
    """The encoding as a text that keeps every float's bits; empty of images."""
    return json.dumps([asdict(column) for column in encoding]) if encoding else ""


def read_encoding(text: str) -> Encoding:
    """The encoding that a message has."""
    try:
        return ENCODING.validate_json(text) if text else ()
    except ValidationError as error:
        raise WireError(f"the encoding of the table cannot be read: {error.errors()[0]['msg']}") from None


def encode_rows(encoding: Encoding, columns: Sequence[Column], values: Values, place: object) -> NDArray[np.float32]:
    """A site's rows (N, K) as what goes into the model (N, F, 1, 1), whatever the order of the site's columns."""
    places = {column.name: number for number, column in enumerate(columns)}
    if places.keys() != {column.name for column in encoding}:
        raise DataError(
            f"{place}: the columns are no longer those with which the site joined: {', '.join(places):.200}"
        )
    order = [places[column.name] for column in encoding]
    return np.ascontiguousarray(encode(encoding, [columns[place] for place in order], values[:, order]))


def _kinds(sites: Sequence[SiteHead]) -> dict[str, Kind]:
    """What each column is at most sites that have values of it; the first site decides between as many."""
    found: dict[str, Counter[Kind]] = {head.name: Counter() for head in sites[0].table}
    for head in (head for site in sites for head in site.table if head.kind != "empty"):
        found[head.name][head.kind] += 1
    return {name: counts.most_common(1)[0][0] if counts else "empty" for name, counts in found.items()}


def _other_kind(table: Sequence[ColumnHead], kinds: dict[str, Kind]) -> ColumnHead | None:
    """The first column that is not what it must be; one without values fits."""
    return next((head for head in table if head.kind not in ("empty", kinds[head.name])), None)


def _add_within_limit(told: Sequence[ColumnSums]) -> ColumnSums:
    """The sums of all sites, without those with most texts in a column that has too many of them together.

    Such texts are names, or one site's nonsense: neither is to keep the others from their run.
    """
    left, total = list(told), add_sums(told)
    while crowded := [k for k, levels in enumerate(total.levels) if len(levels) > MAX_LEVELS]:
        counts = [len(own.levels[crowded[0]]) for own in left]
        del left[counts.index(max(counts))]
        total = add_sums(left)
    return total


def _too_many_levels(table: Sequence[ColumnHead], encoding: Encoding) -> str | None:
    levels = {column.name: column.levels for column in encoding}
    for head in table:
        own = head.totals.levels if head.totals else []
        if own and (count := len({*own, *levels[head.name]})) > MAX_LEVELS:
            got = f"its column {head.name!r:.80} has {len(own)} different texts, {count} with those of other sites"
            return f"{got}, but a category may have {MAX_LEVELS}: list the columns to use in data.feature_columns"
    return None


def _sums_of(site: SiteHead, names: Sequence[str]) -> ColumnSums:
    """What a site told, in the order of these columns."""
    totals = {head.name: head.totals for head in site.table}
    own = [found for name in names if (found := totals[name]) is not None]
    return ColumnSums(
        site.train,
        np.array([float(column.count) for column in own]),
        np.array([column.sum for column in own]),
        np.array([column.squares for column in own]),
        tuple(frozenset(column.levels) for column in own),
    )
