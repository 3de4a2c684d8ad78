"""What sites say: hellos, reports and updates, one of them forged, over both engines' bytes, and played in a round."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors import SafetensorError

from fedpca.auditing.estimate import estimate
from fedpca.auditing.summary import Summary, summarise
from fedpca.core import Failure, Method, Order, Params, Report, Server, Update
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import CONTROL, WireError
from fedpca.flower import wire as flower
from fedpca.loop import play, play_round
from fedpca.methods.registry import method_names
from fedpca.models.build import build
from fedpca.models.flat import Layout, layout_of, params_of
from fedpca.nvflare import wire as nvflare
from fedpca.runs.check import check_experiment
from fedpca.runs.writer import client_columns
from fedpca.screening import is_finite
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from fedpca.sites import messages, roster
from fedpca.sites.agreement import Agreement, agree
from fedpca.sites.audit_messages import read_summary, write_summary
from fedpca.sites.clients import SiteClients
from fedpca.sites.columns import ColumnHead, ColumnTotals
from fedpca.sites.deployment import read_deployment, task_of
from fedpca.sites.messages import HELLO, REPORT, TRAIN, Content, SiteHead
from fedpca.sites.roster import Roster
from fedpca.sites.session import Session
from studies.fuzz.cases import Door, Target
from studies.fuzz.nonsense import NUMBERS, damaged, number, text, value

SITES, ROUNDS, LIAR = 5, 4, "1"
TABLES = {"fednoro": {"warmup": 1}, "fedcorr": {"stages": [2, 1]}}
KINDS = ("float16", "float64", "int64", "int8", "uint8", "bool", "object", "U3", "complex128", ">f4", "M8[s]")
EXPERIMENT = {
    "rounds": ROUNDS,
    "seeds": [0],
    "data": {"clients": SITES, "train_images": 60 * SITES, "test_images": 200},
    "model": {"name": "mlp"},
    "training": {"batch": 16, "lr": 0.1},
}
CLASSES, SHAPE = tuple("0123456789"), (1, 8, 8)
Reply = Content | Failure
Answer = Callable[[str, str, int], Reply]  # of a kind of message, a site and a round


# What honest sites say


@cache
def federation() -> Federation:
    """Sites with digits."""
    experiment = check_experiment(EXPERIMENT, "fuzz")
    return federate(experiment, load(experiment.data))


@dataclass
class Recorder:
    """Clients of this process, and what they said in each round."""

    clients: InProcess
    said: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """As the clients."""
        return list(self.clients.ids)

    @property
    def sizes(self) -> Mapping[str, int]:
        """As the clients."""
        return self.clients.sizes

    def report(self, params: Params, orders: Mapping[str, Order]) -> Iterator[tuple[str, Report | Failure]]:
        """As the clients, remembered."""
        replies = dict(self.clients.report(params, orders))
        self.said[next(iter(orders.values())).round, REPORT] = replies
        return iter(replies.items())

    def train(self, params: Params, orders: Mapping[str, Order]) -> Iterator[tuple[str, Update | Failure]]:
        """As the clients, remembered."""
        replies = dict(self.clients.train(params, orders))
        self.said[next(iter(orders.values())).round, TRAIN] = replies
        return iter(replies.items())


@dataclass(frozen=True)
class Scene:
    """A run of a method with honest sites: the server before each round, and what the sites say in it."""

    method: Method
    session: Session
    layout: Layout
    servers: list[Server]
    said: Mapping[tuple[int, str], Mapping[str, Any]]

    def content(self, number: int, kind: str, site: str) -> Content:
        """What a site says in a round, or in the first one where it was not asked in that one."""
        here = self.said.get((number, kind), {})
        given = here.get(site) or next(iter(here.values()), None)
        if kind == REPORT:
            return messages.write_report(given or {})
        return messages.write_update(given if isinstance(given, Update) else Update(None, 0), self.layout)


@cache
def scene(name: str) -> Scene:
    """Some rounds of this method, played once."""
    warm = {name: {"warmup": 2}} if name.startswith("fedpca") or name.endswith("+d") else {}
    deploy = {"sites": SITES, "wait": 1.0, "deadline": 5.0}
    table = {**EXPERIMENT, "methods": name, "method": {**TABLES, **warm}, "deploy": deploy}
    experiment, deployment = read_deployment({**table, "seeds": [0]}, "fuzz")
    session = Session("0" * 32, task_of(experiment), deployment)
    method, crew = session.task.build(deployment.exchange), Workers([build("mlp", SHAPE, len(CLASSES), seed=0)])
    clients = Recorder(InProcess(method, federation().shards, crew, seed=0))
    start = Server(params_of(crew.nets[0]))
    servers = [start, *play(method, clients, start, ROUNDS)]
    return Scene(method, session, layout_of(crew.nets[0].module), servers, clients.said)


# What a liar says


def forged(rng: Random, content: Content) -> Content:
    """A content with something wrong in its tables or arrays."""
    tables = {name: dict(own) for name, own in content.tables.items()}
    states = {name: dict(own) for name, own in content.states.items()}
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if states and rng.random() < 0.5:
            _forge_state(rng, states)
        else:
            _forge_table(rng, tables)
    return Content(tables, states)


def _forge_table(rng: Random, tables: dict[str, dict[str, Any]]) -> None:
    name = rng.choice([*tables, "report"]) if tables else "report"
    own = tables.setdefault(name, {})
    key = rng.choice([*own, "loss", "size"])
    match rng.randrange(10):
        case 0 | 1 | 2:
            own[key] = value(rng)
        case 3 | 4 | 5:
            own[key] = number(rng) if rng.random() < 0.7 else [number(rng)] * rng.choice((0, 1, 10, 20_000))
        case 6:
            own.pop(key, None)
        case 7:
            own |= {f"{text(rng)[:50]}{count}": number(rng) for count in range(rng.choice((1, 50, 200, 3000)))}
        case 8:
            tables[rng.choice(("refusal", "evaluation", "site", "arrays", text(rng)))] = tables.pop(name)
        case _:
            kind = rng.choice(("refusal", "evaluation", "listed"))
            tables[kind] = rng.choice(({}, {"acc": number(rng)}, {"name": text(rng), "reason": text(rng)}))


def _forge_state(rng: Random, states: dict[str, dict[str, Any]]) -> None:
    own = states[rng.choice([*states])]
    name = rng.choice([*own]) if own else "x"
    array = np.array(own.get(name, np.zeros(3, np.float32)))
    match rng.randrange(9):
        case 0 | 1 | 2:
            array.reshape(-1)[: rng.choice((1, array.size))] = rng.choice(ENTRIES)
            own[name] = array
        case 3:
            with np.errstate(all="ignore"):
                own[name] = array.astype(rng.choice(KINDS))
        case 4:
            own[name] = rng.choice((array[..., None], array[:0], array.reshape(-1), array[None].repeat(3, 0)))
        case 5:
            own.pop(name, None)
        case 6:
            own[text(rng)] = array
        case 7:
            states.pop(rng.choice([*states]))
        case _:
            with np.errstate(all="ignore"):
                own[name] = array * np.float32(rng.choice((-1, 0, 1e3, 1e17, 1e30)))


def through_flower(rng: Random, content: Content) -> Reply:
    """The content as it comes out of Flower's records, some of whose bytes are damaged."""
    records = flower.to_records(content)
    for name, record in list(records.array_records.items()):
        if rng.random() < 0.5:
            arrays = {key: _damaged_array(rng, array) for key, array in record.items()}
            records[name] = ArrayRecord(arrays)
    if rng.random() < 0.1:
        first, *_ = records
        records = RecordDict({rng.choice(("report", "arrays", "update")): records[first]})
    return flower.from_records(records)


