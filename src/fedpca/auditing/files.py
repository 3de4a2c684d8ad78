"""The files of an audit: those of the coordinator, and the folder of a site, which never leaves it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from fedpca.atomic import write_json, write_whole
from fedpca.auditing.record import Record
from fedpca.auditing.suspects import FILE, Suspect, as_row, plain_cell, read_suspects, with_reviews, write_suspects
from fedpca.errors import DataError

AUDIT, CLIENTS, PAGE, SITE, SHEET, IMAGES = (
    "audit.json",
    "clients.csv",
    "page.html",
    "site.json",
    "sheet.html",
    "images",
)
FIELDS = ("client", "images", "verdict", "share", "low", "high", "suspects", "confused", "told", "reason")
THUMBNAIL = 128  # longer side of the images in sheet.html
Pictures = Callable[[Sequence[int]], Tensor]  # of places among a client's rows: (n, C, H, W)


def write_audit(out: Path, record: Record) -> None:
    """Writes what the coordinator gets: clients.csv, page.html and, last, audit.json."""
    from fedpca.auditing.pages.page import page_html

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for own in record["clients"]:
        writer.writerow([plain_cell(_cell(own, name)) for name in FIELDS])
    write_whole(out / CLIENTS, text.getvalue())
    write_whole(out / PAGE, page_html(record))
    write_json(out / AUDIT, record)


def _cell(own: Mapping[str, Any], name: str) -> object:
    if name == "confused" and own["confused"] is not None:
        return "; ".join(f"{pair['given']} -> {pair['likely']} {pair['images']}" for pair in own["confused"])
    return "" if own[name] is None else own[name]


def read_audit(out: Path) -> Record:
    """What audit.json in a folder holds."""
    try:
        record: Record = json.loads((out / AUDIT).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{out} holds no finished audit: {AUDIT} cannot be read ({error})") from None
    return record


def site_folder(client: str) -> str:
    """A client's id as the name of a folder; one that had to be changed gets a few letters that tell it apart."""
    safe = re.sub(r"[^\w.-]+", "_", client).strip("._")[:60]
    if safe == client and client.lower() not in (AUDIT, CLIENTS, PAGE, "work"):
        return client
    return f"{safe or 'site'}-{blake2b(client.encode(), digest_size=3).hexdigest()}"


def write_site(
    folder: Path,
    entry: Record,
    record: Record,
    suspects: Sequence[Suspect],
    pictures: Callable[[Sequence[int]], Tensor] | None = None,
    max_images: int = 300,
    places: Mapping[int, int] | None = None,
) -> None:
    """Writes the folder of one site, which only its owner may read: the rows, their images and the sheet.

    `pictures` gives images by their place among the client's rows, and `places` that place for each row's number.
    What was read again already, in a suspects.csv that is there, is kept.
    """
    from fedpca.auditing.pages.sheet import sheet_html

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.chmod(folder, 0o700)
    suspects = _with_earlier_reviews(folder / FILE, suspects)
    about = {**entry, **{key: record[key] for key in ("name", "classes", "fdr", "sample", "made")}}
    thumbnails: dict[int, bytes] = {}
    if pictures:
        shown = [own.row for own in suspects if own.is_issue or own.in_sample][:max_images]
        thumbnails = _write_images(folder / IMAGES, shown, pictures, places or {row: row for row in shown})
    write_suspects(folder / FILE, suspects)
    write_json(folder / SITE, about)
    write_whole(folder / SHEET, sheet_html(about, [as_row(own) for own in suspects], thumbnails))


def _with_earlier_reviews(path: Path, suspects: Sequence[Suspect]) -> Sequence[Suspect]:
    """The rows with what people filled in before: nobody's reading is written over."""
    if not path.exists():
        return suspects
    before = {own.row: own for own in read_suspects(path) if own.reviewed}
    given = {own.row: own.given for own in suspects}
    corrected = {row for row, own in before.items() if given.get(row) == own.reviewed}  # since then, in the data
    if lost := [row for row, own in before.items() if row not in corrected and given.get(row) != own.given]:
        raise DataError(
            f"{path} has reviewed rows that are not those of this audit (row {lost[0]}): move it away, or choose "
            "another --out"
        )
    return with_reviews(suspects, {row: own.reviewed for row, own in before.items()})


def _write_images(folder: Path, rows: Sequence[int], pictures: Pictures, places: Mapping[int, int]) -> dict[int, bytes]:
    """Writes rows' images as PNG, and gives small ones."""
    thumbnails = {}
    for row in rows:
        picture = png_image(pictures([places[row]])[0])
        _write_image(folder / f"{row}.png", _png(picture))
        picture.thumbnail((THUMBNAIL, THUMBNAIL))
        thumbnails[row] = _png(picture)
    return thumbnails


def _write_image(path: Path, content: bytes) -> None:
    """Writes an image whole; without waiting for the disk, since there are many and they can be made again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def png_image(pixels: Tensor) -> Image.Image:
    """A picture (C, H, W) of bytes, or of floats, which are stretched from black to white."""
    if pixels.dtype != torch.uint8:
        low, high = float(pixels.min()), float(pixels.max())
        pixels = ((pixels.float() - low) / max(high - low, 1e-9) * 255).round().to(torch.uint8)
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])


def _png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def read_site(folder: Path) -> tuple[Path, Record]:
    """The folder of a site, or that within its state folder or store, and what its site.json holds."""
    within = (folder, folder / "audit", folder / "store" / "audit")
    place = next((own for own in within if (own / SITE).exists()), None)
    if place is None:
        raise DataError(f"{folder} is no folder of an audited site: it must have {SITE}; `fedpca audit` writes it")
    try:
        about: Record = json.loads((place / SITE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{place / SITE} cannot be read: {error}") from None
    return place, about
