"""Every type that crosses a module boundary.

In a round the clients *report*, the server *diagnoses*, each client *selects* samples and *trains*, and the server
*aggregates*. A `Method` says how, as a value made of parts; `Clients` says where the clients are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from fedpca.errors import UserError, printable

if TYPE_CHECKING:  # so that code without tensors, such as results, can use the types below without PyTorch
    from torch import Generator, Tensor, nn
    from torch import device as Device

ClientId = str
Group = Literal["common", "rare", "mislabeled"]
Answer = Literal["mislabeled", "not mislabeled", "cannot tell"]  # of one round, about one client's labels
Report = Mapping[str, float | list[float]]  # what a client tells the server; one to one with a Flower MetricRecord
Weights = Mapping[ClientId, float]  # share of each client in an aggregation; they sum to 1
Vectors = Mapping[str, "Tensor"]  # by name
ShownTo = Mapping[
    ClientId, Mapping[str, str]
]  # per client: the name under which it sees a vector, and the server's own
AT_ONCE = 1 << 17  # numbers of several states
LABELS = "labels"  # in a client's memory: its corrected labels, in place of the given ones from then on


@dataclass(frozen=True)
class Params:
    """A model's state as three vectors, so that load, distance and mean are single operations.

    Their order is that of `models.flat.Layout`; only the layout knows which entry belongs to which tensor.

    >>> from fedpca import build, params_of
    >>> params_of(build("mlp", (1, 8, 8), 10, seed=0)).weights.shape
    torch.Size([4810])
    """

    weights: Tensor  # (P,) float: all trainable parameters
    buffers: Tensor  # (B,) float: batch-norm means and variances; averaged like weights, never stepped
    counters: Tensor  # (I,) int64: batch counters
    lengths: tuple[int, ...] = field(default=(), kw_only=True)  # entries of each tensor: of the weights, of the buffers

    @property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, buffers and counters."""
        return self.weights, self.buffers, self.counters

    @property
    def states_at_once(self) -> int:
        """How many states of this size to work on in one operation, so that Python's cost is spread; large ones: 1."""
        return max(1, AT_ONCE // max(1, len(self.weights) + len(self.buffers)))


def identity(images: Tensor) -> Tensor:
    """The very images: what a model without a scale of its own takes in."""
    return images


@dataclass(frozen=True)
class Net:
    """A model whose tensors are views into three vectors (see `models.flat.flatten`), one per worker.

    It alone may be on another device: images go in from the CPU, and what a client says or sends is on the CPU again.
    """

    module: nn.Module
    head: nn.Linear | None  # the last layer, with an output per class; None where a model ends in another way
    weights: nn.Parameter  # (P,), with its gradient beside it
    buffers: Tensor  # (B,)
    counters: Tensor  # (I,)
    draws: bool = False  # whether training passes draw from PyTorch's global generator (dropout)
    lengths: tuple[int, ...] = ()  # see `Params`
    scale: Callable[[Tensor], Tensor] = identity  # images to what goes into the module, on its device
    tap: nn.Module | None = None  # the part of it whose output are the features, in place of what goes into the head
    outputs: int = 0  # where there is no head

    @property
    def classes(self) -> int:
        """How many outputs the model has."""
        return self.head.out_features if self.head is not None else self.outputs

    @property
    def device(self) -> Device:
        """The device that the weights are on."""
        return self.weights.device

    def __call__(self, x: Tensor) -> Tensor:
        """Logits (N, classes) of images (N, C, H, W)."""
        logits: Tensor = self.module(self.scale(x))
        return logits

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, d), those before the last layer unless there is a `tap`, and logits (N, classes)."""
        self.require_features("this")
        seen: list[Tensor] = []
        if self.tap is not None:
            hook = self.tap.register_forward_hook(lambda _, inputs, output: seen.append(output))
        else:
            assert self.head is not None
            hook = self.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            logits = self(x)
        finally:
            hook.remove()
        if not seen:
            raise UserError("model.features: the submodule that it names is not used in a pass: name another")
        return seen[-1], logits

    def require_features(self, who: str) -> None:
        """Refuses a model of which nobody knows what its features are; `who` needs them."""
        if self.head is None and self.tap is None:
            raise UserError(
                f"{who} needs the model's features, but {type(self.module).__name__} has no linear layer with "
                f"{self.outputs} outputs, before which they would be: set model.features to the name of the submodule "
                "whose output they are, or end the model with nn.Linear"
            )


@dataclass(frozen=True)
class Reference:
    """What labels look like where they are right, as far as the clients of one round show it."""

    slope: float  # of labels on predictions
    agreement: float  # share of the labels that are predicted


@dataclass(frozen=True)
class Estimate:
    """A client's share of wrong labels by one round's reports, with a 95 % interval, and what follows from it.

    The interval is of what predictions can show: errors that most clients share are invisible in it.
    """

    share: float | None  # None: nothing to compare with
    low: float
    high: float
    answer: Answer
    reference: Reference | None = None


@dataclass(frozen=True)
class Verdict:
    """The server's present opinion of one client.

    >>> from fedpca import Verdict
    >>> Verdict("mislabeled", suspicion=0.9).group
    'mislabeled'
    """

    group: Group | None = None
    suspicion: float | None = None  # smoothed evidence of wrong labels, in [0, 1]; None before there is any
    threshold: float = 1.0  # confidence that a sample of a mislabeled client must exceed to be used
    weight: float | None = None  # share in the last aggregation
    report: Report = field(default_factory=dict)  # the latest it reported
    notes: Mapping[str, float] = field(default_factory=dict)  # what the method itself wants to find again next round
    sides: Mapping[str, Verdict] = field(default_factory=dict)  # the opinions of combined methods, each its own
    estimate: Estimate | None = None  # of wrong labels, by the latest reports; None for methods that make none

    def having(self, **changes: Any) -> Verdict:  # noqa: ANN401 (of the fields' own types)
        """The same with some fields changed; a large round changes thousands, and `replace` takes twice as long."""
        return Verdict(**{**vars(self), **changes})

    def with_weight(self, weight: float) -> Verdict:
        """The same with another weight, which every client gets in every round."""
        same = (self.report, self.notes, self.sides, self.estimate)
        return Verdict(self.group, self.suspicion, self.threshold, weight, *same)


NOBODY = Verdict()  # of whom nothing is known yet
Diagnosis = Mapping[ClientId, Verdict]  # all that the server remembers besides the weights


class Order(NamedTuple):
    """What the server tells one client, besides the weights; a tuple, since every round makes one for each client."""

    round: int  # counted from 1
    rounds: int  # the last round of the run
    verdict: Verdict
    shown: Vectors = MappingProxyType({})  # what the server's rule keeps and shows to clients, or to this one


class Images(Protocol):
    """N images (N, C, H, W), uint8 or float, of which any rows can be taken; a tensor is one."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class Shard:
    """One client's training data: images and the labels its owner gave them.

    >>> import torch
    >>> from fedpca import Shard
    >>> Shard(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([3, 7])).y.tolist()
    [3, 7]
    """

    x: Images
    y: Tensor  # (N,) int64


