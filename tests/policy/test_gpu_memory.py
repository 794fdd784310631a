"""How much of an update is taken at a time, by the memory that a pass was measured to take."""

import os
from types import SimpleNamespace

import pytest
import torch
from updates import Memory, credit_of, draw_group, make_policy, small_model, weights_of

from scrl.config import read_config
from scrl.planning.plan import make_plan
from scrl.policy import policy as policy_module
from scrl.policy.memory import ALLOCATOR, PassMemory, free_room, measure_pass, set_up_allocator
from scrl.policy.optimizer import open_optimizer
from scrl.policy.settings import ComputeSettings, OptimizerSettings

GIB = 2**30
CREDIT = credit_of()


@pytest.fixture(scope="module")
def group():
    return draw_group(small_model())


class FakeGpu:
    """As much of torch.cuda as is asked: a pass takes 3 GiB and 1 MiB per token on a GPU of 100 GiB."""

    def __init__(self, monkeypatch, free=50 * GIB, most_tokens=10**9):
        self.most_tokens, self.peak = most_tokens, 0
        fakes = {
            "reset_peak_memory_stats": lambda _: setattr(self, "peak", 7 * GIB),
            "memory_allocated": lambda _: 7 * GIB,
            "max_memory_allocated": lambda _: self.peak,
            "memory_reserved": lambda _: 9 * GIB,
            "mem_get_info": lambda _: (free, 100 * GIB),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def run_pass(self, tokens):
        if tokens > self.most_tokens:
            raise torch.OutOfMemoryError("no room left")
        self.peak = 10 * GIB + (tokens + 5) * 2**20
        return tokens + 5


def test_a_pass_is_measured_at_two_lengths(monkeypatch):
    gpu = FakeGpu(monkeypatch)
    found = measure_pass(gpu.run_pass, torch.device("cuda"))
    assert found == pytest.approx((1.1 * 3 * GIB, 1.1 * 2**20))  # a tenth more than was seen
    # 50 GiB are free, 9 − 7 of torch's own are unused, 4 % of 100 are left alone: 48; (48 − 3.3) · 1024 / 1.1 = 41,611.6
    assert free_room(torch.device("cuda")) == 48 * GIB
    assert found.tokens(48 * GIB) == 41_611
    assert found.bytes(41_611) <= 48 * GIB < found.bytes(41_612)
    assert found.tokens(GIB) == 0


@pytest.mark.parametrize("most_tokens", [3000, 1000, 256])
def test_where_two_passes_do_not_fit_shorter_ones_are_measured(monkeypatch, most_tokens):
    gpu = FakeGpu(monkeypatch, most_tokens=most_tokens)
    assert measure_pass(gpu.run_pass, torch.device("cuda")) == pytest.approx((1.1 * 3 * GIB, 1.1 * 2**20))


def test_where_the_shortest_passes_do_not_fit_nothing_is_known(monkeypatch):
    gpu = FakeGpu(monkeypatch, most_tokens=255)
    assert measure_pass(gpu.run_pass, torch.device("cuda")) is None


@pytest.mark.parametrize(
    ("kept", "most", "note"),
    [
        (10**5, 10**5, None),
        (2048, 2048, "2,047 tokens"),  # AdamW takes a little
        (100, 10**5, "compute.gradient_checkpointing"),
        (0, 0, "compute.gradient_checkpointing"),
    ],
)
def test_activations_are_computed_twice_where_one_completion_does_not_fit(monkeypatch, group, kept, most, note):
    """`kept` tokens fit with activations that are kept, `most` without; 0: not even the shortest pass."""
    policy = make_policy(small_model(torch.float32), micro_batch=4)
    wanted = policy.update([group], [CREDIT])
    language_model = small_model(torch.float32)
    policy = make_policy(language_model, micro_batch=4)
    policy._max_tokens = 1024
    monkeypatch.setattr(policy, "language_model", SimpleNamespace(device=torch.device("cuda")))

    def measured(*_):
        tokens = most if policy.is_checkpointed else kept
        return PassMemory(0, GIB / tokens) if tokens else None

    monkeypatch.setattr(policy_module, "measure_pass", measured)
    monkeypatch.setattr(policy_module, "free_room", lambda _: GIB)
    said = policy.measure_passes()
    assert said is note is None or note in said
    assert policy.is_checkpointed == language_model.model.is_gradient_checkpointing == (kept < 1024)
    monkeypatch.setattr(policy, "language_model", language_model)
    monkeypatch.setattr(policy, "_check_room", lambda _: None)
    found = policy.update([group], [CREDIT])
    assert (found.loss, found.grad_norm) == pytest.approx((wanted.loss, wanted.grad_norm), rel=1e-5)


def test_no_pass_is_larger_than_what_fits(group):
    language_model = small_model(torch.float32)
    memory = Memory(language_model, 10**9, unit="tokens")
    policy = make_policy(language_model, micro_batch=4)
    assert policy.measure_passes() is None  # nothing is measured on a CPU
    policy.update([group], [CREDIT])
    whole = max(memory.runs)
    memory.runs.clear()
    policy.most_tokens = whole - 1
    policy.update([group], [CREDIT])
    assert max(memory.runs) < whole
    assert len(memory.runs) > 1


def test_the_pass_that_is_measured_changes_nothing(group):
    one, other = (small_model(torch.float32) for _ in range(2))
    policies = [make_policy(each, micro_batch=4) for each in (one, other)]
    assert policies[1]._try_pass(40) >= 40
    for policy in policies:
        policy.update([group], [CREDIT])
    assert torch.equal(weights_of(one), weights_of(other))


def test_what_the_optimizer_will_allocate_is_left_free():
    weights = [torch.nn.Parameter(torch.ones(5))]
    optimizer = open_optimizer(weights, OptimizerSettings(), 10)
    assert optimizer.bytes_to_come == 40  # two averages of 4 bytes
    weights[0].grad = torch.ones(5)
    optimizer.step()
    assert optimizer.bytes_to_come == 0
    half = [torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16))]
    assert open_optimizer(half, OptimizerSettings(), 10).bytes_to_come == 0  # split masters: all is there


# How torch allocates a GPU's memory is settled before a plan or a run looks at the GPU

GROW = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


@pytest.fixture
def variables(monkeypatch):
    """On a machine with a GPU: what torch would read."""
    monkeypatch.setattr("scrl.policy.memory.os.environ", {})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return lambda: {name: os.environ[name] for name in ALLOCATOR if name in os.environ}


@pytest.mark.parametrize(
    ("compute", "before", "after"),
    [
        ({"device": "cuda"}, {}, GROW),
        ({}, {}, GROW),
        *(
            ({"device": "cuda"}, chosen, chosen)
            for chosen in ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, {"PYTORCH_ALLOC_CONF": "backend:native"})
        ),
        ({"device": "cuda", "sampler": "my:SAMPLER"}, {}, {}),  # which may not give such memory back
        ({"device": "cpu"}, {}, {}),
    ],
)  # fmt: skip
def test_segments_grow_unless_the_user_wants_otherwise(compute, before, after, variables):
    os.environ |= before
    set_up_allocator(ComputeSettings(**compute))
    assert variables() == after


def test_a_plan_sets_it_up_before_it_looks_at_the_gpu(variables, monkeypatch):
    seen = []
    monkeypatch.setattr("scrl.planning.plan.pick_device", lambda _: seen.append(variables()) or torch.device("cpu"))
    given = ("model=embedded", "questions=arithmetic:easy:train:4", "prompt.style=plain", "sampling.max_tokens=40")
    make_plan(read_config(None, given))
    assert seen
    assert all(each == GROW for each in seen)
