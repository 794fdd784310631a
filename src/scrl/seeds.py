"""Every random generator is derived from the run's seed and from the names of its purpose."""

from __future__ import annotations

import hashlib

import numpy as np


def generator_for(seed: int, *names: object) -> np.random.Generator:
    """A generator for e.g. (seed, "trained", step, question_id): the same names give the same draws."""
    text = "\x1f".join(map(str, (seed, *names)))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
