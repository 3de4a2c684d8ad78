"""A run folder as bytes: what a worker without the disk is sent, and what it sends back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedpca.atomic import keep_copy, write_whole
from fedpca.runs.folder import ABOUT, CHECKPOINT, FEATURES, FINAL, PREVIOUS, ROUNDS, SETTINGS, SUMMARY

# as the writer of run folders writes them: whoever stops in between has a folder from which the run goes on
ORDER = (ABOUT, SETTINGS, ROUNDS, CHECKPOINT, FEATURES, FINAL, SUMMARY)


def read_files(folder: Path, names: tuple[str, ...] = ORDER) -> dict[str, bytes]:
    """The files of a run folder that are there, by name."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Makes the folder hold these files; others that a run writes are removed, those that mark its end first.

    Names are those of a run folder, whatever else was sent.
    """
    for name in reversed(ORDER):
        if name not in files:
            (folder / name).unlink(missing_ok=True)
    for name in ORDER:
        if name in files:
            if name == CHECKPOINT and SUMMARY not in files:
                keep_copy(folder / CHECKPOINT, folder / PREVIOUS)
            write_whole(folder / name, files[name])
    if SUMMARY in files:
        (folder / PREVIOUS).unlink(missing_ok=True)
