"""Run folders made by hand, small and known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedpca.runs.check import check_experiment, one_run
from fedpca.settings.toml import write_table

CLIENTS = ("a", "b", "c", "d")
ESTIMATE = ("suspicion", "suspicion_low", "suspicion_high", "answer")
PLACES = {"common": (0.5, 2.0), "rare": (1.0, 1.0), "mislabeled": (4.0, 2.0)}


def a_line(
    number: int,
    clients: Sequence[str] = CLIENTS,
    groups: Sequence[str] | None = ("common", "common", "rare", "mislabeled"),
    tested: bool = True,
    suspicion: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    estimates: Sequence[tuple[float | None, float, float, str]] | None = None,
    **changed: object,
) -> dict[str, object]:
    """One round; each client stands where its group does, a little further to the right in every round.

    `estimates` are shares of wrong labels, the ends of their intervals, and answers, as `auto` records them.
    """
    places = [PLACES[group] for group in groups] if groups else None
    scores = {"acc": 0.8, "bacc": 0.8, "auc": 0.9, "auc_ovo": 0.9}
    return {
        "round": number,
        "groups": {"common": scores, "rare": {**scores, "acc": 0.6}} if tested else None,
        "clients": {
            **(dict(zip(ESTIMATE, map(list, zip(*estimates, strict=True)), strict=True)) if estimates else {}),
            "id": list(clients),
            "loss": [loss + number / 10 for loss, _ in places] if places else None,
            "dispersion": [dispersion for _, dispersion in places] if places else None,
            "group": list(groups) if groups else None,
            **({} if estimates else {"suspicion": list(suspicion) if suspicion else None}),
            "weight": list(weights) if weights else [1 / len(clients)] * len(clients),
        },
        "identification": None,
        "weights": {"rare": 0.25, "mislabeled": 0.25},
        "left_out": {},
        "seconds": 0.1,
        **changed,
    }


def write_run(
    folder: Path,
    lines: Sequence[dict[str, object]],
    clients: Sequence[str] = CLIENTS,
    method: str = "fedpca-d",
    seed: int = 0,
    rounds: int | None = None,
    truth: dict[str, list[str]] | None = None,
    of_method: dict[str, object] | None = None,
    **tables: object,
) -> Path:
    """A run folder with these rounds; `truth` is that c is rare and d mislabeled unless given, {} if nobody knows."""
    settings = {"name": "made", "rounds": rounds or len(lines), "seeds": [seed], "methods": [method], **tables}
    if "fedpca" in method or method.endswith("+d"):
        settings["method"] = {method: {"warmup": 0}}
    if of_method is not None:
        settings["method"] = {method: of_method}
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(write_table(one_run(check_experiment(settings, "made"), method, seed)))
    about = {
        "dataset": "digits",
        "clients": {"id": list(clients), "size": [10] * len(clients)},
        "versions": {"fedpca": "0.1"},
        **({"rare": ["c"], "mislabeled": ["d"]} if truth is None else truth),
    }
    (folder / "about.json").write_text(json.dumps(about))
    (folder / "rounds.jsonl").write_text("")
    append(folder, *lines)
    return folder


def append(folder: Path, *lines: dict[str, object]) -> None:
    """Adds rounds, as a run does."""
    with (folder / "rounds.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
