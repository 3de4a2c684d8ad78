"""Over Flower's records every method does what it does in one process, and strangers' bytes do no harm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy
from torch import Tensor, nn

from fedpca.core import ClientId, Clients, Method, Net, Order, Params, Report, Server, Shard, Site, Update, Verdict
from fedpca.data.datasets import load
from fedpca.data.federation import Federation, federate
from fedpca.errors import UserError, WireError
from fedpca.flower.wire import from_records, to_records
from fedpca.loop import play
from fedpca.methods.registry import METHODS, method_names
from fedpca.models.build import build
from fedpca.models.flat import Layout, layout_of, params_of
from fedpca.runs.check import method_of
from fedpca.simulate.answer import answer_report, answer_train, site_for
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers
from fedpca.sites.messages import read_order, read_report, read_update, write_orders, write_report, write_update
from tests.methods.test_methods import ROUNDS, easy, same

VECTORS = ("weights", "buffers", "counters")


def normed(shape: tuple[int, int, int] = (1, 8, 8), classes: int = 10) -> nn.Module:
    """A model with all that a state can hold: a convolution, whose weights lie channels last, and batch norm."""
    pooled = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(2))
    return nn.Sequential(pooled, nn.Flatten(), nn.Linear(12, classes))


def orders_to_records(params: Params, orders: Mapping[ClientId, Order], layout: Layout) -> dict[ClientId, RecordDict]:
    encoded: dict[int, ArrayRecord] = {}
    return {site: to_records(content, encoded) for site, content in write_orders(params, orders, layout).items()}


def order_from_records(records: RecordDict, layout: Layout) -> tuple[Params, Order]:
    return read_order(from_records(records), layout)


def report_to_records(report: Report) -> RecordDict:
    return to_records(write_report(report))


def report_from_records(records: RecordDict) -> Report:
    return read_report(from_records(records))


def update_to_records(update: Update, layout: Layout) -> RecordDict:
    return to_records(write_update(update, layout))


def update_from_records(records: RecordDict, layout: Layout) -> Update:
    return read_update(from_records(records), layout)


@pytest.fixture
def layout() -> Layout:
    return layout_of(normed())


def a_state(layout: Layout, seed: int = 0) -> Params:
    rng = torch.Generator().manual_seed(seed)
    return layout.params(
        {name: torch.randn(tensor.shape, generator=rng) * 9 for name, tensor in normed().state_dict().items()}
    )


def equal(one: Params, two: Params) -> bool:
    return one.lengths == two.lengths and all(
        getattr(one, name).numpy().tobytes() == getattr(two, name).numpy().tobytes() for name in VECTORS
    )


def travelled(thing):
    """What a Flower object is once it has been bytes."""
    children = {key: travelled(child) for key, child in (thing.children or {}).items()}
    return type(thing).inflate(thing.deflate(), children)


def message(records: RecordDict, node: int = 1, kind: str = "train") -> Message:
    """What the server pushes; outside a run of Flower a message must be told its metadata."""
    place = Metadata(1, "", 0, node, reply_to_message_id="", group_id="", created_at=0.0, ttl=1e12, message_type=kind)
    return Message(content=records, metadata=place)


def sent(records: RecordDict) -> RecordDict:
    return travelled(message(records)).content


def wired(order: Order, layout: Layout, params: Params | None = None) -> tuple[Params, Order]:
    records = orders_to_records(params or a_state(layout), {"me": order}, layout)["me"]
    return order_from_records(sent(records), layout)


# What comes back is what was sent


def test_orders_come_back_with_every_bit_of_their_states(layout: Layout):
    odd = a_state(layout)
    odd.weights[:4] = torch.tensor([-0.0, 1e-45, math.inf, math.nan])
    shown = {"a/ä": torch.tensor([-0.0, math.nan]), "moment": torch.tensor([1 / 3], dtype=torch.float64)}
    order = Order(3, 9, Verdict("rare", weight=1 / 3), shown)
    params, again = wired(order, layout, odd)
    assert equal(params, odd)
    assert list(again.shown) == list(shown)
    assert all(again.shown[name].numpy().tobytes() == vector.numpy().tobytes() for name, vector in shown.items())
    assert again.shown["moment"].dtype == torch.float64
    assert again._replace(shown={}) == order._replace(shown={})


numbers = st.floats(allow_nan=False)
reports = st.dictionaries(st.text(), numbers | st.lists(numbers))
verdicts = st.deferred(
    lambda: st.builds(
        Verdict,
        st.sampled_from([None, "common", "rare", "mislabeled"]),
        st.none() | numbers,
        numbers,
        st.none() | numbers,
        reports,
        st.dictionaries(st.text(), numbers | st.integers(0, 99)),
        st.just({}) | st.dictionaries(st.text(), verdicts, max_size=2),
    )
)


@given(verdicts)
def test_verdicts_come_back(verdict: Verdict):
    order = Order(1, 2, verdict)
    assert wired(order, layout_of(nn.Linear(1, 1)), params_of_line())[1] == order


def params_of_line() -> Params:
    return layout_of(nn.Linear(1, 1)).params({"weight": torch.ones(1, 1), "bias": torch.zeros(1)})


@given(st.lists(st.floats(width=64, allow_nan=False), min_size=50))
def test_every_float_of_a_verdict_keeps_its_bits(values: list[float]):
    verdict = Verdict(report={"values": values})
    again = wired(Order(1, 1, verdict), layout_of(nn.Linear(1, 1)), params_of_line())[1].verdict
    assert np.array(again.report["values"]).tobytes() == np.array(values).tobytes()


def test_numbers_that_are_not_finite_arrive_for_the_loop_to_refuse(layout: Layout):
    verdict = wired(Order(1, 1, Verdict(suspicion=math.nan, threshold=-math.inf)), layout)[1].verdict
    assert math.isnan(verdict.suspicion)
    assert verdict.threshold == -math.inf
    assert math.isnan(report_from_records(sent(report_to_records({"loss": math.nan})))["loss"])


@given(reports)
def test_reports_come_back(report: Report):
    assert report_from_records(sent(report_to_records(report))) == report


def test_a_report_holds_floats_whatever_kind_of_number_a_part_put_in():
    told = {"count": 3, "hits": [1, 2], "flag": True, "numpy": np.float32(0.5), "none": []}
    again = report_from_records(sent(report_to_records(told)))
    assert again == {"count": 3.0, "hits": [1.0, 2.0], "flag": 1.0, "numpy": 0.5, "none": []}
    assert {type(again[key]) for key in ("count", "flag", "numpy")} == {type(again["hits"][0])} == {float}


@pytest.mark.parametrize("report", [{}, {"fedga/loss": 0.1 + 0.2, "größe": [], "classes": [1.0, 2.5]}])
def test_updates_come_back(report: Report, layout: Layout):
    update = Update(a_state(layout), 41, 1 / 3, report)
    again = update_from_records(sent(update_to_records(update, layout)), layout)
    assert again.params is not None
    assert equal(again.params, update.params)
    assert replace(again, params=None) == replace(update, params=None)
    assert (type(again.size), type(again.reliability)) == (int, float)


def test_an_update_without_samples_brings_no_arrays(layout: Layout):
    records = sent(update_to_records(Update(None, 0), layout))
    assert not records.array_records
    assert update_from_records(records, layout) == Update(None, 0)


def test_arrays_are_the_models_own_tensors_to_anybody_else(layout: Layout):
    """Flower's tools and PyTorch read them without this package."""
    state, module = a_state(layout), normed()
    record = sent(update_to_records(Update(state, 1), layout))["arrays"]
    module.load_state_dict(record.to_torch_state_dict())
    assert equal(layout.params(module.state_dict()), state)


