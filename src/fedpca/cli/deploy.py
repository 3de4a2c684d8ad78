"""Commands of those who run a federation of real sites. Flower is not imported: it runs in processes of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedpca.errors import RunError, UserError

app = typer.Typer(
    no_args_is_help=True,
    help="Train with real sites, on Flower or on NVFlare (kit, nvflare).",
)

Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without encryption and keys, even where others can reach it.")
]
OfSite = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the site, such as device=cuda; may be repeated."),
]
OfApp = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the app; may be repeated."),
]
AppFolder = Annotated[
    Path, typer.Argument(metavar="APP", help="A Flower app's folder, such as examples/flower-hospitals.")
]
ServerState = Annotated[Path, typer.Option(help="The --state of the server, on the same machine.")]


@app.command("keys")
def make(
    sites: Annotated[list[str], typer.Argument(metavar="SITES…", help="A name for each site.")],
    out: Annotated[Path, typer.Option(help="Folder for the keys; what is there stays.")] = Path("keys"),
    host: Annotated[
        list[str] | None, typer.Option(help="Name or address under which sites reach the server; may be repeated.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the server's certificate is valid.")] = 365,
) -> None:
    """Make a certificate authority, the server's certificate and a key pair per site."""
    _require_flower()
    from fedpca.operate.keys import make_keys

    made = make_keys(sites, out, host or (), days)
    for folder in made.new:
        print(f"made {folder}")
    for folder in made.kept:
        print(f"kept {folder}")
    print((out / "README.txt").read_text(), end="")


@app.command()
def server(
    keys: Annotated[Path | None, typer.Option(help="The folder server/ that `fedpca deploy keys` made.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 for all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8000,
    state: Annotated[Path, typer.Option(help="Folder where the server keeps its things.")] = Path("federation"),
    insecure: Insecure = False,
) -> None:
    """Start the server and keep it up until Ctrl-C; encrypted and only for sites with keys, unless on loopback."""
    _require_flower()
    from fedpca.operate.server import ServerOptions, serve

    _exit(lambda: serve(ServerOptions(state, host, port, keys), insecure, _log))


@app.command()
def client(
    site: Annotated[str, typer.Option(help="The site's name.")],
    data: Annotated[Path, typer.Option(help="The site's images and labels, in one of fedpca's layouts.")],
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the server is.")],
    keys: Annotated[Path | None, typer.Option(help="The folder that the server's operator handed over.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder where the site keeps its things.  [default: site-NAME]")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="The site's own rules, which no run can override.  [default: STATE/store/site-policy.toml]"),
    ] = None,
    change: OfSite = None,
    insecure: Insecure = False,
) -> None:
    """Take part as a site until Ctrl-C."""
    _require_flower()
    from fedpca.operate.site import SiteOptions, join

    changes = _changes(change)
    if named := changes.pop("policy", None):  # the same as --policy
        policy = policy or Path(str(named))
    options = SiteOptions(site, data, server, keys, state or Path(f"site-{site}"), changes, policy)
    _exit(lambda: join(options, insecure, _log))


@app.command("run")
def run(
    folder: AppFolder,
    change: OfApp = None,
    state: ServerState = Path("federation"),
) -> None:
    """Run an app on the server of this machine and show its log to the end; Ctrl-C stops the run."""
    _require_flower()
    from fedpca.operate.run import submit

    _exit(lambda: submit(folder, _changes(change), state, _log))


@app.command("audit")
def audit(
    folder: AppFolder,
    method: Annotated[str | None, typer.Option(help="How models are trained.  [default: fedavg+d]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Of training, for each model.  [default: 20]")] = None,
    folds: Annotated[int | None, typer.Option(min=2, help="Groups of sites, a model each.  [default: 4]")] = None,
    fdr: Annotated[
        float | None, typer.Option(min=0.001, max=0.5, help="Share of a list that may be there by chance.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=0, help="Rows of each site drawn at random, to be read again.")
    ] = None,
    images: Annotated[int | None, typer.Option(min=0, help="Images that each site writes for itself, at most.")] = None,
    change: OfApp = None,
    state: ServerState = Path("federation"),
) -> None:
    """Audit the labels of the sites: whose are wrong, how sure that is; which ones each site learns alone."""
    _require_flower()
    from fedpca.auditing.options import AuditOptions
    from fedpca.operate.run import submit_with
    from fedpca.settings.toml import validate

    said = {"method": method, "rounds": rounds, "folds": folds, "fdr": fdr, "sample": sample, "images": images}
    given = {key: value for key, value in said.items() if value is not None}
    options = validate(AuditOptions, given, "fedpca deploy audit")
    added = {f"deploy.audit.{key}": value for key, value in {"rounds": options.rounds, **given}.items()}
    _exit(lambda: submit_with(folder, added, _changes(change), state, _log))


@app.command("kit")
def kit(
    folder: Annotated[Path, typer.Argument(metavar="KIT", help="A startup kit of NVFlare, of a site or the server.")],
    data: Annotated[Path | None, typer.Option(help="Of a site: its data, in one of fedpca's layouts.")] = None,
    change: OfSite = None,
) -> None:
    """Allow fedpca's classes in a startup kit of NVFlare, and write a site's settings into it."""
    _require_nvflare()
    from fedpca.nvflare.kit import prepare_kit

    for path in prepare_kit(folder, data, _table(change)):
        print(f"wrote {path}")


@app.command("nvflare")
def nvflare(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="A job, such as examples/nvflare-hospitals/job.")],
    kit: Annotated[Path, typer.Option(help="The operator's startup kit, such as …/prod_00/admin@example.org.")],
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the job; may be repeated."),
    ] = None,
) -> None:
    """Run a job on NVFlare and show its log to the end, with sites that come back; Ctrl-C stops the run."""
    _require_nvflare()
    from fedpca.nvflare.submit import submit

    _exit(lambda: submit(job, change or [], kit, _log))