@dataclass
class Site:
    """All that code on a client may see.

    >>> import torch
    >>> from fedpca import Site, build
    >>> from fedpca.core import Order, Verdict
    >>> x, y = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([3, 7])
    >>> site = Site(build("mlp", (1, 8, 8), 10, seed=0), x, y, {}, Order(1, 10, Verdict()), torch.Generator())
    >>> site.net(site.x).shape
    torch.Size([2, 10])
    """

    net: Net  # holds the global weights, in eval mode, until training changes them
    x: Images
    given: Tensor  # (N,) the labels that the owner gave
    memory: MutableMapping[str, Tensor]  # the client's own, kept between rounds, never sent
    order: Order
    rng_source: Generator | Callable[[], Generator]  # the client's random numbers, or what makes them when needed

    @property
    def rng(self) -> Generator:
        """The client's random numbers, where it left off."""
        if callable(self.rng_source):
            self.rng_source = self.rng_source()
        return self.rng_source

    @property
    def y(self) -> Tensor:
        """The labels in use (N,): the corrected ones where the client has any, else the given ones."""
        return self.memory.get(LABELS, self.given)


@dataclass(frozen=True)
class Samples:
    """What a client trains on: rows of its data with the labels to use; may be empty.

    Who counts for more samples than it trains on, such as all that it has, says so with `counts_as`. With it a client
    that trains on none sends the model as it is.
    """

    rows: Tensor  # (n,) int64
    labels: Tensor  # (n,) int64
    reliability: float = 1.0  # mean confidence in these labels
    counts_as: int | None = None  # samples; None: as many as there are rows

    @property
    def size(self) -> int:
        """How many samples the update counts as."""
        return self.rows.shape[0] if self.counts_as is None else self.counts_as


