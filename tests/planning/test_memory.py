"""The memory of a step, held to what was measured on one H200 (benchmarks/h200.txt) and to what optimizers hold."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._pytree import tree_leaves

from scrl.planning.memory import (
    GIB,
    Layout,
    Work,
    bytes_per_trained_weight,
    disk_bytes,
    fit,
    least_memory,
    logit_bytes,
    parts,
    peaks,
    row_bytes,
)
from scrl.planning.shapes import SHAPES, shape_of
from scrl.policy.checkpoint import checkpoints_bytes
from scrl.policy.model import load_model
from scrl.policy.optimizer import open_optimizer
from scrl.policy.policy import Policy
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.policy.token_scores import FUSED_CHUNK_ELEMENTS, block_rows

SMALL = SHAPES["Qwen/Qwen2.5-3B"]
W = 3_085_938_688
PAPER = Work(
    questions=8, sampled_rows=256, trained_rows=128, updates=8, update_rows=16, prompt=200, max_tokens=3072,
    micro_batch=16, sampler_rows=512,
)  # fmt: skip
BENCHMARK = replace(PAPER, prompt=64, updates=1, state="bfloat16")
OURS = Layout("local", "none", 1)
H200 = 139 * GIB


def amounts(*arguments):
    return {part.name: part.bytes for part in parts(*arguments)}


@pytest.mark.parametrize(
    ("rows", "state", "between_steps", "peak"),
    [(16, "bfloat16", 61.1, 90.9), (8, "float32", 91.8, 113.6)],  # gpu_update.py --shape 7b --fit
)
def test_a_whole_update_of_7b_was_measured(rows, state, between_steps, peak):
    work = replace(BENCHMARK, update_rows=rows, state=state, is_checkpointed=True)
    memory = amounts(SHAPES["Qwen/Qwen2.5-Math-7B"], work, OURS, 1)
    kept = memory["weights"] + memory["masters"] + memory["optimizer"]
    assert kept / 1e9 == pytest.approx(between_steps, rel=0.01)
    planned = (kept + memory["gradients"] + memory["activations"] + memory["logits"]) / 1e9
    assert peak < planned < 1.15 * peak  # logits and a layer's activations are not there at the same time


def test_a_gradient_of_3b_was_measured():
    memory = amounts(SMALL, replace(BENCHMARK, is_checkpointed=True), OURS, 1)
    planned = (4 * W + memory["activations"] + memory["logits"]) / 1e9  # gradients stay in bfloat16 there
    assert 20.1 < planned < 1.45 * 20.1


@pytest.mark.parametrize(
    ("micro_batch", "is_checkpointed", "peak", "above"), [(2, False, 44.3, 1.01), (16, True, 23.4, 1.35)]
)
def test_a_gradient_of_3b_with_trl_was_measured(micro_batch, is_checkpointed, peak, above):
    work = replace(BENCHMARK, micro_batch=micro_batch, is_checkpointed=is_checkpointed)
    memory = amounts(SMALL, work, Layout("trl", "DDP", 1), 1)
    planned = (4 * W + memory["activations"] + memory["logits"]) / 1e9
    assert 0.99 * peak < planned < above * peak


def test_a_sampler_was_measured():
    work = replace(PAPER, sampled_rows=32, prompt=64, max_tokens=10_240)
    memory = amounts(SHAPES["Qwen/Qwen3-4B"], work, OURS, 32)
    assert (memory["weights"] + memory["sampler's cache"]) / GIB == pytest.approx(52.7, abs=0.1)


@pytest.mark.parametrize(
    ("dtype", "rank", "state", "one_pass", "several_passes"),  # the last two: bytes of gradients
    [
        (torch.bfloat16, 16, "float32", 6, 6), (torch.bfloat16, 16, "bfloat16", 2, 4),
        (torch.bfloat16, None, "float32", 2, 4), (torch.bfloat16, None, "bfloat16", 2, 4),
        (torch.float32, 16, "float32", 4, 4), (torch.float32, None, "bfloat16", 4, 4),
    ],
)  # fmt: skip
def test_bytes_of_a_trained_weight_are_those_that_the_optimizer_holds(dtype, rank, state, one_pass, several_passes):
    weight = nn.Parameter(torch.ones(1000, dtype=dtype))
    optimizer = open_optimizer([weight], OptimizerSettings(state=state), updates=1, has_adapter=rank is not None)
    weight.sum().backward()
    optimizer.collect()
    optimizer.step()
    tensors = [leaf for leaf in tree_leaves(optimizer.state()) if isinstance(leaf, torch.Tensor) and leaf.numel() > 1]
    work = replace(PAPER, adapter_rank=rank, state=state, size=dtype.itemsize)
    planned_masters, planned_gradients, averages = bytes_per_trained_weight(work, OURS)
    assert 1000 * (planned_masters + averages) == sum(tensor.nbytes for tensor in tensors)
    assert planned_gradients == one_pass
    assert (
        bytes_per_trained_weight(replace(work, micro_batch=15), OURS)[1] == several_passes
    )  # 16 completions of an update
    assert 2 + sum(bytes_per_trained_weight(replace(PAPER, micro_batch=15), OURS)) == 16  # `scrl doctor` counts so


@pytest.mark.parametrize("is_renewed", [False, True])
def test_checkpoints_take_what_the_trainer_counts(is_renewed):
    loaded = load_model("embedded", ComputeSettings(device="cpu", dtype="float32"))
    options = {"updates": 1, "temperature": 1.0, "max_tokens": 8}
    policy = Policy(loaded, LossSettings(), OptimizerSettings(), ComputeSettings(device="cpu"), **options)
    planned = disk_bytes(shape_of("embedded"), replace(PAPER, size=4), is_renewed=is_renewed)
    assert planned == checkpoints_bytes(policy, is_renewed=is_renewed)


def test_the_block_of_logits_that_is_counted_is_the_largest_there_is():
    for tokens in (1, 200, 3072, 3533, 49_152):
        rows = min(tokens, block_rows(tokens, SMALL.vocabulary, FUSED_CHUNK_ELEMENTS))
        work = replace(PAPER, micro_batch=1, max_tokens=tokens, adapter_rank=16)
        assert 6 * rows * SMALL.vocabulary <= logit_bytes(SMALL, work, OURS)
        # the head's gradient is summed in float32, unless it is frozen
        whole = logit_bytes(SMALL, replace(work, adapter_rank=None), OURS)
        assert whole - logit_bytes(SMALL, work, OURS) == 4 * 151_936 * 2048


def test_an_adapter_of_7b_was_measured():
    """On an H200 capped at 23 GiB: at most 20.5 GiB allocated, in passes of at most 1,300 tokens."""
    work = replace(PAPER, micro_batch=1, prompt=64, max_tokens=1024, adapter_rank=16)
    one, two = (parts(SHAPES["Qwen/Qwen2.5-7B"], replace(work, micro_batch=rows), OURS, 1) for rows in (1, 2))
    overhead = {part.name: part.bytes for part in one}["overhead"]  # of CUDA and of fragments
    assert (peaks(one)[1] - overhead) / GIB == pytest.approx(20.5, rel=0.02)
    assert peaks(one)[1] < 23 * GIB < peaks(two)[1]


def test_a_start_model_is_held_for_kl_and_gradients_twice_by_ddp():
    work = replace(PAPER, has_reference=True)
    ddp, sharded = Layout("trl", "DDP", 8), Layout("verl", "FSDP2", 8)
    for layout, start_model, gradients in ((OURS, 2 * W, 2 * W), (ddp, 4 * W, 8 * W), (sharded, W / 2, W / 2)):
        memory = amounts(SMALL, work, layout, 1)
        assert (memory["start model"], memory["gradients"]) == (start_model, gradients)
        adapter = amounts(SMALL, replace(work, adapter_rank=16), layout, 1)  # switched off, it is the start model
        assert (adapter["start model"], adapter["optimizer"]) == (0, 8 * 29_933_568 / layout.shards)


@pytest.mark.parametrize(("engine", "stays"), [("trl", True), ("verl", False), ("local", False)])
def test_trl_alone_keeps_its_sampler_while_it_trains(engine, stays):
    by_name = {part.name: part for part in parts(SMALL, PAPER, Layout(engine, "none", 1), 4)}
    for part in (by_name["sampler's cache"], by_name["vLLM's weights"]):
        assert (part.in_sampling, part.in_training) == (True, stays)


def test_rows_are_as_many_as_memory_allows():
    work = replace(PAPER, micro_batch=1, is_checkpointed=True)
    row, room = row_bytes(SMALL, work, OURS), 12 * W + 2 * GIB
    assert fit(SMALL, work, OURS, room + 200.5 * row).rows == 200
    assert fit(SMALL, work, OURS, room + 300 * row).rows == 256  # there are no more


def works():
    return st.builds(
        Work, questions=st.just(8), sampled_rows=st.integers(1, 4096), trained_rows=st.integers(8, 1024),
        updates=st.integers(1, 8), update_rows=st.integers(1, 1024), prompt=st.integers(1, 512),
        max_tokens=st.integers(1, 8192), micro_batch=st.integers(1, 32),
        sampler_rows=st.integers(1, 512), is_checkpointed=st.booleans(), has_reference=st.booleans(),
        adapter_rank=st.sampled_from([None, 16]),
        state=st.sampled_from(["float32", "bfloat16"]),
    )  # fmt: skip


SPREAD = (("trl", "DDP"), ("trl", "FSDP2"), ("verl", "FSDP2"))


@given(st.sampled_from(sorted(SHAPES)), works(), st.sampled_from(SPREAD), st.integers(1, 64), st.integers(1, 64))
def test_more_gpus_never_need_more_memory_each(name, work, engine, fewer, more):
    few, many = Layout(*engine, gpus=fewer), Layout(*engine, gpus=fewer + more)
    before, after = (peaks(parts(SHAPES[name], work, layout, layout.rows_at_once(work))) for layout in (few, many))
    assert after[0] <= before[0]
    assert after[1] <= before[1]


@given(works(), st.sampled_from(SPREAD))
def test_the_least_memory_is_where_it_begins_to_fit(work, engine):
    for layout in (OURS, Layout(*engine, gpus=4)):
        least = least_memory(SMALL, work, layout)
        assert fit(SMALL, work, layout, least * 1.000001) is not None
        assert fit(SMALL, work, layout, least * 0.999999) is None