def test_a_client_learns_nothing_about_the_others(layout: Layout):
    mine = Verdict("rare", 0.25, report={"loss": 0.125})
    theirs = Verdict("mislabeled", 0.7654321, weight=0.2345678, report={"loss": 9.876543}, sides={"s": Verdict("rare")})
    orders = {"mine": Order(1, 2, mine), "theirs": Order(1, 2, theirs)}
    records = orders_to_records(a_state(layout), orders, layout)
    assert list(records) == list(orders)
    said = repr(sent(records["mine"])["order"])
    assert "0.25" in said
    assert "0.125" in said
    for secret in ("mine", "theirs", "mislabeled", "0.7654321", "0.2345678", "9.876543"):
        assert secret not in said


def test_a_state_is_encoded_once_however_many_clients_get_it(layout: Layout):
    shown = {"fedce/weights": torch.ones(3)}
    orders = {str(i): Order(1, 2, Verdict(), shown) for i in range(3)}
    one, two, three = orders_to_records(a_state(layout), orders, layout).values()
    assert one["arrays"] is two["arrays"] is three["arrays"]
    assert one["shown"] is two["shown"] is not one["arrays"]


# What must not come is refused, with a word on what it was

TRIPPED: list[str] = []


def trip() -> float:
    TRIPPED.append("pickle ran")
    return 0.0


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[], float], tuple[()]]:
        return trip, ()


