"""What happens to a site's report before it leaves, and how much of it may: the site's noise, and its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from secrets import SystemRandom

from fedpca.core import Method, Report
from fedpca.errors import SettingsError
from fedpca.parts.accounting import Released, exceeds, noise_for, spent
from fedpca.parts.client.private_report import numbers_by_round, numbers_in, privatize
from fedpca.screening import Claims, claims_of
from fedpca.settings.privacy import ReportPrivacy
from fedpca.sites.budget import Budget, Told
from fedpca.sites.messages import RunHead
from fedpca.sites.rules import PolicyError, Rules
from fedpca.sites.settings import SiteSettings

_RANDOM = SystemRandom()  # not the run's seed: the server knows that, and could take the noise off again
DRAWS = 4  # of which each normal number is made, so that its last digits do not give the number under it away


def gauss() -> float:
    """A standard normal number from the system's randomness; of several draws (Holohan and Braghin 2021)."""
    return sum(_RANDOM.gauss(0.0, 1.0) for _ in range(DRAWS)) / sqrt(DRAWS)


@dataclass(frozen=True)
class Guard:
    """What stands between a site's reports and one run."""

    settings: SiteSettings
    run: RunHead
    rules: Rules

    @property
    def privacy(self) -> ReportPrivacy:
        """The site's own settings, else what the run asks for."""
        return self.settings.privacy or self.run.privacy

    def require_run(self, method: Method) -> None:
        """Refuses a run that would spend more than the policy allows, or whose noise cannot be made here."""
        try:
            planned = self._planned(method)
        except SettingsError as error:
            raise PolicyError(str(error)) from None
        policy = self.rules.policy
        if policy.max_epsilon is None:
            return
        if self.privacy.epsilon is None:
            if _reports(method):
                self._refuse("the run has no privacy.epsilon")
            return
        others = Budget(self.settings.folder).told_to_others(self.run.id)
        if exceeds(total := spent([*others, planned], policy.delta), policy.max_epsilon):
            before = f", of which {spent(others, policy.delta):.3g} are spent" if others else ""
            self._refuse(f"with this run they would spend {total:.3g}{before}")

    def leave(self, report: Report, claims: Claims, place: str, method: Method) -> Report:
        """The report as it leaves: with noise, and counted if that has an epsilon."""
        privacy = self.privacy
        if privacy.epsilon is None:
            return privatize(report, privacy, claims, gauss, 0.0)
        if not (count := numbers_in(claims)):
            return privatize(report, privacy, claims, gauss, 0.0)
        noise = self._planned(method).noise
        new = Told(noise=noise, count=count, report=dict(privatize(report, privacy, claims, gauss, noise)))
        require = partial(self._require_budget, privacy.epsilon, privacy.delta)
        return Budget(self.settings.folder).tell(self.run.id, place, new, require)

    def _planned(self, method: Method) -> Released:
        """What the whole run is told: so many numbers with this noise."""
        privacy = self.privacy
        if privacy.epsilon is None:
            return Released(0.0, 0)
        count = sum(numbers_by_round(method, self.run.task.plan.rounds, privacy))
        return Released(noise_for(privacy.epsilon, privacy.delta, count), count)

    def _require_budget(self, epsilon: float, delta: float, own: Sequence[Released], every: Sequence[Released]) -> None:
        """Refuses to tell more where the run's epsilon is spent, or the policy's."""
        policy = self.rules.policy
        if exceeds(total := spent(own, delta), epsilon):
            raise PolicyError(
                f"its privacy budget is spent: the run has epsilon {epsilon:g}, and one more report would make it "
                f"{total:.3g}; start a new run"
            )
        if policy.max_epsilon is not None and exceeds(total := spent(every, policy.delta), policy.max_epsilon):
            self._refuse(f"one more report would make it {total:.3g}")

    def _refuse(self, got: str) -> None:
        most = self.rules.policy.max_epsilon
        raise PolicyError(f"its policy allows its reports an epsilon of {most:g} in all its runs; {got}")


def _reports(method: Method) -> bool:
    """Whether clients report anything that depends on their data."""
    claims = [claims_of(part) for stage in method.stages for part in (stage.recipe.report, stage.recipe.train)]
    return any(own.open or numbers_in(own) for own in claims)
