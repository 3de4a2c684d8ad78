"""The server's opinion of the clients, folded from what they report."""

from collections.abc import Mapping
from dataclasses import replace

from fedpca.core import ClientId, Diagnosis, Report, Verdict


def remember(diagnosis: Diagnosis, reports: Mapping[ClientId, Report]) -> Diagnosis:
    """The same opinions, with each client's latest report beside the values it gave earlier."""
    known = dict(diagnosis)
    for client, report in reports.items():
        verdict = known.get(client, Verdict())
        known[client] = replace(verdict, report={**verdict.report, **report})
    return known