@dataclass(frozen=True)
class Update:
    """A client's answer to an order to train. Without samples there is nothing to send: `params` is None.

    >>> from fedpca import Update
    >>> Update(None, size=0).reliability
    1.0
    """

    params: Params | None
    size: int  # samples that it counts as: those trained on, unless the selection says otherwise
    reliability: float = 1.0  # of those samples
    report: Report = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """In place of an answer: why a client gave none, in one line."""

    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))  # it may be a stranger's text


@dataclass(frozen=True)
class Outcome:
    """What an aggregation made of the updates.

    >>> from fedpca import Outcome, build, params_of
    >>> Outcome(params_of(build("mlp", (1, 8, 8), 10, seed=0)), weights={"berlin": 0.25, "bonn": 0.75}).weights["bonn"]
    0.75
    """

    params: Params  # the new global state
    weights: Weights | None = None  # each client's share in it, where the rule has such shares
    notes: Mapping[ClientId, Mapping[str, float]] = field(default_factory=dict)  # go into the clients' verdicts
    memory: Vectors = field(default_factory=dict)  # what the rule keeps for its next round: `Server.memory`
    shown: Vectors = field(default_factory=dict)  # the same, and clients see it in the next round: `Order.shown`
    shown_to: ShownTo = field(default_factory=dict)  # vectors of `memory` that one client alone sees in the next round
    sides: Mapping[str, Outcome] = field(default_factory=dict)  # of combined methods, each its own
    bounded: Mapping[ClientId, str] = field(default_factory=dict)  # whose influence was bounded, and how


class Fold(Protocol):
    """An aggregation under way: fed one update after another, in the clients' order."""

    def add(self, client: ClientId, update: Update) -> None:
        """Takes one update in."""

    def finish(self) -> Outcome:
        """The new state, once every update is in."""


class When(NamedTuple):
    """A moment of a run."""

    round: int  # under way, counted from 1
    rounds: int  # the last one


ReportPart = Callable[[Site], Report]  # on the client
Select = Callable[[Site], Samples]  # on the client
Train = Callable[[Site, Samples], Update]  # on the client
Diagnose = Callable[[Diagnosis, Mapping[ClientId, Report], When], Diagnosis]  # on the server, after each exchange
Aggregate = Callable[["Server"], Fold]  # on the server, which stands before the aggregation of the round
Cohort = Callable[[Sequence[ClientId], int], Sequence[ClientId]]  # who takes part in a round
Enter = Callable[[Diagnosis], Diagnosis]  # on the server, when a stage begins


class Choice(NamedTuple):
    """What a method decided by itself in a round."""

    what: str  # a name for it, such as lift
    value: float
    text: str  # the choice and its reason as a plain sentence


Explain = Callable[["Server"], Sequence[Choice]]  # on the server, after a round; for the record alone


