"""Randomness is an argument: every generator is derived from the run's seed and the names of what it is for."""

from __future__ import annotations

import hashlib

import numpy as np


def generator_for(seed: int, *names: object) -> np.random.Generator:
    """An independent generator for e.g. (seed, "trained", step, question_id): the same names, the same draws."""
    digest = hashlib.blake2b(
        "\x1f".join(map(str, (seed, *names))).encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
