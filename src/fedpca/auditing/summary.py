"""What one client says of its labels under a model that never saw them: numbers and small tables, no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

from fedpca.errors import WireError
from fedpca.parts.client.labels import label_evidence
from fedpca.parts.server.wrong_labels import LabelNumbers

Tell = Literal["all", "rate"]
Table = tuple[tuple[float, ...], ...]
BINS = 120  # of a histogram of label scores
STEP = 0.25  # width of a bin, in the logarithm of odds: fine where a score is near 0 or 1
NUMBERS = (*LabelNumbers.__dataclass_fields__, "off_diagonal", "certainty")


@dataclass(frozen=True)
class Summary:
    """What a client tells of its labels. A client that tells its rate alone gives one row of scores and no joint."""

    images: int
    classes: int
    numbers: Mapping[str, float]  # of `label_evidence`; `off_diagonal`, of the joint; `certainty` of predictions
    scores: Table  # how many labels have a score in each bin: (classes, BINS), or (1, BINS)
    joint: Table | None = None  # (given, likely): the confident joint, scaled to the number of labels of each class

    @property
    def tell(self) -> Tell:
        """How much the client tells."""
        return "rate" if self.joint is None else "all"


@torch.no_grad()
def summarise(probs: Tensor, labels: Tensor, tell: Tell = "all") -> Summary:
    """The summary of probabilities (N, classes) and given labels (N,).

    >>> import torch
    >>> from fedpca.auditing.summary import summarise
    >>> summary = summarise(torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]), torch.tensor([0, 1, 1]))
    >>> summary.images, summary.classes
    (3, 2)
    """
    probs, (count, classes) = probs.double(), probs.shape
    owners = torch.zeros(count, dtype=torch.int64)
    numbers = dict(label_evidence(probs.T.contiguous(), labels, owners, [count])[0])
    joint = confident_joint(probs, labels)
    off = 1 - float(joint.diagonal().sum() / joint.sum().clamp_min(1))
    bins = bin_of(label_scores(probs, labels))
    rows = labels if tell == "all" else torch.zeros_like(labels)
    height = classes if tell == "all" else 1
    scores = torch.bincount(rows * BINS + bins, minlength=height * BINS).view(height, BINS)
    numbers["off_diagonal"] = min(1.0, max(0.0, off))
    numbers["certainty"] = min(1.0, float(probs.square().sum(dim=1).mean()))  # needs no labels
    return Summary(count, classes, numbers, _table(scores), _table(joint) if tell == "all" else None)


def label_scores(probs: Tensor, labels: Tensor) -> Tensor:
    """How plausible each given label is, from 0 to 1: its own probability."""
    return probs.double().gather(1, labels.unsqueeze(1)).squeeze(1)


def bin_of(scores: Tensor) -> Tensor:
    """The bin of each score: by the logarithm of its odds, so that scores near 0 are told apart."""
    odds = torch.logit(scores.double(), eps=1e-9)
    return (odds / STEP + BINS / 2).floor().clamp(0, BINS - 1).long()


def confident_joint(probs: Tensor, labels: Tensor) -> Tensor:
    """How many labels of class i are likely of class j (classes, classes), as confident learning counts them.

    An image counts for the likeliest of those classes that it is as probable for as their own images are on average;
    images that reach none count for nothing. Rows are scaled to the number of labels of each class. Northcutt 2021.
    """
    classes = probs.shape[1]
    counts = torch.bincount(labels, minlength=classes).double()
    marks = torch.nn.functional.one_hot(labels, classes).double()
    levels = (marks.T @ probs).diagonal() / counts.clamp_min(1)
    levels = torch.where(counts > 0, levels, torch.ones_like(levels))
    reached = torch.where(probs >= levels, probs, torch.zeros_like(probs))
    sure = reached.amax(dim=1) > 0
    pairs = torch.bincount(labels[sure] * classes + reached.argmax(dim=1)[sure], minlength=classes * classes)
    joint = pairs.view(classes, classes).double()
    joint += torch.diag((joint.sum(dim=1) == 0) * counts)  # nothing is known of them: as given
    return joint * (counts / joint.sum(dim=1).clamp_min(1e-12)).unsqueeze(1)


def to_tables(summary: Summary) -> dict[str, list[float]]:
    """The summary as lists of floats by name, to be sent; `from_tables` reads them."""
    tables = {f"number/{name}": [float(value)] for name, value in summary.numbers.items()}
    tables |= {"images": [float(summary.images)], "scores": [value for row in summary.scores for value in row]}
    return tables if summary.joint is None else {**tables, "joint": [value for row in summary.joint for value in row]}


def from_tables(tables: Mapping[str, Sequence[float]], classes: int) -> Summary:
    """The summary that a client sent; refuses what no client can have counted."""
    lists = {name: [float(value) for value in own] for name, own in tables.items()}
    if not all(isfinite(value) for own in lists.values() for value in own):
        raise WireError("a summary of labels must have finite numbers alone, got one that is not")
    try:
        (images,), scores, joint = lists["images"], lists["scores"], lists.get("joint")
        numbers = {name.removeprefix("number/"): own[0] for name, own in lists.items() if name.startswith("number/")}
    except (KeyError, ValueError, IndexError):
        raise WireError(f"a summary of labels needs images and scores, got {', '.join(sorted(lists))}") from None
    strange = lists.keys() - {"images", "scores", "joint", *(f"number/{name}" for name in NUMBERS)}
    _require(not strange, "no other tables", ", ".join(sorted(strange)))
    height = 1 if joint is None else classes
    _require(len(scores) == height * BINS, f"scores of {height} x {BINS} bins", len(scores))
    _require(joint is None or len(joint) == classes**2, f"a joint of {classes} x {classes}", len(joint or ()))
    for name in ("off_diagonal", "certainty"):
        _require(0 <= numbers.get(name, -1.0) <= 1, f"a number {name} from 0 to 1", numbers.get(name))
    _require(all(value >= 0 for value in (*scores, *(joint or ()))), "counts from 0 on", "a smaller one")
    _require(images >= 1 and images == int(images) and abs(sum(scores) - images) < 0.5, "a score of each image", images)
    _require(joint is None or abs(sum(joint) - images) < 1e-6 * images + 0.5, "a joint of all images", images)
    square = None if joint is None else _rows(joint, classes)
    return Summary(int(images), classes, numbers, _rows(scores, BINS), square)


def _require(holds: bool, required: str, got: object) -> None:
    if not holds:
        raise WireError(f"a summary of labels must have {required}, got {got}")


def _rows(values: Sequence[float], width: int) -> Table:
    return tuple(tuple(values[at : at + width]) for at in range(0, len(values), width))


def _table(values: Tensor) -> Table:
    return tuple(tuple(float(value) for value in row) for row in values.tolist())
