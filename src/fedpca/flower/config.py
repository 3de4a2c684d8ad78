"""Flower's run config and node config as settings: flat, with dotted keys, of texts and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedpca.errors import SettingsError
from fedpca.settings.experiment import Experiment
from fedpca.settings.toml import merge, nest, read_table, validate
from fedpca.sites.settings import Deployment, SiteSettings

Scalar = bool | int | float | str
SIMULATION_KEYS = ("partition-id", "num-partitions")  # what Flower's simulation tells a node


def read_run_config(config: Mapping[str, Scalar]) -> tuple[Experiment, Deployment]:
    """The one run that a run config describes.

    Its keys are those of docs/settings.md, dotted (`training.lr`), with one method (`methods`) and one seed (`seeds`),
    and `deploy.…`; `experiment` names a TOML file on the server that they change.
    """
    from fedpca.sites.deployment import (
        read_deployment,  # here: a client, which reads its node config, has no use for it
    )

    changes = nest({key: value for key, value in config.items() if key != "experiment"})
    if "experiment" not in config:
        return read_deployment(changes, "the run config")
    file = Path(str(config["experiment"])).expanduser()
    return read_deployment(merge({"name": file.stem, **read_table(file)}, changes), str(file))


def read_node_config(config: Mapping[str, Scalar], strict: bool = True) -> SiteSettings:
    """A site's settings; without `strict` keys that are not known here are somebody else's."""
    known = {key: value for key, value in config.items() if key not in SIMULATION_KEYS}
    if not strict:
        names = SiteSettings.model_fields.keys() | SiteSettings.RENAMED.keys()
        known = {key: value for key, value in known.items() if key.partition(".")[0] in names}
    if "partition-id" in config:
        known.setdefault("site", str(config["partition-id"]))
    if "site" not in known:
        raise SettingsError("this node has no name: start it with --node-config 'site=\"NAME\" …'")
    return validate(SiteSettings, nest(known), "the node config")
