"""AdamW on float32 masters, whole or in fewer bytes: small steps are not lost, a restored run goes on exactly."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from updates import credit_of, draw_group, make_policy, small_model, weights_of

from scrl.errors import InputError
from scrl.policy import optimizer as optimizers
from scrl.policy.optimizer import (
    LowMemoryAdamW,
    MasterAdamW,
    join_halves,
    learning_rate_factor,
    open_optimizer,
    round_stochastically,
    split_halves,
)
from scrl.policy.settings import OptimizerSettings

EVERY = [(True, "float32"), (False, "float32"), (True, "bfloat16"), (False, "bfloat16")]
"""Whether the weights are an adapter's, whose masters are whole, and how averages are kept."""


def open_for(model, has_adapter=False, updates=100, **settings):
    return open_optimizer(model.parameters(), OptimizerSettings(**settings), updates, has_adapter=has_adapter)


def layers(dtype=torch.bfloat16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)).to(dtype)


def give_gradient(model, number):
    random = torch.Generator().manual_seed(number)
    inputs = torch.randn(4, 8, generator=random).to(model[0].weight.dtype)
    model(inputs).float().square().sum().backward()


def take_step(model, optimizer, number, passes=1):
    """One update with the gradients of several backward passes; its norm."""
    optimizer.expect(passes)
    for each in range(passes):
        give_gradient(model, 10 * number + each)
        optimizer.collect()
    return float(optimizer.step())


def masters_of(optimizer):
    if isinstance(optimizer, MasterAdamW):
        return [master.detach().flatten() for master in optimizer._masters]
    return [torch.cat([weight.master(part) for part in weight.parts()]) for weight in optimizer._weights]


def copies(model):
    return [weight.detach().clone() for weight in model.parameters()]


def assert_equal(weights, others):
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))


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


# In fewer bytes: split masters are exact, averages in bfloat16 are right on average, gradients exist once


LEAN = {"warmup": 0.0, "schedule": "constant", "learning_rate": 1e-3, "weight_decay": 0.1, "max_grad_norm": 0.5}


def open_lean(model, has_adapter=False, **changes):
    return open_for(model, has_adapter, **LEAN | changes)


# Splitting


@given(st.integers(0, 2**32 - 1))
def test_a_number_and_its_halves_are_the_same(bits):
    number = torch.tensor([bits - 2**31], dtype=torch.int32).view(torch.float32)
    if not bool(number.abs() < 3.38e38):  # beyond it the nearest bfloat16 is infinite
        return
    weight, rest = split_halves(number)
    assert (weight.dtype, rest.dtype) == (torch.bfloat16, torch.int16)
    assert torch.equal(join_halves(weight, rest).view(torch.int32), number.view(torch.int32))
    distance = (weight.double() - number.double()).abs()
    assert bool(distance <= (number.bfloat16().double() - number.double()).abs())  # none is nearer


def test_a_split_by_hand():
    # 1 + 2⁻⁷ is the bfloat16 after 1; 2⁻⁸ is half way, and ties go away from 0. A float32 of 1 to 2 counts in 2⁻²³
    weights, rests = split_halves(torch.tensor([1.0, 1 + 2**-23, 1 + 2**-8, -1 - 2**-8, 1 + 2**-8 - 2**-23]))
    assert weights.tolist() == [1, 1, 1 + 2**-7, -1 - 2**-7, 1]
    assert rests.tolist() == [0, 1, -(2**15), -(2**15), 2**15 - 1]


# Steps


def test_the_weights_and_the_settings_choose():
    assert isinstance(open_for(layers()), LowMemoryAdamW)  # bfloat16
    assert isinstance(open_for(layers().float()), MasterAdamW)
    assert isinstance(open_for(layers(), has_adapter=True), MasterAdamW)
    assert isinstance(open_for(layers().float(), state="bfloat16"), LowMemoryAdamW)
    short = open_for(layers(), has_adapter=True, state="bfloat16").state()
    assert {rest.dtype for rest in short["rest"]} == {torch.float32}


