"""AdamW on float32 masters: small steps are not lost, schedules are golden, a restored run goes on exactly."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optimizer_steps import EVERY, assert_equal, copies, give_gradient, layers, masters_of, open_for, take_step
from torch import nn

from scrl.policy.adamw import MasterAdamW
from scrl.policy.optimizer import learning_rate_factor
from scrl.policy.settings import OptimizerSettings

STEADY = OptimizerSettings(warmup=0.0, schedule="constant", weight_decay=0.0)
every_optimizer = pytest.mark.parametrize(("has_adapter", "state"), EVERY)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


class Line(nn.Linear):
    """Weights of 0.05 to 0.2, as in a trained model: there bfloat16 numbers are 2⁻¹² to 2⁻¹⁰ apart."""

    def __init__(self):
        super().__init__(8, 4, bias=False, dtype=torch.bfloat16)
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            self.weight.copy_(torch.empty(4, 8).uniform_(0.05, 0.2, generator=random))

    def give_gradient(self, number=0):
        """∂/∂W of a loss that is linear in W: its signs stay, its sizes change."""
        random = torch.Generator().manual_seed(number)
        self(torch.rand(3, 8, generator=random).bfloat16() + 0.5).float().sum().backward()


# Masters


def test_one_small_step_moves_the_masters_but_hardly_a_bfloat16_weight():
    line = Line()
    before = line.weight.detach().clone()
    optimizer = MasterAdamW([line.weight], STEADY, updates=2000)
    [master] = optimizer._masters
    master_before = master.detach().clone()
    line.give_gradient()
    optimizer.collect()
    optimizer.step()
    # AdamW's first step is the learning rate in the direction of −sign(gradient)
    torch.testing.assert_close(master.detach(), master_before - 5e-7, atol=1e-8, rtol=0)
    assert torch.equal(line.weight, before)  # half the distance to the next number is at least 2⁻¹³ = 1.2e-4


def test_many_small_steps_move_bfloat16_weights_that_plain_bfloat16_adamw_leaves_where_they_are():
    line, plain = Line(), Line()
    before = line.weight.detach().clone()
    optimizer = MasterAdamW([line.weight], STEADY.model_copy(update={"learning_rate": 2e-6}), updates=500)
    adamw = torch.optim.AdamW([plain.weight], lr=2e-6, weight_decay=0.0)
    for number in range(500):
        line.give_gradient(number % 7)
        optimizer.collect()
        optimizer.step()
        plain.give_gradient(number % 7)
        adamw.step()
        adamw.zero_grad()
    assert torch.equal(plain.weight, before)
    # 500 · 2e-6 = 1e-3, about one to four steps of bfloat16
    assert bool((line.weight < before).all())
    moved = (before.float() - line.weight.detach().float()).mean()
    assert float(moved) == pytest.approx(1e-3, rel=0.2)
    with torch.no_grad():
        assert float(line(torch.ones(1, 8, dtype=torch.bfloat16)).sum()) < float(before.sum())


def test_float32_weights_are_their_own_masters():
    model = layers(torch.float32)
    optimizer = MasterAdamW(model.parameters(), STEADY, updates=10)
    assert all(one is other for one, other in zip(optimizer._masters, model.parameters(), strict=True))
    assert optimizer.state()["masters"] == []


@every_optimizer
def test_frozen_weights_and_those_without_a_gradient_are_left_alone(has_adapter, state):
    model, unused = layers(), nn.Linear(2, 2).bfloat16()
    model[2].requires_grad_(False)
    weights = [*model.parameters(), *unused.parameters()]
    optimizer = open_for(nn.ParameterList(weights), has_adapter, state=state)
    alone = nn.ParameterList([model[2].weight, *unused.parameters()])
    before = copies(alone)
    take_step(model, optimizer, 0)
    assert_equal(alone, before)


@both_dtypes
def test_gradients_are_added_up_over_micro_batches(dtype):
    model, others = layers(dtype), [layers(dtype) for _ in range(2)]
    optimizer = MasterAdamW(model.parameters(), STEADY, updates=10)
    for number, other in enumerate(others):
        give_gradient(model, number)
        optimizer.collect()
        give_gradient(other, number)
    for master, *parts in zip(optimizer._masters, *(other.parameters() for other in others), strict=True):
        torch.testing.assert_close(master.grad, sum(part.grad.float() for part in parts))
    optimizer.clear()
    assert all(weight.grad is None for weight in (*optimizer._masters, *model.parameters()))


def test_a_step_is_adamws_own():
    """Against torch's AdamW with the same clipping and decay, over several steps."""
    numbers = {"learning_rate": 1e-2, "weight_decay": 0.1, "max_grad_norm": 0.5}
    settings = OptimizerSettings(warmup=0.0, schedule="constant", **numbers)
    model, plain = layers(torch.float32), layers(torch.float32)
    optimizer = MasterAdamW(model.parameters(), settings, updates=10)
    adamw = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=(0.9, 0.999), weight_decay=0.1)
    for number in range(5):
        norm = take_step(model, optimizer, number)
        give_gradient(plain, 10 * number)
        assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(plain.parameters(), 0.5)), rel=1e-6)
        adamw.step()
        adamw.zero_grad()
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-7, rtol=0)


