"""The models of an audit, one for each fold of clients, and what each client's labels look like under its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedpca.atomic import locked, write_json, write_whole
from fedpca.auditing.data import AuditData
from fedpca.auditing.folds import fold_method, folds_of
from fedpca.auditing.options import AuditOptions
from fedpca.core import ClientId, Method, Net, Params, Server, Shard
from fedpca.errors import FailedError, RunError
from fedpca.loop import play
from fedpca.models.flat import load, params_of
from fedpca.parts.client.report import BATCH
from fedpca.runs.checkpoint import checkpoint_round, load_checkpoint, save_checkpoint
from fedpca.runs.folder import CHECKPOINT
from fedpca.settings.experiment import Experiment
from fedpca.simulate.clients import InProcess
from fedpca.simulate.workers import Workers

WORK, KEY, PROBS = "work", "settings.json", "probabilities.safetensors"
PAUSE = 2.0  # seconds between checkpoints; the bits do not depend on when they are written
Probs = dict[ClientId, Tensor]  # (images, classes) of each client, by a model that never saw its labels
Progress = Callable[[int, int], None]  # rounds done, of how many


@dataclass(frozen=True)
class Fold:
    """Clients that are judged by one model, and where that model is trained."""

    number: int
    judged: tuple[ClientId, ...]
    folder: Path
    method: Method


def cross_fit(
    data: AuditData,
    experiment: Experiment,
    options: AuditOptions,
    out: Path,
    make: Callable[[], Net],
    workers: int = 1,
    progress: Progress | None = None,
    batched: bool = True,
) -> Probs:
    """Every client's probabilities by a model that the clients of the other folds trained; goes on where it stopped.

    `batched` as for `InProcess`: real sites train a client at a time, and give the bits of that.
    """
    folder, tell = out / WORK, progress or (lambda done, total: None)
    with locked(folder, f"{out} is being written by another process"):
        _require_same(folder / KEY, data, experiment, options)
        folds = list(_folds(data, experiment, options, folder))
        probs: Probs = {}
        with closing(Workers([make() for _ in range(workers)])) as pool:
            start = params_of(pool.nets[0])
            for fold in folds:
                found = _kept(fold)
                if found is None:
                    watch = partial(_tell, tell, fold.number * options.rounds, len(folds) * options.rounds)
                    found = _play_fold(fold, data, options, pool, start, batched, watch)
                probs |= found
                tell((fold.number + 1) * options.rounds, len(folds) * options.rounds)
    return {client: probs[client] for client in data.shards}


def _tell(progress: Progress, before: int, total: int, done: int) -> None:
    progress(before + done, total)


def _folds(data: AuditData, experiment: Experiment, options: AuditOptions, folder: Path) -> Iterator[Fold]:
    clients = list(data.shards)
    for number, judged in enumerate(folds_of(clients, options.folds, options.seed)):
        others = len(clients) - len(judged)
        method = fold_method(options, experiment, others)
        yield Fold(number, judged, folder / f"fold-{number}", method)


def _play_fold(
    fold: Fold,
    data: AuditData,
    options: AuditOptions,
    pool: Workers,
    start: Params,
    batched: bool,
    tell: Callable[[int], None],
) -> Probs:
    """Trains on the other folds' clients, judges this one's, and keeps what was found."""
    shards = {client: shard for client, shard in data.shards.items() if client not in fold.judged}
    clients = InProcess(fold.method, shards, pool, options.seed, batched)
    first, saved = Server(start), time.monotonic()
    if checkpoint_round(fold.folder) is not None:
        checkpoint = load_checkpoint(fold.folder)
        clients.memory.update(checkpoint.memory)
        first = checkpoint.server
    server = first
    for server in play(fold.method, clients, first, options.rounds):
        tell(server.round)
        if time.monotonic() - saved > PAUSE:
            save_checkpoint(fold.folder, server, clients.memory)
            saved = time.monotonic()
    if len(server.left_out) == len(shards):
        client, reason = next(iter(server.left_out.items()))
        raise FailedError(f"nobody's answer could be used (client {client}: {reason}); a smaller training.lr may help")
    found = dict(zip(fold.judged, judge(pool, server.params, [data.shards[c] for c in fold.judged]), strict=True))
    write_whole(fold.folder / PROBS, save({f"client {client}": own for client, own in found.items()}))
    (fold.folder / CHECKPOINT).unlink(missing_ok=True)
    return found


@torch.no_grad()
def judge(pool: Workers, params: Params, shards: Sequence[Shard]) -> list[Tensor]:
    """Each client's probabilities (images, classes) under a model, in double precision."""

    def work(net: Net, shard: Shard) -> Tensor:
        with torch.no_grad():
            load(net, params)
            net.module.eval()
            parts = torch.split(torch.arange(len(shard.y)), BATCH)
            return torch.cat([net(shard.x[rows]).cpu().double().softmax(dim=1) for rows in parts])

    return list(pool.map(work, shards))


def _kept(fold: Fold) -> Probs | None:
    """What an earlier call found for a fold; None if it did not come so far."""
    path = fold.folder / PROBS
    if not path.exists():
        return None
    try:
        found = load_file(path)
        return {client: found[f"client {client}"] for client in fold.judged}
    except (SafetensorError, OSError, KeyError) as error:
        raise RunError(f"{path} cannot be read ({error}): remove {fold.folder}, so that it is played again") from None


def _require_same(path: Path, data: AuditData, experiment: Experiment, options: AuditOptions) -> None:
    """Refuses a folder that was begun with other data or settings; notes these in a new one."""
    keys = {"model", "training", "participation", "aggregation"}
    now: Mapping[str, object] = {
        "data": data.fingerprint,
        "options": options.training,
        "experiment": experiment.model_dump(mode="json", include=keys),
    }
    if not path.exists():
        write_json(path, now)
        return
    before = json.loads(path.read_text(encoding="utf-8"))
    if changed := [key for key in now if before.get(key) != now[key]]:
        what = "data" if changed[0] == "data" else "settings"
        raise RunError(f"{path.parent.parent} holds an audit that was begun with other {what}: choose another --out")
