"""A site of a job that goes wrong where and when it says; sites are processes of their own."""

from __future__ import annotations

import json
import time

import numpy as np
from nvflare.collab import collab
from safetensors.numpy import load, save

from fedpca.nvflare.apps import FedPCASite

SECRET = "patient 4711"


class FaultySite(FedPCASite):
    """The usual site, but for: bonn raises, dessau sends NaN, then is slow, celle is killed while it trains."""

    def answer(self, kind, packed, end):
        order = json.loads(packed["tables"]).get("order", {})
        what = (self.place.site, order.get("round", 0)) if kind == "train" else None
        if what == ("bonn", 1):
            return self.raising(kind, packed, end)
        if what == ("dessau", 2):
            time.sleep(25)  # longer than the deadline
        if what == ("celle", 3) and not (self.place.root / "waiting").exists():
            (self.place.root / "waiting").touch()
            time.sleep(600)
        reply = super().answer(kind, packed, end)
        if what == ("dessau", 1):
            arrays = {name: np.full_like(array, np.nan) for name, array in load(reply["states"]["arrays"]).items()}
            reply["states"]["arrays"] = save(arrays)
        return reply

    def raising(self, kind, packed, end):
        def burn(*arguments):
            raise RuntimeError(f"the scanner is on fire: {SECRET}")

        self.read_data, good = burn, self.read_data
        try:
            return super().answer(kind, packed, end)
        finally:
            self.read_data = good

    @collab.publish
    def put(self, number: str, kind: str, tables: str, states: dict, seconds: float) -> None:
        """Raises once where NVFlare itself sends the text on."""
        if self.place.site == "bonn" and json.loads(tables).get("order", {}).get("round") == 2 and kind == "train":
            raise RuntimeError(f"the cable is on fire: {SECRET}")
        self._desk().put(
            str(number), lambda: self.answer(kind, {"tables": tables, "states": states}, time.monotonic() + seconds)
        )
