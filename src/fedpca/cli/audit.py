"""`fedpca audit`: whose labels are wrong, how sure that is, and which; and what people found who read them again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import typer
import typer.core

from fedpca.errors import SettingsError

if TYPE_CHECKING:
    from fedpca.auditing.options import AuditOptions
    from fedpca.auditing.record import Record
    from fedpca.auditing.review import Review
    from fedpca.auditing.suspects import Suspect

DEFAULT = "data"  # the command that a word which is no command belongs to


class WithDefault(typer.core.TyperGroup):
    """A group whose first command need not be named: `fedpca audit own.csv` is `fedpca audit data own.csv`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the default command in front of anything else than a command or --help."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Whose labels are wrong, how sure that is, and which: `fedpca audit SETTINGS-or-DATA --out audit/`. "
    "The word data may be left out.",
)


@app.command(DEFAULT)
def audit(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SETTINGS-or-DATA…",
            help="A settings file, a name of `fedpca list experiments`, a CSV, parquet or npz file or a folder; or "
            "several files or folders, one for each site.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the files; the same one goes on where it stopped.")] = Path(
        "audit"
    ),
    site: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Only show what an audit found at a site: its own folder.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column that says whose each row is.")] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as model.name=mlp; may be repeated."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="How models are trained.  [default: fedavg+d]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Of training, for each model.  [default: 20]")] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Groups of clients, a model each.  [default: 4]")] = None,
    rows: Annotated[
        Literal["all", "train"], typer.Option(help="Which rows of the clients are trained on and judged.")
    ] = "all",
    fdr: Annotated[float, typer.Option(min=0.001, max=0.5, help="Share of a list that may be there by chance.")] = 0.1,
    sample: Annotated[int, typer.Option(min=0, help="Rows of each site drawn at random, to be read again.")] = 100,
    images: Annotated[int, typer.Option(min=0, help="Images written for each site, at most.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Of the training, the folds and the random sample.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Clients trained at the same time.  [default: one per core]")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of datasets.  [default: $FEDPCA_DATA, else the user's cache]")
    ] = None,
) -> None:
    """Judge the labels of data that lie in one place, each client by models that never saw its labels."""
    if site is not None:
        show_site(site)
        return
    if not sources:
        raise SettingsError(
            "name what is to be audited: a settings file, an experiment or data; see `fedpca audit --help`"
        )
    from fedpca.auditing.options import AuditOptions
    from fedpca.settings.toml import validate

    said = {"method": method, "rounds": rounds, "folds": folds, "rows": rows, "fdr": fdr, "sample": sample}
    said |= {"images": images, "seed": seed}
    options = validate(AuditOptions, {key: value for key, value in said.items() if value is not None}, "fedpca audit")
    try:
        record = _audit(sources, column, change or [], options, out, workers, data_dir)
    except KeyboardInterrupt:
        from fedpca.api.progress import say

        say(f"stopped; the same command goes on in {out}")
        raise typer.Exit(130) from None
    show(record)
    print(f"\nfiles: {out / 'page.html'} for the coordinator; a folder for each site in {out}, for that site alone")


def _audit(
    sources: list[str],
    column: str | None,
    changes: list[str],
    options: AuditOptions,
    out: Path,
    workers: int | None,
    data_dir: Path | None,
) -> Record:
    from fedpca.api.progress import counting_bar
    from fedpca.auditing.one_place import audit_source

    with counting_bar("reading images") as reading, counting_bar("training, rounds") as training:
        return audit_source(sources, column, changes, options, out, workers, data_dir, reading, training).record


def show(record: Record) -> None:
    """Prints who is judged how, after what could not be tested."""
    for own in record["not_tested"]:
        print(f"not tested: {own['client'] + ': ' if own['client'] else ''}{own['what']}: {own['why']}")
    print()
    width = max(len("client"), *(len(own["client"]) for own in record["clients"]))
    print(f"{'client':<{width}}  {'images':>7}  {'verdict':<14}  {'wrong labels':<22}  {'listed':>6}  confused")
    for own in record["clients"]:
        listed = "-" if own["suspects"] is None else own["suspects"]
        line = f"{own['client']:<{width}}  {own['images']:>7}  {own['verdict']:<14}  {_share(own):<22}  {listed:>6}"
        print(f"{line}  {_confused(own)}".rstrip())


