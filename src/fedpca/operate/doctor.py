"""What can be checked before a site joins: programs, keys, the way to the server, data, disk and clock."""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from fedpca import __version__
from fedpca.errors import SettingsError, UserError, nearest
from fedpca.settings.base import Settings

if TYPE_CHECKING:
    from cryptography import x509

Level = Literal["ok", "warning", "fault"]
SOON = 30  # days before an end of validity that are worth a warning
AHEAD, BEHIND = 5, 300  # seconds that Flower lets a site's clock differ
ROOM, LITTLE = 5 << 30, 1 << 30  # bytes of disk that are plenty, and that are too few
TIMEOUT = 10  # seconds for the server to answer


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    remedy: str = ""

    def line(self) -> str:
        """As a person reads it."""
        return f"{self.level:<8} {self.what}" + (f"; {self.remedy}" if self.remedy else "")


class Expected(Settings):
    """What the server's operator hands out as federation.toml: what every site must agree on."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width of an image
    model: str = "cnn-small"
    image_size: int | None = None  # side of the square that images are resized to
    image_column: str = "image"
    label_column: str = "label"
    fedpca: str | None = None
    flwr: str | None = None


@dataclass(frozen=True)
class Patient:
    """What is known of the machine to check; what is None is not checked."""

    site: str | None = None
    data: Path | None = None
    server: str | None = None
    keys: Path | None = None
    federation: Path | None = None
    state: Path = Path()


def examine(patient: Patient) -> Iterator[Finding]:
    """Everything that can be checked with what is given, from the simple to the far."""
    expected = None
    if patient.federation is not None:
        try:
            expected = read_expected(patient.federation)
            yield Finding("ok", f"{patient.federation}: {len(expected.classes)} classes, model {expected.model}")
        except UserError as error:
            yield Finding("fault", str(error), "ask the server's operator for the file again")
    yield from check_versions(expected)
    if patient.keys is not None:
        yield from _guarded(check_keys(patient.keys, patient.site))
    if patient.server is not None:
        yield from _guarded(check_server(patient.server, patient.keys))
    yield check_disk(patient.state)
    if expected is not None:
        yield from _guarded(check_model(expected))
    if patient.data is not None:
        yield from _guarded(check_data(patient.data, expected))


def _guarded(check: Iterator[Finding]) -> Iterator[Finding]:
    """A check that cannot go on is a fault of its own."""
    try:
        yield from check
    except UserError as error:
        yield Finding("fault", str(error))


def read_expected(path: Path) -> Expected:
    """The operator's federation.toml."""
    try:
        return Expected.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        hint = nearest(key, Expected.model_fields) if first["type"] == "extra_forbidden" else ""
        raise SettingsError(f"{path}: {key}: {first['msg']} (came: {first['input']!r:.80}){hint}") from None


# Programs


def check_versions(expected: Expected | None) -> Iterator[Finding]:
    """Python, PyTorch, Flower and fedpca, as installed."""
    yield Finding("ok", f"Python {sys.version.split()[0]}")
    yield _installed("torch", None, "pip install -c constraints.txt fedpca")
    wanted = (expected and expected.flwr) or _pinned("flwr")
    yield _installed("flwr", wanted, f"pip install 'flwr=={wanted}'" if wanted else "pip install 'fedpca[flower]'")
    own = expected.fedpca if expected else None
    if own in (None, __version__):
        yield Finding("ok", f"fedpca {__version__}")
    else:
        yield Finding("fault", f"fedpca {__version__}, but the federation has {own}", f"pip install 'fedpca=={own}'")


def _installed(package: str, wanted: str | None, remedy: str) -> Finding:
    try:
        came = version(package)
    except PackageNotFoundError:
        return Finding("fault", f"{package} is not installed", remedy)
    if wanted not in (None, came):
        return Finding("fault", f"{package} {came}, but the federation needs {wanted}", remedy)
    return Finding("ok", f"{package} {came}")


def _pinned(package: str) -> str | None:
    """The one version that fedpca was made for."""
    lines = [line.partition(";")[0].strip() for line in requires("fedpca") or ()]
    return next((line.partition("==")[2] for line in lines if line.startswith(f"{package}==")), None)


# Keys


def check_keys(folder: Path, site: str | None) -> Iterator[Finding]:
    """A site's folder, or the server's."""
    from fedpca.operate import keys

    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder: --keys must be the folder that `fedpca deploy keys` made for this machine"
        )
    authority = keys.read_certificate(folder / keys.CA_CERTIFICATE)
    yield _validity(authority, folder / keys.CA_CERTIFICATE, "make a new --out with `fedpca deploy keys`")
    if (folder / keys.SERVER_CERTIFICATE).exists():
        yield from _check_server_keys(folder, authority)
        return
    key = keys.read_site_key(folder / keys.SITE_KEY)
    yield _mode(folder / keys.SITE_KEY)
    line = (folder / keys.SITE_PUBLIC).read_text() if (folder / keys.SITE_PUBLIC).exists() else ""
    if keys.same_key(line, key.public_key()):
        named = " ".join(line.split()[2:])
        yield Finding("ok", f"{folder / keys.SITE_PUBLIC} belongs to {keys.SITE_KEY}")
        if site and named != site and keys.SITE_NAME.fullmatch(named):
            yield Finding("warning", f"the key is named {named} and the site {site}", f"--site {named}?")
    else:
        remedy = f"`ssh-keygen -y -f {keys.SITE_KEY}` shows the one that the server must have"
        yield Finding("fault", f"{folder / keys.SITE_PUBLIC} does not belong to {keys.SITE_KEY}", remedy)


