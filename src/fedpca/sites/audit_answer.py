"""A site's half of an audit: it judges its own rows, tells counts of them, and writes its own files."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from fedpca.atomic import write_whole
from fedpca.auditing.calibration import Calibration
from fedpca.auditing.estimate import draws_list
from fedpca.auditing.files import write_site
from fedpca.auditing.run import judge
from fedpca.auditing.summary import summarise
from fedpca.auditing.suspects import Suspect, find_suspects, with_cells
from fedpca.core import Images, Net, Params
from fedpca.errors import RunError, SettingsError
from fedpca.simulate.workers import Workers
from fedpca.sites.audit_messages import Findings, write_listed, write_summary
from fedpca.sites.data import SiteRows
from fedpca.sites.messages import Content

if TYPE_CHECKING:
    from fedpca.sites.answer import Visit

FOLDER, WORK = "audit", "work"  # in the site's store: its files, and what it keeps to write them


def tell_summary(visit: Visit, net: Net, params: Params) -> Content:
    """Counts and numbers of the site's labels under a model that never saw them; which rows these are is kept here."""
    _refuse_noise(visit)
    shard = visit.data.train
    (probs,) = judge(Workers([net]), params, [shard])
    path = _kept(visit)
    write_whole(path, save({"probabilities": probs}))
    for earlier in set(path.parent.glob("*.safetensors")) - {path}:
        earlier.unlink(missing_ok=True)
    return write_summary(summarise(probs, shard.y, visit.settings.audit.tell))


def write_list(visit: Visit, found: Findings) -> Content:
    """Writes suspects.csv, sheet.html and the images into the site's store; the answer is how many are listed."""
    settings, shard, rows = visit.settings, visit.data.train, _rows(visit)
    if found.entry.client != settings.site:
        raise SettingsError(f"these findings are of {found.entry.client!r:.80}, not of this site")
    suspects = _suspects(visit, found, rows)
    listed = sum(own.is_issue for own in suspects)
    entry = {**found.entry.model_dump(), "suspects": listed}
    places = {row: place for place, row in enumerate(rows.numbers.tolist())}
    pictures = None if rows.cells else partial(_pictures, shard.x)
    folder = settings.folder / FOLDER
    write_site(folder, entry, found.about.model_dump(), suspects, pictures, found.images, places)
    return write_listed(listed if settings.audit.tell == "all" else None)


def _suspects(visit: Visit, found: Findings, rows: SiteRows) -> list[Suspect]:
    """Every row of the site, worst first."""
    suspects = find_suspects(
        _probabilities(visit),
        visit.data.train.y,
        Calibration.from_tables({"calibration": found.calibration}, len(found.about.classes)),
        found.about.classes,
        fdr=found.about.fdr if draws_list(found.entry.verdict, found.entry.list_warning) else 0.0,
        sample=found.about.sample,
        seed=found.seed,
        client=visit.settings.site,
        rows=rows.numbers.tolist(),
        paths=rows.paths,
    )
    return with_cells(suspects, rows.numbers.tolist(), rows.cells) if rows.cells else suspects


def _rows(visit: Visit) -> SiteRows:
    if visit.data.describe:
        return visit.data.describe()
    count = len(visit.data.train.y)
    return SiteRows(torch.arange(count).numpy(), ("",) * count, ())


def _pictures(images: Images, places: list[int]) -> Tensor:
    return images[torch.tensor(places, dtype=torch.int64)]


def _kept(visit: Visit) -> Path:
    """Where the site keeps its rows' probabilities between two messages; only its owner may look."""
    folder = visit.settings.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.chmod(folder, 0o700)
    return folder / WORK / f"{visit.run.id}.safetensors"


def _probabilities(visit: Visit) -> Tensor:
    path = _kept(visit)
    try:
        return load_file(path)["probabilities"]
    except (SafetensorError, OSError, KeyError) as error:
        raise RunError(f"{path} cannot be read ({error}): start the audit again in another folder") from None


def _refuse_noise(visit: Visit) -> None:
    privacy = visit.guard.privacy
    if privacy.noise > 0 or privacy.epsilon is not None:
        key = "privacy.noise" if privacy.noise > 0 else "privacy.epsilon"
        raise SettingsError(
            f"this site adds noise to what it tells ({key}), and an audit's counts cannot have any: it is not audited"
        )