@pytest.mark.parametrize("has_adapter", [False, True])
def test_a_checkpoint_of_float32_weights_does_not_become_one_of_bfloat16_ones(has_adapter):
    """As when a run on a CPU is resumed on a GPU."""
    older = open_for(layers().float()).state()
    with pytest.raises(InputError, match="another dtype"):
        open_for(layers(), has_adapter).restore(older)


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("chunk", [2**25, 7])
def test_split_masters_move_as_separate_ones_do(monkeypatch, passes, chunk):
    monkeypatch.setattr(optimizers, "CHUNK", chunk)
    lean_model, model = layers(), layers()
    lean, plain = open_lean(lean_model), open_lean(model, has_adapter=True)
    for number in range(6):
        norms = take_step(lean_model, lean, number, passes), take_step(model, plain, number, passes)
        assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        for one, other in zip(masters_of(lean), masters_of(plain), strict=True):
            torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-6)
        for one, other in zip(lean_model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=2**-7)  # the nearest, but for ties and last bits
    assert lean.update == 6


def test_averages_in_bfloat16_stay_near_those_in_float32():
    lean_model, model = layers(), layers()
    lean, plain = open_lean(lean_model, state="bfloat16"), open_lean(model, has_adapter=True)
    start = torch.cat(masters_of(plain)).clone()
    for number in range(40):
        take_step(lean_model, lean, number % 5)
        take_step(model, plain, number % 5)
    found, wanted = torch.cat(masters_of(lean)) - start, torch.cat(masters_of(plain)) - start
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert {weight.means.dtype for weight in lean._weights} == {torch.bfloat16}


def test_an_average_in_bfloat16_can_fall():
    """0.999²⁰⁰ = 0.8186; to the nearest bfloat16, 0.999 · v is v again."""
    assert float(torch.tensor(1.0).bfloat16() * 0.999) == 1.0
    random = torch.Generator().manual_seed(0)
    values_n = torch.ones(4000).bfloat16()
    for _ in range(200):
        values_n = round_stochastically(values_n.float() * 0.999, random)
    # a step's rounding has a spread of at most 2⁻⁹, 200 steps of at most 0.028, and 4,000 numbers' mean of 4e-4
    assert float(values_n.float().mean()) == pytest.approx(0.999**200, abs=2e-3)


# Gradients


def test_the_gradient_of_one_pass_stays_in_bfloat16_and_that_of_several_is_summed_in_float32():
    model = layers()
    lean = open_lean(model)
    lean.expect(1)
    give_gradient(model, 0)
    assert all(weight.grad is None and weight.gradient.dtype == torch.bfloat16 for weight in lean._weights)
    lean.clear()
    assert all(weight.gradient is None for weight in lean._weights)
    lean.expect(2)
    give_gradient(model, 0)
    give_gradient(model, 1)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {weight.gradient.dtype for weight in lean._weights} == {torch.float32}


# With a policy


@pytest.mark.parametrize("micro_batch", [2, 16])
def test_a_policy_is_updated_as_with_separate_masters(micro_batch, monkeypatch):
    group = draw_group(small_model())
    found, wanted = small_model(dtype=torch.bfloat16), small_model(dtype=torch.bfloat16)
    split = make_policy(found, micro_batch=micro_batch)
    monkeypatch.setattr(
        "scrl.policy.policy.open_optimizer", lambda weights, *given, has_adapter: MasterAdamW(list(weights), *given)
    )
    whole = make_policy(wanted, micro_batch=micro_batch)
    reports = [policy.update([group], [credit_of()]) for policy in (split, whole)]
    assert reports[0].grad_norm == pytest.approx(reports[1].grad_norm, rel=1e-5)
    torch.testing.assert_close(weights_of(found), weights_of(wanted), atol=0, rtol=2**-7)
