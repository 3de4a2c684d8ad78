"""What an audit found, as the table that audit.json holds and the page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from fedpca.auditing.estimate import ClientEstimate, Estimates
from fedpca.auditing.folds import FOLDS
from fedpca.auditing.options import AuditOptions
from fedpca.core import ClientId

VERSION = 1
ONE_PLACE = "in one place"  # where no engine carried anything between sites
Record = dict[str, Any]
NotTested = tuple[ClientId | None, str, str]  # client or all, what, why
SHARED = (None, "wrong labels that most clients share", "the models learn them as right: every share is an at least")


def audit_record(
    estimates: Estimates,
    options: AuditOptions,
    classes: Sequence[str],
    suspects: Mapping[ClientId, int | None],
    engine: str = ONE_PLACE,
    judged: str = "all",
    not_tested: Sequence[NotTested] = (),
) -> Record:
    """The audit as audit.json holds it (version 1); `suspects` are the lengths of the clients' lists, where told."""
    untested = (*estimates.not_tested, *not_tested, SHARED)
    reference = estimates.reference
    return {
        "version": VERSION,
        "name": options.name,
        "made": date.today().isoformat(),
        "engine": engine,
        "rows": judged,
        "classes": list(classes),
        "method": options.method,
        "folds": min(options.folds or FOLDS, len(estimates.clients)),
        "rounds": options.rounds,
        "fdr": options.fdr,
        "sample": options.sample,
        "not_tested": [{"client": client, "what": what, "why": why} for client, what, why in untested],
        "reference": reference
        and {
            "clients": len(reference.clients),
            "base": _rounded(reference.base),
            "spread": _rounded(reference.spread),
        },
        "clients": [
            client_entry(client, own, classes, suspects.get(client)) for client, own in estimates.clients.items()
        ],
    }


def client_entry(client: ClientId, own: ClientEstimate, classes: Sequence[str], suspects: int | None) -> Record:
    """One client, as in audit.json."""
    confused = own.confused
    return {
        "client": client,
        "images": own.images,
        "verdict": own.verdict,
        "reason": own.reason,
        "share": _rounded(own.share),
        "low": _rounded(own.low),
        "high": _rounded(own.high),
        "why_no_interval": own.why_no_interval,
        "suspects": suspects,
        "confused": None
        if confused is None
        else [
            {
                "given": classes[pair.given],
                "likely": classes[pair.likely],
                "images": round(pair.images),
                "share": _rounded(pair.share),
            }
            for pair in confused
        ],
        "told": own.told,
        "list_warning": own.list_warning,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
