"""The memory of a GPU: how torch allocates it, and how many tokens of a forward and backward pass fit into it.

bytes = fixed + per_token · tokens

`fixed` are the gradients and a block of logits, `per_token` the activations. Both are measured by two short passes
before the first step, so that a run takes as much at a time as fits, instead of running out of memory first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import torch

from scrl.policy.settings import ComputeSettings

ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Variables that torch reads."""
TRIALS = ((2048, 4096), (512, 1024), (128, 256))
"""About how many tokens the two passes have; the next pair if these do not fit. Shorter ones do not fill a block of
logits, so that `per_token` is too large rather than too small."""
MARGIN = 1.1
"""The measurement is multiplied by this: rows that are packed or padded differ a little."""
RESERVED_SHARE = 0.04
"""Share of a GPU's memory that is left to others and to fragmentation."""


def set_up_allocator(compute: ComputeSettings) -> None:
    """Let segments of a GPU's memory grow. Torch reads this when it first uses the GPU: call it before.

    No two updates have rows of the same lengths, and a memory block that is a little too small would have to be
    allocated anew, which takes milliseconds: segments that can grow avoid that. A sampler of the user's own may not
    give such memory back, and a variable that the user has set is left alone.
    """
    is_ours = compute.sampler == "local" and compute.device != "cpu" and torch.cuda.is_available()
    if is_ours and not any(name in os.environ for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = "expandable_segments:True"


class PassMemory(NamedTuple):
    """The bytes of a pass."""

    fixed: float
    per_token: float

    def bytes(self, tokens: int) -> float:
        """The bytes of a pass over this many tokens."""
        return self.fixed + self.per_token * tokens

    def tokens(self, room: float) -> int:
        """The most tokens of a pass that fits into `room` bytes."""
        return int(max(0.0, room - self.fixed) // self.per_token)


def measure_pass(run_pass: Callable[[int], int], device: torch.device) -> PassMemory | None:
    """Measure the first pair of passes that fits; None if none does.

    `run_pass` takes a number of tokens and gives the number it really ran, which may be a little larger.
    """
    for trial in TRIALS:
        points: list[tuple[int, int]] = []
        try:
            for tokens in trial:
                torch.cuda.reset_peak_memory_stats(device)
                before = torch.cuda.memory_allocated(device)
                num_tokens = run_pass(tokens)
                points.append((num_tokens, torch.cuda.max_memory_allocated(device) - before))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        (few, least), (many, most) = points
        per_token = max(1.0, (most - least) / (many - few))
        return PassMemory(MARGIN * max(0.0, least - per_token * few), MARGIN * per_token)
    return None


def free_room(device: torch.device) -> float:
    """Bytes that torch can still use on a GPU: what is free, and what it caches."""
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + cached - RESERVED_SHARE * total
