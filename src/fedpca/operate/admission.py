"""Which sites Flower lets in: those whose public keys lie in the server's folder, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fedpca.errors import RunError
from fedpca.operate import keys
from fedpca.operate.processes import Log, flwr


@dataclass
class Admission:
    """The sites that Flower knows."""

    folder: Path | None  # of the server's keys; without one anyone may join
    env: Mapping[str, str]
    log: Log
    known: dict[str, tuple[str, str]] = field(default_factory=dict)  # key and Flower's number, "" if it was refused

    @property
    def count(self) -> int:
        """How many sites may join."""
        return sum(bool(number) for _, number in self.known.values())

    def named(self, line: str) -> str:
        """A line of Flower's log with the names of sites in place of their numbers."""
        for site, (_, number) in list(self.known.items()):
            line = line.replace(number, site) if number else line
        return line

    def refresh(self) -> None:
        """Makes Flower know the keys in the folder and no others."""
        if self.folder is None:
            return
        paths = keys.registered_sites(self.folder)
        found = {site: path.read_text(errors="replace").strip() for site, path in paths.items()}
        for site, (key, number) in self.known.items():
            if found.get(site) != key and number:
                flwr(["supernode", "unregister", number], self.env)
                self.log(f"{site} may no longer join")
        kept = {site: known for site, known in self.known.items() if found.get(site) == known[0]}
        new = [site for site in found if site not in kept]
        with ThreadPoolExecutor(4) as pool:
            numbers = list(pool.map(lambda site: self._register(site, paths[site]), new))
        self.known = {**kept, **{site: (found[site], number) for site, number in zip(new, numbers, strict=True)}}

    def _register(self, site: str, path: Path) -> str:
        """Flower's number of a site; "" if it refuses the key."""
        try:
            number = str(flwr(["supernode", "register", str(path), "--name", site], self.env)["node-id"])
        except RunError as error:
            self.log(f"{site} may not join, {path} is refused: {error}")
            return ""
        self.log(f"{site} may join")
        return number
