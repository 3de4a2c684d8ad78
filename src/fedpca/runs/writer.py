"""The one writer of run folders, for simulations and real sites alike."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import TypeVar

from torch import Tensor

from fedpca.atomic import write_json, write_whole
from fedpca.core import NOBODY, ClientId, Recipe, Server
from fedpca.models.flat import Layout
from fedpca.runs import folder
from fedpca.runs.cell import Cell
from fedpca.runs.checkpoint import (
    Checkpoint,
    DamagedError,
    Memory,
    go_back,
    load_checkpoint,
    save_checkpoint,
    save_rest,
    save_tensors,
)
from fedpca.runs.folder import About, ChoiceLine, ClientColumns, RoundLine
from fedpca.runs.replan import replan
from fedpca.runs.scores import summarize
from fedpca.settings.toml import write_table

Value = TypeVar("Value")


@dataclass
class RunWriter:
    """Writes one run folder: its beginning, every round, its end. The caller holds the folder's lock.

    A line is on the disk before the checkpoint that counts on it. A run that is killed at any moment goes on from its
    checkpoint: lines after it are cut off, and their rounds are played again, to the same values. Real sites test a
    model only in the exchange that follows its round: its line is kept in the checkpoint until then.

    A finished run keeps a checkpoint without the weights, which `final.safetensors` has, so that it can go on with more
    rounds. A checkpoint that lacks them is only ever beside the final weights of its own round.
    """

    cell: Cell
    layout: Layout  # of the model
    untested: RoundLine | None = None  # the last round's, whose model is to be tested

    def begin(self, about: About) -> None:
        """Writes a new run's first files."""
        write_json(self.cell.folder / folder.ABOUT, {**about})
        write_whole(self.cell.folder / folder.ROUNDS, "")
        write_whole(self.cell.folder / folder.SETTINGS, write_table(self.cell.settings))

    def resume(self) -> Checkpoint | None:
        """Where the run stands, if it has a checkpoint, with the record cut back to it, and no longer finished."""
        if not (self.cell.folder / folder.CHECKPOINT).exists():
            return None
        checkpoint = self._load()
        if (self.cell.folder / folder.FINAL).exists():
            save_checkpoint(
                self.cell.folder, *checkpoint, keep_last=False
            )  # with the weights, before their other copy goes
        for name in (folder.SUMMARY, folder.FINAL, folder.FEATURES):
            (self.cell.folder / name).unlink(missing_ok=True)
        replan(self.cell, checkpoint.server.round)
        self.untested = checkpoint.untested
        folder.keep_rounds(self.cell.folder, checkpoint.server.round - bool(self.untested))
        return checkpoint

    def _load(self) -> Checkpoint:
        """The checkpoint; if it is damaged, the one before: what was played since is played again."""
        try:
            return load_checkpoint(self.cell.folder, self.layout)
        except DamagedError as error:
            if not go_back(self.cell.folder):
                raise
            why = str(error).partition(";")[0]
            print(f"{why}: the run goes on from the checkpoint before", file=sys.stderr)
            return load_checkpoint(self.cell.folder, self.layout)

    def add(self, line: RoundLine) -> None:
        """Adds a round whose model has been tested, or is not to be."""
        folder.append_round(self.cell.folder, line)

    def add_untested(self, line: RoundLine) -> None:
        """Keeps a round until its model's test is known; the next checkpoint has it."""
        self.untested = line

    def add_test(self, groups: Mapping[str, dict[str, float]]) -> None:
        """Adds the round that was kept, with the test of its model; without any if nobody tested it."""
        if self.untested:
            self.add({**self.untested, "groups": dict(groups) or None})
        self.untested = None

    def save(self, server: Server, memory: Memory) -> None:
        """Writes the checkpoint."""
        save_checkpoint(self.cell.folder, server, memory, self.untested)

    def finish(self, server: Server, memory: Memory, features: Mapping[str, Tensor] | None = None) -> None:
        """Writes the final weights, what it takes to go on from them, and the summary, which marks a finished run."""
        final, settings = self.cell.folder / folder.FINAL, self.cell.settings
        save_tensors(final, self.layout.named(server.params))
        if features:
            save_tensors(self.cell.folder / folder.FEATURES, features)
        max_size = None if settings.keep_large_checkpoint else final.stat().st_size
        can_go_on = save_rest(self.cell.folder, server, memory, max_size)
        write_json(self.cell.folder / folder.SUMMARY, summarize(settings, folder.read_rounds(self.cell.folder)))
        if not can_go_on:
            shutil.rmtree((self.cell.folder / folder.CHECKPOINT).parent, ignore_errors=True)


def client_columns(server: Server, ids: Sequence[ClientId]) -> ClientColumns:
    """What the server knows of each client."""
    verdicts = [server.diagnosis.get(client, NOBODY) for client in ids]
    return {
        "id": list(ids),
        "loss": _known([_number(verdict.report.get("loss")) for verdict in verdicts]),
        "dispersion": _known([_number(verdict.report.get("dispersion")) for verdict in verdicts]),
        "group": _known([verdict.group for verdict in verdicts]),
        "suspicion": _known([_number(verdict.suspicion) for verdict in verdicts]),
        "weight": _known([server.weights.get(client, 0.0) if server.weights else None for client in ids]),
    }


def with_estimates(line: RoundLine, server: Server) -> RoundLine:
    """The same round with the clients' shares of wrong labels, as far as the method estimates them."""
    made = [server.diagnosis.get(client, NOBODY).estimate for client in line["clients"]["id"]]
    if not any(made):
        return line
    columns = line["clients"]
    columns["suspicion_low"] = [own.low if own else None for own in made]
    columns["suspicion_high"] = [own.high if own else None for own in made]
    columns["answer"] = [own.answer if own else None for own in made]
    reference = next((own.reference for own in made if own and own.reference), None)
    return {**line, "reference": asdict(reference) if reference else None}


def with_bounds(line: RoundLine, server: Server) -> RoundLine:
    """The same round with whose influence was bounded, where anybody's was."""
    return {**line, "bounded": dict(server.bounded)} if server.bounded else line


def with_choices(line: RoundLine, server: Server, recipe: Recipe) -> RoundLine:
    """The same round with what the method chose by itself, where it says so."""
    if recipe.explain is None:
        return line
    made: list[ChoiceLine] = [
        {"what": choice.what, "value": round(choice.value, 6), "text": choice.text} for choice in recipe.explain(server)
    ]
    return {**line, "choices": made}


def _known(values: list[Value | None]) -> list[Value | None] | None:
    return values if any(value is not None for value in values) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
