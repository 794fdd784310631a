"""AdamW on float32 masters: small steps are not lost, schedules are golden, a restored run goes on exactly."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from scrl.policy.optimizer import Optimizer, learning_rate_factor
from scrl.policy.settings import OptimizerSettings

STEADY = OptimizerSettings(warmup=0.0, schedule="constant", weight_decay=0.0)


def linear(dtype, seed=0):
    """Weights of 0.05 to 0.2, as in a trained model: there bfloat16 numbers are 2⁻¹² to 2⁻¹⁰ apart."""
    random = torch.Generator().manual_seed(seed)
    layer = nn.Linear(8, 4, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.empty(4, 8).uniform_(0.05, 0.2, generator=random))
    return layer.to(dtype)


def give_gradient(layer, number=0):
    """∂/∂W of a loss that is linear in W: its signs stay, its sizes change."""
    random = torch.Generator().manual_seed(number)
    inputs = torch.rand(3, 8, generator=random).to(layer.weight.dtype) + 0.5
    layer(inputs).float().sum().backward()


def stepped(layer, optimizer, number=0):
    give_gradient(layer, number)
    optimizer.collect()
    return optimizer.step()


def state_through_a_file(optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# Masters


def test_one_small_step_moves_the_masters_but_hardly_a_bfloat16_weight():
    layer = linear(torch.bfloat16)
    before = layer.weight.detach().clone()
    optimizer = Optimizer(layer.parameters(), STEADY, updates=2000)
    [master] = optimizer._masters
    master_before = master.detach().clone()
    stepped(layer, optimizer)
    # AdamW's first step is the learning rate in the direction of −sign(gradient)
    torch.testing.assert_close(master.detach(), master_before - 5e-7, atol=1e-8, rtol=0)
    assert torch.equal(layer.weight, before)  # half the distance to the next number is at least 2⁻¹³ = 1.2e-4


def test_many_small_steps_move_bfloat16_weights_that_plain_bfloat16_adamw_leaves_where_they_are():
    layer, plain = linear(torch.bfloat16), linear(torch.bfloat16)
    before = layer.weight.detach().clone()
    optimizer = Optimizer(layer.parameters(), STEADY, updates=2000)
    adamw = torch.optim.AdamW(plain.parameters(), lr=5e-7, weight_decay=0.0)
    for number in range(2000):
        stepped(layer, optimizer, number % 7)
        give_gradient(plain, number % 7)
        adamw.step()
        adamw.zero_grad()
    assert torch.equal(plain.weight, before)
    # 2,000 · 5e-7 = 1e-3, about one to four steps of bfloat16
    assert bool((layer.weight < before).all())
    moved = (before.float() - layer.weight.detach().float()).mean()
    assert float(moved) == pytest.approx(1e-3, rel=0.2)
    with torch.no_grad():
        assert float(layer(torch.ones(1, 8, dtype=torch.bfloat16)).sum()) < float(before.sum())


def test_float32_weights_are_their_own_masters():
    layer = linear(torch.float32)
    optimizer = Optimizer(layer.parameters(), STEADY, updates=10)
    assert optimizer._masters[0] is layer.weight
    assert optimizer.state()["masters"] == []


def test_frozen_weights_are_left_alone():
    model = nn.Sequential(linear(torch.float32), nn.Linear(4, 2))
    model[1].requires_grad_(False)
    before = model[1].weight.detach().clone()
    optimizer = Optimizer(model.parameters(), STEADY, updates=10)
    stepped(model[0], optimizer)
    assert torch.equal(model[1].weight, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_added_up_over_micro_batches(dtype):
    layer = linear(dtype)
    optimizer = Optimizer(layer.parameters(), STEADY, updates=10)
    [master] = optimizer._masters
    give_gradient(layer, 1)
    first = layer.weight.grad.detach().float().clone()
    optimizer.collect()
    give_gradient(layer, 2)
    optimizer.collect()
    layer.weight.grad = None if dtype == torch.bfloat16 else layer.weight.grad
    other = linear(dtype)
    give_gradient(other, 2)
    torch.testing.assert_close(master.grad, first + other.weight.grad.float())
    optimizer.clear()
    assert master.grad is None
    assert layer.weight.grad is None


def test_a_step_is_adamws_own():
    """Against torch's AdamW with the same clipping and decay, over several steps."""
    settings = OptimizerSettings(
        learning_rate=1e-2, warmup=0.0, schedule="constant", weight_decay=0.1, max_grad_norm=0.5
    )
    layer, plain = linear(torch.float32), linear(torch.float32)
    optimizer = Optimizer(layer.parameters(), settings, updates=10)
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=(0.9, 0.999), weight_decay=0.1)
    for number in range(5):
        norm = stepped(layer, optimizer, number)
        give_gradient(plain, number)
        assert norm == pytest.approx(float(plain.weight.grad.norm()), rel=1e-6)  # before it is scaled down
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        adamw.step()
        adamw.zero_grad()
        torch.testing.assert_close(layer.weight, plain.weight, atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_that_is_no_number_is_reported_and_thrown_away(dtype):
    layer = linear(dtype)
    before = layer.weight.detach().clone()
    optimizer = Optimizer(layer.parameters(), STEADY, updates=10)
    give_gradient(layer)
    layer.weight.grad[0, 0] = math.nan
    optimizer.collect()
    assert math.isnan(optimizer.step())
    assert torch.equal(layer.weight, before)
    assert optimizer.update == 0
    assert layer.weight.grad is None
    assert optimizer._masters[0].grad is None


# Saving


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_optimizer_goes_on_exactly(dtype):
    settings = OptimizerSettings(learning_rate=3e-3, warmup=0.3, weight_decay=0.1)
    layer = linear(dtype)
    optimizer = Optimizer(layer.parameters(), settings, updates=20)
    for number in range(7):
        stepped(layer, optimizer, number)
    state = state_through_a_file(optimizer)
    again = linear(dtype, seed=99)
    with torch.no_grad():
        again.weight.copy_(layer.weight)  # as a checkpoint of the model does
    restored = Optimizer(again.parameters(), settings, updates=20)
    restored.restore(state)
    assert (restored.update, restored.learning_rate) == (7, optimizer.learning_rate)
    for number in range(7, 20):
        assert stepped(layer, optimizer, number) == stepped(again, restored, number)
        assert torch.equal(layer.weight, again.weight)
        assert torch.equal(optimizer._masters[0], restored._masters[0])


def test_restored_masters_are_rounded_into_the_working_weights():
    layer = linear(torch.bfloat16)
    optimizer = Optimizer(layer.parameters(), STEADY.model_copy(update={"learning_rate": 0.1}), updates=10)
    stepped(layer, optimizer)
    other = linear(torch.bfloat16, seed=1)
    Optimizer(other.parameters(), STEADY, updates=10).restore(state_through_a_file(optimizer))
    assert torch.equal(other.weight, layer.weight)


# The schedule. 10 updates with a warm-up of 0.2: 2 updates rise, then half a cosine over 8


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (0, 0.5),
        (1, 1.0),
        (2, 1.0),  # cos 0
        (4, 0.5 * (1 + math.sqrt(0.5))),  # cos π/4
        (6, 0.5),  # cos π/2
        (8, 0.5 * (1 - math.sqrt(0.5))),  # cos 3π/4
        (10, 0.0),  # cos π: the end, which no update reaches
        (13, 0.0),
    ],
)
def test_warm_up_and_cosine_by_hand(update, expected):
    assert learning_rate_factor(update, 10, OptimizerSettings(warmup=0.2)) == pytest.approx(expected, abs=1e-12)


