"""Sites of this process in place of a job's clients: their methods are called by name, and what they give travels."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from nvflare.collab import CollabCallError
from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.fobs.datum import DatumManager

from fedpca.nvflare import apps
from fedpca.nvflare.apps import FedPCASite, Place
from fedpca.nvflare.desk import Desk


def travelled(packed: object) -> object:
    """What NVFlare hands over at the other end."""
    return fobs.deserialize(fobs.serialize(packed, DatumManager()), DatumManager())


class LocalSite:
    """A site with a folder as its kit; it can be away, be killed, or raise as code of somebody else would."""

    def __init__(self, name: str, root: Path, **settings: object) -> None:
        self.site, self.away, self.raising, self.calls = FedPCASite(), False, "", []
        (root / "local").mkdir(parents=True, exist_ok=True)
        lines = [
            f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
            for key, value in settings.items()
        ]
        (root / "local" / "fedpca.toml").write_text("\n".join(lines))
        self.site.place, self.site.local, self.site.desk = Place(name, root), root / "local", Desk()
        self.name = name

    def call(self, method: str, timeout: float, /, **values: object) -> object:
        self.calls.append(method)
        if self.away:
            raise CollabCallError(self.name, method, "target_unreachable of patient 4711", cause_type="RuntimeError")
        if self.raising == method:
            raise CollabCallError(self.name, method, "patient 4711 is on fire", cause_type="ValueError")
        return travelled(getattr(self.site, method)(**{key: travelled(value) for key, value in values.items()}))


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Who calls, as NVFlare says."""
    who = SimpleNamespace(caller="server")
    monkeypatch.setattr(apps, "collab", who)
    yield who
    for thread in threading.enumerate():
        assert not thread.name.startswith("fedpca-") or thread.daemon