def npy_bytes(array: np.ndarray, **options: bool) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def claiming(shape: tuple[int, ...]) -> bytes:
    """The head of a file, and nothing behind it."""
    buffer = BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def headed(text: bytes) -> bytes:
    return npy.magic(1, 0) + len(text).to_bytes(2, "little") + text


def with_bias(layout: Layout, data: bytes, stype: str = "numpy.ndarray") -> RecordDict:
    """A good update but for the last bias, (10,) float32."""
    records = update_to_records(Update(a_state(layout), 1), layout)
    records["arrays"]["2.bias"] = Array(dtype="float32", shape=(10,), stype=stype, data=data)
    return sent(records)


GOOD = np.arange(10, dtype=np.float32)


def test_the_bias_is_read_from_good_bytes_in_either_order_of_storage(layout: Layout):
    update = update_from_records(with_bias(layout, npy_bytes(GOOD)), layout)
    assert layout.named(update.params)["2.bias"].tolist() == GOOD.tolist()
    records = update_to_records(Update(a_state(layout), 1), layout)
    matrix = np.asfortranarray(np.arange(120, dtype=np.float32).reshape(10, 12))
    records["arrays"]["2.weight"] = Array(matrix)
    assert b"'fortran_order': True" in records["arrays"]["2.weight"].data
    update = update_from_records(sent(records), layout)
    assert np.array_equal(layout.named(update.params)["2.weight"].numpy(), matrix)


def test_a_pickle_among_the_arrays_is_refused_and_not_run(layout: Layout):
    data = npy_bytes(np.array([Trap()] * 10, dtype=object), allow_pickle=True)
    TRIPPED.clear()
    np.load(BytesIO(data), allow_pickle=True)
    assert TRIPPED, "otherwise the test shows nothing"
    TRIPPED.clear()
    with pytest.raises(WireError, match=r"'2\.bias' must hold numbers, got object \(10,\)"):
        update_from_records(with_bias(layout, data), layout)
    with pytest.raises(WireError, match="NumPy's file format"):
        update_from_records(with_bias(layout, data[data.index(b"\x80") :]), layout)
    assert not TRIPPED