def doctor(
    site: Annotated[str | None, typer.Option(help="The site's name.")] = None,
    data: Annotated[Path | None, typer.Option(help="The site's images and labels.")] = None,
    server: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where the server is.")] = None,
    keys: Annotated[Path | None, typer.Option(help="This machine's folder of keys, a site's or the server's.")] = None,
    federation: Annotated[
        Path | None, typer.Option(help="federation.toml, from the server's operator: classes, shape, model.")
    ] = None,
    state: Annotated[Path, typer.Option(help="Folder where things will be kept.")] = Path(),
    policy: Annotated[
        Path | None, typer.Option(help="The site's own rules.  [default: site-policy.toml in the site's store]")
    ] = None,
    engine: Annotated[str, typer.Option(help="What carries the messages: flower or nvflare.")] = "flower",
    kit: Annotated[Path | None, typer.Option(help="With --engine nvflare: this machine's startup kit.")] = None,
) -> None:
    """Check versions, keys, the way to the server, data, disk, clock before a site joins; ends with 1 at an error."""
    from fedpca.operate.doctor import Machine, examine

    errors = 0
    machine = Machine(site, data, server, keys, federation, state, policy, engine, kit)
    for finding in examine(machine):
        errors += finding.level == "error"
        print(finding.line(), flush=True)
    print(f"{errors} errors" if errors != 1 else "1 error")
    raise typer.Exit(int(errors > 0))


def _changes(lines: list[str] | None) -> dict[str, object]:
    """The settings of several KEY=VALUE, by dotted keys, as Flower takes them."""
    from fedpca.settings.toml import flatten

    return flatten(_table(lines))


def _table(lines: list[str] | None) -> dict[str, object]:
    from fedpca.settings.toml import change

    table: dict[str, object] = {}
    for line in lines or ():
        table = change(table, line)
    return table


def _require_flower() -> None:
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise UserError(
                f"{package} is not installed, which a federation of real sites needs: pip install 'fedpca[flower]'"
            )


def _require_nvflare() -> None:
    if find_spec("nvflare") is None:
        raise UserError("nvflare is not installed, which this command needs: pip install 'fedpca[nvflare]'")


def _exit(work: Callable[[], int]) -> None:
    try:
        code = work()
    except RunError as error:
        print(f"fedpca: {error}", file=sys.stderr)
        code = 1
    raise typer.Exit(code)


def _log(line: str) -> None:
    print(line, flush=True)
