"""AdamW in fewer bytes: split masters are exact, averages in bfloat16 are right on average, gradients exist once."""

import io
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from updates import ADVANTAGES, credit_of, draw_group, make_policy, small_model, weights_of

from scrl.policy import low_memory_adamw as lean_optimizer
from scrl.policy.low_memory_adamw import LeanOptimizer, joined, open_optimizer, rounded_at_random, split
from scrl.policy.optimizer import Optimizer
from scrl.policy.settings import OptimizerSettings

STEADY = {"warmup": 0.0, "schedule": "constant", "learning_rate": 1e-3, "weight_decay": 0.1, "max_grad_norm": 0.5}
OPTIONS = [{"masters": "split"}, {"state": "bfloat16"}, {"masters": "split", "state": "bfloat16"}]


def settings_of(**changes):
    return OptimizerSettings(**STEADY | changes)


def layers(dtype=torch.bfloat16):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)).to(dtype)


def give_gradient(model, number):
    random = torch.Generator().manual_seed(number)
    inputs = torch.randn(4, 8, generator=random).to(model[0].weight.dtype)
    model(inputs).float().square().sum().backward()


def stepped(model, optimizer, number, passes=1):
    optimizer.expect(passes)
    for each in range(passes):
        give_gradient(model, 10 * number + each)
        optimizer.collect()
    return optimizer.step()


def masters_of(optimizer):
    if isinstance(optimizer, Optimizer):
        return [master.detach().flatten() for master in optimizer._masters]
    return [torch.cat([weight.master(part) for part in weight.parts()]) for weight in optimizer._weights]


# Splitting


@given(st.integers(0, 2**32 - 1))
def test_a_number_and_its_halves_are_the_same(bits):
    number = torch.tensor([bits - 2**31], dtype=torch.int32).view(torch.float32)
    if not bool(number.abs() < 3.38e38):  # beyond it the nearest bfloat16 is infinite
        return
    weight, rest = split(number)
    assert (weight.dtype, rest.dtype) == (torch.bfloat16, torch.int16)
    assert torch.equal(joined(weight, rest).view(torch.int32), number.view(torch.int32))
    distance = (weight.double() - number.double()).abs()
    assert bool(distance <= (number.bfloat16().double() - number.double()).abs())  # none is nearer


def test_a_split_by_hand():
    # 1 + 2⁻⁷ is the bfloat16 after 1; 2⁻⁸ is half way, and ties go away from 0. A float32 of 1 to 2 counts in 2⁻²³
    weights, rests = split(torch.tensor([1.0, 1 + 2**-23, 1 + 2**-8, -1 - 2**-8, 1 + 2**-8 - 2**-23]))
    assert weights.tolist() == [1, 1, 1 + 2**-7, -1 - 2**-7, 1]
    assert rests.tolist() == [0, 1, -(2**15), -(2**15), 2**15 - 1]


# Steps


def test_the_settings_choose():
    for options in OPTIONS:
        assert isinstance(open_optimizer(layers().parameters(), settings_of(**options), 10), LeanOptimizer)
    assert isinstance(open_optimizer(layers().parameters(), settings_of(), 10), Optimizer)


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("chunk", [2**25, 7])
def test_split_masters_move_as_separate_ones_do(monkeypatch, passes, chunk):
    monkeypatch.setattr(lean_optimizer, "CHUNK", chunk)
    lean_model, model = layers(), layers()
    lean = open_optimizer(lean_model.parameters(), settings_of(masters="split"), 10)
    plain = open_optimizer(model.parameters(), settings_of(), 10)
    for number in range(6):
        norms = stepped(lean_model, lean, number, passes), stepped(model, plain, number, passes)
        assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        for one, other in zip(masters_of(lean), masters_of(plain), strict=True):
            torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-6)
        for one, other in zip(lean_model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=0, rtol=2**-7)  # the nearest, but for ties and last bits
    assert lean.update == 6


def test_float32_weights_are_their_own_masters():
    lean_model, model = layers(torch.float32), layers(torch.float32)
    lean = open_optimizer(lean_model.parameters(), settings_of(masters="split"), 10)
    plain = open_optimizer(model.parameters(), settings_of(), 10)
    assert all(rest is None for rest in lean.state()["rest"])
    for number in range(3):
        stepped(lean_model, lean, number, 2)
        stepped(model, plain, number, 2)
    for one, other in zip(lean_model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6)


