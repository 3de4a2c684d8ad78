"""The command line. PyTorch is imported only by commands that train."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
import typer.core

from fedpca import __version__
from fedpca.cli.audit import app as audit_app
from fedpca.cli.data import app as data_app
from fedpca.cli.deploy import app as deploy_app
from fedpca.cli.deploy import doctor
from fedpca.cli.listing import list_
from fedpca.cli.new import new
from fedpca.errors import UserError, failure_of
from fedpca.settings.shipped import settings_file, shipped_experiments

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Train one model with many data owners of whom some are rare and some have wrong labels.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 130 interrupted.",
)
app.add_typer(audit_app, name="audit")
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")
app.command()(doctor)

Out = Annotated[Path | None, typer.Option(help="Folder for the runs.  [default: runs/NAME]", show_default=False)]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Clients trained at the same time.  [default: one per core]")
]
DataDir = Annotated[
    Path | None, typer.Option(help="Folder of datasets.  [default: $FEDPCA_DATA, else the user's cache]")
]


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False) -> None:
    if version:
        print(f"fedpca {__version__}")
        raise typer.Exit


@app.command()
def demo(
    workers: WorkersOption = None, out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("runs/demo")
) -> None:
    """Compare four methods on the embedded digits federation; takes about two minutes, repeated it shows the table."""
    from fedpca.cli.run import run_all
    from fedpca.runs.check import read_settings

    settings = read_settings(shipped_experiments()["demo"])
    run_all(settings, out, 1, workers, resume=True, data_dir=None, again="the same command")


@app.command()
def run(
    experiment: Annotated[
        str, typer.Argument(metavar="EXPERIMENT", help="A settings file, or a name of `fedpca list experiments`.")
    ],
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this setting of the file; may be repeated.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Run only this method; may be repeated.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Run only this seed; may be repeated.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting, such as noise.clients=0.4; may be repeated."
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, help="Runs played at the same time, each in its own process.  [default: 1]", show_default=False
        ),
    ] = 1,
    workers: WorkersOption = None,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue what is there; finished runs go on only if rounds is raised.")
    ] = False,
    part: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Play only every N-th run, beginning with the I-th, as one of N machines."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Play the runs on this Dask cluster; local:4 starts 4 processes here."),
    ] = None,
    dask_disk: Annotated[
        str | None,
        typer.Option(
            metavar="shared|stream", help="Whether workers write the run folders or send them.  [default: found out]"
        ),
    ] = None,
    dask_per_run: Annotated[
        str | None, typer.Option(metavar="NAME=AMOUNT", help="Dask resources that a run takes, such as GPU=1.")
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(metavar="clients", help="With --dask: the clients of each run on all workers, run after run."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would happen, and how long it would take.")
    ] = False,
    data_dir: DataDir = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=WHERE]", help="Also log every round to tensorboard, mlflow or wandb; may be repeated."
        ),
    ] = None,
) -> None:
    """Run every setting, method and seed of an experiment, then show the tables."""
    from fedpca.cli.run import run_all
    from fedpca.cluster.options import read_options
    from fedpca.runs.check import read_settings
    from fedpca.runs.part import WHOLE, read_part

    cluster = read_options(dask, dask_disk, dask_per_run, spread, jobs)
    own = read_part(part) if part else WHOLE
    lists = {"methods": method, "seeds": seed}
    given = {
        f"{key}={json.dumps(values)}": " ".join(f"--{key.removesuffix('s')} {value}" for value in values)
        for key, values in lists.items()
        if values
    }
    settings = read_settings(settings_file(experiment), [*(change or []), *given], setting or (), given)
    again, name = "the same command with --resume", next(iter(settings.values())).name
    if dry_run:
        from fedpca.cli.dry_run import describe_runs

        describe_runs(settings, out or Path("runs") / name, jobs, workers, resume, data_dir, own)
        return
    run_all(settings, out or Path("runs") / name, jobs, workers, resume, data_dir, again, log_to or (), own, cluster)


@app.command()
def results(
    folders: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Run folders, or folders of them.")],
    html: Annotated[Path | None, typer.Option(help="Write one page to look at, in this HTML file.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Draw the figures into this folder, as PNG and PDF.")] = None,
    at: Annotated[
        int | None, typer.Option("--round", min=1, help="Round of the figure of the plane.  [default: the last]")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables to this Markdown file.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write the tables to this LaTeX file, to be input.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all numbers to this CSV file, in full precision.")] = None,
    clients: Annotated[
        Path | None, typer.Option(help="Write what each run says of each client to this CSV file.")
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Write each method's score in each test group to this CSV file.")
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show the paper's numbers of the same setting too.")] = False,
    paper_of: Annotated[
        str | None, typer.Option(metavar="DATASET", help="The paper's numbers for another dataset, such as cifar10.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Show each method minus this one, seed by seed, with intervals."),
    ] = None,
    deviation: Annotated[
        Literal["rounds", "seeds"],
        typer.Option(help="What deviations are over: the last rounds of all seeds together, or the seeds."),
    ] = "rounds",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the tables.")] = False,
) -> None:
    """Show the tables of results, and write them, figures and a page; also while runs go on."""
    from fedpca.cli.results import show, write_results
    from fedpca.results import tables
    from fedpca.results.read.runs import find_runs

    runs = find_runs(folders)
    found = tables.tabulate(runs, deviation)
    if paper or paper_of:
        found = tables.with_paper(found, paper_of)
    if against:
        found = tables.with_against(found, runs, against)
    files = {"markdown": markdown, "latex": latex, "csv": csv, "clients": clients, "groups": groups}
    write_results(runs, found, html=html, figures=figures, at=at, **files)
    if as_json:
        print(json.dumps(tables.as_json(found), indent=2))
    else:
        show(found)


@app.command()
def claims(
    folders: Annotated[list[Path], typer.Argument(metavar="RUNS…", help="Run folders, or folders of them.")],
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this Markdown file.")] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write every comparison to this CSV file, in full precision.")
    ] = None,
) -> None:
    """Say which of the paper's claims hold in these runs, with the paper's numbers beside."""
    from fedpca.cli.results import show_claims

    show_claims(folders, markdown, csv)


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(metavar="RUNS", help="A run folder, or a folder of them.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 8765,
) -> None:
    """Show the page of runs in a browser of this machine: live while they go on, until Ctrl-C if they are finished."""
    from fedpca.cli.results import watch_runs

    watch_runs(folder, port)


app.command("list")(list_)
app.command()(new)


def main() -> None:
    """Runs the command line; an error that the user can fix ends in one message, not in a trace."""
    typer.core.HAS_RICH = False  # else it escapes brackets for Rich, which shows no help here: "\\[default: 1]"
    set_search_path(sys.argv[1:])
    try:
        app()
    except UserError as error:
        _end(error)
    except (MemoryError, RuntimeError, OSError) as error:
        failure = failure_of(error)
        if failure is None:
            raise
        _end(failure)


def set_search_path(words: Sequence[str]) -> None:
    """Lets a command that runs find `my_model:build` in the current folder, and one that reads find no code there.

    A folder that somebody else wrote may hold modules, and what looks like an installed package.
    """
    here = os.getcwd()
    if not is_reading(words):
        sys.path.append(here)
    elif sys.path[:1] in ([""], [here]):  # `python -m fedpca` puts it there
        del sys.path[0]


def is_reading(words: Sequence[str]) -> bool:
    """Whether a command only shows what there is."""
    if words[:1] == ["audit"]:
        return words[1:2] == ["review"] or any(word.startswith("--site") for word in words)
    return words[:1] in (["results"], ["claims"], ["watch"], ["list"])


def _end(error: UserError) -> NoReturn:
    print(f"fedpca: {error}", file=sys.stderr)
    sys.exit(error.code)


if __name__ == "__main__":
    main()
