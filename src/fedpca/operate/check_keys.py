"""Checks of a folder of keys, a site's or the server's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from fedpca.errors import UserError
from fedpca.operate import keys
from fedpca.operate.findings import Finding, validity


def check_keys(folder: Path, site: str | None) -> Iterator[Finding]:
    """A site's folder, or the server's."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder: --keys must be the folder that `fedpca deploy keys` made for this machine"
        )
    authority = keys.read_certificate(folder / keys.CA_CERTIFICATE)
    yield validity(authority, folder / keys.CA_CERTIFICATE, "make a new --out with `fedpca deploy keys`")
    if (folder / keys.SERVER_CERTIFICATE).exists():
        yield from _check_server_keys(folder, authority)
        return
    key = keys.read_site_key(folder / keys.SITE_KEY)
    yield _mode(folder / keys.SITE_KEY)
    line = (folder / keys.SITE_PUBLIC).read_text() if (folder / keys.SITE_PUBLIC).exists() else ""
    if keys.same_key(line, key.public_key()):
        named = " ".join(line.split()[2:])
        yield Finding("ok", f"{folder / keys.SITE_PUBLIC} belongs to {keys.SITE_KEY}")
        if site and named != site and keys.is_site_name(named):
            yield Finding("warning", f"the key is named {named} and the site {site}", f"--site {named}?")
    else:
        remedy = f"`ssh-keygen -y -f {keys.SITE_KEY}` shows the one that the server must have"
        yield Finding("error", f"{folder / keys.SITE_PUBLIC} does not belong to {keys.SITE_KEY}", remedy)


def require_keys(folder: Path, site: str | None) -> None:
    """Refuses keys with which nobody should start: expired, of another certificate, readable by others."""
    for finding in check_keys(folder, site):
        if finding.level == "error":
            raise UserError(f"{finding.what}: {finding.remedy or '`fedpca doctor` tells more'}")


def _check_server_keys(folder: Path, authority: x509.Certificate) -> Iterator[Finding]:
    path = folder / keys.SERVER_CERTIFICATE
    anew = f"remove {path} and {keys.SERVER_KEY}, then run `fedpca deploy keys` with the same --host"
    certificate = keys.read_certificate(path)
    yield validity(certificate, path, anew)
    try:
        certificate.verify_directly_issued_by(authority)
        yield Finding("ok", f"{path} is signed by {keys.CA_CERTIFICATE}, for {', '.join(keys.host_names(certificate))}")
    except (ValueError, TypeError, InvalidSignature):
        yield Finding("error", f"{path} is not signed by {keys.CA_CERTIFICATE}", anew)
    if keys.read_tls_key(folder / keys.SERVER_KEY).public_key() == certificate.public_key():
        yield Finding("ok", f"{folder / keys.SERVER_KEY} belongs to {keys.SERVER_CERTIFICATE}")
    else:
        yield Finding("error", f"{folder / keys.SERVER_KEY} does not belong to {keys.SERVER_CERTIFICATE}", anew)
    yield _mode(folder / keys.SERVER_KEY)
    sites = keys.registered_sites(folder)
    yield Finding("ok" if sites else "error", f"{len(sites)} sites may join: {', '.join(sites) or 'nobody'}")


def _mode(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return Finding("error", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return Finding("ok", f"{path} can be read by its owner alone")
