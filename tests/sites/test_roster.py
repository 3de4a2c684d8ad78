"""The sites of a run: who is asked, who is waited for, and below which number nothing begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedpca.core import Failure
from fedpca.errors import RunError
from fedpca.methods.define import Plan
from fedpca.sites import roster as module
from fedpca.sites.agreement import Agreement
from fedpca.sites.messages import Content, SiteHead, write_site
from fedpca.sites.roster import Roster
from fedpca.sites.session import Session
from fedpca.sites.settings import Deployment
from fedpca.sites.task import Task
from tests.sites.engine import Direct
from tests.sites.test_agreement import head


def answering(site: SiteHead) -> Callable[[str, Content], Content]:
    return lambda kind, content: write_site(site)


def failing(kind: str, content: Content) -> Failure:
    return Failure("it failed: DataError")


@pytest.fixture
def engine() -> Direct:
    return Direct({number: answering(head(name)) for number, name in ((11, "bonn"), (12, "aachen"))})


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def roster(engine: Direct, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Roster:
    monkeypatch.setattr(module, "POLL", 0.01)
    return roster_for(engine, said.append)


def roster_for(engine: Direct, log: Callable[[str], None], **deployment: object) -> Roster:
    task = Task(method="fedavg", tables={}, plan=Plan(1), accuracy="acc")
    return Roster(engine, Session("0" * 32, task, Deployment(**{"sites": 2, "wait": 5, **deployment})), log)


def test_sites_are_asked_once_and_have_an_order(roster: Roster, engine: Direct, said: list[str]):
    roster.gather()
    roster.refresh(at_once=True)
    assert roster.names == ["aachen", "bonn"]
    assert roster.nodes == {"bonn": 11, "aachen": 12}
    assert len(engine.sent) == 2
    assert sorted(said) == ["aachen is there", "bonn is there"]


def test_a_site_that_leaves_keeps_its_name_and_comes_back_under_another_number(roster: Roster, engine: Direct):
    roster.gather()
    del engine.answers[11]
    roster.refresh(at_once=True)
    assert (roster.names, roster.nodes) == (["aachen", "bonn"], {"aachen": 12})
    engine.answers[77] = answering(head("bonn"))
    roster.refresh(at_once=True)
    assert roster.nodes == {"aachen": 12, "bonn": 77}


def test_a_site_that_cannot_say_who_it_is_is_asked_again(roster: Roster, engine: Direct, said: list[str]):
    engine.answers[13] = failing
    roster.refresh(at_once=True)
    assert "a site cannot join: it failed: DataError" in said
    engine.answers[13] = answering(head("celle"))
    roster.refresh(at_once=True)
    assert roster.names == ["aachen", "bonn", "celle"]


def test_a_silent_node_holds_nobody_up(roster: Roster, engine: Direct):
    engine.answers[13] = answering(head("celle"))
    engine.silent.add(13)
    roster.gather()
    assert roster.names == ["aachen", "bonn"]


def test_who_is_missing_at_the_start_is_not_waited_for_for_ever(engine: Direct, said: list[str], roster: Roster):
    roster_for(engine, said.append, sites=3, quorum=2, wait=0.1).gather()
    assert "2 of 3 sites joined within 0.1 s; beginning without the others" in said


def test_below_the_quorum_nothing_begins(engine: Direct, roster: Roster):
    with pytest.raises(RunError, match=r"2 of 4 sites joined within 0.1 s \(.*\), the quorum is 3"):
        roster_for(engine, print, sites=4, quorum=3, wait=0.1).gather()


def test_below_the_quorum_of_those_that_fit_nothing_begins(roster: Roster):
    roster.gather()
    with pytest.raises(RunError, match=r"0 sites fit together, the quorum is 2 \(.*aachen: its images are 1x8x8"):
        roster.require(Agreement(("cat", "dog"), (3, 8, 8)))
