"""Whether the interval of a re-read sample holds the truth: `python -m studies.review`.

Made-up clients of which the truth is known: doubts of a model and labels of which some are wrong, more often where the
doubt is large. A reader sees the true labels, or misreads 5 % of them. Prints how often the 95 % interval holds the
true share, and how often it is narrower than the binomial one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from fedpca.auditing.review import Rate, corrected_for_readers, share_of_sample, wilson
from fedpca.rng import numbers

CLASSES = 10


@dataclass(frozen=True)
class Setting:
    """A kind of client and of reader."""

    rows: int
    sample: int
    share: float  # of wrong labels
    sharpness: float  # how well doubts tell wrong labels from right ones: 0 not at all
    reader_error: float


SETTINGS = tuple(
    Setting(rows, sample, share, sharpness, error)
    for error in (0.0, 0.05)
    for sharpness in (4.0, 1.5)
    for rows, sample, share in ((1000, 100, 0.1), (1000, 200, 0.3), (5000, 200, 0.2), (300, 100, 0.4))
)


def repeat(setting: Setting, seed: int) -> tuple[bool, bool, bool, Rate]:
    """Whether the interval holds the truth, is narrower than the binomial one, is not the binomial one; the rate."""
    rng = numbers(seed, "review", repr(setting))
    wrong = rng.random(setting.rows) < setting.share
    doubt = 1 / (1 + np.exp(-(setting.sharpness * (wrong - 0.5) + rng.normal(0, 1.5, setting.rows))))
    read = rng.permutation(setting.rows)[: setting.sample]
    misread = rng.random(setting.sample) < setting.reader_error
    # a wrong label that is misread as one of the other classes is the given one in one of nine cases
    seen = np.where(misread, ~wrong[read] | (rng.random(setting.sample) > 1 / (CLASSES - 1)), wrong[read])
    rate = share_of_sample(seen.astype(float).tolist(), doubt[read].tolist(), doubt.tolist())
    plain = wilson(float(seen.sum()), setting.sample, setting.rows)
    powered = rate.how == "prediction-powered"
    narrower = rate.high - rate.low < plain.high - plain.low
    final = corrected_for_readers(rate, setting.reader_error)
    return final.low <= float(wrong.mean()) <= final.high, narrower, powered, final


def line(setting: Setting, repetitions: int) -> tuple[str, float, float]:
    """A row of the table, the coverage and how often it is narrower."""
    found = [repeat(setting, seed) for seed in range(repetitions)]
    covered, narrower = fmean(own[0] for own in found), fmean(own[1] for own in found)
    width = fmean(own[3].high - own[3].low for own in found)
    cells: Sequence[object] = (
        setting.rows,
        setting.sample,
        f"{setting.share:.2f}",
        {4.0: "well", 1.5: "weakly"}[setting.sharpness],
        f"{setting.reader_error:.2f}",
        f"{covered:.3f}",
        f"{narrower:.2f}",
        f"{width:.3f}",
    )
    return f"| {' | '.join(map(str, cells))} |", covered, narrower


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    repetitions = parser.parse_args().repetitions
    print("| rows | read | wrong | doubts tell them | misread | in the interval | narrower than binomial | width |")
    print("|---:|---:|---:|---|---:|---:|---:|---:|")
    rows = [line(setting, repetitions) for setting in SETTINGS]
    for text, _, _ in rows:
        print(text)
    print(f"\nmean coverage {fmean(row[1] for row in rows):.3f}, least {min(row[1] for row in rows):.3f};", end=" ")
    print(f"narrower than binomial in {fmean(row[2] for row in rows):.0%} of all repetitions")


if __name__ == "__main__":
    main()
