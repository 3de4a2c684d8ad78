"""What people found who read labels again: an unbiased share of wrong labels, and the corrected labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, variance

from fedpca.atomic import write_whole
from fedpca.auditing.files import read_site
from fedpca.auditing.suspects import FILE, Suspect, cell_text, plain_cell, read_suspects
from fedpca.data.corrected import COLUMNS
from fedpca.data.corrected import FILE as CORRECTED
from fedpca.errors import DataError, nearest

Z = 1.96  # standard errors: 95 %
MIN_READ = 30  # rows of the sample that must be read for the prediction-powered interval to hold what it promises
MIN_WRONG = 5  # wrong and right labels among them, for the same reason


@dataclass(frozen=True)
class Rate:
    """A share of wrong labels with its 95 % interval."""

    share: float
    low: float
    high: float
    how: str  # prediction-powered, binomial or all rows


@dataclass(frozen=True)
class Review:
    """What the readers of one site found."""

    read: int  # rows with a reviewed label
    sampled: int  # of these, rows of the random sample
    sample: int  # rows of the random sample
    changed: int  # rows whose label is another one now
    pairs: Mapping[tuple[str, str], int]  # from which class to which, most first
    confirmed: tuple[int, int]  # of the suspects that were read: how many labels were wrong, of how many
    rate: Rate | None
    why_no_rate: str | None


def review_site(folder: Path, reader_error: float = 0.0) -> tuple[Path, Review]:
    """What was found at a site; writes the corrected labels beside the rows, and gives that file."""
    if not 0 <= reader_error < 0.5:
        raise DataError(f"--reader-error must be from 0 to below 0.5, the share of labels misread; got {reader_error}")
    place, about = read_site(folder)
    suspects = read_suspects(place / FILE)
    found = review_of(suspects, about["classes"], reader_error, str(place / FILE))
    if found.read:
        write_corrected(place / CORRECTED, suspects)
    return place / CORRECTED, found


def review_of(
    suspects: Sequence[Suspect], classes: Sequence[str], reader_error: float = 0.0, where: str = ""
) -> Review:
    """What the filled rows say; refuses a label that is no class."""
    read = [own for own in suspects if own.reviewed]
    for own in read:
        if own.reviewed not in classes:
            raise DataError(
                f"{where or FILE}: row {own.row} was reviewed as {own.reviewed!r}, which is no class"
                f"{nearest(own.reviewed, classes)}"
            )
    pairs: dict[tuple[str, str], int] = {}
    for own in read:
        if own.reviewed != own.given:
            pairs[own.given, own.reviewed] = pairs.get((own.given, own.reviewed), 0) + 1
    listed = [own for own in read if own.is_issue]
    sampled = [own for own in read if own.in_sample]
    rate, why = _rate(suspects, reader_error)
    return Review(
        len(read),
        len(sampled),
        sum(own.in_sample for own in suspects),
        sum(pairs.values()),
        dict(sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))),
        (sum(_is_wrong(own) for own in listed), len(listed)),
        rate,
        why,
    )


def _rate(suspects: Sequence[Suspect], reader_error: float) -> tuple[Rate | None, str | None]:
    """The share from the random sample; rows that were chosen because they are doubtful do not count."""
    sample = [own for own in suspects if own.in_sample]
    read = [own for own in sample if own.reviewed]
    if not read:
        return None, "no row of the random sample was read: rows chosen because they are doubtful show no share"
    if len(read) < len(sample) / 2:
        return None, f"only {len(read)} of the {len(sample)} rows of the random sample were read: read half at least"
    wrong = [float(_is_wrong(own)) for own in read]
    rate = share_of_sample(wrong, [1 - own.score for own in read], [1 - own.score for own in suspects])
    return corrected_for_readers(rate, reader_error), None


def _is_wrong(own: Suspect) -> bool:
    return own.reviewed != own.given


def share_of_sample(wrong: Sequence[float], predicted: Sequence[float], every: Sequence[float]) -> Rate:
    """The share of wrong labels among all rows, from those that were read: the narrower of two intervals.

    `wrong` is 0 or 1 for each row that was read, `predicted` the model's doubt of the same rows, `every` its doubt of
    all rows. Angelopoulos et al. 2023, with the weight on the predictions that makes the interval narrowest.
    """
    count, total = len(wrong), len(every)
    plain = wilson(sum(wrong), count, total)
    few = min(sum(wrong), count - sum(wrong)) < MIN_WRONG
    if count < MIN_READ or few or count >= total:
        return plain
    powered = prediction_powered(wrong, predicted, every)
    return powered if powered.high - powered.low < plain.high - plain.low else plain


def wilson(wrong: float, count: int, total: int) -> Rate:
    """Wilson's interval; narrower where a good part of all rows was read, and a point where all were."""
    if count >= total:
        return Rate(wrong / count, wrong / count, wrong / count, "all rows")
    size = count * (total - 1) / (total - count)  # as many of endlessly many rows would tell as much
    share = wrong / count
    middle = (share + Z**2 / (2 * size)) / (1 + Z**2 / size)
    half = Z * sqrt(share * (1 - share) / size + Z**2 / (4 * size**2)) / (1 + Z**2 / size)
    return Rate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)), "binomial")