def _check_server_keys(folder: Path, authority: x509.Certificate) -> Iterator[Finding]:
    from cryptography.exceptions import InvalidSignature

    from fedpca.operate import keys

    path = folder / keys.SERVER_CERTIFICATE
    anew = f"remove {path} and {keys.SERVER_KEY}, then run `fedpca deploy keys` with the same --host"
    certificate = keys.read_certificate(path)
    yield _validity(certificate, path, anew)
    try:
        certificate.verify_directly_issued_by(authority)
        yield Finding("ok", f"{path} is signed by {keys.CA_CERTIFICATE}, for {', '.join(keys.host_names(certificate))}")
    except (ValueError, TypeError, InvalidSignature):
        yield Finding("fault", f"{path} is not signed by {keys.CA_CERTIFICATE}", anew)
    if keys.read_tls_key(folder / keys.SERVER_KEY).public_key() == certificate.public_key():
        yield Finding("ok", f"{folder / keys.SERVER_KEY} belongs to {keys.SERVER_CERTIFICATE}")
    else:
        yield Finding("fault", f"{folder / keys.SERVER_KEY} does not belong to {keys.SERVER_CERTIFICATE}", anew)
    yield _mode(folder / keys.SERVER_KEY)
    sites = keys.registered(folder)
    yield Finding("ok" if sites else "fault", f"{len(sites)} sites may join: {', '.join(sites) or 'nobody'}")


def _validity(certificate: x509.Certificate, path: Path | str, remedy: str) -> Finding:
    start, end, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    if now < start:
        return Finding("fault", f"{path} is valid only from {start:%Y-%m-%d %H:%M} UTC on", "is this clock right?")
    if now > end:
        return Finding("fault", f"{path} has expired on {end:%Y-%m-%d}", remedy)
    if (left := (end - now).days) < SOON:
        return Finding("warning", f"{path} expires on {end:%Y-%m-%d}, in {left} days", remedy)
    return Finding("ok", f"{path} is valid until {end:%Y-%m-%d}")


def _mode(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        return Finding("fault", f"{path} can be read by others (mode {mode:o})", f"chmod 600 {path}")
    return Finding("ok", f"{path} can be read by its owner alone")


# The way to the server


def check_server(server: str, folder: Path | None) -> Iterator[Finding]:
    """Name, port, certificate, what answers there, and its clock."""
    from fedpca.operate.keys import CA_CERTIFICATE
    from fedpca.operate.processes import address, is_loopback

    host, port = address(server)
    yield _reach(host, port)
    if folder is None:
        level: Level = "warning" if is_loopback(host) else "fault"
        yield Finding(level, f"{server} is spoken to without encryption", "--keys FOLDER gives the site's keys")
        yield from _check_answer(server, host, port, None)
        return
    context = ssl.create_default_context(cafile=str(folder / CA_CERTIFICATE))
    try:
        with _connected(host, port) as plain, context.wrap_socket(plain, server_hostname=host):
            pass
    except ssl.SSLError as error:
        yield from _explain(error, host, port)
        return
    yield _validity(_shown(host, port), f"the certificate of {server}", "its operator must renew it")
    yield from _check_answer(server, host, port, context)


def _reach(host: str, port: int) -> Finding:
    """Stops where nobody answers."""
    try:
        with _connected(host, port) as open_socket:
            return Finding("ok", f"{host} port {port} can be reached, at {open_socket.getpeername()[0]}")
    except socket.gaierror:
        raise UserError(f"{host} is not a name that this machine can find: ask for the address, or mend DNS") from None
    except TimeoutError:
        raise UserError(
            f"{host} port {port} does not answer in {TIMEOUT} s: a firewall? It must let TCP {port} out"
        ) from None
    except OSError as error:
        raise UserError(f"{host} port {port}: {error.strerror}; is the server up, and is the port right?") from None


def _connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), timeout=TIMEOUT)


def _explain(error: ssl.SSLError, host: str, port: int) -> Iterator[Finding]:
    """What is wrong with the certificate that the server shows, in words."""
    from fedpca.operate.keys import host_names

    if not isinstance(error, ssl.SSLCertVerificationError):
        remedy = "does a fedpca server run there, with --keys?"
        yield Finding("fault", f"{host} port {port} does not speak TLS ({error.reason})", remedy)
        return
    certificate = _shown(host, port)
    validity = _validity(certificate, f"the certificate of {host}", "its operator must renew it")
    names = host_names(certificate)
    if validity.level == "fault":
        yield validity
    elif "hostname" in error.verify_message.lower() or "ip address" in error.verify_message.lower():
        remedy = f"use one of these, or `fedpca deploy keys --host {host}` at the server"
        yield Finding("fault", f"the certificate of {host} is for {', '.join(names)} and not for {host}", remedy)
    else:
        remedy = "the keys of another federation, or somebody poses as the server: ask its operator"
        yield Finding("fault", f"{host} shows a certificate that ca.crt did not sign ({error.verify_message})", remedy)


