"""What a startup kit of NVFlare needs for fedpca: leave to run these classes, and a site's settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedpca.atomic import write_whole
from fedpca.errors import SettingsError, UserError
from fedpca.nvflare.config import SITE_FILE, site_settings

RESOURCES = "resources.json"  # in `local`; NVFlare's own file is `resources.json.default`
ALLOW_LIST = "class_allow_list"
LOG_STREAMING = "allow_log_streaming"  # whether the site's error log is sent to the server
SHARED = "/tmp/nvflare/"  # where NVFlare's server keeps jobs: every server of a machine in the same folder
CLASSES = (  # all that fedpca's job names
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
    "fedpca.nvflare.apps.FedPCAServer",
    "fedpca.nvflare.apps.FedPCASite",
)


def prepare_kit(kit: Path, data: Path | None, changes: Mapping[str, Any]) -> list[Path]:
    """Allows fedpca's classes in a kit, and writes a site's settings into it; the files that were written.

    A site's error log is no longer sent to the server, and a server keeps its jobs in its own kit.
    """
    resources = read_resources(kit)
    resources[ALLOW_LIST] = [*dict.fromkeys([*resources.get(ALLOW_LIST, []), *CLASSES])]
    is_site = (kit / "startup" / "fed_client.json").is_file()
    if is_site:
        resources[LOG_STREAMING] = False
    text = json.dumps(resources, indent=2).replace(f'"{SHARED}', f'"{kit.resolve()}/nvflare-storage/')
    files = {kit / "local" / RESOURCES: text + "\n"}
    if data is not None or changes:
        if not is_site:
            raise UserError(f"{kit} is not the kit of a site: only sites have data and settings")
        own = {**changes, **({"data": str(data.resolve())} if data else {})}
        site_settings(own, site_of(kit), kit, kit / "local" / SITE_FILE)  # an error names the setting that is wrong
        files[kit / "local" / SITE_FILE] = tomli_w.dumps(own)
    for path, text in files.items():
        write_whole(path, text)
    return list(files)


def read_resources(kit: Path) -> dict[str, Any]:
    """What the kit's operator set, or else NVFlare's own."""
    for name in (RESOURCES, f"{RESOURCES}.default"):
        path = kit / "local" / name
        if path.is_file():
            try:
                resources = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise SettingsError(f"{path} is not valid JSON: {error}") from None
            if isinstance(resources, dict):
                return resources
            raise SettingsError(f"{path} must hold a JSON object")
    raise UserError(
        f"{kit} is no startup kit: it has no local/{RESOURCES}.default; `nvflare provision` or `nvflare poc prepare` "
        "makes kits, one folder for each site and for the server"
    )


def site_of(kit: Path) -> str:
    """NVFlare's name of the site that a kit is for."""
    path = kit / "startup" / "fed_client.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["client"]["fqsn"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{kit} is not the kit of a site: {path} does not name one") from None
