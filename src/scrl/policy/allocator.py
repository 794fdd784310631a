"""How torch allocates the memory of a GPU."""

from __future__ import annotations

import os

import torch

from scrl.policy.settings import ComputeSettings

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def set_up_allocator(compute: ComputeSettings) -> None:
    """Let segments of a GPU's memory grow. Torch reads this when it first uses the GPU: call it before.

    No two updates have rows of the same lengths, and a memory block that is a little too small would have to be
    allocated anew, which takes milliseconds: segments that can grow avoid that. vLLM could not give such memory back,
    and a variable that the user has set is left alone.
    """
    is_ours = compute.sampler == "local" and compute.device != "cpu" and torch.cuda.is_available()
    if is_ours and not any(name in os.environ for name in VARIABLES):
        os.environ[VARIABLES[0]] = "expandable_segments:True"