def _damaged_array(rng: Random, array: Array) -> Array:
    if rng.random() < 0.6:
        return array
    data, kind = array.data, array.stype
    data = _head(rng) + data[128:] if rng.random() < 0.3 else damaged(rng, data)
    return Array(dtype=array.dtype, shape=array.shape, stype=rng.choice((kind, kind, kind, "pickle")), data=data)


def _head(rng: Random) -> bytes:
    """The head of a file of an array, of whatever type and shape."""
    shape = rng.choice((f"({10**12},)", "(2,3)", "(-1,)", "()", "(" + "1," * 70 + ")", "(True,)", "None", "('a',)"))
    kind = rng.choice(("<f4", "|O", "<f8", "|V0", "[('a','<f4')]", "x" * 500, "(" * 500))
    written = f"{{'descr': {kind!r}, 'fortran_order': {rng.choice((True, False, 3))}, 'shape': {shape}, }}"
    head = written.ljust(117).encode() + b"\n"
    return b"\x93NUMPY" + rng.choice((b"\x01\x00", b"\x02\x00", b"\xff\xff")) + len(head).to_bytes(2, "little") + head


def through_nvflare(rng: Random, content: Content) -> Reply:
    """The content as it comes out of NVFlare's calls, some of whose texts and bytes are damaged or something else."""
    packed: Any = nvflare.pack(content)
    match rng.randrange(12):
        case 0 | 1:
            packed["tables"] = damaged(rng, packed["tables"].encode()).decode(errors="replace")
        case 2 | 3:
            packed["states"] = {name: damaged(rng, data) for name, data in packed["states"].items()}
        case 4:
            packed = rng.choice(
                (None, [], 3, {}, {"failure": text(rng)}, {"failure": 3}, {"tables": "{}"}, packed["tables"])
            )
        case 5:
            packed[rng.choice(("tables", "states"))] = rng.choice(
                (None, b"", "", "[" * 5000, '{"a": 1}', {"a": 3}, {3: b""})
            )
        case 6:
            packed["tables"] = json.dumps({"report": {"loss": 1}}).replace(
                "1", rng.choice(("NaN", "1e999", "9" * 5000))
            )
        case 7:
            head = json.dumps(
                {
                    "a": {
                        "dtype": rng.choice(("F32", "X", "BF16")),
                        "shape": [rng.choice(NUMBERS)],
                        "data_offsets": [0, 4],
                    }
                }
            )
            packed["states"] = {"arrays": len(head).to_bytes(8, "little") + head.encode() + b"\0" * 4}
    return nvflare.unpack(packed)


