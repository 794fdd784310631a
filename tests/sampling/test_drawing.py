"""Drawing one token: frequencies against probabilities, what is kept, what is recorded."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scrl.sampling.draw import draw, invert_cdf, restrict, row_uniforms
from scrl.sampling.settings import SamplingSettings

PROBS = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
UNIFORMS = st.one_of(st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 1 - 2**-53, 1 - 2**-24, 0.5, 2**-1074]))
WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(2**-40, 1, width=32)), min_size=1, max_size=12).filter(any)


def even_uniforms(number):
    """Midpoints of `number` equal parts of [0, 1): as even as uniforms can be."""
    return (torch.arange(number, dtype=torch.float64) + 0.5) / number


def frequencies(settings, probs=PROBS, number=20_000):
    logits_RV = torch.tensor(probs).log().repeat(number, 1)
    tokens_R = draw(logits_RV, even_uniforms(number), settings).tokens_R
    return torch.bincount(tokens_R, minlength=len(probs)).double() / number


# Frequencies


@pytest.mark.parametrize(("settings", "expected"), [
    ({}, PROBS),
    ({"top_k": 2}, [0.4 / 0.65, 0.25 / 0.65, 0, 0, 0, 0]),
    ({"top_k": 99}, PROBS),
    ({"top_p": 0.39}, [1, 0, 0, 0, 0, 0]),  # the first token alone reaches it
    ({"top_p": 0.41}, [0.4 / 0.65, 0.25 / 0.65, 0, 0, 0, 0]),  # two are needed
    ({"top_p": 0.79}, [0.5, 0.3125, 0.1875, 0, 0, 0]),  # 0.4 + 0.25 + 0.15 = 0.8 reaches it
    # of the three likeliest, with masses 0.5, 0.3125, 0.1875, the first two reach 0.8
    ({"top_k": 3, "top_p": 0.8}, [0.4 / 0.65, 0.25 / 0.65, 0, 0, 0, 0]),
    ({"temperature": 0}, [1, 0, 0, 0, 0, 0]),
    # p² / Σ p²: 0.16, 0.0625, 0.0225, 0.01, 0.0036, 0.0016 of 0.2602
    ({"temperature": 0.5}, [p * p / 0.2602 for p in PROBS]),
])  # fmt: skip
def test_tokens_come_as_often_as_their_probability_says(settings, expected):
    # even uniforms leave no chance: each count is off by at most one, float32 sums aside
    assert frequencies(SamplingSettings(**settings)).numpy() == pytest.approx(np.array(expected), abs=2e-4)


def test_random_uniforms_pass_a_chi_square_test():
    number = 50_000
    uniforms_R = torch.from_numpy(row_uniforms(0, 0, "question", 0, number))
    tokens_R = draw(torch.tensor(PROBS).log().repeat(number, 1), uniforms_R, SamplingSettings()).tokens_R
    expected = number * np.array(PROBS)
    chi_square = ((np.bincount(tokens_R, minlength=6) - expected) ** 2 / expected).sum()
    assert chi_square < 20.5  # 5 degrees of freedom: 0.1 % of right samplers are above


def test_tokens_of_equal_probability_are_kept_in_their_order():
    kept_V = restrict(torch.full((1, 8), 1 / 8), top_p=1.0, top_k=3)[0]
    assert kept_V.nonzero().squeeze(-1).tolist() == [0, 1, 2]


@given(WEIGHTS, st.floats(0.01, 1), st.integers(0, 14), UNIFORMS)
def test_nothing_outside_the_kept_set_is_ever_drawn(weights, top_p, top_k, uniform):
    probs_V = np.array(weights) / sum(weights)
    settings = SamplingSettings(top_p=top_p, top_k=top_k)
    logits_1V = torch.from_numpy(probs_V).log().float()[None]
    token = int(draw(logits_1V, torch.tensor([uniform], dtype=torch.float64), settings).tokens_R)
    better = np.sort(probs_V[probs_V > probs_V[token] + 1e-6])  # those that must come before it
    assert top_k == 0 or len(better) < top_k
    assert better.sum() < top_p + 1e-5
    assert probs_V[token] > 0


@given(st.integers(0, 2**31), st.floats(0.05, 0.999), st.sampled_from([0, 3, 16, 40, 64, 100]), st.floats(0.1, 8))
def test_sorting_the_likeliest_tokens_first_changes_nothing(seed, top_p, top_k, spread):
    logits_RV = (torch.randn(3, 64, generator=torch.Generator().manual_seed(seed)) * spread).bfloat16()  # ties
    probs_RV = torch.softmax(logits_RV.float(), dim=-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrl.sampling.draw.TOP_CANDIDATES", 1_000)
        whole_RV = restrict(probs_RV, top_p, top_k)
        patch.setattr("scrl.sampling.draw.TOP_CANDIDATES", 16)
        quick_RV = restrict(probs_RV, top_p, top_k)
    assert torch.equal(whole_RV > 0, quick_RV > 0)


# Inverting the cumulative distribution


@given(WEIGHTS, UNIFORMS)
def test_a_token_of_weight_0_is_never_taken(weights, uniform):
    weights_1V = torch.tensor([weights], dtype=torch.float32)
    token = int(invert_cdf(weights_1V, torch.tensor([uniform], dtype=torch.float64)))
    assert 0 <= token < len(weights)
    assert weights[token] > 0


def test_the_two_ends_of_the_uniforms_take_the_first_and_the_last_token_with_weight():
    weights_RV = torch.tensor([[0.0, 0.3, 0.0, 0.7, 0.0]]).repeat(3, 1)
    uniforms_R = torch.tensor([0.0, 0.3, 1 - 2**-53], dtype=torch.float64)
    # u = 0.3: the first token's sum is not above 0.3 · 1, so the next one with weight is taken
    assert invert_cdf(weights_RV, uniforms_R).tolist() == [1, 3, 3]


# What is recorded


@pytest.mark.parametrize("restricted", [{}, {"top_k": 1}, {"top_p": 0.1}, {"top_k": 2, "top_p": 0.5}])
def test_recorded_values_are_those_of_the_whole_vocabulary(restricted):
    drawn = draw(torch.tensor([PROBS]).log(), torch.tensor([0.0]), SamplingSettings(**restricted))
    assert int(drawn.tokens_R) == 0
    assert float(drawn.logprobs_R) == pytest.approx(math.log(0.4), abs=1e-6)
    assert float(drawn.entropies_R) == pytest.approx(-sum(p * math.log(p) for p in PROBS), abs=1e-6)


def test_greedy_takes_the_likeliest_token_and_records_temperature_1():
    drawn = draw(torch.tensor([[0.0, math.log(3)]]), torch.tensor([0.0]), SamplingSettings(temperature=0))
    assert int(drawn.tokens_R) == 1
    assert float(drawn.logprobs_R) == pytest.approx(math.log(3 / 4), abs=1e-6)


# Settings


@pytest.mark.parametrize("settings", [
    {"temperature": -0.1}, {"temperature": math.nan}, {"top_p": 0}, {"top_p": 1.1}, {"top_k": -1},
    {"max_tokens": 0}, {"stop": ("",)}, {"tempreature": 1},
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        SamplingSettings(**settings)