def test_averages_in_bfloat16_stay_near_those_in_float32():
    lean_model, model = layers(), layers()
    lean = open_optimizer(lean_model.parameters(), settings_of(state="bfloat16"), 100)
    plain = open_optimizer(model.parameters(), settings_of(), 100)
    start = torch.cat(masters_of(plain)).clone()
    for number in range(40):
        stepped(lean_model, lean, number % 5)
        stepped(model, plain, number % 5)
    found, wanted = torch.cat(masters_of(lean)) - start, torch.cat(masters_of(plain)) - start
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert {weight.means.dtype for weight in lean._weights} == {torch.bfloat16}


def test_an_average_in_bfloat16_can_fall():
    """0.999²⁰⁰ = 0.8186; to the nearest bfloat16, 0.999 · v is v again."""
    assert float(torch.tensor(1.0).bfloat16() * 0.999) == 1.0
    random = torch.Generator().manual_seed(0)
    values_n = torch.ones(4000).bfloat16()
    for _ in range(200):
        values_n = rounded_at_random(values_n.float() * 0.999, random)
    # a step's rounding has a spread of at most 2⁻⁹, 200 steps of at most 0.028, and 4,000 numbers' mean of 4e-4
    assert float(values_n.float().mean()) == pytest.approx(0.999**200, abs=2e-3)


@pytest.mark.parametrize("number", [0.0, 1.0, -1.5, 2.0**-100])
def test_what_bfloat16_can_say_is_not_rounded(number):
    values_n = torch.full((50,), number)
    assert torch.equal(rounded_at_random(values_n, torch.Generator()).float(), values_n)


# Gradients


def test_the_gradient_of_one_pass_stays_in_bfloat16_and_that_of_several_is_summed_in_float32():
    model = layers()
    lean = open_optimizer(model.parameters(), settings_of(masters="split"), 10)
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


@pytest.mark.parametrize("options", OPTIONS)
def test_a_gradient_that_is_no_number_is_reported_and_thrown_away(options):
    model = layers()
    before = [weight.detach().clone() for weight in model.parameters()]
    lean = open_optimizer(model.parameters(), settings_of(**options), 10)
    lean.expect(1)
    give_gradient(model, 0)
    model[0].weight.grad[0, 0] = math.nan
    assert math.isnan(lean.step())
    assert lean.update == 0
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True))
    assert all(weight.gradient is None for weight in lean._weights)


def test_frozen_weights_and_those_without_a_gradient_are_left_alone():
    model = layers()
    model[2].requires_grad_(False)
    unused = nn.Linear(2, 2).bfloat16()
    lean = open_optimizer([*model.parameters(), *unused.parameters()], settings_of(masters="split"), 10)
    before = [weight.detach().clone() for weight in (model[2].weight, *unused.parameters())]
    stepped(model, lean, 0)
    after = (model[2].weight, *unused.parameters())
    assert all(torch.equal(one, other) for one, other in zip(after, before, strict=True))


# Saving


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_optimizer_goes_on_exactly(options, dtype):
    model, again = layers(dtype), layers(dtype)
    lean = open_optimizer(model.parameters(), settings_of(**options), 20)
    for number in range(4):
        stepped(model, lean, number)
    file = io.BytesIO()
    torch.save(lean.state(), file)
    file.seek(0)
    again.load_state_dict(model.state_dict())  # as a checkpoint of the model does
    restored = open_optimizer(again.parameters(), settings_of(**options), 20)
    restored.restore(torch.load(file, weights_only=True))
    for number in range(4, 8):
        assert stepped(model, lean, number) == stepped(again, restored, number)
        for one, other in zip(masters_of(lean), masters_of(restored), strict=True):
            assert torch.equal(one, other)


# With a policy


@pytest.mark.parametrize("micro_batch", [2, 16])
def test_a_policy_is_updated_as_with_separate_masters(micro_batch):
    group = draw_group(small_model())
    found, wanted = small_model(dtype=torch.bfloat16), small_model(dtype=torch.bfloat16)
    reports = [
        make_policy(model, micro_batch=micro_batch, **options).update([group], [credit_of(ADVANTAGES)])
        for model, options in ((found, {"masters": "split"}), (wanted, {}))
    ]
    assert reports[0].grad_norm == pytest.approx(reports[1].grad_norm, rel=1e-5)
    torch.testing.assert_close(weights_of(found), weights_of(wanted), atol=0, rtol=2**-7)
