"""Values that nobody expects: what all targets draw from."""

from __future__ import annotations

from random import Random

CONTROLS = "\x00\x07\x08\x1b\x7f\x85\u2028\u202e\u2066\ufeff\n\r\t"
TEXTS = (
    "",
    " ",
    "a\nfedpca: all is well",
    "\x1b[2J\x1b[31m",
    "\u202egnp.exe",
    "e\u0301",
    "\ud800",  # a half of a pair, which UTF-8 has not
    "\U0001f4a5" * 40,
    "東京",
    "../../etc/passwd",
    "/dev/zero",
    "/proc/self/mem",
    "~nobody/x",
    "x" * 300,
    "x/" * 2500,
    "y" * 100_000,
    "%s%s%n",
    "{0.__class__}",
    "${HOME}",
    "None",
    "nan",
    "-inf",
    "1e999",
    "9" * 5000,
    "'; DROP TABLE runs; --",
    "<script>alert(1)</script>",
    "true",
    "[",
    "]]]",
    "\\",
    '"""',
)
NUMBERS = (0, -1, 1, 2, 3, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 10**4000)
FLOATS = (0.0, -0.0, 0.5, 1.0000001, -1e-300, 5e-324, 1e300, 1.7e308, float("nan"), float("inf"), -float("inf"))


def text(rng: Random) -> str:
    """A known nuisance, or characters from anywhere."""
    if rng.random() < 0.6:
        return rng.choice(TEXTS)
    signs = [
        rng.choice((chr(rng.randrange(32, 127)), chr(rng.randrange(0x3000)), rng.choice(CONTROLS))) for _ in "x" * 9
    ]
    return "".join(signs[: rng.randrange(1, 10)])


def number(rng: Random) -> int | float:
    """A number at the edge of something, or any."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(NUMBERS)
    return rng.choice(FLOATS) if kind < 0.8 else rng.choice((rng.randrange(-10, 1000), rng.uniform(-2, 2)))


def deep(rng: Random, table: bool) -> object:
    """Lists or tables within each other."""
    inner: object = 0
    for _ in range(rng.choice((3, 19, 20, 21, 50, 200))):
        inner = {"a": inner} if table else [inner]
    return inner


def value(rng: Random) -> object:
    """Anything that JSON and TOML can say."""
    match rng.randrange(7):
        case 0:
            return text(rng)
        case 1 | 2:
            return number(rng)
        case 3:
            return rng.random() < 0.5
        case 4:
            return [value(rng) for _ in range(rng.choice((0, 1, 2, 5)))]
        case 5:
            return {text(rng): value(rng) for _ in range(rng.choice((0, 1, 2)))}
        case _:
            return deep(rng, rng.random() < 0.5) if rng.random() < 0.2 else [number(rng)] * rng.choice((1, 3, 2000))


def damaged(rng: Random, content: bytes) -> bytes:
    """Bytes of which some are cut off, flipped, doubled, left out, or others."""
    content = bytes(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(content) + 1)
        match rng.randrange(7):
            case 0:
                content = content[:place]
            case 1:
                content = (
                    content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]
                    if (place < len(content))
                    else content
                )
            case 2:
                start = rng.randrange(min(64, len(content)) + 1)  # heads say the most
                content = content[:start] + rng.randbytes(rng.choice((1, 4, 8))) + content[start + 8 :]
            case 3:
                content = content[:place] + content[place : place + 500] + content[place:]
            case 4:
                content = content[:place] + content[place + rng.choice((1, 4, 100)) :]
            case 5:
                content = content[:place] + b"\xff" * rng.choice((1, 4, 8)) + content[place + 4 :]
            case _:
                content = content + rng.randbytes(rng.choice((1, 100)))
    return content
