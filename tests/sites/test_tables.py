"""Sites with tables of numbers: the bits of a simulation, one encoding throughout a run, no sums but at its start."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedpca.core import Failure
from fedpca.errors import DataError, SettingsError
from fedpca.sites import clients, roster, run
from fedpca.sites.answer import answer, explain
from fedpca.sites.data import own_folder
from fedpca.sites.deployment import read_deployment
from fedpca.sites.messages import Content
from fedpca.sites.settings import SiteSettings
from tests.data.test_number_tables import write_csv
from tests.sites.engine import Direct
from tests.sites.hospitals import HEADER, NAMES, hospital_rows, short, simulated, write_hospitals, write_parts

METHODS = ("fedavg", "fedpca-hs-auto")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)
    monkeypatch.setattr(roster, "REFRESH", 0.0)


class Sites:
    """Four hospitals behind an engine of this process, and all that was said."""

    def __init__(
        self, folder: Path, names: Sequence[str] = NAMES, write: Callable[[Path], None] = write_hospitals
    ) -> None:
        self.folder, self.messages = folder, list[tuple[str, str, Content, Content | Failure]]()
        self.before: Callable[[str, Content], None] = lambda kind, content: None
        write(folder / "data")
        self.engine = Direct({number: self.node(name) for number, name in enumerate(names)})

    def node(self, name: str, **settings: object) -> Callable[[str, Content], Content | Failure]:
        own = {"site": name, "data": self.folder / "data" / name, "store": self.folder / "store" / name}
        return partial(self.answer, SiteSettings(**{**own, **settings}))

    def answer(self, settings: SiteSettings, kind: str, content: Content) -> Content | Failure:
        self.before(kind, content)
        try:
            reply: Content | Failure = answer(kind, content, settings, own_folder, None)
        except Exception as error:
            reply = Failure(explain(error))
        self.messages.append((settings.site, kind, content, reply))
        return reply

    def serve(self, method: str, log: Callable[[str], None] = lambda text: None, **changes: object) -> Path:
        deploy = {"sites": 4, "out": str(self.folder / "runs"), "wait": 5, "deadline": 0.5}
        deploy |= {key: value for key, value in changes.items() if key in ("sites", "quorum", "wait")}
        table = {**short(method), "methods": method, "deploy": deploy}
        table |= {key: value for key, value in changes.items() if key not in deploy}
        return run.serve(self.engine, *read_deployment(table, "test"), log)

    def encodings(self) -> set[str]:
        """What orders said about the table."""
        return {content.tables["run"]["table"] for _, kind, content, _ in self.messages if kind != "hello"}

    def told(self, name: str) -> list[list[dict]]:
        """What a site told about its columns, each time that it joined."""
        heads = [reply for site, kind, _, reply in self.messages if (site, kind) == (name, "hello")]
        return [json.loads(head.tables["site"]["table"]) for head in heads]


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


def final(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "final.safetensors")


def equal(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def about(folder: Path) -> dict:
    return json.loads((folder / "about.json").read_text())


@pytest.mark.parametrize("method", METHODS)
def test_sites_give_the_bits_of_a_simulation(sites: Sites, method: str):
    folder = sites.serve(method)
    expected, federation = simulated(sites.folder / "data", method)
    assert equal(final(folder), expected)
    assert about(folder)["table"] == json.loads(json.dumps([asdict(column) for column in federation.table]))
    assert about(folder)["shape"] == list(federation.shape)
    assert all(not line["left_out"] for line in lines(folder))
    assert set(lines(folder)[-1]["groups"]) == set(NAMES)


@pytest.mark.slow
@pytest.mark.skipif("FEDPCA_DATA" not in os.environ, reason="needs FEDPCA_DATA with heart-disease in it")
@pytest.mark.parametrize("method", METHODS)
def test_the_real_hospitals_give_the_bits_of_a_simulation(tmp_path: Path, method: str):
    if not (path := Path(os.environ["FEDPCA_DATA"]) / "heart-disease" / "heart.csv").exists():
        pytest.skip("there is no heart-disease in FEDPCA_DATA")
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    centers = sorted({row[0] for row in rows})
    sites = Sites(tmp_path, centers, lambda folder: write_parts(folder, rows, header))
    folder = sites.serve(method, data={"column": "center"})
    expected, federation = simulated(tmp_path / "data", method)
    assert list(federation.shards) == about(folder)["clients"]["id"] == centers
    assert equal(final(folder), expected)


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_dies_goes_on_with_the_same_encoding(sites: Sites, method: str):
    def cut(kind: str, content: Content) -> None:
        if kind != "hello" and content.tables["order"]["round"] == 4:
            raise PowerCut

    sites.before = cut
    with pytest.raises(PowerCut):
        sites.serve(method)
    sites.before = lambda kind, content: None
    folder = sites.serve(method)
    assert equal(final(folder), simulated(sites.folder / "data", method)[0])
    assert len(sites.encodings()) == 1
    first, again = sites.told("bonn")
    assert all("totals" in column and column["totals"] for column in first)
    assert not any(column["totals"] for column in again), "nobody has use for the sums any more"


def test_a_run_that_goes_on_without_a_site_does_not_agree_anew(sites: Sites):
    """Without essen, `ca` would have another mean and fewer missing values: weights would fit other inputs."""
    sites.before = lambda kind, content: raise_in_round(3, kind, content)
    with pytest.raises(PowerCut):
        sites.serve("fedavg", quorum=3, wait=0.3)
    sites.before = lambda kind, content: None
    away = sites.engine.answers.pop(3)

    def come_back(kind: str, content: Content) -> None:
        if kind != "hello" and content.tables["order"]["round"] == 4:
            sites.engine.answers[7] = away

    sites.before = come_back
    folder = sites.serve("fedavg", quorum=3, wait=0.3)
    assert len(sites.encodings()) == 1
    assert [list(line["left_out"]) for line in lines(folder)] == [[], [], ["essen"], ["essen"], [], []]


def raise_in_round(number: int, kind: str, content: Content) -> None:
    if kind != "hello" and content.tables["order"]["round"] == number:
        raise PowerCut


def test_a_site_that_joins_later_uses_the_encoding_and_tells_no_sums(sites: Sites):
    late = sites.engine.answers.pop(1)

    def admit(kind: str, content: Content) -> None:
        if kind != "hello" and content.tables["order"]["round"] == 2:
            sites.engine.answers[1] = late

    sites.before = admit
    folder = sites.serve("fedavg", sites=3)
    assert [len(line["clients"]["id"]) for line in lines(folder)] == [3, 3, 4, 4, 4, 4]
    assert len(sites.encodings()) == 1
    assert not any("sharp" in column["levels"] for column in about(folder)["table"]), "only bonn has it, and was late"
    (told,) = sites.told("bonn")
    assert [column["totals"] for column in told] == [None, None, None]
    assert lines(folder)[-1]["clients"]["weight"][1] > 0


def test_a_site_with_other_columns_is_refused_by_name_with_what_differs(sites: Sites):
    rows = [[*row[1:], 7] for row in hospital_rows("bonn", 30)]
    path = write_csv(sites.folder / "odd.csv", rows, [*HEADER[1:], "cholesterol"])
    sites.engine.answers[9] = sites.node("odd", data=path)
    said: list[str] = []
    folder = sites.serve("fedavg", log=said.append)
    why = "its table has a column 'cholesterol', which those of the federation have not"
    assert any(text.startswith(f"odd is turned away: {why}") for text in said)
    assert why in lines(folder)[0]["left_out"]["odd"]
    assert equal(final(folder), simulated(sites.folder / "data", "fedavg")[0]), "and its sums did not count"


def test_columns_that_are_no_features_need_not_be_at_every_site(sites: Sites):
    rows = [[7, *row[1:]] for row in hospital_rows("bonn", 40)]
    for part in ("train", "test"):
        own = rows if part == "train" else rows[:20]
        write_csv(sites.folder / "data" / "bonn" / f"{part}.csv", own, ["ward", *HEADER[1:]])
    folder = sites.serve("fedavg", data={"feature_columns": "age,pain,ca"})
    assert equal(final(folder), simulated(sites.folder / "data", "fedavg")[0])


def test_a_site_may_keep_its_sums(sites: Sites):
    sites.engine.answers[0] = sites.node("berlin", sums=False)
    folder = sites.serve("fedavg")
    assert all(not line["left_out"] for line in lines(folder))
    (told,) = sites.told("berlin")
    assert not any(column["totals"] for column in told)
    _, federation = simulated(sites.folder / "data", "fedavg")
    assert about(folder)["table"][0]["mean"] != federation.table[0].mean


def test_sums_that_cannot_be_are_refused_and_do_not_count(sites: Sites):
    honest = sites.engine.answers[2]

    def boast(kind: str, content: Content) -> Content | Failure:
        reply = honest(kind, content)
        if kind != "hello" or isinstance(reply, Failure):
            return reply
        table = reply.tables["site"]["table"].replace('"squares":', '"squares":-')
        return Content({"site": {**reply.tables["site"], "table": table}})

    sites.engine.answers[2], sites.engine.names[2] = boast, "dresden"
    said: list[str] = []
    sites.serve("fedavg", quorum=3, wait=0.3, log=said.append)
    assert any("dresden cannot join: 'site.table" in text and "greater than or equal to 0" in text for text in said)
    alone = Sites(sites.folder / "three")
    del alone.engine.answers[2]
    alone.serve("fedavg", sites=3)
    assert sites.encodings() == alone.encodings()


def test_a_model_for_images_is_refused(sites: Sites):
    with pytest.raises(SettingsError, match=r"model\.name = 'cnn-small'.*what the sites have is a table of numbers"):
        sites.serve("fedavg", model={"name": "cnn-small"})


def test_a_table_that_becomes_another_in_between_is_left_out(sites: Sites):
    def spoil(kind: str, content: Content) -> None:
        if kind != "hello" and content.tables["order"]["round"] == 2:
            rows = [row[2:] for row in hospital_rows("bonn", 40)]
            for part in ("train", "test"):
                write_csv(sites.folder / "data" / "bonn" / f"{part}.csv", rows, HEADER[2:])

    sites.before = spoil
    folder = sites.serve("fedavg")
    assert lines(folder)[2]["left_out"] == {"bonn": DataError.__name__}
