"""A site's rules applied: what a run asks for is compared with its policy, at the site, before anything leaves it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from fedpca.core import Method, Recipe, Report
from fedpca.errors import SettingsError, printable
from fedpca.screening import Claims, claims_of
from fedpca.sites.audit_messages import LIST, SUMMARY
from fedpca.sites.messages import STATE, Content, RunHead
from fedpca.sites.policy import Policy, policy_file, read_policy
from fedpca.sites.settings import SiteSettings


class PolicyError(SettingsError):
    """What a run asks for is against the site's policy; `told` is what the server learns of it."""

    def __init__(self, text: str, told: str = "") -> None:
        super().__init__(text)
        self.told = told or text


@dataclass(frozen=True)
class Rules:
    """A policy and where it stands; no file, no rules."""

    policy: Policy
    path: Path | None

    def require_run(self, run: RunHead) -> None:
        """Refuses a run that the policy forbids; nothing of the site's data has been read by then."""
        own, task = self.policy, run.task
        if own.methods is not None and not _matches(task.method, own.methods):
            self._refuse(f"the methods {', '.join(own.methods)}", f"the run has {task.method}")
        if own.max_rounds is not None and task.plan.rounds > own.max_rounds:
            self._refuse(f"at most {own.max_rounds} rounds", f"the run has {task.plan.rounds}")
        if own.reports is not None:
            self._require_reports(task.build(run.exchange), own.reports)

    def require_message(self, kind: str, content: Content) -> None:
        """Refuses an audit and a model, where the policy forbids them."""
        if not self.policy.audit and kind in (SUMMARY, LIST):
            self._refuse("no audit of its labels", "the server asks for one")
        arrays = list(content.states.get(STATE, {}).values())
        numbers, size = sum(array.size for array in arrays), sum(array.nbytes for array in arrays)
        for most, got, unit in (
            (self.policy.max_parameters, numbers, "parameters"),
            (self.policy.max_bytes, size, "bytes"),
        ):
            if most is not None and got > most:
                self._refuse(f"a model of at most {most} {unit}", f"the run's has {got}")

    def require_report(self, report: Report) -> None:
        """Refuses a report that has a number which may not leave."""
        if self.policy.reports is not None:
            self._require_keys(report, self.policy.reports)

    def _require_reports(self, method: Method, allowed: Sequence[str]) -> None:
        claims = [claim for stage in method.stages for claim in _claims(stage.recipe)]
        if any(claim.open for claim in claims):
            self._refuse(_reports(allowed), f"{method.name} does not declare what it reports")
        self._require_keys(sorted({key for claim in claims for key in claim.bounds}), allowed)

    def _require_keys(self, keys: Iterable[str], allowed: Sequence[str]) -> None:
        if forbidden := [key for key in keys if not _matches(key, allowed)]:
            named = ", ".join(map(printable, forbidden[:5])) + (", …" if len(forbidden) > 5 else "")
            self._refuse(_reports(allowed), f"the method says {named}")

    def _refuse(self, allowed: str, got: str) -> None:
        raise PolicyError(f"its policy allows {allowed}; {got}")


def rules_of(settings: SiteSettings) -> Rules:
    """The rules of a site: those of the file that it names, which must be there, or of the one in its store."""
    path = policy_file(settings.policy, settings.folder)
    try:
        return Rules(read_policy(path), path) if path else Rules(Policy(), None)
    except SettingsError as error:  # the server need not know where files are
        raise PolicyError(str(error), "its policy file cannot be used, so it allows nothing") from None


def log_refusal(site: str, kind: str, error: PolicyError) -> None:
    """Names a refusal in the site's own log."""
    print(f"[{site}] refused to answer {kind!r}: {error}", file=sys.stderr, flush=True)


def _claims(recipe: Recipe) -> tuple[Claims, Claims]:
    return claims_of(recipe.report), claims_of(recipe.train)


def _reports(allowed: Sequence[str]) -> str:
    return f"the reports {', '.join(allowed)}" if allowed else "no reports"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