@pytest.mark.parametrize(
    ("data", "came"),
    [
        (npy_bytes(GOOD.astype(np.float64)), r"must be float32 \(10,\), got float64 \(10,\)"),
        (npy_bytes(GOOD.astype(np.int64)), r"must be float32 \(10,\), got int64 \(10,\)"),
        (npy_bytes(GOOD.astype(">f4")), r"must be float32 \(10,\), got >f4 \(10,\)"),
        (npy_bytes(GOOD[:9]), r"must be float32 \(10,\), got float32 \(9,\)"),
        (npy_bytes(GOOD.reshape(10, 1)), r"must be float32 \(10,\), got float32 \(10, 1\)"),
        (claiming((10**12,)), r"must have 4000000000000 bytes, got 0"),
        (npy_bytes(GOOD)[:-4], r"must have 40 bytes, got 36"),
        (npy_bytes(GOOD) + b"more", r"must have 40 bytes, got 44"),
        (claiming((-1, -10)) + bytes(40), r"must hold numbers, got float32 \(-1, -10\)"),
        (claiming((1,) * 99) + bytes(4), "cannot be read: .*dimension"),
        (npy_bytes(np.zeros(10, dtype="S0")), "must hold numbers"),
        (b"", "NumPy's file format"),
        (b"PK\x03\x04" + bytes(60), "NumPy's file format"),
        (npy_bytes(GOOD).replace(b"NUMPY\x01", b"NUMPY\x03"), r"format 1.0: version \(3, 0\)"),
        (headed(b"print('hello')\n"), "NumPy's file format"),
        (headed(b"-" * 9000 + b"1\n"), "NumPy's file format"),
        (headed(b"(" * 9000 + b"\n"), "NumPy's file format"),
    ],
)
def test_bytes_that_are_not_the_array_are_refused(data: bytes, came: str, layout: Layout):
    with pytest.raises(WireError, match=r"arrays: '2\.bias' .*" + came):
        update_from_records(with_bias(layout, data), layout)


def test_another_way_of_serialising_is_refused(layout: Layout):
    with pytest.raises(WireError, match=r"'2\.bias' must be serialised as 'numpy.ndarray', got 'torch.save'"):
        update_from_records(with_bias(layout, npy_bytes(GOOD), "torch.save"), layout)


def test_names_that_differ_are_refused(layout: Layout):
    records = update_to_records(Update(a_state(layout), 1), layout)
    records["arrays"]["0.0.gamma"] = records["arrays"]["0.0.bias"]
    with pytest.raises(WireError, match=r"the model here has no '0\.0\.gamma'; server and sites must build the same"):
        update_from_records(records, layout)
    del records["arrays"]["0.0.bias"]
    with pytest.raises(WireError, match=r"arrays: '0\.0\.bias' is missing; server and sites must build the same"):
        update_from_records(records, layout)


@pytest.mark.parametrize(
    ("array", "got"), [(GOOD.reshape(1, -1), r"float32 \(1, 10\)"), (np.arange(3), r"int64 \(3,\)")]
)
def test_a_wrong_shown_vector_is_named(array, got: str, layout: Layout):
    order = Order(1, 2, Verdict(), {"moment": torch.ones(3)})
    records = orders_to_records(a_state(layout), {"me": order}, layout)["me"]
    records["shown"] = ArrayRecord({"moment": Array(array)})
    with pytest.raises(WireError, match=rf"shown: 'moment' must be a vector of float32 or float64, got {got}"):
        order_from_records(records, layout)


def changed(kind: str, key: str, value: object, layout: Layout) -> RecordDict:
    """A good order or update but for one value."""
    records = (
        orders_to_records(a_state(layout), {"me": Order(1, 2, Verdict())}, layout)["me"]
        if kind == "order"
        else update_to_records(Update(None, 1), layout)
    )
    records[kind][key] = value
    return sent(records)