def _shown(host: str, port: int) -> x509.Certificate:
    """The certificate that a server shows, whatever it is worth."""
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _connected(host, port) as plain, context.wrap_socket(plain, server_hostname=host) as shown:
        return x509.load_der_x509_certificate(shown.getpeercert(binary_form=True) or b"")


def _check_answer(server: str, host: str, port: int, context: ssl.SSLContext | None) -> Iterator[Finding]:
    """A fedpca server refuses what is not for sites; Flower's own port would let anyone start runs."""
    try:
        status, date = _asked(host, port, context)
    except (OSError, HTTPException) as error:
        yield Finding("fault", f"{server} does not answer as a server does: {error!r:.80}", "is the port right?")
        return
    if status == 403:
        yield Finding("ok", f"{server} is a fedpca server")
    else:
        what = f"{server} lets anyone start runs (answer {status} in place of 403)"
        yield Finding("warning", what, "its operator should use `fedpca deploy server`")
    if date is not None:
        yield check_clock(time.time() - date, server)


def _asked(host: str, port: int, context: ssl.SSLContext | None) -> tuple[int, float | None]:
    """Status of the answer, and the server's time; without proxies, which sites do not use either."""
    with _connected(host, port) as plain:
        stream = context.wrap_socket(plain, server_hostname=host) if context else plain
        stream.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = HTTPResponse(stream)
        answer.begin()
        date = answer.getheader("Date")
        return answer.status, parsedate_to_datetime(date).timestamp() if date else None


def check_clock(ahead: float, server: str) -> Finding:
    """Flower refuses sites whose clocks differ; `ahead` of the server's, in seconds."""
    what = f"this clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} that of {server}"
    if not -BEHIND < ahead < AHEAD:
        return Finding("fault", f"{what}: the server will refuse this site", "set the clock, with NTP")
    if abs(ahead) > 3:
        return Finding("warning", what, "set the clock, with NTP")
    return Finding("ok", f"this clock agrees with that of {server}")


# This machine and its data


def check_disk(state: Path) -> Finding:
    """Room where the site keeps its things."""
    place = next(folder for folder in (state.resolve(), *state.resolve().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    what = f"{free / (1 << 30):.1f} GiB free at {place}"
    if free < LITTLE:
        return Finding("fault", what, "decoded images and the site's memory need room: free some")
    return Finding("ok" if free >= ROOM else "warning", what, "" if free >= ROOM else "large images may need more")


def check_model(expected: Expected) -> Iterator[Finding]:
    """Whether the model can be built here."""
    from fedpca.models.build import build

    net = build(expected.model, expected.shape, len(expected.classes), seed=0)
    count = sum(part.numel() for part in net.module.parameters())
    yield Finding("ok", f"model {expected.model} of {count} weights can be built")


def check_data(data: Path, expected: Expected | None) -> Iterator[Finding]:
    """Images and labels as the run will read them; decodes them into the cache, as the first round would."""
    from fedpca.data.datasets import load
    from fedpca.settings.experiment import DataSettings

    how = expected.model_dump(include={"image_size", "image_column", "label_column"}) if expected else {}
    dataset = load(DataSettings(dataset=str(data.resolve()), clients=1, **how))
    shape = dataset.train.images.shape[1:]
    counts = f"{len(dataset.train.labels)} images to train on, {len(dataset.test.labels)} to test on"
    yield Finding("ok", f"{data}: {counts}, {_times(shape)}, {len(dataset.classes)} classes")
    if dataset.skipped:
        what = f"{len(dataset.skipped)} images cannot be read, the first is {dataset.skipped[0]}"
        yield Finding("warning", what, "they are left out: mend or remove them")
    if expected is None:
        return
    if tuple(shape) != expected.shape:
        remedy = "convert them, or ask for image_size in federation.toml"
        yield Finding("fault", f"images are {_times(shape)}, but the federation's {_times(expected.shape)}", remedy)
    else:
        yield Finding("ok", f"images are {_times(shape)}, as the federation's")
    yield from _check_classes(dataset.classes, expected.classes)


def _check_classes(own: Sequence[str], expected: Sequence[str]) -> Iterator[Finding]:
    if unknown := [name for name in own if name not in expected]:
        what = f"the federation has no class {unknown[0]!r}{nearest(unknown[0], expected)}"
        yield Finding("fault", what, "rename the class, or leave its images out")
    elif lacking := [name for name in expected if name not in own]:
        yield Finding("warning", f"no images of {', '.join(lacking)}", "right, if the site has none")
    else:
        yield Finding("ok", f"classes are the federation's: {', '.join(own)}")


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