def _share(own: dict[str, Any]) -> str:
    if own["share"] is None:
        return "cannot be told"
    share = "-" if own["verdict"] == "cannot tell" else f"{own['share']:.1%}"  # a number would be read as the answer
    return f"{share} ({own['low']:.1%} to {own['high']:.1%})"


def _confused(own: dict[str, Any]) -> str:
    if own["confused"] is None:
        return "" if own["told"] == "all" else "not told"
    return "; ".join(f"{pair['given']} -> {pair['likely']} {pair['images']}" for pair in own["confused"][:3])


def show_site(folder: Path) -> None:
    """Prints what an audit found at one site."""
    from fedpca.auditing.files import read_site
    from fedpca.auditing.suspects import FILE, read_suspects

    place, about = read_site(folder)
    suspects = read_suspects(place / FILE)
    print(f"{about['client']}: {about['verdict']}: {about['reason']}")
    print(f"wrong labels: {_share(about)}" + (f"; {about['why_no_interval']}" if about["why_no_interval"] else ""))
    _show_list([own for own in suspects if own.is_issue], len(suspects), about)
    print(f"\nall rows: {place / FILE}; to look at: {place / 'sheet.html'}")
    print(f"to read labels again: fedpca audit review {place} --page")


def _show_list(listed: list[Suspect], rows: int, about: Record) -> None:
    """Prints the first rows of a site's list, if it has any."""
    if not listed and about.get("list_warning"):
        print(f"no label is listed: {about['list_warning']}; the random sample tells")
        return
    if not listed:
        print(f"no single one of its {rows} labels stands out at the chosen level")
        return
    print(f"{len(listed)} of {rows} labels are on the list, of which {about['fdr']:.0%} may be there by chance")
    if about.get("list_warning"):
        print(f"beware: {about['list_warning']}")
    print(f"\n{'row':>7}  {'score':>7}  {'p value':>8}  given -> likely  path")
    for own in listed[:20]:
        line = f"{own.row:>7}  {own.score:>7.4f}  {own.p_value:>8.4f}  {own.given} -> {own.predicted}  {own.path}"
        print(line.rstrip())


@app.command()
def review(
    site: Annotated[Path, typer.Argument(metavar="SITE", help="The folder of a site, with suspects.csv.")],
    reader_error: Annotated[
        float, typer.Option(min=0, max=0.49, help="Share of labels that the readers are known to misread.")
    ] = 0.0,
    page: Annotated[
        bool, typer.Option("--page", help="Read labels again in a browser of this machine; ends with Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page, on 127.0.0.1; 0 takes a free one.")] = 0,
) -> None:
    """Show what people found who filled in reviewed_label, and write the corrected labels."""
    if page:
        _serve_page(site, port)
    from fedpca.auditing.review import review_site

    path, found = review_site(site, reader_error)
    show_review(found)
    if path.exists():
        print(f"corrected labels: {path}; train with them: --set data.corrected_labels={path}")
        print(f"at a real site: fedpca deploy client … --set corrected_labels={path}")


def _serve_page(site: Path, port: int) -> None:
    """Serves the review page until Ctrl-C."""
    from fedpca.auditing.files import read_site
    from fedpca.auditing.pages.server import serve_review

    with suppress(KeyboardInterrupt):  # what was read so far is shown then
        serve_review(read_site(site)[0], port)


def show_review(found: Review) -> None:
    """Prints the share of wrong labels and what was changed."""
    print(f"{found.read} rows were read, {found.sampled} of them of the random sample of {found.sample}")
    if found.rate:
        rate = found.rate
        print(f"wrong labels: {rate.share:.1%}, 95 % interval {rate.low:.1%} to {rate.high:.1%} ({rate.how})")
    else:
        print(f"wrong labels: no estimate: {found.why_no_rate}")
    wrong, listed = found.confirmed
    if listed:
        print(f"of the listed rows that were read, {wrong} of {listed} labels were wrong ({wrong / listed:.0%})")
    print(f"{found.changed} labels changed" + (":" if found.pairs else ""))
    for (given, label), count in found.pairs.items():
        print(f"  {given} -> {label}  {count}")
