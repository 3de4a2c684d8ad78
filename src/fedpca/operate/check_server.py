"""Checks of the way to the server: name, port, certificate, what answers there, and its clock."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING

from fedpca.errors import UserError
from fedpca.operate.findings import Finding, Level, validity
from fedpca.operate.processes import address, is_loopback

if TYPE_CHECKING:
    from cryptography import x509

AHEAD, BEHIND = 5, 300  # seconds that Flower lets a site's clock differ
TIMEOUT = 10  # seconds for the server to answer


def check_server(server: str, folder: Path | None) -> Iterator[Finding]:
    """Name, port, certificate, what answers there, and its clock."""
    from fedpca.operate.keys import CA_CERTIFICATE  # here: without keys `cryptography` is not needed

    host, port = address(server)
    yield check_reach(host, port)
    if folder is None:
        level: Level = "warning" if is_loopback(host) else "error"
        yield Finding(level, f"{server} is spoken to without encryption", "--keys FOLDER gives the site's keys")
        yield from _check_answer(server, host, port, None)
        return
    context = ssl.create_default_context(cafile=str(folder / CA_CERTIFICATE))
    try:
        with _connect(host, port) as plain, context.wrap_socket(plain, server_hostname=host):
            pass
    except ssl.SSLError as error:
        yield from _explain(error, host, port)
        return
    yield validity(_certificate(host, port), f"the certificate of {server}", "its operator must renew it")
    yield from _check_answer(server, host, port, context)


def check_reach(host: str, port: int) -> Finding:
    """Stops where nobody answers."""
    try:
        with _connect(host, port) as open_socket:
            return Finding("ok", f"{host} port {port} can be reached, at {open_socket.getpeername()[0]}")
    except socket.gaierror:
        raise UserError(f"{host} is not a name that this machine can find: ask for the address, or mend DNS") from None
    except TimeoutError:
        raise UserError(
            f"{host} port {port} does not answer in {TIMEOUT} s: a firewall? It must let TCP {port} out"
        ) from None
    except OSError as error:
        raise UserError(f"{host} port {port}: {error.strerror}; is the server up, and is the port right?") from None


def _connect(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), timeout=TIMEOUT)


def _explain(error: ssl.SSLError, host: str, port: int) -> Iterator[Finding]:
    """What is wrong with the certificate that the server shows, in words."""
    from fedpca.operate.keys import host_names

    if not isinstance(error, ssl.SSLCertVerificationError):
        remedy = "does a fedpca server run there, with --keys?"
        yield Finding("error", f"{host} port {port} does not speak TLS ({error.reason})", remedy)
        return
    certificate = _certificate(host, port)
    lasting = validity(certificate, f"the certificate of {host}", "its operator must renew it")
    names = host_names(certificate)
    if lasting.level == "error":
        yield lasting
    elif "hostname" in error.verify_message.lower() or "ip address" in error.verify_message.lower():
        remedy = f"use one of these, or `fedpca deploy keys --host {host}` at the server"
        yield Finding("error", f"the certificate of {host} is for {', '.join(names)} and not for {host}", remedy)
    else:
        remedy = "the keys of another federation, or somebody poses as the server: ask its operator"
        yield Finding("error", f"{host} shows a certificate that ca.crt did not sign ({error.verify_message})", remedy)


def _certificate(host: str, port: int) -> x509.Certificate:
    """The certificate that a server shows, whatever it is worth."""
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with _connect(host, port) as plain, context.wrap_socket(plain, server_hostname=host) as shown:
        return x509.load_der_x509_certificate(shown.getpeercert(binary_form=True) or b"")


def _check_answer(server: str, host: str, port: int, context: ssl.SSLContext | None) -> Iterator[Finding]:
    """A fedpca server refuses what is not for sites; Flower's own port would let anyone start runs."""
    try:
        status, date = _ask(host, port, context)
    except (OSError, HTTPException) as error:
        yield Finding("error", f"{server} does not answer as a server does: {error!r:.80}", "is the port right?")
        return
    if status == 403:
        yield Finding("ok", f"{server} is a fedpca server")
    else:
        what = f"{server} lets anyone start runs (answer {status} in place of 403)"
        yield Finding("warning", what, "its operator should use `fedpca deploy server`")
    if date is not None:
        yield check_clock(time.time() - date, server)


def _ask(host: str, port: int, context: ssl.SSLContext | None) -> tuple[int, float | None]:
    """Status of the answer, and the server's time; without proxies, which sites do not use either."""
    with _connect(host, port) as plain:
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
        return Finding("error", f"{what}: the server will refuse this site", "set the clock, with NTP")
    if abs(ahead) > 3:
        return Finding("warning", what, "set the clock, with NTP")
    return Finding("ok", f"this clock agrees with that of {server}")
