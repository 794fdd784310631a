"""How torch allocates a GPU's memory is settled before a plan or a run looks at the GPU."""

import os

import pytest
import torch

from scrl.config import read_config
from scrl.planning.plan import make_plan
from scrl.policy.allocator import VARIABLES, set_up_allocator
from scrl.policy.settings import ComputeSettings

GROW = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@pytest.fixture
def variables(monkeypatch):
    """On a machine with a GPU: what torch would read."""
    monkeypatch.setattr("scrl.policy.allocator.os.environ", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return lambda: {name: os.environ[name] for name in VARIABLES if name in os.environ}


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
def test_segments_grow_unless_the_user_or_vllm_wants_otherwise(compute, before, after, variables):
    os.environ |= before
    set_up_allocator(ComputeSettings(**compute))
    assert variables() == after


def test_a_plan_sets_it_up_before_it_looks_at_the_gpu(variables, monkeypatch):
    seen = []
    monkeypatch.setattr("scrl.planning.plan.pick_device", lambda _: seen.append(variables()) or torch.device("cpu"))
    make_plan(
        read_config(
            None,
            ["model=embedded", "questions=arithmetic:easy:train:4", "prompt.style=plain", "sampling.max_tokens=40"],
        )
    )
    assert seen
    assert all(each == GROW for each in seen)
