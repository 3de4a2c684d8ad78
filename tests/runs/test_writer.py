"""The one writer of run folders: killed at any moment, it goes on to the same record."""

import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedpca import atomic
from fedpca.core import Params, Server
from fedpca.errors import RunError
from fedpca.models.flat import Layout, Slot
from fedpca.runs import folder
from fedpca.runs.cell import Cell, cells, check_folder, is_done
from fedpca.runs.checkpoint import checkpoint_round
from fedpca.runs.folder import CHECKPOINT, FINAL, ROUNDS, SUMMARY, RoundLine, read_rounds
from fedpca.runs.writer import RunWriter, client_columns
from fedpca.settings.experiment import Experiment

PARAMS = Params(torch.zeros(2), torch.zeros(0), torch.zeros(0, dtype=torch.int64), lengths=(2,))
LAYOUT = Layout((Slot("only", (2,), 0),), (), ())
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
    writer = RunWriter(cell, LAYOUT)
    checkpoint = writer.resume()
    if checkpoint is None:
        writer.begin(ABOUT)
    server = checkpoint.server if checkpoint else Server(PARAMS)
    while server.round < cell.settings.rounds:
        server = Server(replace(server.params, weights=server.params.weights + 1), server.round + 1)
        if tested_later:
            writer.add_test(groups_of(server.round - 1))
            writer.add_untested(line_of(server))
        else:
            writer.add({**line_of(server), "groups": groups_of(server.round) or None})
        if server.round % cell.settings.checkpoint_every == 0 or tested_later:
            writer.save(server, {})
    if tested_later:
        writer.add_test(groups_of(server.round))
    writer.finish(server, {})


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
        assert files(cut.folder) == files(whole.folder)
    assert deadline > 2 * small.rounds
    assert [line["groups"] for line in read_rounds(whole.folder)] == [groups_of(1), None, groups_of(3)]


@pytest.mark.parametrize(("tested_later", "every"), [(False, 1), (False, 4), (True, 1)])
@pytest.mark.parametrize("method", ["fedavg", "fedga"])
def test_killed_at_any_write_on_the_way_to_more_rounds_it_can_go_on_and_back(
    small: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tested_later: bool,
    every: int,
    method: str,
):
    small = small.model_copy(update={"methods": (method,), "checkpoint_every": every, "method": {method: {}}})
    longer = small.model_copy(update={"rounds": 6})
    (short,), (whole,) = cells(small, tmp_path / "short"), cells(longer, tmp_path / "whole")
    for cell in (short, Cell(short.settings, whole.folder), whole):  # three rounds, and three more
        play(cell, tested_later)
    backs = 0
    for deadline in itertools.count(1):
        cut, back = tmp_path / f"{deadline}", tmp_path / f"{deadline} back"
        shutil.copytree(short.folder, cut)
        try:
            with monkeypatch.context() as patch:
                kill_at(patch, deadline)
                play(Cell(whole.settings, cut), tested_later)
            break
        except KilledError:
            assert not is_done(Cell(whole.settings, cut))
        shutil.copytree(cut, back)
        check_folder(Cell(whole.settings, cut), resume=True)
        play(Cell(whole.settings, cut), tested_later)
        assert files(cut) == files(whole.folder)
        backs += went_back(Cell(short.settings, back), tested_later, files(short.folder))
    assert deadline > 2 * 3 + 2
    assert backs > 2, "before the next round nothing is lost"
    assert ("earlier_plans" in folder.read_about(whole.folder)) == (method == "fedga")


def went_back(cell: Cell, tested_later: bool, before: dict[str, bytes]) -> bool:
    """Whether the run that was to go on further can be finished as before, and then is the same as before."""
    if max(folder.recorded_rounds(cell.folder), checkpoint_round(cell.folder) or 0) > cell.settings.rounds:
        with pytest.raises(RunError, match="would take some of them back"):
            check_folder(cell, resume=True)
        return False
    check_folder(cell, resume=True)
    if not is_done(cell):
        play(cell, tested_later)
    assert {**files(cell.folder), CHECKPOINT: b""} == {**before, CHECKPOINT: b""}
    return True


def files(folder: Path) -> dict[str, bytes]:
    """The files of a finished run, whole ones only."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {ROUNDS, FINAL, SUMMARY, CHECKPOINT} <= found.keys()
    return {name: content for name, content in found.items() if not name.endswith((".partial", ".lock"))}


def kill_at(patch: pytest.MonkeyPatch, deadline: int) -> None:
    """The process ends at the n-th time that a file goes to the disk or is put in its place; a last line is cut."""
    moments = itertools.count(1)

    def to_disk(file) -> None:
        file.flush()
        if next(moments) == deadline:
            os.truncate(file.name, max(0, os.path.getsize(file.name) - 7))
            raise KilledError

    def put(old: Path, new: Path) -> None:
        if next(moments) == deadline:
            raise KilledError
        os.rename(old, new)

    def unlink(path: Path, missing_ok: bool) -> None:
        if next(moments) == deadline:
            raise KilledError
        if path.exists():
            os.unlink(path)

    patch.setattr(atomic, "to_disk", to_disk)
    patch.setattr(folder, "to_disk", to_disk)
    patch.setattr(os, "replace", put)
    patch.setattr(Path, "unlink", unlink)


@pytest.mark.parametrize("tested_later", [False, True])
def test_a_damaged_checkpoint_is_named_and_the_run_goes_on_from_the_one_before(
    small: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, tested_later: bool
):
    (whole,), (cut,) = cells(small, tmp_path / "whole"), cells(small, tmp_path / "cut")
    play(whole, tested_later)
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "finish", killed)
        with pytest.raises(KilledError):
            play(cut, tested_later)
    path = cut.folder / CHECKPOINT
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # in the weights
    path.write_bytes(content)
    play(cut, tested_later)
    assert (
        "is damaged, its checksum is another one: the run goes on from the checkpoint before" in capsys.readouterr().err
    )
    assert files(cut.folder) == files(whole.folder)


def killed(*_: object) -> None:
    raise KilledError