def carried(rng: Random, content: Content) -> Reply:
    """What the server gets to see of a content, over one engine or the other."""
    carry = rng.choice((through_flower, through_nvflare))
    try:
        return carry(rng, content)
    except WireError as error:
        return Failure(str(error))
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError, SafetensorError) as error:
        if not _is_senders(error):
            raise
        return content  # no engine writes it: then it stands for what one might


def _is_senders(error: BaseException) -> bool:
    """Whether it was raised where the liar itself writes its message, not where the server reads it."""
    trace, names = error.__traceback__, []
    while trace:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return not {"from_records", "unpack"} & {*names}


# The server's side


@dataclass
class Crowd:
    """An engine within this process; `answer` says what a site answers to a message."""

    answer: Answer
    waiting: dict[str, Reply] = field(default_factory=dict)

    def versions(self) -> Mapping[str, str]:
        """None."""
        return {}

    def nodes(self) -> Mapping[int, str]:
        """Every site has a key."""
        return {number: str(number) for number in range(SITES)}

    def send(self, kind: str, contents: Mapping[int, Content], seconds: float, round: int = 0) -> dict[str, int]:
        """Answered at once."""
        sent = {f"{len(self.waiting)} {node}": node for node in contents}
        self.waiting |= {message: self.answer(kind, str(node), round) for message, node in sent.items()}
        return sent

    def receive(self, messages: Collection[str]) -> Iterator[tuple[str, Reply]]:
        """All answers are there."""
        for message in list(messages):
            if message in self.waiting:
                yield message, self.waiting.pop(message)


def hello(name: str) -> SiteHead:
    """What a site says of itself."""
    return SiteHead(name=name, identity=name, classes=list(CLASSES), shape=list(SHAPE), train=60, test=0)


def hello_of_table(name: str) -> SiteHead:
    """What a site with a table says of itself."""
    age = ColumnHead(name="age", kind="number", totals=ColumnTotals(count=60, sum=60.0, squares=90.0, levels=[]))
    sex = ColumnHead(
        name="sex", kind="category", totals=ColumnTotals(count=60, sum=0.0, squares=0.0, levels=["f", "m"])
    )
    table = json.dumps([head.model_dump() for head in (age, sex)])
    return SiteHead.model_validate(
        {**hello(name).model_dump(), "classes": ["a", "b"], "shape": [2, 1, 1], "table": table}
    )


def play_hello(rng: Random) -> bool:
    """A site joins with a forged hello: it is turned away, or fits; the others can begin."""
    head = rng.choice((hello, hello_of_table))
    own = scene("fedavg").session
    lie = carried(rng, _forged_hello(rng, messages.write_site(head(LIAR))))
    said: list[str] = []

    def answer(kind: str, site: str, number: int) -> Reply:
        return lie if site == LIAR else messages.write_site(head(site))

    crowd = Roster(Crowd(answer), own, said.append)
    for _ in range(2):
        crowd.refresh(at_once=True)
    honest = {str(number) for number in range(SITES)} - {LIAR}
    assert honest <= {*crowd.nodes}, f"{crowd.nodes} are there, {crowd.refusals}"
    agreement = agree(crowd.heads(), own.deployment.classes)
    crowd.require(agreement)
    assert honest <= {*crowd.nodes}, f"{crowd.nodes} fit, {crowd.refusals}"
    assert not any(CONTROL.search(line) for line in said), said
    return LIAR in crowd.nodes


