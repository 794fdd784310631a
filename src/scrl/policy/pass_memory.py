"""The memory of a forward and backward pass on a GPU, measured: how many tokens fit into what is free?

bytes = fixed + per_token · tokens

`fixed` are the gradients and a block of logits, `per_token` the activations. Both are measured by two short passes
before the first step, so that a run takes as much at a time as fits, instead of running out of memory first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

TRIAL_TOKENS = (2048, 4096)
"""About how many tokens the two passes have: even the shorter one fills a block of logits."""
MARGIN = 1.1
"""The measurement is multiplied by this: rows that are packed or padded differ a little."""
RESERVED_SHARE = 0.04
"""Share of a GPU's memory that is left to others and to fragmentation."""


class PassMemory(NamedTuple):
    """The bytes of a pass."""

    fixed: float
    per_token: float

    def bytes(self, tokens: int) -> float:
        """Of a pass over this many tokens."""
        return self.fixed + self.per_token * tokens

    def tokens(self, room: float) -> int:
        """The most tokens of a pass that fits into `room` bytes."""
        return int(max(0.0, room - self.fixed) // self.per_token)


def measure_pass(run_pass: Callable[[int], int], device: torch.device) -> PassMemory | None:
    """From two passes; None where even these do not fit, or nothing can be measured.

    `run_pass` takes a number of tokens and gives the number it really ran, which may be a little larger.
    """
    points: list[tuple[int, int]] = []
    for tokens in TRIAL_TOKENS:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        try:
            num_tokens = run_pass(tokens)
        except torch.OutOfMemoryError:
            return None
        points.append((num_tokens, torch.cuda.max_memory_allocated(device) - before))
    (few, least), (many, most) = points
    per_token = (most - least) / (many - few)
    if per_token <= 0:
        return None
    return PassMemory(MARGIN * max(0.0, least - per_token * few), MARGIN * per_token)


def free_room(device: torch.device) -> float:
    """Bytes that torch can still use on a GPU: what is free, and what it caches."""
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + cached - RESERVED_SHARE * total
