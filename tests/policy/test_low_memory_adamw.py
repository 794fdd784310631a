"""AdamW in fewer bytes: split masters are exact, averages in bfloat16 are right on average, gradients exist once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optimizer_steps import give_gradient, layers, masters_of, open_for, take_step
from updates import credit_of, draw_group, make_policy, small_model, weights_of

from scrl.errors import InputError
from scrl.policy import low_memory_adamw
from scrl.policy.adamw import MasterAdamW
from scrl.policy.low_memory_adamw import (
    LowMemoryAdamW,
    join_halves,
    round_stochastically,
    split_halves,
)
from scrl.policy.settings import OptimizerSettings

STEADY = {"warmup": 0.0, "schedule": "constant", "learning_rate": 1e-3, "weight_decay": 0.1, "max_grad_norm": 0.5}


def steady(model, has_adapter=False, **changes):
    return open_for(model, has_adapter, **STEADY | changes)


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
    with pytest.raises(InputError, match="have another dtype than here"):
        open_for(layers(), has_adapter).restore(older)


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("chunk", [2**25, 7])
def test_split_masters_move_as_separate_ones_do(monkeypatch, passes, chunk):
    monkeypatch.setattr(low_memory_adamw, "CHUNK", chunk)
    lean_model, model = layers(), layers()
    lean, plain = steady(lean_model), steady(model, has_adapter=True)
    for number in range(6):
        norms = take_step(lean_model, lean, number, passes), take_step(model, plain, number, passes)
        assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        for one, other in zip(masters_of(lean), masters_of(plain), strict=True):
            torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-6)
        for one, other in zip(lean_model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=2**-7)  # the nearest, but for ties and last bits
    assert lean.update == 6


def test_float32_weights_are_their_own_masters():
    lean_model, model = layers(torch.float32), layers(torch.float32)
    lean = LowMemoryAdamW(lean_model.parameters(), OptimizerSettings(**STEADY), 100, is_split=True)
    plain = steady(model)
    assert all(rest is None for rest in lean.state()["rest"])
    for number in range(3):
        take_step(lean_model, lean, number, 2)
        take_step(model, plain, number, 2)
    for one, other in zip(lean_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6)


def test_averages_in_bfloat16_stay_near_those_in_float32():
    lean_model, model = layers(), layers()
    lean, plain = steady(lean_model, state="bfloat16"), steady(model, has_adapter=True)
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


@pytest.mark.parametrize("number", [0.0, 1.0, -1.5, 2.0**-100])
def test_what_bfloat16_can_say_is_not_rounded(number):
    values_n = torch.full((50,), number)
    assert torch.equal(round_stochastically(values_n, torch.Generator()).float(), values_n)


# Gradients


def test_the_gradient_of_one_pass_stays_in_bfloat16_and_that_of_several_is_summed_in_float32():
    model = layers()
    lean = steady(model)
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
