"""Runs made by hand to draw, and what their figures say."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from fedpca.results.read.runs import Run
from fedpca.runs.check import check_experiment, one_run

CLIENTS = [str(i) for i in range(12)]
RARE, WRONG = ("10", "11"), ("0", "1", "2")
ABOUT = {
    "dataset": "digits",
    "classes": ["zero", "one", "$2$"],
    "clients": {"id": CLIENTS, "size": [10] * 12},
    "rare": list(RARE),
    "mislabeled": list(WRONG),
}


def kind(client: str) -> str:
    return "rare" if client in RARE else "mislabeled" if client in WRONG else "common"


def columns(method: str, number: int, warmup: int, mistake: str | None) -> dict:
    """What FedPCA records of clients that lie in three clear groups; a mistake is a common client judged mislabeled."""
    if not method.startswith("fedpca") or number <= warmup:
        return {"id": CLIENTS, "loss": None, "dispersion": None, "group": None, "weight": [1 / 12] * 12}
    rng = np.random.default_rng(number)
    centres = {"common": (0.2, 2.0), "rare": (0.6, 0.5), "mislabeled": (3.0, 2.1)}
    places = np.array([centres[kind(c)] for c in CLIENTS]) + rng.normal(0, 0.05, (12, 2))
    loss, dispersion = places.T.tolist()
    groups = ["mislabeled" if c == mistake else kind(c) for c in CLIENTS]
    return {"id": CLIENTS, "loss": loss, "dispersion": dispersion, "group": groups, "weight": [1 / 12] * 12}


def make(
    method: str = "fedavg",
    seed: int = 0,
    played: int = 14,
    common: float = 0.9,
    rare: float | None = 0.6,
    weights: bool = True,
    mistake: str | None = None,
    folder: Path = Path("nowhere"),
    about: dict = ABOUT,
    name: str = "made",
    **settings: object,
) -> Run:
    """A run of 14 rounds, of which so many are played; FedPCA warms up for ten."""
    table = {"name": name, "rounds": 14, "methods": [method], "seeds": [seed], "method": {method: settings}}
    table["noise"] = {"clients": 0.25, "labels": 0.8}
    groups = {"common": {"acc": common + 0.01 * seed}} | ({} if rare is None else {"rare": {"acc": rare + 0.02 * seed}})
    rounds = [
        {
            "round": number,
            "groups": groups,
            "clients": columns(method, number, int(settings.get("warmup", 10)), mistake),
            "weights": {"rare": 0.1 * (1 + seed), "mislabeled": 0.3} if weights else None,
            "left_out": {},
        }
        for number in range(1, played + 1)
    ]
    return Run(folder, one_run(check_experiment(table, "made"), method, seed), about, rounds)


def unknown() -> dict:
    return {key: value for key, value in ABOUT.items() if key not in ("rare", "mislabeled")}


def caption(figure) -> str:
    return figure.get_supxlabel().replace("\n", " ")


def names(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def save_features(folder: Path, count: int = 30) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    features = (10 * np.eye(3)[labels] + rng.normal(size=(count, 3))).astype(np.float32)
    clients = np.arange(count) % 12
    tensors = {"features": features, "label": labels, "predicted": labels, "client": clients}
    folder.mkdir(exist_ok=True)
    save_file({name: np.ascontiguousarray(values) for name, values in tensors.items()}, folder / "features.safetensors")