@both_dtypes
@every_optimizer
def test_a_gradient_that_is_no_number_is_reported_and_thrown_away(has_adapter, state, dtype):
    model = layers(dtype)
    before = copies(model)
    optimizer = open_for(model, has_adapter, state=state)
    optimizer.expect(1)
    give_gradient(model, 0)
    model[0].weight.grad[0, 0] = math.nan
    optimizer.collect()
    assert math.isnan(optimizer.step())
    assert optimizer.update == 1
    assert_equal(model.parameters(), before)
    assert all(weight.grad is None for weight in (*model.parameters(), *getattr(optimizer, "_masters", ())))
    assert all(weight.gradient is None for weight in getattr(optimizer, "_weights", ()))


def test_an_adamw_that_is_not_fused_steps_and_throws_away_alike():
    model = layers(torch.float32)
    optimizer = MasterAdamW(model.parameters(), OptimizerSettings(), 10)
    optimizer._adam = torch.optim.AdamW(optimizer._masters, fused=False)  # as on devices without such kernels
    for value in (1.0, math.nan):
        before = copies(model)
        give_gradient(model, 0)
        model[0].weight.grad[0, 0] = value
        assert math.isnan(optimizer.step()) == math.isnan(value)
        assert all(map(torch.equal, model.parameters(), before)) == math.isnan(value)


# Saving


def state_through_a_file(optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@both_dtypes
@every_optimizer
def test_a_restored_optimizer_goes_on_exactly(has_adapter, state, dtype):
    settings = {"learning_rate": 3e-3, "warmup": 0.3, "weight_decay": 0.1, "state": state, "updates": 20}
    model, again = layers(dtype), layers(dtype)
    optimizer = open_for(model, has_adapter, **settings)
    for number in range(7):
        take_step(model, optimizer, number)
    again.load_state_dict(model.state_dict())  # as a checkpoint of the model does
    restored = open_for(again, has_adapter, **settings)
    restored.restore(state_through_a_file(optimizer))
    assert (restored.update, restored.learning_rate) == (7, optimizer.learning_rate)
    for number in range(7, 20):
        assert take_step(model, optimizer, number) == take_step(again, restored, number)
        assert_equal(model.parameters(), again.parameters())
        assert_equal(masters_of(optimizer), masters_of(restored))


def test_restored_masters_are_rounded_into_the_working_weights():
    model, other = layers(), layers()
    optimizer = MasterAdamW(model.parameters(), STEADY.model_copy(update={"learning_rate": 0.1}), updates=10)
    take_step(model, optimizer, 0)
    MasterAdamW(other.parameters(), STEADY, updates=10).restore(state_through_a_file(optimizer))
    assert_equal(other.parameters(), model.parameters())


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
    model = layers(torch.float32)
    optimizer = MasterAdamW(model.parameters(), OptimizerSettings(learning_rate=1.0, warmup=0.2), updates=10)
    rates = []
    for number in range(10):
        rates.append(optimizer.learning_rate)
        take_step(model, optimizer, number)
    expected = [0.5, 1] + [0.5 * (1 + math.cos(math.pi * place / 8)) for place in range(8)]
    assert rates == pytest.approx(expected, abs=1e-12)
