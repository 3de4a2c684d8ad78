"""Results of an audit as its files have them: made up, of twenty sites that read skin lesions."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from random import Random
from typing import Any

from PIL import Image, ImageDraw

CLASSES = ["nevus", "melanoma", "keratosis", "carcinoma"]
SITES = ["bonn", "graz", "lyon", "oslo", "porto", "turin", "ghent", "basel", "delft", "malmo", "leeds", "cork"]
SITES += ["bergen", "split", "brno", "gdansk", "tartu", "vilnius", "riga", "kosice"]
SHARES = {"bonn": (0.31, 0.24, 0.39), "graz": (0.22, 0.15, 0.30), "lyon": (0.41, 0.33, 0.49)}
UNKNOWN = {"oslo": "only 31 labels: an interval would span from 2 % to 61 %", "tartu": "the two groups fit it equally"}


def an_audit(sites: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    """audit.json of these sites."""
    entries = [an_entry(name, i) for i, name in enumerate(sites or SITES)]
    return {
        "version": 1,
        "name": "Skin lesions of twenty clinics",
        "made": "2026-11-18",
        "engine": "in one place",
        "rows": "all",
        "classes": CLASSES,
        "method": "fedavg+d",
        "folds": 5,
        "rounds": 30,
        "fdr": 0.1,
        "sample": 100,
        "not_tested": [
            {"client": None, "what": "errors that most clients share", "why": "the model learns them as right"},
            {"client": "oslo", "what": "the share of wrong labels", "why": "it has 31 labels; 50 are needed"},
        ],
        "reference": {"clients": 15, "base": 0.07, "spread": 0.021},
        "clients": entries,
        **changes,
    }


def an_entry(name: str, number: int = 0) -> dict[str, Any]:
    """A client's entry of audit.json."""
    images = 31 if name == "oslo" else 220 + 17 * (number % 7)
    if name in UNKNOWN:
        share, low, high, verdict, reason = None, None, None, "cannot tell", UNKNOWN[name]
    elif name in SHARES:
        (share, low, high), verdict = SHARES[name], "mislabeled"
        reason = f"{100 * low:.0f} % or more of its labels differ from what the other clients teach"
    else:
        share, verdict = 0.012 * (number % 6), "not mislabeled"
        low, high = max(0.0, share - 0.03), share + 0.05
        reason = "as many labels differ as at the reference clients"
    return {
        "client": name,
        "images": images,
        "verdict": verdict,
        "reason": reason,
        "share": share,
        "low": low,
        "high": high,
        "why_no_interval": None if low is not None else "too few labels",
        "suspects": None if name == "turin" else int((share or 0) * images * 0.9),
        "confused": None if name == "turin" else pairs(share or 0.0, images),
        "told": "rate" if name == "turin" else "all",
    }


def pairs(share: float, images: int) -> list[dict[str, Any]]:
    """Confused classes that make up this share."""
    parts = [("nevus", "melanoma", 0.5), ("keratosis", "carcinoma", 0.3), ("melanoma", "nevus", 0.2)]
    counted = [(given, likely, round(share * part * images)) for given, likely, part in parts]
    return [{"given": g, "likely": k, "images": n, "share": n / images} for g, k, n in counted if n]


def a_site(name: str = "bonn", **changes: Any) -> dict[str, Any]:
    """site.json."""
    audit = an_audit()
    return {**an_entry(name), **{key: audit[key] for key in ("classes", "fdr", "name", "sample")}, **changes}


COLUMNS = "row,path,given_label,predicted_label,label_score,p_value,is_label_issue,in_random_sample,reviewed_label"


def suspect_rows(number: int = 40, suspects: int = 12, sample: int = 10) -> list[dict[str, Any]]:
    """Rows of suspects.csv, worst first; every fourth is in the random sample."""
    rng = Random(7)
    rows = rng.sample(range(1000), number)
    drawn = set(rng.sample(range(number), sample))
    return [
        {
            "row": row,
            "path": f"images/lesion {row}.png",
            "given_label": (given := CLASSES[row % 4]),
            "predicted_label": CLASSES[(row + 1) % 4] if i < suspects else given,
            "label_score": round(0.01 + 0.9 * i / number, 4),
            "p_value": round(0.0005 + i / number / 2, 5),
            "is_label_issue": i < suspects,
            "in_random_sample": i in drawn,
            "reviewed_label": "",
        }
        for i, row in enumerate(rows)
    ]


def a_png(seed: int, size: int = 72) -> bytes:
    """A drawing that looks a little like a lesion, another one for each seed."""
    rng = Random(seed)
    image = Image.new("RGB", (size, size), (rng.randint(222, 245), rng.randint(190, 212), rng.randint(170, 195)))
    draw = ImageDraw.Draw(image)
    for _ in range(9):
        x, y, r = rng.gauss(size / 2, size / 9), rng.gauss(size / 2, size / 9), rng.uniform(size / 12, size / 5)
        draw.ellipse(
            (x - r, y - r, x + r, y + r), fill=(rng.randint(90, 150), rng.randint(50, 90), rng.randint(40, 70))
        )
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def write_site(folder: Path, rows: list[dict[str, Any]] | None = None, images: bool = True, **changes: Any) -> Path:
    """SITE/ as an audit writes it."""
    rows = suspect_rows() if rows is None else rows
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "site.json").write_text(json.dumps(a_site(**changes)))
    with (folder / "suspects.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows if images else []:
        (folder / "images" / f"{row['row']}.png").write_bytes(a_png(row["row"]))
    return folder