def _forged_hello(rng: Random, content: Content) -> Content:
    if rng.random() < 0.6 or not content.tables["site"].get("table"):
        return forged(rng, content)
    heads = json.loads(content.tables["site"]["table"])
    for _ in range(rng.choice((1, 2))):
        if heads:
            inner = rng.choice(heads)
            inner = rng.choice((inner, inner.get("totals") or inner))
            inner[rng.choice([*inner, "x"])] = value(rng)
        heads = heads * rng.choice((1, 1, 1, 2, 0))
    return Content({"site": {**content.tables["site"], "table": json.dumps(heads)}})


def play_summary(rng: Random) -> bool:
    """A site of an audit sends a forged summary: it is left out by name, or the audit goes on with it."""
    lie = carried(rng, forged(rng, write_summary(_summary(0))))
    if isinstance(lie, Failure):
        raise WireError(lie.reason)
    told = {str(site): _summary(site) for site in range(SITES)} | {LIAR: read_summary(lie, len(CLASSES))}
    found = estimate(told)
    json.dumps([asdict(own) for own in found.clients.values()], allow_nan=False)
    assert all(isfinite(count) for row in found.calibration.scores for count in row)
    return True


@cache
def _summary(client: int) -> Summary:
    probs = torch.softmax(torch.randn(40, len(CLASSES), generator=torch.Generator().manual_seed(client)), dim=1)
    return summarise(probs, torch.arange(40) % len(CLASSES))


def play_reply(rng: Random) -> bool:
    """A site forges its report or update in a round: it is left out by name, or counts; the run goes on."""
    own, number = scene(rng.choice(METHODS)), rng.randrange(1, ROUNDS + 1)
    forge = {kind for kind in (REPORT, TRAIN) if rng.random() < 0.7} or {TRAIN}
    lies = {kind: carried(rng, forged(rng, own.content(number, kind, LIAR))) for kind in forge}

    def answer(kind: str, site: str, at: int) -> Reply:
        if kind == HELLO:
            return messages.write_site(hello(site))
        return lies[kind] if site == LIAR and kind in lies and at == number else own.content(at, kind, site)

    clients = site_clients(own, answer)
    server = own.servers[number - 1]
    accepted = True
    for at in range(number, min(number + 2, ROUNDS + 1)):
        stage, begins = own.method.at(at)
        server = replace(server, diagnosis=stage.enter(server.diagnosis)) if begins else server
        server = play_round(stage.recipe, clients, server, ROUNDS)
        require_sound(server, clients)
        accepted = accepted and LIAR not in server.left_out
        clients.renew()
    return accepted


def site_clients(own: Scene, answer: Answer) -> SiteClients:
    """The sites of a scene as clients of the round loop."""
    crowd = Roster(Crowd(answer), own.session, lambda line: None)
    crowd.agreement = Agreement(CLASSES, SHAPE)
    for _ in range(2):
        crowd.refresh(at_once=True)
    return SiteClients(crowd, crowd.agreement, own.layout, lambda number: True)


def require_sound(server: Server, clients: SiteClients) -> None:
    """The model is finite, nobody honest is left out, and the round can be written down."""
    assert is_finite(server.params), "the model is not finite"
    assert {*server.left_out} <= {LIAR}, f"left out: {server.left_out}"
    assert not any(CONTROL.search(why) for why in server.left_out.values()), server.left_out
    weights = server.weights or {}
    assert all(0 <= weight <= 1 + 1e-9 for weight in weights.values()), weights
    json.dumps(client_columns(server, list(clients.ids)), allow_nan=False)
    json.dumps(clients.evaluations, allow_nan=False)


def play_case(rng: Random) -> bool:
    """One of the three."""
    return rng.choice((play_reply, play_reply, play_reply, play_hello, play_summary))(rng)


@contextmanager
def opened(folder: Path) -> Iterator[Door]:
    """Sites of this process; nobody waits for them."""
    torch.set_num_threads(1)
    with patch.object(roster, "POLL", 0.001):
        yield Door(play_case)


ENTRIES = (float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e18, 1e-45, 1e10)
METHODS = [name for name in method_names() if name not in ("local", "central")]
REPLIES = Target("replies", 2_000, 60.0, opened)
