"""What server and sites say to each other when labels are audited. What arrives is checked.

| message | part | what |
|---|---|---|
| summary | | the model of a fold, as an order brings it |
| its answer | `summary` | counts and numbers of `auditing.summary`: no rows, no labels of single images |
| list | `findings` | what was found of this very site, and how plausible labels are at all reference sites together |
| its answer | `listed` | how many of its labels are on its list; nothing where the site tells its rate alone |
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, NonNegativeInt, PositiveInt, TypeAdapter

from fedpca.auditing.calibration import Calibration
from fedpca.auditing.record import Record
from fedpca.auditing.summary import Summary, Tell, from_tables, to_tables
from fedpca.core import Answer
from fedpca.settings.base import Share
from fedpca.sites.messages import EXACTLY, Content, validate

SUMMARY, LIST = "summary", "list"  # kinds of messages; the first is also the part that answers it
FINDINGS, LISTED = "findings", "listed"  # parts
ABOUT = ("name", "classes", "fdr", "sample", "made")  # what a site learns of the audit besides its own result
Text = Annotated[str, Field(max_length=500)]


class Pair(BaseModel):
    """Classes that a site confuses."""

    model_config = EXACTLY
    given: Text
    likely: Text
    images: NonNegativeInt
    share: Share


class Entry(BaseModel):
    """What an audit found of a site, as in audit.json."""

    model_config = EXACTLY
    client: Text
    images: PositiveInt
    verdict: Answer
    reason: Text
    share: Share | None
    low: Share | None
    high: Share | None
    why_no_interval: Text | None
    suspects: None
    confused: list[Pair] | None
    told: Tell
    list_warning: Text | None


class Head(BaseModel):
    """The audit that it belongs to."""

    model_config = EXACTLY
    name: Text
    classes: list[Text]
    fdr: Share
    sample: NonNegativeInt
    made: Text


class Findings(BaseModel):
    """All that a site needs to write its own files."""

    model_config = EXACTLY
    entry: Json[Entry]
    about: Json[Head]
    calibration: list[float]
    seed: NonNegativeInt
    images: NonNegativeInt


class Listed(BaseModel):
    """How many of a site's labels are on its list."""

    model_config = EXACTLY
    rows: NonNegativeInt | Literal[-1]  # -1: it does not tell


FINDINGS_HEAD, LISTED_HEAD = TypeAdapter(Findings), TypeAdapter(Listed)
SUMMARY_LISTS = TypeAdapter(dict[str, list[float]], config=ConfigDict(strict=True))


def write_summary(summary: Summary) -> Content:
    """What a site tells of its labels."""
    return Content({SUMMARY: to_tables(summary)})


def read_summary(content: Content, classes: int) -> Summary:
    """What a site told; refuses what no site can have counted."""
    lists = validate(SUMMARY_LISTS, content, SUMMARY)
    return from_tables(lists, classes)


def write_findings(entry: Record, record: Record, calibration: Calibration, seed: int, images: int) -> Content:
    """What goes to one site."""
    own: dict[str, Any] = {
        "entry": json.dumps(entry),
        "about": json.dumps({key: record[key] for key in ABOUT}),
        **calibration.to_tables(),
        "seed": seed,
        "images": images,
    }
    return Content({FINDINGS: own})


def read_findings(content: Content) -> Findings:
    """What the audit found of this site."""
    return validate(FINDINGS_HEAD, content, FINDINGS)


def write_listed(rows: int | None) -> Content:
    """How many of its labels a site has on its list; None: it does not tell."""
    return Content({LISTED: {"rows": -1 if rows is None else rows}})


def read_listed(content: Content) -> int | None:
    """How many it has, if it tells."""
    rows = validate(LISTED_HEAD, content, LISTED).rows
    return None if rows < 0 else rows
