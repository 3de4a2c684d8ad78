"""Tables of numbers through Flower's messages: the bits of a simulation, also of a server that died in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.app import Message

from fedpca.flower.apps import client_app
from fedpca.flower.config import read_run_config
from fedpca.flower.engine import FlowerEngine
from fedpca.sites import clients, roster, run
from tests.flower.grid import Loopback
from tests.flower.test_apps import equal, final, lines
from tests.sites.hospitals import NAMES, simulated, write_hospitals


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (roster, clients):
        monkeypatch.setattr(module, "POLL", 0.01)
    monkeypatch.setattr(roster, "REFRESH", 0.0)


@pytest.fixture
def grid(tmp_path: Path) -> Loopback:
    write_hospitals(tmp_path / "data")
    configs = [{"site": name, "data": str(tmp_path / "data" / name), "store": str(tmp_path / name)} for name in NAMES]
    return Loopback({number: (client_app, config) for number, config in enumerate(configs, 20)})


def serve(grid: Loopback, folder: Path, method: str) -> Path:
    config = {"name": "hospitals", "methods": method, "seeds": 0, "rounds": 6, "model.name": "mlp"}
    config |= {"training.batch": 16, "data.feature_columns": "age,pain,ca"}  # Flower's configs have no lists
    config |= {f"method.{method}.warmup": 2} if method == "fedpca-hs-auto" else {}
    deploy = {"deploy.sites": 4, "deploy.out": str(folder / "runs"), "deploy.wait": 5.0, "deploy.deadline": 5.0}
    return run.serve(FlowerEngine(grid), *read_run_config({**config, **deploy}), lambda text: None)


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize(("method", "dies_in"), [("fedavg", None), ("fedavg", 1), ("fedpca-hs-auto", 5)])
def test_the_apps_give_the_bits_of_a_simulation(grid: Loopback, tmp_path: Path, method: str, dies_in: int | None):
    def cut(message: Message) -> None:
        if message.metadata.group_id == str(dies_in) and message.metadata.dst_node_id == 22:
            raise PowerCut

    if dies_in:
        grid.before = cut
        with pytest.raises(PowerCut):
            serve(grid, tmp_path, method)
        grid.before = lambda message: None
    folder = serve(grid, tmp_path, method)
    assert equal(final(folder), simulated(tmp_path / "data", method)[0])
    assert all(not line["left_out"] for line in lines(folder))