@pytest.mark.parametrize(
    ("kind", "key", "value", "said"),
    [
        ("order", "round", 0, "'order.round': .*greater than 0, got 0"),
        ("order", "rounds", 2.0, "'order.rounds': .*integer, got 2.0"),
        ("order", "rounds", True, "'order.rounds': .*integer, got True"),
        ("order", "speed", 1, "'order.speed': .*not permitted, got 1"),
        ("order", "verdict", "{", "'order.verdict': Invalid JSON.*got '{'"),
        ("order", "verdict", b"{}" + b"\xff", "'order.verdict': Invalid JSON"),
        ("order", "verdict", 3, "'order.verdict': .*got 3"),
        ("order", "verdict", "[]", "'order.verdict': .*dictionary.*got"),
        ("order", "verdict", '{"group": "odd"}', "'order.verdict.group': .*'mislabeled', got 'odd'"),
        ("order", "verdict", '{"sides": {"a": {"weight": "1"}}}', "'order.verdict.sides.a.weight': .*got '1'"),
        ("order", "verdict", '{"report": {"loss": null}}', "'order.verdict.report.loss.float': .*got None"),
        ("order", "verdict", '{"mood": 1}', "'order.verdict.mood': Unexpected.*got 1"),
        ("order", "verdict", '{"sides":{"a":' * 10**5 + "{}" + "}}" * 10**5, "'order.verdict': .*recursion limit"),
        ("update", "size", 2.0, "'update.size': .*integer, got 2.0"),
        ("update", "size", [2], r"'update.size': .*integer, got \[2\]"),
        ("update", "reliability", [1.0], r"'update.reliability': .*number, got \[1.0\]"),
        ("update", "x" * 10**6, 1, r"'update.xxx.*not permitted, got 1"),
    ],
)
def test_values_that_cannot_be_are_refused_in_few_words(kind, key, value, said: str, layout: Layout):
    read = order_from_records if kind == "order" else update_from_records
    with pytest.raises(WireError, match=said) as caught:
        read(changed(kind, key, value, layout), layout)
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value, UserError)


@pytest.mark.parametrize("key", ["round", "rounds", "verdict"])
def test_what_is_missing_of_an_order_is_named(key: str, layout: Layout):
    records = orders_to_records(a_state(layout), {"me": Order(1, 2, Verdict())}, layout)["me"]
    del records["order"][key]
    with pytest.raises(WireError, match=f"'order.{key}': Field required"):
        order_from_records(records, layout)


def test_missing_and_mistaken_records_are_named(layout: Layout):
    with pytest.raises(WireError, match=r"must have 'order', got only \[\]"):
        order_from_records(RecordDict(), layout)
    with pytest.raises(WireError, match=r"must have 'report', got only \['rapport'\]"):
        report_from_records(RecordDict({"rapport": ConfigRecord()}))
    with pytest.raises(WireError, match="'report' must be of kind MetricRecord, got ConfigRecord"):
        report_from_records(RecordDict({"report": ConfigRecord({"loss": 1.0})}))
    records = orders_to_records(a_state(layout), {"me": Order(1, 2, Verdict())}, layout)["me"]
    del records["arrays"]
    with pytest.raises(WireError, match=r"must have 'arrays', got only \['order'\]"):
        order_from_records(records, layout)
    records = update_to_records(Update(None, 1), layout)
    records["arrays"] = MetricRecord()
    with pytest.raises(WireError, match="'arrays' must be of kind ArrayRecord, got MetricRecord"):
        update_from_records(records, layout)


# Every method, over the wire


