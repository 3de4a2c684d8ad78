"""An audit over real sites: the numbers of an audit in one place, and no row ever leaves a site."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedpca.auditing.audit import audit_clients
from fedpca.auditing.data import audit_data
from fedpca.auditing.files import read_site
from fedpca.auditing.one_place import net_maker
from fedpca.auditing.options import AuditOptions
from fedpca.auditing.suspects import read_suspects
from fedpca.core import Failure
from fedpca.errors import RunError, SettingsError
from fedpca.runs.check import check_experiment
from fedpca.sites import clients, roster
from fedpca.sites.answer import answer, explain
from fedpca.sites.audit import serve_audit
from fedpca.sites.data import own_folder, own_functions
from fedpca.sites.deployment import read_deployment
from fedpca.sites.messages import Content
from fedpca.sites.settings import BOUNDS, Deployment, SiteSettings
from tests.sites.engine import Direct

NAMES = ("berlin", "bonn", "cork", "delft", "essen", "graz")
WRONG = "cork"
OPTIONS = AuditOptions(rounds=4, folds=3, sample=10)
TABLE = {
    "name": "six",
    "rounds": 4,
    "methods": "fedavg",
    "model": {"name": "mlp"},
    "training": {"batch": 16, "lr": 0.1},
}
DATA = {"image_column": "scan", "label_column": "diagnosis"}
Told = list[tuple[str, str, Content]]  # site, kind, what it answered


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of six hospitals in one file, and in a file of each; 40 % of the labels of one are wrong."""
    place = tmp_path_factory.mktemp("hospitals")
    rng = np.random.default_rng(4)
    rows = []
    for row in range(600):
        a, b = rng.normal(size=2).round(3)
        name = NAMES[row % 6]
        label = int(a + b > 0) ^ int(name == WRONG and rng.random() < 0.4)
        rows.append([name, a, b, ["well", "ill"][label]])
    _write(place / "all.csv", ["site", "a", "b", "diagnosis"], rows)
    for name in NAMES:
        own = [row[1:] for row in rows if row[0] == name]
        _write(place / f"{name}.csv", ["a", "b", "diagnosis"], own)
    return place


def _write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def configured(tmp_path: Path, **more: object) -> tuple[object, Deployment]:
    deploy = {"sites": 6, "out": str(tmp_path / "runs"), "wait": 1, "deadline": 5, **more}
    return read_deployment({**TABLE, "data": {"label_column": "diagnosis"}, "deploy": deploy}, "test")


def engine_of(folder: Path, tmp_path: Path, told: Told, **settings: object) -> Direct:
    """Every hospital as a node that answers from its own file; `told` is all that left one of them."""

    def node(name: str, kind: str, content: Content) -> Content | Failure:
        own = SiteSettings(site=name, data=folder / f"{name}.csv", store=tmp_path / name, **settings)
        try:
            said = answer(kind, content, own, own_folder, None)
        except Exception as error:
            return Failure(f"it failed: {explain(error)}")
        told.append((name, kind, said))
        return said

    return Direct({number: partial(node, name) for number, name in enumerate(NAMES)})


def audited(engine: Direct, tmp_path: Path, log: Callable[[str], None] = lambda text: None, **more: object) -> dict:
    experiment, deployment = configured(tmp_path, **more)
    out = serve_audit(engine, experiment, deployment, OPTIONS, log)
    return json.loads((out / "audit.json").read_text())


