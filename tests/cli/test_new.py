"""`fedpca new` writes a settings file that runs as it is."""

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedpca.cli.main import app
from fedpca.data.guess import guess
from fedpca.errors import UserError


def new(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["new", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def runs(path: Path) -> str:
    """What a dry run says of the file."""
    result = CliRunner().invoke(app, ["run", str(path), "--dry-run", "--out", str(path.parent / "runs")])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def images_in_a_table(folder: Path, header: dict[str, str], size=(12, 9)) -> Path:
    """60 images of two classes from three hospitals, listed in a CSV file under these names of columns."""
    (folder / "pictures").mkdir(parents=True)
    rng, rows = np.random.default_rng(0), []
    for number in range(60):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / "pictures" / f"{number}.png")
        rows.append({
            "image": f"pictures/{number}.png",
            "label": ["benign", "malignant"][number % 2],
            "hospital": ["Köln", "Bonn", "Berlin"][number % 3],
            "age": str(20 + number),
        })  # fmt: skip
    with (folder / "images.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header[name] for name in rows[0])
        table.writerows(row.values() for row in rows)
    return folder / "images.csv"


USUAL = {"image": "image", "label": "label", "hospital": "hospital", "age": "age"}


def test_the_digits_file_is_complete_and_runs(tmp_path):
    said = new(tmp_path / "first.toml")
    assert f"fedpca run {tmp_path / 'first.toml'}" in said
    text = runs(tmp_path / "first.toml")
    assert "digits" in text
    assert "mislabeled" in text


def test_a_table_of_images_with_hospitals(tmp_path):
    data = images_in_a_table(tmp_path / "data", USUAL)
    new(tmp_path / "own.toml", "--data", data)
    table = tomllib.loads((tmp_path / "own.toml").read_text(encoding="utf-8"))
    assert table["data"]["dataset"] == "./data/images.csv"
    assert (table["data"]["split"], table["data"]["column"]) == ("column", "hospital")
    assert "Köln 20" in (tmp_path / "own.toml").read_text(encoding="utf-8")
    text = runs(tmp_path / "own.toml")
    assert "benign, malignant" in text
    assert "Berlin, Bonn, Köln" in text


def test_columns_of_other_names_are_guessed_and_said(tmp_path):
    data = images_in_a_table(tmp_path, {"image": "file", "label": "Diagnosis", "hospital": "origin", "age": "age"})
    new(tmp_path / "own", "--data", data)
    table = tomllib.loads((tmp_path / "own.toml").read_text(encoding="utf-8"))["data"]
    assert (table["image_column"], table["label_column"], table["column"]) == ("file", "Diagnosis", "origin")
    runs(tmp_path / "own.toml")


def test_arrays_have_no_column_and_are_dealt_out(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "scans.npz", x=rng.integers(0, 256, (200, 8, 8), dtype=np.uint8), y=np.arange(200) % 3)
    new(tmp_path / "own.toml", "--data", tmp_path / "scans.npz")
    table = tomllib.loads((tmp_path / "own.toml").read_text())["data"]
    assert (table["split"], table["clients"]) == ("iid", 4)
    assert "image_size" not in table
    assert "4: 0, 1, 2, 3" in runs(tmp_path / "own.toml")


def test_a_folder_of_classes_with_large_images(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(30):
            size = (80 + number, 90)
            Image.new("L", size, 8 * number).save(tmp_path / "pets" / name / f"{number}.png")
    new(tmp_path / "own.toml", "--data", tmp_path / "pets")
    assert tomllib.loads((tmp_path / "own.toml").read_text())["data"]["image_size"] == 64
    assert "1x64x64" in runs(tmp_path / "own.toml")


def test_a_table_of_numbers_with_centers(tmp_path):
    lines = [f"{['Köln', 'Bonn', 'Berlin'][n % 3]},{n},{n * n % 7},{'mf'[n % 2]},{n // 2 % 2}" for n in range(90)]
    (tmp_path / "heart.csv").write_text("\n".join(["center,age,cp,sex,num", *lines, ""]), encoding="utf-8")
    new(tmp_path / "own.toml", "--data", tmp_path / "heart.csv")
    text = (tmp_path / "own.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    assert (table["data"]["column"], table["data"]["label_column"]) == ("center", "num")
    assert table["model"]["name"] == "mlp"
    assert "other columns that may name the clients: sex" in text
    assert "72 rows of" in runs(tmp_path / "own.toml")


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "own.toml").write_text("mine")
    with pytest.raises(UserError, match=r"own\.toml is there already: choose another name"):
        new(tmp_path / "own.toml")
    assert (tmp_path / "own.toml").read_text() == "mine"


@pytest.mark.parametrize("name", ["absent.csv", "empty"])
def test_data_that_are_not_there_leave_no_file(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=name):
        new(tmp_path / "own.toml", "--data", tmp_path / name)
    assert not (tmp_path / "own.toml").exists()


def test_a_file_is_named_after_its_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "scans.npz", x=np.zeros((40, 8, 8), dtype=np.uint8), y=np.arange(40) % 2)
    new("--data", "scans.npz")
    assert tomllib.loads(Path("scans.toml").read_text())["data"]["dataset"] == "./scans.npz"


def test_columns_with_too_many_or_too_rare_values_name_no_clients(tmp_path):
    data = images_in_a_table(tmp_path, {**USUAL, "hospital": "origin"})
    lines = data.read_text(encoding="utf-8").splitlines()
    lines = [line + f",{'patient' if n == 0 else f'p{n // 2}'}" for n, line in enumerate(lines)]
    data.write_text("\n".join(lines), encoding="utf-8")
    assert list(guess(data, lambda done, total: None).silos) == ["origin"]
    new(tmp_path / "own.toml", "--data", data)
    assert tomllib.loads((tmp_path / "own.toml").read_text(encoding="utf-8"))["data"]["group_column"] == "patient"
    runs(tmp_path / "own.toml")
