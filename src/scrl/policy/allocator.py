"""How torch allocates the memory of a GPU."""

from __future__ import annotations

import os
from typing import Any

import torch

from scrl.policy.settings import ComputeSettings

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
GROWING = "expandable_segments:True"


def set_up_allocator(compute: ComputeSettings) -> None:
    """Let segments of a GPU's memory grow; called before a run allocates any.

    No two updates have rows of the same lengths, and a memory block that is a little too small would have to be
    allocated anew, which takes milliseconds: segments that can grow avoid that. vLLM could not give such memory back,
    and a variable that the user has set is left alone.
    """
    is_ours = compute.sampler == "local" and compute.device != "cpu" and torch.cuda.is_available()
    if not is_ours or any(name in os.environ for name in VARIABLES):
        return
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call, unused-ignore]
        os.environ[VARIABLES[0]] = GROWING
        return
    # The variable was read when something else, a plan for instance, looked at the GPU.
    change: Any = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if change is None:  # an older torch
        change = torch.cuda.memory._set_allocator_settings
    change(GROWING)