class OverRecords:
    """Clients that know nothing but what Flower's bytes bring them, their own data and their own memory."""

    def __init__(self, method: Method, shards: Mapping[ClientId, Shard], net: Net, seed: int) -> None:
        self.method, self.shards, self.net, self.seed = method, shards, net, seed
        self.layout = layout_of(net.module)
        self.memory: dict[ClientId, dict[str, Tensor]] = {client: {} for client in shards}

    @property
    def ids(self) -> Sequence[ClientId]:
        return list(self.shards)

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        return {client: len(shard.y) for client, shard in self.shards.items()}

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report]]:
        return self._exchange("report", self._report, report_from_records, params, orders)

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update]]:
        return self._exchange("train", self._train, partial(update_from_records, layout=self.layout), params, orders)

    def _exchange(self, purpose, answer, read, params, orders):
        """The answers, taken in the reverse order of the clients, given in the clients' order."""
        asked = {
            client: travelled(message(records, number, f"query.{purpose}"))
            for number, (client, records) in enumerate(orders_to_records(params, orders, self.layout).items(), 1)
        }
        replies = {
            client: travelled(Message(answer(self._site(client, order.content, purpose)), reply_to=order))
            for client, order in asked.items()
        }
        taken = {client: read(replies[client].content) for client in reversed(replies)}
        return ((client, taken[client]) for client in self.ids if client in taken)

    def _site(self, client: ClientId, records: RecordDict, purpose: str) -> Site:
        params, order = order_from_records(records, self.layout)
        own = self.shards[client], self.memory[client]
        return site_for(client, *own, self.net, params, order, purpose=purpose, seed=self.seed)

    def _report(self, site: Site) -> RecordDict:
        return report_to_records(answer_report(self.method.recipe(site.order.round), site))

    def _train(self, site: Site) -> RecordDict:
        return update_to_records(answer_train(self.method.recipe(site.order.round), site), self.layout)


@pytest.fixture(scope="module")
def easy_federation() -> Federation:
    settings = easy()
    return federate(settings, load(settings.data))


def played(clients: Clients, method: Method, start: Params, rounds: int) -> list[Server]:
    return list(play(method, clients, Server(start), rounds))


def assert_alike(method: Method, federation: Federation, model: str, rounds: int) -> list[Server]:
    """The same servers after every round, in one process and over records; the latter are returned."""
    crew = Workers([build(model, federation.shape, 10, seed=0)])  # it also sets one thread for both
    start, elsewhere = params_of(crew.nets[0]), build(model, federation.shape, 10, seed=99)
    here = played(InProcess(method, federation.shards, crew, seed=0, batched=False), method, start, rounds)
    there = played(OverRecords(method, federation.shards, elsewhere, seed=0), method, start, rounds)
    for one, two in zip(here, there, strict=True):
        assert same(one, two)
        assert (one.diagnosis, one.weights, one.left_out) == (two.diagnosis, two.weights, two.left_out)
        assert one.shown.keys() == two.shown.keys()
        assert all(torch.equal(one.shown[name], two.shown[name]) for name in one.shown)
    return there


@pytest.mark.parametrize("name", [name for name in method_names() if name not in METHODS or not METHODS[name].alone])
def test_every_method_gives_the_same_bits_over_records(name: str, easy_federation: Federation):
    *_, server = assert_alike(method_of(easy(), name), easy_federation, "mlp", ROUNDS)
    assert not server.left_out
    assert server.params.weights.isfinite().all()


@pytest.mark.parametrize("name", ["fedce+rfa", "fedpca-hs-auto"])
def test_so_it_does_where_some_take_part(name: str, easy_federation: Federation):
    method = method_of(easy(participation=0.5), name)
    *_, server = assert_alike(method, easy_federation, "mlp", ROUNDS)
    assert sum(weight > 0 for weight in (server.weights or {}).values()) <= 5


@pytest.mark.parametrize("name", ["fedga+fedcorr", "fedpca-d"])
def test_so_it_does_with_convolutions_and_batch_norm(name: str, easy_federation: Federation):
    *_, server = assert_alike(method_of(easy(), name), easy_federation, "tests.flower.test_wire:normed", 6)
    assert server.params.counters.item() > 0


def test_a_combined_method_sends_what_its_sides_made(easy_federation: Federation):
    servers = assert_alike(method_of(easy(), "fedce+rfa"), easy_federation, "mlp", 3)
    assert list(servers[-1].shown) == ["fedce/weights", "fedce/buffers"], (
        "otherwise the wire was never asked to carry any"
    )


def test_an_array_is_not_copied_before_its_head_was_compared_with_the_model():
    data = Array(np.zeros(1000, dtype=np.float32))
    (found,) = from_records(RecordDict({"arrays": ArrayRecord({"big": data})})).states["arrays"].values()
    assert not found.flags.owndata  # a view into what Flower holds
