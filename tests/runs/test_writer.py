"""The one writer of run folders: killed at any moment, it goes on to the same record."""

import itertools
import os
from pathlib import Path

import pytest
import torch

from fedpca import atomic
from fedpca.core import Params, Server
from fedpca.runs import folder
from fedpca.runs.cell import Cell, cells, is_done
from fedpca.runs.folder import ROUNDS, SUMMARY, RoundLine, read_rounds
from fedpca.runs.writer import RunWriter, client_columns
from fedpca.settings.experiment import Experiment

PARAMS = Params(torch.zeros(2), torch.zeros(0), torch.zeros(0, dtype=torch.int64), lengths=(2, 0, 0))
ABOUT: folder.About = {
    "dataset": "digits", "classes": [], "shape": [1, 8, 8], "clients": {}, "test_images": {}, "skipped_images": [],
    "versions": {},
}  # fmt: skip


class KilledError(BaseException):
    """The process ends here."""


def groups_of(number: int) -> dict[str, dict[str, float]]:
    """What the sites tell of the model after a round; of the second one nothing."""
    return {} if number == 2 else {"site": {"acc": number / 10, "auc": number / 20}}


def line_of(server: Server) -> RoundLine:
    return {
        "round": server.round,
        "groups": None,
        "clients": client_columns(server, ["site"]),
        "identification": None,
        "weights": None,
        "left_out": {},
        "seconds": 1.0,
    }


def play(cell: Cell, tested_later: bool) -> None:
    """A run from where it stands to its end, as real sites play it: a test arrives one exchange after its round."""
    writer = RunWriter(cell)
    checkpoint = writer.resume()
    if checkpoint is None:
        writer.begin(ABOUT)
    server = checkpoint.server if checkpoint else Server(PARAMS)
    while server.round < cell.settings.rounds:
        server = Server(PARAMS, server.round + 1)
        if tested_later:
            writer.add_test(groups_of(server.round - 1))
            writer.add_untested(line_of(server))
        else:
            writer.add({**line_of(server), "groups": groups_of(server.round) or None})
        writer.save(server, {})
    if tested_later:
        writer.add_test(groups_of(server.round))
    writer.finish({"weights": PARAMS.weights})


@pytest.mark.parametrize("tested_later", [False, True])
def test_killed_at_any_write_it_goes_on_to_the_same_record(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tested_later: bool
):
    (whole,) = cells(small, tmp_path / "whole")
    play(whole, tested_later)
    for deadline in itertools.count(1):
        (cut,) = cells(small, tmp_path / str(deadline))
        try:
            with monkeypatch.context() as patch:
                kill_at(patch, deadline)
                play(cut, tested_later)
            break  # it came to its end before
        except KilledError:
            assert not is_done(cut)
        play(cut, tested_later)
        for name in (ROUNDS, SUMMARY):
            assert (cut.folder / name).read_bytes() == (whole.folder / name).read_bytes()
        assert not (cut.folder / "checkpoint").exists()
    assert deadline > 2 * small.rounds
    assert [line["groups"] for line in read_rounds(whole.folder)] == [groups_of(1), None, groups_of(3)]


def kill_at(patch: pytest.MonkeyPatch, deadline: int) -> None:
    """The process ends at the n-th time that a file goes to the disk or is put in its place; a last line is cut."""
    moments = itertools.count(1)

    def to_disk(file) -> None:
        file.flush()
        if next(moments) == deadline:
            os.truncate(file.name, max(0, os.path.getsize(file.name) - 7))
            raise KilledError

    def replace(old: Path, new: Path) -> None:
        if next(moments) == deadline:
            raise KilledError
        os.rename(old, new)

    patch.setattr(atomic, "to_disk", to_disk)
    patch.setattr(folder, "to_disk", to_disk)
    patch.setattr(os, "replace", replace)
