"""How much one update counts, before the counts are divided by their sum."""

from fedpca.core import Update, Verdict


def by_size(update: Update, verdict: Verdict) -> float:
    """The number of samples it was trained on."""
    return float(update.size)
