import io
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from fedpca.results.tables.formats import as_latex, as_markdown, as_rich
from fedpca.results.tables.paper import with_paper
from fedpca.results.tables.sheet import Cell, Column, Line, Sheet
from fedpca.results.tables.sheets import for_pages, for_terminal
from tests.results.test_rows import tables_of, write_run

NASTY = r"fedpca-d (q=1, a_b=2) 50% #1 & {x} $y ~ ^ \n <a> [b] | `c` --paper 'd' \"e\" *f*"
SHEET = Sheet(
    "Made_up: ρ & η",
    (Column("worst ACC", 2, "most", "ρ = 0.2, η = 1.0"), Column("w_r(1-w_m)", 4, "most", "ρ = 0.4, η = 0.8")),
    (
        Line("Fair", NASTY, (Cell(71.234, 1.5, best=True), None), unfinished=True),
        Line("Fair", "fedavg", (Cell(60, 0.25), Cell(0.08)), unfinished=False),
        Line("Robust", "rfa", (Cell(1, 1), Cell(0.1, best=True)), unfinished=False),
    ),
    ("Kendall's tau-b, 100%.", "* has runs."),
)
ENGINES = [name for name in ("pdflatex", "xelatex", "lualatex") if shutil.which(name)]


def shown(sheet: Sheet, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(as_rich(sheet, width))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_tables_fit_their_terminal(tmp_path: Path, width: int):
    shares = {"rare": 0.1, "mislabeled": 0.2}
    for method in ("fedavg", "fedpca-wo-robustness"):
        about = {"dataset": "digits", "clients": {"id": ["0", "1", "10"]}, "rare": ["10"], "mislabeled": ["1"]}
        noise, groups = {"clients": 0.2, "labels": 1.0}, ["common", "mislabeled", "rare"]
        write_run(tmp_path / method, method=method, shares=shares, groups=groups, about=about, noise=noise)
    sheets = for_terminal(with_paper(tables_of(tmp_path), "cifar10"))
    text = "".join(shown(sheet, width) for sheet in sheets)
    assert len(sheets) == 5  # an overview, the paper's numbers of accuracy, AUC and weights, who is judged
    assert max(map(len, text.splitlines())) <= width
    for part in ("fedavg *", "80.00 ± 0.00", "63.99", "0.0800"):
        assert part in text
    assert "…" not in text


def test_a_narrow_terminal_gets_fewer_figures(tmp_path: Path):
    write_run(tmp_path / "a", shares={"rare": 0.1, "mislabeled": 0.2})
    (sheet,) = for_terminal(tables_of(tmp_path))
    assert "w_r(1-w_m)" in shown(sheet, 120)
    assert "w_r(1-w_m)" not in shown(sheet, 80)


def test_names_reach_the_terminal_as_they_are():
    sheet = Sheet("[red]title[/red]", (Column("x", 1),), (Line("", "[bold]m[/bold]", (Cell(1.25),), False),), ("[i]",))
    for part in ("[red]title[/red]", "[bold]m[/bold]", "[i]"):
        assert part in shown(sheet, 100)


def test_markdown():
    title, _, heads, rule, *lines = as_markdown([SHEET]).splitlines()
    assert title == r"### Made\_up: ρ & η"
    assert heads == r"|  | method | ρ = 0.2, η = 1.0<br>worst ACC | ρ = 0.4, η = 0.8<br>w\_r(1-w\_m) |"
    assert rule == "| --- | --- | ---: | ---: |"
    assert lines[0].startswith("| Fair | ``")
    assert lines[0].endswith(r" \* | **71.23 ± 1.50** | - |")
    assert lines[1] == "|  | `fedavg` | 60.00 ± 0.25 | 0.0800 |"
    assert lines[2] == "| Robust | `rfa` | 1.00 ± 1.00 | **0.1000** |"
    assert lines[3:] == ["", r"Kendall's tau-b, 100%. \* has runs."]
    assert r"\|" in lines[0]  # a bar in a name ends no cell, not even between backticks


def test_latex():
    text = as_latex([SHEET])
    assert r"\caption{Made\_up: $\rho$ \& $\eta$}" in text
    assert (
        r" &  & \multicolumn{1}{c}{$\rho$ = 0.2, $\eta$ = 1.0} & \multicolumn{1}{c}{$\rho$ = 0.4, $\eta$ = 0.8} \\"
        in text
    )
    assert r"\cmidrule(lr){3-3} \cmidrule(lr){4-4}" in text
    assert r" & method & worst ACC & $w_r(1-w_m)$ \\" in text
    assert (
        r"fedpca-d (q=1, a\_b=2) 50\% \#1 \& \{x\} \$y \textasciitilde{} \textasciicircum{} \textbackslash{}n" in text
    )
    assert r"$^*$ & \textbf{71.23 $\pm$ 1.50} & - \\" in text
    assert r"Robust & rfa & 1.00 $\pm$ 1.00 & \textbf{0.1000} \\" in text
    assert r"-{}-paper" in text  # not a dash
    assert text.count(r"\midrule") == 2


def has_latex() -> bool:
    return (
        bool(ENGINES)
        and subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not has_latex(), reason="needs LaTeX with booktabs")
def test_latex_compiles(tmp_path: Path):
    for rho, eta in ((0.2, 1.0), (0.4, 0.8), (0.6, 0.5)):
        for method in ("fedavg", "fedpca-d"):
            noise = {"clients": rho, "labels": eta}
            write_run(tmp_path / f"runs/{rho}/{method}", method=method, noise=noise, name="a_b", groups=["rare"] * 3)
    sheets = for_pages(with_paper(tables_of(tmp_path / "runs"), "cifar10"))
    nothing = for_pages(with_paper(tables_of(tmp_path / "runs"), "isic"))
    (tmp_path / "tables.tex").write_text(as_latex([SHEET, *sheets, *nothing]), encoding="utf-8")
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n"
        "\\begin{document}\n\\input{tables}\n\\end{document}\n"
    )
    command = [ENGINES[0], "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Overfull" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 5000