def test_sites_give_the_numbers_of_an_audit_in_one_place(folder: Path, tmp_path: Path):
    record = audited(engine_of(folder, tmp_path, []), tmp_path)
    data = {"dataset": str(folder / "all.csv"), "label_column": "diagnosis", "split": "column", "column": "site"}
    table = {**TABLE, "methods": ["fedavg"], "seeds": [0], "data": data, "aggregation": BOUNDS}
    experiment = check_experiment(table, "test")
    rows = audit_data(experiment)
    make = net_maker(experiment, rows, 0)
    here = audit_clients(rows, experiment, OPTIONS, tmp_path / "here", make, batched=False)
    assert [own["client"] for own in record["clients"]] == list(NAMES)
    assert record["clients"] == here.record["clients"]
    assert [own["client"] for own in record["clients"] if own["verdict"] == "mislabeled"] == [WRONG]
    assert record["engine"] == "real sites, direct 1"
    for name in NAMES:
        place, about = read_site(tmp_path / name)
        assert place == tmp_path / name / "audit"
        assert place.stat().st_mode & 0o077 == 0
        assert about["suspects"] == sum(own.is_issue for own in here.suspects[name])
        own, other = read_suspects(place / "suspects.csv"), here.suspects[name]
        assert [(one.score, one.given, one.columns) for one in own] == [
            (float(f"{one.score:.6g}"), one.given, one.columns) for one in other
        ]
        assert sorted(one.row for one in own) == list(range(100))  # numbers in the site's own file
        assert (place / "sheet.html").exists()
    assert {path.name for path in (tmp_path / "runs/audit").iterdir()} == {
        "audit.json",
        "clients.csv",
        "page.html",
        "work",
    }


def test_no_row_label_or_path_leaves_a_site(folder: Path, tmp_path: Path):
    told: Told = []
    audited(engine_of(folder, tmp_path, told), tmp_path)
    kinds = {kind: content for _, kind, content in told}
    assert kinds.keys() == {"hello", "report", "train", "summary", "list"}
    for _, kind, content in told:
        texts = [value for table in content.tables.values() for value in _texts(table)]
        allowed = kind == "hello"  # there a site says its name, its identity, its classes and its columns
        assert allowed or not texts
        assert not any(str(folder) in text or str(tmp_path) in text or ".csv" in text for text in texts)
        lists = [own for table in content.tables.values() for own in table.values() if isinstance(own, list)]
        assert allowed or all(len(own) != 100 for own in lists)  # nothing has a number for each row
    assert set(kinds["list"].tables) == {"listed"}
    assert not kinds["list"].states
    assert not kinds["summary"].states


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for own in value.values() for text in _texts(own)]
    if isinstance(value, list | tuple):
        return [text for own in value for text in _texts(own)]
    return [value] if isinstance(value, str) else []


def test_a_site_may_tell_its_rate_alone(folder: Path, tmp_path: Path):
    told: Told = []
    record = audited(engine_of(folder, tmp_path, told, audit={"tell": "rate"}), tmp_path)
    assert all(own["confused"] is None and own["told"] == "rate" for own in record["clients"])
    assert all(own["suspects"] is None and own["share"] is not None for own in record["clients"])
    assert all("joint" not in content.tables["summary"] for _, kind, content in told if kind == "summary")
    assert read_site(tmp_path / WRONG)[1]["suspects"] > 0  # the site itself knows


def test_who_is_not_there_to_be_judged_is_named_and_one_that_comes_back_is_judged(folder: Path, tmp_path: Path):
    engine = engine_of(folder, tmp_path, [])
    first, gone, said = engine.answers[1], [2], list[str]()

    def comes_back(kind: str, content: Content) -> Content | Failure:
        if kind == "summary" and gone:
            gone.pop()
            return Failure("it went offline")
        return first(kind, content)

    fifth = engine.answers[4]
    engine.answers[1] = comes_back
    engine.answers[4] = lambda kind, content: (
        fifth(kind, content) if kind not in ("summary", "list") else Failure("it went offline")
    )
    record = audited(engine, tmp_path, said.append)
    assert [own["client"] for own in record["clients"]] == [name for name in NAMES if name != "essen"]
    assert record["not_tested"][0] == {
        "client": "essen",
        "what": "its labels",
        "why": "it could not be asked: it went offline",
    }
    assert any("essen cannot be judged: it went offline" in line for line in said)
    assert "essen" in (tmp_path / "runs/audit/page.html").read_text()


