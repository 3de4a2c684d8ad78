"""Data that somebody else made to do harm: names that forge lines, files that never end, files that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedpca.data.check import check
from fedpca.data.datasets import load
from fedpca.data.federation import federate
from fedpca.errors import DataError
from fedpca.runs.check import check_experiment
from fedpca.settings.experiment import DataSettings
from tests.data.made import encoded, write, write_slice

FORGED = "a\nfedpca: all is well\x1b[2J\u202e"


def asked(place: Path, **changes: object) -> DataSettings:
    return DataSettings.model_validate({"dataset": str(place), "clients": 2, "image_size": 8, **changes})


def refusal(place: Path, **changes: object) -> str:
    with pytest.raises(DataError) as error:
        load(asked(place, **changes), cache_dir=place.parent / "cache")
    assert str(error.value).isprintable()
    return str(error.value)


def images(place: Path, classes: tuple[str, ...] = ("a", "b")) -> Path:
    for name in classes:
        for row in range(6):
            write(place / name / f"{row}.png", encoded("PNG", row, (8, 8)))
    return place


def numbers_csv(place: Path, *more: str) -> Path:
    rows = [f"{row},{'ab'[row % 2]},{row % 2}" for row in range(12)]
    return write(place / "own.csv", "\n".join(["age,site,label", *rows, *more, ""])).parent


@pytest.mark.parametrize("layout", ["own.csv", "own.npz", "own.parquet", "train.csv"])
def test_what_is_no_file_is_not_read(tmp_path: Path, layout: str):
    """A pipe would be waited for, a device has no end, a folder and a circle of links cannot be opened."""
    for kind in ("pipe", "device", "folder", "circle", "nowhere"):
        place = tmp_path / f"{kind} {layout}"
        place.mkdir()
        path = place / layout
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "folder":
                path.mkdir()
            case "circle":
                path.symlink_to(path.name)
            case _:
                path.symlink_to("/nowhere/at/all")
        assert "holds no images in a known layout" in refusal(place)


def test_a_file_that_the_system_does_not_let_us_read_is_one_line(tmp_path: Path):
    (numbers_csv(tmp_path / "own") / "own.csv").unlink()
    (tmp_path / "own" / "own.csv").symlink_to("/proc/self/mem")  # opens, and then fails
    assert "own cannot be read (Input/output error)" in refusal(tmp_path / "own")


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "\0", "a\nb"])
def test_a_dataset_of_an_impossible_name_is_one_line(tmp_path: Path, name: str):
    with pytest.raises(DataError) as error:
        load(asked(Path("x")).model_copy(update={"dataset": name}), tmp_path, tmp_path / "cache")
    assert str(error.value).isprintable()


def test_names_of_files_forge_no_lines(tmp_path: Path):
    place = images(tmp_path / "own")
    write(place / "a" / f"{FORGED}.png", b"broken")
    data = load(asked(place), cache_dir=tmp_path / "cache")
    assert [line.isprintable() for line in data.skipped] == [True]
    report = check(asked(place), None, tmp_path / "cache", True, lambda done, total: None)
    assert report.errors
    assert all(line.isprintable() for line in report.errors)
    os.rename(place, tmp_path / "own2")
    (tmp_path / "own2" / "a" / f"{FORGED}.png").rename(tmp_path / "own2" / f"{FORGED}.csv")
    write(tmp_path / "own3" / f"{FORGED}.parquet", b"PAR1 broken PAR1")
    assert "is not a readable parquet file" in refusal(tmp_path / "own3")


def test_a_class_of_a_forged_name_is_refused(tmp_path: Path):
    assert "has control characters in it: rename it" in refusal(images(tmp_path / "own", ("a", FORGED)))


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\u202egnp.exe", "\u2066x"])
def test_a_client_and_a_group_of_a_forged_name_are_refused(tmp_path: Path, name: str):
    """A name with a line break would also have made a checkpoint that gives its memory to another client."""
    place = numbers_csv(tmp_path / "own", *[f'{row},"{name}",{row % 2}' for row in range(12)])
    data = {"dataset": str(place), "clients": None, "split": "column", "column": "site"}
    for table in (
        {"data": data},
        {"data": {"dataset": str(place), "clients": 2}, "evaluation": {"groups": "column", "group_column": "site"}},
    ):
        settings = check_experiment({**table, "model": {"name": "mlp"}}, "hostile")
        with pytest.raises(DataError, match="has control characters in it: rename it"):
            federate(settings, load(settings.data, cache_dir=tmp_path / "cache"))


def test_names_of_other_languages_are_names(tmp_path: Path):
    data = load(
        asked(images(tmp_path / "own", ("Köln", "東京", "القاهرة", "no finding"))), cache_dir=tmp_path / "cache"
    )
    assert set(data.classes) == {"Köln", "東京", "القاهرة", "no finding"}


def test_classes_that_differ_in_unicode_alone_stay_apart(tmp_path: Path):
    assert len(load(asked(images(tmp_path / "own", ("é", "e\u0301"))), cache_dir=tmp_path / "cache").classes) == 2


def test_a_csv_file_that_takes_too_much_memory_is_refused(tmp_path: Path):
    place = numbers_csv(tmp_path / "own", *["1,a,0"] * 20_000)
    assert "more than data.max_bytes" in refusal(place, max_bytes=1_000_000)
    one_line = write(tmp_path / "line" / "own.csv", "x" * 1_500_000).parent
    assert "more than data.max_bytes" in refusal(one_line, max_bytes=1_000_000)


def test_what_is_written_into_metadata_stays_text(tmp_path: Path):
    """Notes in a parquet file name classes; whatever else they say is not looked at."""
    cells = [{"bytes": encoded("PNG", row, (8, 8)), "path": FORGED} for row in range(12)]
    for notes in ("[" * 100_000, "null", '{"info": {"features": {"label": {"names": [' + "1," * 9 + "1]}}}}"):
        table = pa.table({"image": cells, "label": np.arange(12) % 2})
        pq.write_table(table.replace_schema_metadata({"huggingface": notes}), tmp_path / "own.parquet")
        data = load(asked(tmp_path / "own.parquet"), cache_dir=tmp_path / "cache")
        assert len(data.train.labels) + len(data.test.labels) == 12


def test_a_column_of_a_forged_name_is_refused(tmp_path: Path):
    """`fedpca data check` shows the names of columns."""
    columns = {FORGED: np.arange(12), "label": np.arange(12) % 2}
    pq.write_table(pa.table(columns), write(tmp_path / "own.parquet", b""))
    assert "has control characters in it: rename it" in refusal(tmp_path / "own.parquet")


def test_what_libraries_say_of_broken_pictures_stays_off_the_screen(tmp_path: Path):
    """Pillow and pydicom quote the file, and name a line of their own code: what is wrong is in our own message."""
    whole, slice_ = encoded("TIFF"), write_slice(tmp_path / "0.dcm", np.zeros((8, 8))).read_bytes()
    write(tmp_path / "1.dcm", slice_.replace(b"1.2.840.10008.1.2.1", b"1.2.840.x\x1b[2J.1.2"))
    for row in range(10):
        write(tmp_path / f"{row}.tif", whole[: len(whole) - row])
    code = """
import sys
from pathlib import Path
from fedpca.data.formats.pictures import Decoding, pixels
from fedpca.data.formats.source import Slice
for path in map(Path, sys.argv[1:]):
    print(pixels(Decoding(), 1, Slice(path) if path.suffix == ".dcm" else path))
"""
    command = [sys.executable, "-c", code, *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip()
    assert done.stderr == ""


def test_an_npz_file_with_a_broken_list_of_its_arrays_is_one_line(tmp_path: Path):
    """Its end says that it is a zip file; the list before that end is broken."""
    np.savez(tmp_path / "own.npz", x=np.zeros((12, 8, 8), np.uint8), y=np.arange(12) % 2)
    content = (tmp_path / "own.npz").read_bytes()
    at = content.index(b"PK\x01\x02")
    write(tmp_path / "own.npz", content[:at] + b"PK\xff\xff" + content[at + 4 :])
    assert "is not an .npz file" in refusal(tmp_path / "own.npz")
