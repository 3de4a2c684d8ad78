"""Settings where NVFlare puts them: those of a run in the job, those of a site in its own startup kit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedpca.errors import SettingsError
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import merge, read_table, validate
from fedpca.sites.settings import Deployment, SiteSettings

RUN_FILE = "fedpca.toml"  # in the job's `app/config`
SITE_FILE = "fedpca.toml"  # in the startup kit's `local`
PATHS = ("data", "store", "corrected_labels", "policy")  # of a site: relative ones begin at its startup kit
STORE = "fedpca-store"  # in the kit


def read_run(config: Path, root: Path) -> tuple[Experiment, Deployment]:
    """The one run that a job's settings describe; its folder lies in the server's kit unless it has a full path."""
    from fedpca.sites.deployment import read_deployment  # here: whoever prepares a kit has no use for it

    file = config / RUN_FILE
    experiment, deployment = read_deployment(merge({"name": "hospitals"}, read_table(file)), str(file))
    return experiment, deployment.model_copy(update={"out": root / deployment.out.expanduser()})


def read_site(name: str, local: Path, root: Path) -> SiteSettings:
    """The settings that a site's kit has."""
    return site_settings(read_table(local / SITE_FILE), name, root, local / SITE_FILE)


def site_settings(table: Mapping[str, object], name: str, root: Path, file: Path) -> SiteSettings:
    """A site's settings, whose name is that of its certificate.

    `{site}` in a path is that name, so that the sites of a simulation, which share one folder, can share one file.
    """
    if table.get("site", name) != name:
        raise SettingsError(f"{file}: site: NVFlare's name of this site is {name!r}, got {table['site']!r}: remove it")
    paths = {key: str(table[key]).replace("{site}", name) for key in PATHS if key in table}
    paths.setdefault("store", STORE)
    return validate(SiteSettings, {**table, "site": name, **_from(root, paths)}, str(file))


def _from(root: Path, paths: Mapping[str, str]) -> dict[str, str]:
    return {key: str(root / Path(path).expanduser()) for key, path in paths.items()}
