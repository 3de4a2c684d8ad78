"""An audit for pictures: scanned digits of scikit-learn, twenty made-up clients, made-up numbers."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from fedpca.auditing.suspects import Suspect

CLASSES = [str(digit) for digit in range(10)]
CLIENTS = ["bonn", "graz", "lyon", "oslo", "porto", "turin", "ghent", "basel", "delft", "malmo", "leeds", "cork"]
CLIENTS += ["bergen", "split", "brno", "gdansk", "tartu", "vilnius", "riga", "kosice"]
WRONG = {"bonn": (0.31, 0.25, 0.38), "graz": (0.22, 0.16, 0.29), "lyon": (0.41, 0.34, 0.48)}
FEW = "oslo"
PAIRS = (("3", "8", 0.4), ("1", "7", 0.3), ("4", "9", 0.2), ("5", "6", 0.1))
IMAGES, LISTED, SAMPLE = 250, 66, 100


def an_audit() -> dict[str, Any]:
    """audit.json."""
    return {
        "version": 1,
        "name": "Example: scanned digits of twenty offices",
        "made": "2026-11-18",
        "engine": "in one place",
        "rows": "all",
        "classes": CLASSES,
        "method": "fedavg+d",
        "folds": 5,
        "rounds": 30,
        "fdr": 0.1,
        "sample": SAMPLE,
        "not_tested": [
            {"client": FEW, "what": "its share of wrong labels", "why": "31 labels are too few to compare"},
            {"client": None, "what": "errors that most clients share", "why": "the model learns them as right"},
        ],
        "reference": {"clients": 16, "base": 0.07, "spread": 0.018},
        "clients": [_entry(name, number) for number, name in enumerate(CLIENTS)],
    }


def _entry(name: str, number: int) -> dict[str, Any]:
    share, low, high = WRONG.get(
        name, (0.012 * (number % 5), max(0.0, 0.012 * (number % 5) - 0.03), 0.05 + 0.01 * (number % 5))
    )
    verdict = "mislabeled" if name in WRONG else "cannot tell" if name == FEW else "not mislabeled"
    reasons = {
        "mislabeled": "clearly more labels differ than at any reference client",
        "cannot tell": "too few labels: 31",
        "not mislabeled": "as few labels differ as at the reference clients",
    }
    known = name != FEW
    images = IMAGES if name in WRONG else 31 if name == FEW else 210 + 13 * (number % 7)
    counted = [(given, likely, round(share * part * images)) for given, likely, part in PAIRS]
    confused = [{"given": g, "likely": k, "images": n, "share": n / images} for g, k, n in counted if n > 1]
    return {
        "client": name,
        "images": images,
        "verdict": verdict,
        "reason": reasons[verdict],
        "share": share if known else None,
        "low": low if known else None,
        "high": high if known else None,
        "why_no_interval": None if known else "too few labels",
        "suspects": LISTED if name == "bonn" else round(0.85 * share * images),
        "confused": None if name == "turin" else confused if known else [],
        "told": "rate" if name == "turin" else "all",
    }


@cache
def digits() -> dict[int, bytes]:
    """PNG images of the first rows."""
    found = {}
    for row, values in enumerate(load_digits().images[:IMAGES]):
        scan = np.pad((255 - values * 15.9).astype(np.uint8), 2, constant_values=255)
        image = Image.fromarray(scan).resize((240, 240), Image.Resampling.NEAREST)
        file = io.BytesIO()
        image.save(file, "PNG")
        found[row] = file.getvalue()
    return found


def suspects() -> list[Suspect]:
    """Rows of suspects.csv: some digits have another digit's label, and nearly all of these are on the list."""
    truth, rng = load_digits().target[:IMAGES], np.random.default_rng(3)
    order, drawn = rng.permutation(IMAGES), set(rng.permutation(IMAGES)[:SAMPLE].tolist())
    rows = []
    for place, row in enumerate(order.tolist()):
        right, listed = str(truth[row]), place < LISTED
        given = CLASSES[(int(truth[row]) + 1 + int(rng.integers(9))) % 10] if place < 0.93 * LISTED else right
        likely = right if given != right else CLASSES[(int(truth[row]) + 5) % 10] if listed else right
        score, p_value = 0.002 + 0.9 * (place / IMAGES) ** 1.3, 0.0004 + 0.6 * (place / IMAGES) ** 2
        rows.append(Suspect(row, f"scans/{row:04}.png", given, likely, score, p_value, listed, row in drawn))
    return rows
