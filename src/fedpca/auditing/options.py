"""How clients are audited: what a person may set."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fedpca.settings.base import Count, Settings, Table

Folds = Annotated[int, Field(ge=2)]  # fewer, and everybody would be judged by a model of its own
Level = Annotated[float, Field(ge=0.001, le=0.5)]
WhichRows = Literal["all", "train"]


class AuditOptions(Settings):
    """How clients are audited; the first six decide what is trained, the others what is made of it."""

    method: str = "fedavg+d"
    rounds: Count = 20  # chosen on CIFAR-10N with the number of folds: docs/audit.md
    folds: Folds | None = None  # four, or as many as there are clients
    rows: WhichRows = "all"
    seed: Annotated[int, Field(ge=0)] = 0
    settings: dict[str, Table] = Field(default_factory=dict)  # of the method, as `[method.NAME]`
    fdr: Level = 0.1  # share of a list of suspects that may be there by chance
    sample: Annotated[int, Field(ge=0)] = 100  # rows of each client that are drawn at random to be read again
    images: Annotated[int, Field(ge=0)] = 300  # of each client that are written as files, at most
    name: str = "audit"

    @property
    def training(self) -> dict[str, Any]:
        """What decides which models are trained."""
        return self.model_dump(mode="json", include={"method", "rounds", "folds", "rows", "seed", "settings"})
