"""What self-tuning FedPCA chose in a round, and why, in plain sentences: for the record alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from fedpca.core import Choice, Diagnosis, Server
from fedpca.parts.client.probe import SKEWED
from fedpca.parts.client.step import SETTLED
from fedpca.parts.server.lift import PACE, TRIED, can_judge, lift_of, rare_clients


@dataclass(frozen=True)
class ExplainChoices:
    """Lift, treatment of wrong labels, sharpness and logit adjustment, as far as each is left to the method."""

    lift: float | None  # where it is set by hand
    max_lift: float
    max_wrong: float  # share of wrong labels from which on a client is dropped
    min_pace: float | None  # of the loss, below which sharpness is used; None: it is set by hand
    adjusts: bool  # whether training is adjusted where classes are skewed

    def __call__(self, server: Server) -> Sequence[Choice]:
        """All choices of the round that was played last."""
        found = [self._judging(server.diagnosis), self._lift(server.diagnosis), *self._treatment(server.diagnosis)]
        if self.min_pace is not None:
            found.append(self._sharpness(server, self.min_pace))
        if self.adjusts:
            found.append(_adjustment(server.diagnosis))
        return found

    def _judging(self, diagnosis: Diagnosis) -> Choice:
        if can_judge(diagnosis):
            return Choice("judging", 1.0, "Labels are judged: the model predicts enough of them to compare clients.")
        return Choice("judging", 0.0, "Nobody is judged yet: too little is learned to compare the clients' labels.")

    def _lift(self, diagnosis: Diagnosis) -> Choice:
        rare = len(rare_clients(diagnosis))
        if not rare:
            return Choice("lift", 1.0, "No client weighs more than its images: nobody is found rare.")
        lift = self.lift or lift_of(diagnosis)
        found = f"The {rare} rare clients" if rare > 1 else "The rare client"
        weigh = f"{found} {'weigh' if rare > 1 else 'weighs'} {lift:.1f} times as much per image as the others"
        return Choice("lift", lift, f"{weigh}: {self._why(diagnosis, lift)}.")

    def _why(self, diagnosis: Diagnosis, lift: float) -> str:
        if self.lift:
            return "set by hand"
        gain = next((v.notes[TRIED] for v in diagnosis.values() if TRIED in v.notes), None)
        if gain is None:
            return "no larger weight has been tried yet"
        if gain > 0:
            most = ", and this is the most allowed" if lift >= self.max_lift else ""
            return f"where clients tried more, the rare ones gained more than the others lost{most}"
        return "where clients tried more, the rare ones gained too little for what the others lost"

    def _treatment(self, diagnosis: Diagnosis) -> list[Choice]:
        judged = [v.suspicion or 0.0 for v in diagnosis.values() if v.group == "mislabeled"]
        dropped = sum(share >= self.max_wrong for share in judged)
        corrected = len(judged) - dropped
        one = f"{corrected} of the clients judged mislabeled train on what the model predicts with confidence"
        other = f"{dropped} of the clients judged mislabeled are left out: {self.max_wrong:.2f} or more of their labels"
        return [
            Choice("corrected", corrected, f"{one}, weighed by their estimated share of right labels."),
            Choice("dropped", dropped, f"{other} are wrong by estimate."),
        ]

    def _sharpness(self, server: Server, needed: float) -> Choice:
        pace = server.memory[PACE][1].item() if PACE in server.memory else inf
        if not isfinite(pace):
            return Choice("sharpness", 0.0, "Training is not sharpness-aware: too little is learned yet.")
        falls = f"the median client's loss falls by {100 * pace:.1f} % a round"
        if SETTLED in server.shown:
            return Choice("sharpness", 1.0, f"Training is sharpness-aware: {falls}, which is slow.")
        return Choice(
            "sharpness", 0.0, f"Training is not sharpness-aware: {falls}; it would be below {100 * needed:.1f} %."
        )


def _adjustment(diagnosis: Diagnosis) -> Choice:
    said = [value for v in diagnosis.values() if isinstance(value := v.report.get(SKEWED), float)]
    skewed = sum(value > 0 for value in said)
    text = f"{skewed} of {len(said)} clients train with logit adjustment: their classes are skewed."
    return Choice("adjusted", skewed, text if skewed else "No client needs logit adjustment: classes are even.")
