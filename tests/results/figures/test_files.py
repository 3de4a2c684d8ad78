"""The structure of the figures: axes, legends, series, limits, captions; not their pixels."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib import rcParams

from fedpca.errors import UserError
from fedpca.results import figures
from fedpca.results.figures import FIGURES, figure_names, write_figures
from fedpca.results.figures.plane import draw_plane
from fedpca.results.figures.shared.write import render, slugs
from fedpca.results.read.runs import find_runs
from fedpca.settings import registry
from fedpca.settings.toml import write_table
from tests.results.figures.made import make, save_features

ONLY_ACCURACY = {"weights": False, "rare": None}


def test_every_figure_is_written_or_left_out_with_its_reason(tmp_path: Path):
    before = dict(rcParams)
    drawn = write_figures([make("fedavg", 0), make("median", weights=False, played=3)], tmp_path / "figures")
    assert [each.name for each in drawn] == list(FIGURES)
    written = {each.name for each in drawn if each.files}
    assert written == {"weights", "accuracy", "tradeoff"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{n}.{end}" for n in written for end in ("png", "pdf")
    }
    assert (tmp_path / "figures/accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figures/accuracy.pdf").read_bytes().startswith(b"%PDF")
    told = {each.name: each.line() for each in drawn}
    assert told["plane"].startswith("plane: not drawn, no run has reported dispersions")
    assert "evaluation.features" in told["features"]
    assert "two values of q" in told["q"]
    assert str(tmp_path / "figures/weights.pdf") in told["weights"]
    assert dict(rcParams) == before, "drawing must leave matplotlib's settings alone"


@pytest.mark.parametrize("form", ["png", "pdf"])
def test_the_same_runs_give_the_same_bytes(form: str):
    first, second = (render(draw_plane([make("fedpca-d")]), form) for _ in range(2))
    assert first == second


def test_files_of_several_scenarios_are_told_apart(tmp_path: Path):
    drawn = write_figures([make(name=name, **ONLY_ACCURACY) for name in ("Two sites", "three")], tmp_path)
    assert [path.name for each in drawn for path in each.files] == [
        f"accuracy-{name}.{end}" for name in ("two-sites", "three") for end in ("png", "pdf")
    ]
    assert slugs(["a", "b", "a"]) == ["-a-1", "-b", "-a-2"]


def test_the_round_of_the_plane_is_passed_on(tmp_path: Path):
    drawn = write_figures([make("fedpca-d", played=10, **ONLY_ACCURACY)], tmp_path, round=3)
    reasons = {each.name: each.reason for each in drawn}
    assert reasons["plane"].startswith("in round 3, no run has reported dispersions")
    assert reasons["accuracy"] == ""
    assert not reasons["q"].startswith("in round")


def test_a_file_in_the_place_of_the_folder(tmp_path: Path):
    (tmp_path / "figures").write_text("")
    with pytest.raises(UserError, match=r"figures is a file: name another"):
        write_figures([make()], tmp_path / "figures")


def test_figures_of_run_folders_come_without_torch(tmp_path: Path):
    run = make("fedpca-d", played=12, **ONLY_ACCURACY)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/settings.toml").write_text(write_table(run.settings))
    (tmp_path / "run/about.json").write_text(json.dumps(run.about))
    (tmp_path / "run/rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.rounds))
    save_features(tmp_path / "run")
    assert len(find_runs([tmp_path])) == 1
    code = (
        "import sys; from pathlib import Path; from fedpca.results.figures import write_figures;"
        "from fedpca.results.read.runs import find_runs;"
        f"drawn = write_figures(find_runs([Path({str(tmp_path)!r})]), Path({str(tmp_path / 'out')!r}));"
        "print(sum(bool(each.files) for each in drawn), 'torch' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4 False False\n"


def test_without_matplotlib_the_message_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\n"
        "from fedpca.errors import UserError\n"
        "from fedpca.results.figures import figure_names, write_figures\n"
        "print(*figure_names())\n"
        "try:\n    write_figures([], Path('figures'))\nexcept UserError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, message = done.stdout.splitlines()
    assert names.split() == figure_names()
    assert "matplotlib" in message
    assert "fedpca[results]" in message


def test_a_figure_is_one_file_named_as_its_figure():
    files = {path.stem for path in Path(figures.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(FIGURES) == files
    assert all(FIGURES[name].name == name for name in FIGURES)


def test_a_figure_of_another_package_is_drawn_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "elsewhere.py").write_text(
        "from matplotlib.figure import Figure\n"
        "from fedpca.results.figures import FigureKind\n"
        "def draw(runs):\n    return Figure() if len(runs) > 1 else None\n"
        "FIGURE = FigureKind('extra', draw, 'there is only one run')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        registry, "installed", lambda group: {"extra": "elsewhere:FIGURE"} if "figures" in group else {}
    )
    assert figure_names()[-1] == "extra"
    *_, one = write_figures([make(**ONLY_ACCURACY)], tmp_path / "one")
    assert one.line() == "extra: not drawn, there is only one run"
    *_, two = write_figures([make(**ONLY_ACCURACY), make(seed=1, **ONLY_ACCURACY)], tmp_path / "two")
    assert [path.name for path in two.files] == ["extra.png", "extra.pdf"]