@dataclass(frozen=True)
class Recipe:
    """What one kind of round does. Without `report` the clients are asked only once a round.

    `explain` says what the method chose by itself; nothing that is computed depends on it.

    >>> from dataclasses import replace
    >>> from fedpca import Plan, base, compose
    >>> fedavg, median = base(Plan(rounds=3)), compose("median", Plan(rounds=3)).recipe(1)
    >>> replace(fedavg, aggregate=median.aggregate) == median
    True
    """

    report: ReportPart | None
    diagnose: Diagnose
    select: Select
    train: Train
    aggregate: Aggregate
    cohort: Cohort
    explain: Explain | None = None


def ability(part: object, name: str) -> Any:  # noqa: ANN401 (`parts.abilities` says what each is)
    """What a part offers under this name, or None; None too if it inherits the ability, but does another thing."""
    if isinstance(part, FunctionType):
        return vars(part).get(name)
    for kind in type(part).__mro__:
        if name in vars(kind):
            return getattr(part, name)
        if "__call__" in vars(kind):
            return None
    return None


OwnModel = Callable[[Mapping[str, "Tensor"], Params], Params]  # a client's memory, the global model -> its own


def forget_weights(diagnosis: Diagnosis) -> Diagnosis:
    """The same opinions without the last weights: those of another rule are not smoothed into this one's."""
    return {client: replace(verdict, weight=None) for client, verdict in diagnosis.items()}


@dataclass(frozen=True)
class Stage:
    """A recipe, how many rounds it lasts (None: until the end), and what becomes of earlier opinions.

    >>> from fedpca import Plan, Stage, base
    >>> Stage(base(Plan(rounds=30)), rounds=10).rounds
    10
    """

    recipe: Recipe
    rounds: int | None = None
    enter: Enter = forget_weights


@dataclass(frozen=True)
class Method:
    """A federated method: a name and the stages it goes through.

    >>> from fedpca import Plan, compose
    >>> compose("fedpca-hs", Plan(rounds=30)).recipe(1).report is None  # it warms up first
    True
    """

    name: str
    stages: tuple[Stage, ...]
    pools_data: bool = False  # all clients' data are those of one client, which only a simulation can have
    own_model: OwnModel | None = None  # where each client has a model of its own, which it is; None: the global one

    def at(self, round: int) -> tuple[Stage, bool]:
        """The stage of a round, counted from 1, and whether it begins there; the last stage has no end."""
        for stage in self.stages[:-1]:
            if stage.rounds is None or round <= stage.rounds:
                return stage, round == 1
            round -= stage.rounds
        return self.stages[-1], round == 1

    def recipe(self, round: int) -> Recipe:
        """The recipe of a round, counted from 1."""
        return self.at(round)[0].recipe


@dataclass(frozen=True)
class Server:
    """All that a run needs to go on: the result of its rounds so far.

    >>> from fedpca import Server, build, params_of
    >>> Server(params_of(build("mlp", (1, 8, 8), 10, seed=0))).round  # none played yet
    0
    """

    params: Params
    round: int = 0  # rounds done
    diagnosis: Diagnosis = field(default_factory=dict)
    weights: Weights | None = None  # shares in the last aggregation
    left_out: Mapping[ClientId, str] = field(default_factory=dict)  # whose answer the last round did not use, and why
    memory: Vectors = field(default_factory=dict)  # of the aggregation rule; what it does not keep again is forgotten
    shown: Vectors = field(default_factory=dict)  # the same, which clients see too
    shown_to: ShownTo = field(default_factory=dict)  # vectors of `memory` that one client alone sees too
    bounded: Mapping[ClientId, str] = field(default_factory=dict)  # whose influence the last round bounded, and how


class Clients(Protocol):
    """Where the clients are: in this process, or behind Flower. Answers come in the order of `ids`."""

    @property
    def ids(self) -> Sequence[ClientId]:
        """Every client, in the order in which answers are summed."""

    @property
    def sizes(self) -> Mapping[ClientId, int]:
        """How many samples each has, as it said when it joined; nobody may train on more."""

    def report(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Report | Failure]]:
        """Asks the ordered clients what they see under these weights."""

    def train(self, params: Params, orders: Mapping[ClientId, Order]) -> Iterator[tuple[ClientId, Update | Failure]]:
        """Has the ordered clients train from these weights."""
