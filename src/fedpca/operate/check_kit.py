"""Checks of a startup kit of NVFlare: a site's or the server's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509

from fedpca.errors import UserError
from fedpca.nvflare.config import SITE_FILE, read_site
from fedpca.nvflare.kit import ALLOW_LIST, CLASSES, LOG_STREAMING, read_resources, site_of
from fedpca.operate.findings import Finding, validity

if TYPE_CHECKING:
    from fedpca.operate.doctor import Machine


def check_kit(kit: Path | None) -> Iterator[Finding]:
    """Whether fedpca's job may run here, and what of this site NVFlare itself sends."""
    if kit is None:
        raise UserError("--engine nvflare needs --kit: the startup kit of this machine, as `nvflare provision` made it")
    resources, remedy = read_resources(kit), f"fedpca deploy kit {kit}"
    lacking = [name for name in CLASSES if not is_allowed(name, resources.get(ALLOW_LIST, []))]
    if lacking:
        what = f"{kit}/local/resources.json does not allow {lacking[0]}: NVFlare refuses fedpca's job"
        yield Finding("error", what, remedy)
    else:
        yield Finding("ok", f"{kit} allows the classes of fedpca's job")
    if not (kit / "startup" / "fed_client.json").is_file():
        yield Finding("ok", f"{kit} is the server's")
        return
    yield _check_certificate(kit / "startup" / "client.crt")
    yield from _check_server_name(kit)
    if resources.get(LOG_STREAMING, True):
        what = f"NVFlare sends this site's error log to the server ({LOG_STREAMING}): messages of errors can quote data"
        yield Finding("warning", what, remedy)
    if not (kit / "local" / SITE_FILE).is_file():
        yield Finding("error", f"{kit}/local has no {SITE_FILE}, so the site has no data", f"{remedy} --data DATA")
        return
    settings = read_site(site_of(kit), kit / "local", kit)
    yield Finding("ok", f"{kit} is that of {settings.site}; its data are {settings.data}")


def machine_of(machine: Machine) -> Machine:
    """The same machine, with what its kit says of data, place and policy, unless an option says otherwise."""
    kit = machine.kit
    try:
        if kit is None or not (kit / "local" / SITE_FILE).is_file():
            return machine
        settings = read_site(site_of(kit), kit / "local", kit)
    except UserError:  # `check_kit` has told it
        return machine
    policy, data = machine.policy or settings.policy, machine.data or settings.data
    return replace(machine, site=settings.site, data=data, policy=policy, state=kit, store=settings.folder)


def is_allowed(name: str, prefixes: list[str]) -> bool:
    """Whether NVFlare builds a class: it is listed itself, or a package that it lies in; "*" allows all."""
    return any(
        prefix in ("*", name) or name.startswith(prefix if prefix.endswith(".") else f"{prefix}.")
        for prefix in prefixes
    )


def _check_server_name(kit: Path) -> Iterator[Finding]:
    """Where the kit says that the server is, and whether it answers there."""
    from fedpca.operate.check_server import check_reach

    path = kit / "startup" / "fed_client.json"
    try:
        target = json.loads(path.read_text(encoding="utf-8"))["servers"][0]["service"]["target"]
        host, port = str(target).rsplit(":", 1)
        number = int(port)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        raise UserError(f"{path} does not say where the server is: use the kit as it was made") from None
    try:
        yield check_reach(host, number)
    except UserError as error:
        yield Finding("error", str(error))


def _check_certificate(path: Path) -> Finding:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no certificate ({error!s:.80}): ask for the kit again") from None
    return validity(certificate, f"the certificate {path}", "ask the operator of the server for a new kit")
