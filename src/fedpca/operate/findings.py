"""What a check found, in a line for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cryptography import x509

Level = Literal["ok", "warning", "error"]
SOON = 30  # days before an end of validity that are worth a warning


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    level: Level
    what: str
    remedy: str = ""

    def line(self) -> str:
        """As a person reads it."""
        return f"{self.level:<8} {self.what}" + (f"; {self.remedy}" if self.remedy else "")


def validity(certificate: x509.Certificate, path: Path | str, remedy: str) -> Finding:
    """Whether a certificate is valid now, and for how long."""
    start, end, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    if now < start:
        return Finding("error", f"{path} is valid only from {start:%Y-%m-%d %H:%M} UTC on", "is this clock right?")
    if now > end:
        return Finding("error", f"{path} has expired on {end:%Y-%m-%d}", remedy)
    if (left := (end - now).days) < SOON:
        return Finding("warning", f"{path} expires on {end:%Y-%m-%d}, in {left} days", remedy)
    return Finding("ok", f"{path} is valid until {end:%Y-%m-%d}")