def test_a_constant_schedule_rises_and_stays():
    settings = OptimizerSettings(warmup=0.5, schedule="constant")
    assert [learning_rate_factor(update, 4, settings) for update in range(6)] == [0.5, 1, 1, 1, 1, 1]


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from(["cosine", "constant"]))
def test_the_factor_is_above_0_and_at_most_1_and_never_rises_after_the_warm_up(updates, warmup, schedule):
    settings = OptimizerSettings(warmup=warmup, schedule=schedule)
    factors = [learning_rate_factor(update, updates, settings) for update in range(updates)]
    assert all(0 < factor <= 1 for factor in factors)
    rises = round(warmup * updates)
    assert factors[:rises] == sorted(factors[:rises])
    assert factors[rises:] == sorted(factors[rises:], reverse=True)


def test_the_learning_rate_is_that_of_the_next_update():
    layer = linear(torch.float32)
    optimizer = Optimizer(layer.parameters(), OptimizerSettings(learning_rate=1.0, warmup=0.2), updates=10)
    rates = []
    for number in range(10):
        rates.append(optimizer.learning_rate)
        stepped(layer, optimizer, number)
    expected = [0.5, 1] + [0.5 * (1 + math.cos(math.pi * place / 8)) for place in range(8)]
    assert rates == pytest.approx(expected, abs=1e-12)
