"""Keys of a federation: a certificate authority, the server's certificate, and a key pair per site.

KEYS/ca.key                      signs certificates; stays where it was made
KEYS/server/                     to the server's machine
    ca.crt server.crt server.key
    sites/NAME.pub               who may join
KEYS/sites/NAME/                 to the site NAME, by a safe way
    ca.crt site.key site.pub
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedpca.atomic import to_disk, write_whole
from fedpca.errors import UserError
from fedpca.sites.settings import SITE_NAME

CA_CERTIFICATE, SERVER_CERTIFICATE, SERVER_KEY = "ca.crt", "server.crt", "server.key"
SITE_KEY, SITE_PUBLIC, SITES = "site.key", "site.pub", "sites"
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # the server's own commands connect to these
CA_DAYS = 3650
README = """\
Copy server/ to the server's machine and each folder in sites/ to its site, by a way that nobody else can read, then
remove sites/*/site.key here. Whoever has ca.key can pose as the server: keep it off the server and the sites.
"""


@dataclass(frozen=True)
class KeyFolders:
    """The folders that a call made, and those that it found and left as they were."""

    new: tuple[Path, ...]
    kept: tuple[Path, ...]


def make_keys(sites: Sequence[str], out: Path, hosts: Sequence[str] = (), days: int = 365) -> KeyFolders:
    """Makes what is not there yet, and overwrites nothing; more sites can be added later."""
    for site in sites:
        check_site(site)
    server = out / "server"
    new: list[Path] = []
    kept: list[Path] = []
    ca_key = _certificate_authority(out, server)
    (kept if _server_certificate(server, ca_key, hosts, days) else new).append(server)
    for site in sites:
        folder = out / SITES / site
        (kept if _site_keys(folder, server) else new).append(folder)
    write_whole(out / "README.txt", README)
    return KeyFolders(tuple(new), tuple(kept))


def check_site(name: str) -> None:
    """Stops at a name that could not be a file's name, a log's prefix and a setting's value."""
    if not is_site_name(name):
        raise UserError(f"a site's name must be letters, digits, - and _, at most 63, got {name!r:.80}: rename it")


def is_site_name(name: str) -> bool:
    """Whether a site may have that name."""
    return re.fullmatch(SITE_NAME, name) is not None


def registered_sites(server: Path) -> dict[str, Path]:
    """Public key files of the sites that may join, by name."""
    found = {path.stem: path for path in sorted((server / SITES).glob("*.pub"))}
    for name in found:
        check_site(name)
    return found


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate from its file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} must be a certificate, but cannot be read ({error.strerror})") from None
    except ValueError:
        raise UserError(f"{path} must be a certificate in PEM format, and is something else") from None


def read_tls_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key of a certificate."""
    try:
        return _elliptic(serialization.load_pem_private_key(path.read_bytes(), None), path)
    except OSError as error:
        raise UserError(f"{path} must be a private key, but cannot be read ({error.strerror})") from None
    except (ValueError, TypeError):
        raise UserError(
            f"{path} must be a private key in PEM format without a password, and is something else"
        ) from None


def read_site_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A site's private key, in the format of OpenSSH, which Flower takes."""
    try:
        return _elliptic(serialization.load_ssh_private_key(path.read_bytes(), None), path)
    except OSError as error:
        raise UserError(f"{path} must be a site's private key, but cannot be read ({error.strerror})") from None
    except (ValueError, TypeError):
        remedy = "make one with `fedpca deploy keys` or `ssh-keygen -t ecdsa -b 384`"
        raise UserError(f"{path} must be an EC key in OpenSSH's format without a password: {remedy}") from None


def public_text(key: ec.EllipticCurvePublicKey, comment: str) -> str:
    """A public key as one line of OpenSSH's format."""
    openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return f"{key.public_bytes(*openssh).decode()} {comment}\n"


def same_key(line: str, key: ec.EllipticCurvePublicKey) -> bool:
    """Whether a line of OpenSSH's format is that key; the comment does not matter."""
    return line.split()[:2] == public_text(key, "").split()[:2]


# Each of these makes what is not there, and says whether it was there


def _certificate_authority(out: Path, server: Path) -> ec.EllipticCurvePrivateKey:
    """The authority's key; its certificate lies where it is needed."""
    path, certificate = out / "ca.key", server / CA_CERTIFICATE
    if certificate.exists():
        if not path.exists():
            raise UserError(f"{certificate} is there without {path}: bring that key back, or choose another --out")
        key = read_tls_key(path)
        if read_certificate(certificate).public_key() != key.public_key():
            raise UserError(f"{certificate} does not belong to {path}: choose another --out")
        return key
    if not path.exists():
        _write_private(path, _pkcs8(ec.generate_private_key(ec.SECP256R1())))
    key = read_tls_key(path)
    name = _name("fedpca federation")
    builder = _certificate(name, name, key.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    write_whole(certificate, _pem(builder.sign(key, hashes.SHA256())))
    return key


def _server_certificate(server: Path, ca_key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], days: int) -> bool:
    certificate, key_file = server / SERVER_CERTIFICATE, server / SERVER_KEY
    wanted = [*dict.fromkeys([*map(_host, hosts), *map(_host, LOOPBACK)])]
    if certificate.exists() or key_file.exists():
        remedy = f"to make them anew remove {certificate} and {key_file}"
        if not (certificate.exists() and key_file.exists()):
            raise UserError(f"{certificate} and {key_file} must both be there, and only one is: {remedy}")
        names = set(host_names(read_certificate(certificate)))
        if lacking := [host for host in hosts if str(_host(host).value) not in names]:
            raise UserError(f"{certificate} is for {', '.join(sorted(names))} and not for {lacking[0]}: {remedy}")
        return True
    ca = read_certificate(server / CA_CERTIFICATE)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _certificate(_name("fedpca server"), ca.subject, key.public_key(), days, ca_key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(wanted), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    _write_private(key_file, _pkcs8(key))
    write_whole(certificate, _pem(builder.sign(ca_key, hashes.SHA256())))
    return False


def _site_keys(folder: Path, server: Path) -> bool:
    """A site is known by its public key at the server, also where its folder has been handed over and removed."""
    public, key_file = server / SITES / f"{folder.name}.pub", folder / SITE_KEY
    if known := public.exists() or key_file.exists():
        if not public.exists():
            write_whole(public, public_text(read_site_key(key_file).public_key(), folder.name))
        return known
    key = ec.generate_private_key(ec.SECP384R1())
    line = public_text(key.public_key(), folder.name)
    write_whole(folder / CA_CERTIFICATE, (server / CA_CERTIFICATE).read_bytes())
    openssh = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    _write_private(folder / SITE_KEY, key.private_bytes(*openssh))
    write_whole(folder / SITE_PUBLIC, line)
    write_whole(public, line)
    return known


def host_names(certificate: x509.Certificate) -> list[str]:
    """Names and addresses that a server may have to show this certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _host(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
        raise UserError(f"--host must be a host's name or its IP address, without a port, got {host!r:.80}")
    return x509.DNSName(host.lower())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    days: int,
    issuer_key: ec.EllipticCurvePublicKey | None = None,
) -> x509.CertificateBuilder:
    """Valid from an hour ago, for sites whose clocks are late."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key or key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pkcs8(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _elliptic(key: object, path: Path) -> ec.EllipticCurvePrivateKey:
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UserError(f"{path} must be an EC key, and is {type(key).__name__}")
    return key


def _write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner reads, whole or not at all, and never over another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        to_disk(file)
    os.link(partial, path)
    partial.unlink()
