"""What the sites of a federation must have in common, and who takes part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpca.core import ClientId
from fedpca.sites import encoding
from fedpca.sites.encoding import Encoding
from fedpca.sites.engine import NodeId
from fedpca.sites.messages import SiteHead

MAX_DIGITS = 100  # of a name that is sorted as a number
IMAGES, TABLE = "images", "a table of numbers"


@dataclass(frozen=True)
class Agreement:
    """What every site of a federation must have in common."""

    classes: tuple[str, ...]  # none where labels are the numbers of the model's outputs
    shape: tuple[int, ...]  # of what goes into the model
    table: Encoding = ()  # how a table's columns go into it; none of images

    def mismatch(self, site: SiteHead) -> str | None:
        """Why a site does not fit, or None."""
        return self._other_data(site) or _other_class(site, self.classes)

    def _other_data(self, site: SiteHead) -> str | None:
        if bool(site.table) != bool(self.table):
            own, agreed = (TABLE, IMAGES) if site.table else (IMAGES, TABLE)
            return f"its data are {own}, those of the federation {agreed}"
        if self.table:
            return encoding.mismatch(site.table, self.table)
        if tuple(site.shape) != self.shape:
            return f"its images are {_by(site.shape)}, those of the federation {_by(self.shape)}: set data.image_size"
        return None


def agree(sites: Sequence[SiteHead], classes: tuple[str, ...]) -> Agreement:
    """The given classes or else all that these sites have, and the shape, or the columns, that most of them have.

    Sums of tables are taken of those sites alone that fit.
    """
    names = classes or tuple(sorted({name for site in sites for name in site.classes}, key=by_value))
    ((outline, _),) = Counter(map(_outline, sites)).most_common(1)
    alike = [site for site in sites if _outline(site) == outline]
    if not alike[0].table:
        return Agreement(names, tuple(alike[0].shape))
    table = encoding.agree_on_encoding([site for site in alike if not _other_class(site, names)] or alike)
    return Agreement(names, (encoding.width(table), 1, 1), table)


def by_value(name: str) -> tuple[int, int, str]:
    """Sorts names, numbers among them by their value."""
    return (0, int(name), name) if name.isdecimal() and len(name) < MAX_DIGITS else (1, 0, name)


def assign(
    known: Mapping[NodeId, SiteHead], online: Mapping[NodeId, str], agreement: Agreement | None
) -> tuple[dict[ClientId, NodeId], dict[ClientId, str]]:
    """The node of each site, and who is turned away and why; `online` has the name that each node's key stands for.

    That name is proven, a site's own word is not: where there are keys both must agree.
    Of two nodes with one name and one store, the later is the same site after a restart and takes over. With another
    store it is another site: it is turned away until the first has gone.
    """
    nodes: dict[ClientId, NodeId] = {}
    refusals: dict[ClientId, str] = {}
    for node, site in known.items():
        if node not in online:
            continue
        holder, proven = nodes.get(site.name), online[node]
        if proven and proven != site.name:
            refusals[proven] = f"it calls itself {site.name!r}, but its key is that of {proven!r}: correct its settings"
        elif agreement and (mismatch := agreement.mismatch(site)):
            refusals[site.name] = mismatch
        elif holder is not None and known[holder].identity != site.identity:
            refusals[f"{site.name} (a second one)"] = (
                f"another site has the name {site.name!r} already: rename one of them"
            )
        else:
            nodes[site.name] = node
    return nodes, refusals


def _outline(site: SiteHead) -> object:
    """What sites that fit together have in common: the names of a table's columns in any order, or an image's shape."""
    return frozenset(head.name for head in site.table) or tuple(site.shape)


def _other_class(site: SiteHead, classes: Sequence[str]) -> str | None:
    unknown = [name for name in site.classes if name not in classes]
    return f"the federation has no class {unknown[0]!r}; it has {', '.join(classes)}" if unknown else None


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
