"""Randomness by place: the same seed and place give the same numbers, whoever asks, in whatever order."""

from hashlib import blake2b

import numpy as np
import torch

Place = str | int


def seed_of(seed: int, *place: Place) -> int:
    """A 63-bit seed for one place of one run; the client "1" and the round 1 are different places."""
    text = repr((int(seed), *(part if isinstance(part, str) else int(part) for part in place)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def stream(seed: int, *place: Place) -> torch.Generator:
    """A fresh PyTorch generator for a place such as ("train", round, client)."""
    return torch.Generator().manual_seed(seed_of(seed, *place))


def numbers(seed: int, *place: Place) -> np.random.Generator:
    """A fresh NumPy generator for a place such as ("corrupt", client)."""
    return np.random.default_rng(seed_of(seed, *place))


def branch(rng: torch.Generator, *place: Place) -> torch.Generator:
    """A fresh generator for a place below another one's, the same however much that one has given."""
    return stream(rng.initial_seed(), *place)
