"""What a notebook shows, and the notebook among the examples: its cells run in order, in Jupyter if it is installed."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pytest
from PIL import Image

from fedpca.api.notebook import runs_html, shown_in_notebooks, table_html
from fedpca.api.progress import NotebookLine
from fedpca.results.read.runs import find_runs
from fedpca.results.tables.formats import as_html
from fedpca.results.tables.sheet import Cell, Column, Line, Sheet
from fedpca.runs.cell import cells
from fedpca.settings.experiment import Experiment
from tests.results.made import a_line, write_run
from tests.results.test_groups import hospitals
from tests.test_public import README, blocks

NOTEBOOK = README.parent / "examples" / "hospitals.ipynb"


def code_cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def test_the_plane_is_not_as_large_as_its_pixels(tmp_path: Path):
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "run", [a_line(1, suspicion=(0.01, 0.02, 0.11, 0.93))])
    (width, content) = re.findall(r'<img [^>]*width="(\d+)"[^>]*base64,([^"]+)"', runs_html(find_runs([tmp_path])))[0]
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert 0.4 * image.width < int(width) < 0.7 * image.width


def test_test_groups_stand_under_their_method(tmp_path: Path):
    hospitals(tmp_path / "a")
    hospitals(tmp_path / "b", method="fedavg", groups=None)
    shown = runs_html(find_runs([tmp_path])).split("Test groups;")[1].split("</table>")[0]
    assert ">test group</th>" in shown
    order = [shown.index(f">{method}</th>") for method in ("fedavg", "fedpca-d (warmup=0)")]
    assert order[0] < shown.index(">Berlin<") < order[1] < shown.rindex(">Berlin<")
    assert shown.count(">Bonn<") == 2


def test_words_stand_left_and_numbers_right_as_notebooks_put_them():
    columns = (Column("ACC", 1), Column("who"))
    shown = as_html([Sheet("made", columns, (Line("", "<m>", (Cell(1.25), "d & e"), True),), ("note",))])
    left = ' style="text-align: left"'
    assert f"<tr><th{left}>method</th><th>ACC</th><th{left}>who</th></tr>" in shown
    assert f"<tr><td{left}>&lt;m&gt; *</td><td>1.2</td><td{left}>d &amp; e</td></tr>" in shown
    assert "colspan" not in shown, "one family needs no heading"


def test_long_tables_are_cut_in_the_middle():
    shown = table_html(pa.table({"round": list(range(1, 101)), "who": [["a", "b"]] * 100}))
    assert shown.count("<tr>") == 1 + 10 + 1 + 10
    assert "… 80 more rows" in shown
    assert [number for number in (1, 10, 11, 90, 91, 100) if f"<td>{number}</td>" in shown] == [1, 10, 91, 100]
    assert ">a, b</td>" in shown
    assert "more rows" not in table_html(pa.table({"round": list(range(21))})), "a row is not replaced by its number"


def test_own_tables_are_shown_as_tables_and_others_are_left_alone(monkeypatch):
    formats: dict[type, object] = {}
    shell = SimpleNamespace(
        display_formatter=SimpleNamespace(formatters={"text/html": SimpleNamespace(for_type=formats.__setitem__)})
    )
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    theirs = pa.table({"<a>": [1]})
    ours = shown_in_notebooks(theirs)
    assert ours.equals(theirs)
    assert "<th>&lt;a&gt;</th>" in formats[pa.Table](ours)
    assert "<th>&lt;a&gt;</th>" in formats[pa.Table](ours.select(["<a>"]))
    assert formats[pa.Table](theirs) is None


def test_outside_notebooks_nothing_is_registered(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert shown_in_notebooks(pa.table({"a": [1]})).num_rows == 1


def test_a_notebook_is_told_once_who_is_left_out(small: Experiment, tmp_path: Path, monkeypatch, capsys):
    display = ModuleType("IPython.display")
    display.HTML, display.display = str, lambda html, display_id: SimpleNamespace(update=lambda html: None)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("fedpca.api.progress.err.is_jupyter", True)
    (cell,) = cells(small, tmp_path)
    line = NotebookLine([cell])
    for number in (1, 2):
        played = {"round": number, "groups": None, "left_out": {"3": "it sent NaN"}, "clients": {"id": ["0", "3"]}}
        line.on_round(cell, played)
    assert capsys.readouterr().out == "fedavg seed 0 round 1/3: client 3 is left out: it sent NaN\n"


def test_the_notebook_has_no_outputs_and_begins_with_the_readmes_example():
    content = json.loads(NOTEBOOK.read_text())
    assert all(cell.get("outputs", []) == [] and not cell.get("execution_count") for cell in content["cells"])
    assert len(NOTEBOOK.read_bytes()) < 10_000
    (example,) = blocks(README)
    first = code_cells()[0].partition("x, y = ")[2].removesuffix("print(result.mislabeled)")
    assert example.partition("x, y = ")[2].startswith(first)


def show(value: object) -> str:
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def run_cell(code: str, names: dict[str, object]) -> str:
    """What a cell shows: the value of its last line, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return show(eval(compile(ast.Expression(last.value), "cell", "eval"), names)) if last else ""


def test_the_cells_of_the_notebook_run_in_order(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    shown = [run_cell(code.replace("rounds=30", "rounds=12"), names) for code in code_cells()]
    assert "['hospital 3']\n" in capsys.readouterr().out
    assert "hospital 3 (suspect)" in shown[1]
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert "fedpca" in shown[-1]


def test_jupyter_runs_the_notebook(tmp_path: Path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    train, result, clients, rounds, *_ = outputs
    assert [output.output_type for output in train] == ["display_data", "stream"], "one line, not one per round"
    assert '<progress value="30" max="30">' in train[0].data["text/html"]
    assert train[1].text == "['hospital 3']\n"
    assert not [out for own in outputs for out in own if out.get("name") == "stderr"]
    assert all("<table>" in own[0].data["text/html"] for own in (result, clients, rounds))
    assert "hospital 3" in clients[0].data["text/html"]