def prediction_powered(wrong: Sequence[float], predicted: Sequence[float], every: Sequence[float]) -> Rate:
    """Mean of w f over all rows plus the mean of wrong - w f over those that were read.

    The sample is drawn from these very rows, whose doubts are all known: only the second mean is left to chance.
    """
    count, total = len(wrong), len(every)
    centre, spread = fmean(predicted), variance(predicted)
    mean = fmean(wrong)
    shared = sum((f - centre) * (w - mean) for f, w in zip(predicted, wrong, strict=True)) / (count - 1)
    weight = shared / spread if spread > 0 else 0.0
    rest = [w - weight * f for w, f in zip(wrong, predicted, strict=True)]
    known, degrees = weight * fmean(every), count - 2  # the weight was fitted too
    # as Agresti and Coull do for binomials: with one wrong and one right label more, since few wrong ones say little
    more = [*rest, 1 - weight * centre, -weight * centre]
    error = sqrt(variance(more) * (count - 1) / degrees / count * (1 - count / total)) * (1 + 1.2 / degrees)
    share, middle = known + fmean(rest), known + fmean(more)
    share = min(1.0, max(0.0, share))
    low, high = max(0.0, min(share, middle - Z * error)), min(1.0, max(share, middle + Z * error))
    return Rate(share, low, high, "prediction-powered")


def corrected_for_readers(rate: Rate, error: float) -> Rate:
    """The same share without what readers misread: seen = share (1 - error) + (1 - share) error, to first order.

    A wrong label that is misread nearly always still looks wrong: of the wrong ones a reader calls all wrong but those
    that are misread as just the given class, which is rare enough to leave out for the lower end and counted for the
    upper one.
    """
    if error == 0:
        return rate

    def without(seen: float, missed: float) -> float:
        return min(1.0, max(0.0, (seen - error) / (1 - error - missed)))

    middle = without(rate.share, error / 2)
    low, high = min(middle, without(rate.low, 0.0)), max(middle, without(rate.high, error))
    return Rate(middle, low, high, f"{rate.how}, corrected for readers' errors")


def write_corrected(path: Path, suspects: Sequence[Suspect]) -> None:
    """Writes the labels that were changed, in the order of their rows: what `data.corrected_labels` takes.

    Corrections that the audited data had already, from an earlier review, stay in the file.
    """
    earlier = _earlier(path)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for own in sorted(suspects, key=lambda own: own.row):
        before = earlier.get(own.row, ("", ""))
        first = before[0] if before[1] == own.given else own.given  # what the data have without any correction
        label = own.reviewed or own.given
        if label != first:
            writer.writerow([plain_cell(cell) for cell in (own.row, own.path, first, label)])
    write_whole(path, text.getvalue())


def _earlier(path: Path) -> dict[int, tuple[str, str]]:
    """The corrections in a file that is there: what each label was, and what it is now, by row."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    try:
        return {int(row["row"]): (cell_text(row["given_label"]), cell_text(row["label"])) for row in rows}
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path} must have the columns {', '.join(COLUMNS)}: move it away") from None