def test_a_round_without_a_quorum_is_played_again_when_the_sites_are_back(folder: Path, tmp_path: Path):
    whole = audited(engine_of(folder, tmp_path / "whole", []), tmp_path / "whole")
    engine, said = engine_of(folder, tmp_path, []), list[str]()
    answers = dict(engine.answers)

    def once_unplugged(number: int, kind: str, content: Content) -> Content | Failure:
        is_time = any("fold 1/3, round 2/4" in line for line in said[-1:])  # until the server says that it waits
        return (
            Failure("it went offline") if kind == "train" and number < 4 and is_time else answers[number](kind, content)
        )

    engine.answers = {number: partial(once_unplugged, number) for number in answers}
    record = audited(engine, tmp_path, said.append)
    assert record["clients"] == whole["clients"]
    assert any("the quorum is 3" in line and line.endswith("waiting for them") for line in said)


def test_an_audit_that_is_stopped_goes_on_to_the_same_numbers(folder: Path, tmp_path: Path):
    whole = audited(engine_of(folder, tmp_path / "whole", []), tmp_path / "whole")
    engine = engine_of(folder, tmp_path, [])

    def stop(text: str) -> None:
        if "fold 2/3, round 3/4" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audited(engine, tmp_path, stop)
    assert not (tmp_path / "runs/audit/audit.json").exists()
    said: list[str] = []
    record = audited(engine, tmp_path, said.append)
    assert record["clients"] == whole["clients"]
    assert any("fold 2/3: going on after round 3" in line for line in said)
    assert not any("fold 1/3, round" in line for line in said)
    said.clear()
    audited(engine, tmp_path, said.append)
    assert said == [f"{tmp_path / 'runs/audit'} holds this audit, finished"]


def test_a_folder_of_another_audit_is_refused(folder: Path, tmp_path: Path):
    engine = engine_of(folder, tmp_path, [])
    audited(engine, tmp_path)
    experiment, deployment = configured(tmp_path)
    with pytest.raises(RunError, match=r"begun with other settings: choose another deploy\.out"):
        serve_audit(engine, experiment, deployment, OPTIONS.model_copy(update={"rounds": 5}))


def test_a_site_that_adds_noise_is_not_audited(folder: Path, tmp_path: Path):
    engine = engine_of(folder, tmp_path, [], privacy={"noise": 0.1})
    with pytest.raises(RunError, match=r"no site told anything of its labels .*adds noise to what it tells"):
        audited(engine, tmp_path)


def test_a_site_whose_policy_forbids_it_is_not_audited(folder: Path, tmp_path: Path):
    (tmp_path / "berlin").mkdir()
    (tmp_path / "berlin" / "site-policy.toml").write_text("audit = false")
    record = audited(engine_of(folder, tmp_path, []), tmp_path)
    assert record["not_tested"][0]["client"] == "berlin"
    assert "its policy allows no audit of its labels" in record["not_tested"][0]["why"]
    assert len(record["clients"]) == len(NAMES) - 1


def test_a_summary_that_cannot_be_is_refused(folder: Path, tmp_path: Path):
    engine = engine_of(folder, tmp_path, [])
    honest = engine.answers[0]

    def liar(kind: str, content: Content) -> Content | Failure:
        said = honest(kind, content)
        if kind != "summary":
            return said
        return Content({"summary": {**said.tables["summary"], "images": [10.0**12]}})

    engine.answers[0] = liar
    record = audited(engine, tmp_path)
    assert record["not_tested"][0]["client"] == "berlin"
    assert "a summary of labels must have" in record["not_tested"][0]["why"]


