"""How torch allocates a GPU's memory is settled before a run takes any, however the run was started."""

import os

import pytest
import torch

from scrl.policy.allocator import GROWING, VARIABLES, set_up_allocator
from scrl.policy.settings import ComputeSettings

GROW = {"PYTORCH_CUDA_ALLOC_CONF": GROWING}


@pytest.fixture
def gpu(monkeypatch):
    """A machine with a GPU: gives what its allocator is told by variables, and by calls."""
    told = []
    monkeypatch.setattr("scrl.policy.allocator.os.environ", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch._C, "_accelerator_setAllocatorSettings", told.append, raising=False)
    return lambda: ({name: os.environ[name] for name in VARIABLES if name in os.environ}, told)


@pytest.mark.parametrize(
    ("compute", "before", "after"),
    [
        ({"device": "cuda"}, {}, GROW),
        ({}, {}, GROW),
        *(
            ({"device": "cuda"}, chosen, chosen)
            for chosen in ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, {"PYTORCH_ALLOC_CONF": "backend:native"})
        ),
        ({"device": "cuda", "sampler": "vllm"}, {}, {}),  # which could not give such memory back
        ({"device": "cpu"}, {}, {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_initialized", [False, True])
def test_segments_grow_unless_the_user_or_vllm_wants_otherwise(
    compute, before, after, is_initialized, gpu, monkeypatch
):
    os.environ |= before
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_initialized)
    set_up_allocator(ComputeSettings(**compute))
    if is_initialized:  # torch has read the variable already
        assert gpu() == (before, [GROWING] * (after == GROW))
    else:
        assert gpu() == (after, [])


def test_an_older_torch_is_told_by_its_own_function(gpu, monkeypatch):
    told = []
    monkeypatch.delattr(torch._C, "_accelerator_setAllocatorSettings")
    monkeypatch.setattr(torch.cuda.memory, "_set_allocator_settings", told.append, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    set_up_allocator(ComputeSettings())
    assert (told, gpu()) == ([GROWING], ({}, []))
