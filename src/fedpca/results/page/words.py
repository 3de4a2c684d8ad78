"""Numbers and names in plain sentences."""

from collections.abc import Sequence
from html import escape

MAX_NAMES = 16  # names in a sentence; the others are counted


def quantity(number: int, noun: str) -> str:
    """1 client, 2 clients."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def enumeration(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """Names as a, b and c; of more than `most` the last are counted: a, b and 37 others."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], quantity(len(names) - most + 1, "other")]
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1] if shown else "nobody") if part)


def clients(names: Sequence[str]) -> str:
    """The names as client a, or clients a and b."""
    return f"{'client' if len(names) == 1 else 'clients'} {enumeration(names)}" if names else "nobody"


def plural(names: Sequence[str], one: str, many: str) -> str:
    """The word for one or for many; nobody counts as one."""
    return one if len(names) < 2 else many


def capital(text: str) -> str:
    """The text with a capital letter."""
    return f"{text[0].upper()}{text[1:]}"


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return f"{capital(text)}."


def percent(share: float) -> str:
    """A share as 38.5 %, whole numbers without decimals."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def non_breaking(text: str) -> str:
    """The text as HTML, percent signs and deviations kept with their numbers."""
    return escape(text).replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;")