def test_a_summary_of_more_labels_than_the_site_joined_with_is_refused(folder: Path, tmp_path: Path):
    """A thousand times its counts: they fit together, and would be most of what the other sites are compared with."""
    engine = engine_of(folder, tmp_path, [])
    honest = engine.answers[0]

    def liar(kind: str, content: Content) -> Content | Failure:
        said = honest(kind, content)
        if kind != "summary":
            return said
        counts = {"images", "scores", "joint"}
        own = said.tables["summary"].items()
        return Content({"summary": {key: [1000 * x for x in given] if key in counts else given for key, given in own}})

    engine.answers[0] = liar
    record = audited(engine, tmp_path)
    assert record["not_tested"][0]["client"] == "berlin"
    assert "at most: it joined with those" in record["not_tested"][0]["why"]
    assert len(record["clients"]) == len(NAMES) - 1


def test_findings_of_another_site_are_refused(folder: Path, tmp_path: Path):
    engine = engine_of(folder, tmp_path, [])
    answers, kept = dict(engine.answers), list[Content]()

    def exchanged(number: int, kind: str, content: Content) -> Content | Failure:
        if kind == "list":
            kept.append(content)
            content = Content({**content.tables, "findings": kept[0].tables["findings"]})
        return answers[number](kind, content)

    engine.answers = {number: partial(exchanged, number) for number in answers}
    record = audited(engine, tmp_path)
    refused = [own for own in record["not_tested"] if own["what"] == "which of its labels are wrong"]
    assert len(refused) == 5
    assert "not of this site" in refused[0]["why"]


def test_a_site_trains_with_labels_that_it_read_again(folder: Path, tmp_path: Path):
    given = [row["diagnosis"] for row in csv.DictReader((folder / "bonn.csv").open())]
    other = {"well": "ill", "ill": "well"}
    fixes = tmp_path / "corrected.csv"
    fixes.write_text(f"row,path,given_label,label\n7,,{given[7]},{other[given[7]]}\n")
    engine = engine_of(folder, tmp_path, [], corrected_labels=None)

    def corrected(kind: str, content: Content) -> Content:
        own = SiteSettings(site="bonn", data=folder / "bonn.csv", store=tmp_path / "bonn", corrected_labels=fixes)
        return answer(kind, content, own, own_folder, None)

    engine.answers[1] = corrected
    audited(engine, tmp_path)
    rows = {own.row: own.given for own in read_suspects(tmp_path / "bonn/audit/suspects.csv")}
    assert rows[7] == other[given[7]]
    assert all(rows[row] == given[row] for row in range(100) if row != 7)
    with pytest.raises(SettingsError, match="real sites keep their own corrections"):
        read_deployment({**TABLE, "data": {"corrected_labels": str(fixes)}}, "test")


def test_sites_with_functions_of_their_own_are_audited_too(tmp_path: Path):
    from torch import nn

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 64)) * 2
    data = {}
    for name in NAMES:
        y = rng.integers(0, 3, 90)
        given = (y + (rng.random(90) < 0.5) * (name == WRONG)) % 3
        x = (centres[y] + rng.normal(size=(90, 64))).astype(np.float32).reshape(-1, 1, 8, 8)
        data[name] = (x[:70], given[:70], x[70:], given[70:])

    def node(name: str, kind: str, content: Content) -> Content:
        read = own_functions(lambda context: data[name], lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)))
        return answer(kind, content, SiteSettings(site=name, store=tmp_path / name), read, None)

    engine = Direct({number: partial(node, name) for number, name in enumerate(NAMES)})
    table = {**TABLE, "model": {"name": "linear"}}
    deploy = {"sites": 6, "out": str(tmp_path / "runs"), "wait": 1, "deadline": 5, "classes": "a, b, c"}
    experiment, deployment = read_deployment({**table, "deploy": deploy}, "test")
    out = serve_audit(engine, experiment, deployment, OPTIONS, lambda text: None)
    record = json.loads((out / "audit.json").read_text())
    assert [own["images"] for own in record["clients"]] == [90] * 6
    assert len(read_suspects(tmp_path / WRONG / "audit/suspects.csv")) == 90
    assert len(list((tmp_path / WRONG / "audit/images").glob("*.png"))) > 10
