"""Weights of tokens in the loss: the gradient is that of the chosen tokens alone."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from updates import (
    assert_close,
    collected_gradient,
    credit_of,
    disturb,
    embedded,
    make_policy,
    plain_gradient,
    plain_scores,
    uneven_group,
)

from scrl.credit.rule import credit_rule
from scrl.policy.settings import LossSettings, Mean

MEANS = get_args(Mean)
MAX_TOKENS = 24
TRAINED = (0, 1, 2, 4, 5)  # an odd number: the last of the pairs has one completion


@pytest.fixture(scope="module")
def drawn():
    """A model that has moved since it wrote some completions, and the completions, of different lengths."""
    language_model = embedded()
    sampled = uneven_group(language_model)
    disturb(language_model)
    return language_model, sampled


def weighed(weights_G):
    return replace(credit_of(trained=TRAINED), token_weights_G=tuple(weights_G))


def top_tokens(sampled):
    """The fifth of the tokens with the highest entropy, as a method chooses them."""
    return credit_rule("spine").token_weights([sample.entropies_T for sample in sampled.samples_G])


def shares(numbers, mean):
    """The weight of each completion's tokens, from the numbers of chosen tokens."""
    if mean == "completion":  # mean over its tokens, then over completions
        return [1 / (len(numbers) * number) for number in numbers]
    if mean == "token":  # mean over all tokens
        return [1 / sum(numbers)] * len(numbers)
    if mean == "constant":  # sum over tokens by the most there can be, mean over completions
        return [1 / (len(numbers) * MAX_TOKENS)] * len(numbers)
    pairs = [numbers[first : first + 2] for first in range(0, len(numbers), 2)]
    return [1 / (len(pairs) * sum(pair)) for pair in pairs for _ in pair]


def chosen_loss(model, sampled, credit, loss):
    """The loss as a sum over the chosen tokens; the others are never looked at."""
    chosen = [np.flatnonzero(credit.token_weights_G[row]).tolist() for row in credit.trained]
    total = torch.zeros(())
    for row, places, share in zip(credit.trained, chosen, shares([*map(len, chosen)], loss.mean), strict=True):
        sample, advantage = sampled.samples_G[row], float(credit.advantages[row])
        logprobs, entropies = plain_scores(model, sampled.prompt_P, sample.tokens_T, temperature=1.0)
        logratios = [new - old for new, old in zip(logprobs, sample.logprobs_T.tolist(), strict=True)]
        mean_logratio = (sum(logratios) / len(logratios)).detach()
        for place in places:
            ratio = logratios[place].exp()
            if loss.ratio == "completion":  # s of the whole completion, and this token's part of its gradient
                ratio = torch.exp(mean_logratio + logprobs[place] - logprobs[place].detach())
            clipped = torch.clamp(ratio, 1 - loss.clip_low, 1 + loss.clip_high)
            token_loss = -torch.min(ratio * advantage, clipped * advantage) - loss.entropy_bonus * entropies[place]
            total = total + share * token_loss
    return total


@pytest.mark.parametrize("more", [{}, {"entropy_bonus": 0.05}, {"ratio": "completion"}], ids=["plain", "bonus", "gspo"])
@pytest.mark.parametrize("mean", MEANS)
def test_the_gradient_is_that_of_the_chosen_tokens_alone(drawn, mean, more):
    language_model, sampled = drawn
    credit = weighed(top_tokens(sampled))
    policy = make_policy(language_model, max_tokens=MAX_TOKENS, micro_batch=2, mean=mean, **more)
    found, sums = collected_gradient(policy, sampled, credit)
    settings = LossSettings(mean=mean, **more)
    wanted, loss = plain_gradient(language_model, sampled, credit, settings, plain_loss=chosen_loss)
    assert float(wanted.norm()) > 1e-4
    assert_close(found, wanted, 1e-5)
    assert sums.loss == pytest.approx(loss, abs=1e-6)
    everything, _ = collected_gradient(policy, sampled, credit_of(trained=TRAINED))
    assert float((found - everything).norm()) > 1e-3 * float(everything.norm())


@pytest.mark.parametrize("mean", MEANS)
def test_weights_of_one_change_no_bit(drawn, mean):
    language_model, sampled = drawn
    policy = make_policy(language_model, max_tokens=MAX_TOKENS, mean=mean)
    ones = weighed([np.ones(len(sample.tokens_T)) for sample in sampled.samples_G])
    found, sums = collected_gradient(policy, sampled, ones)
    wanted, sums_without = collected_gradient(policy, sampled, credit_of(trained=TRAINED))
    assert torch.equal(found, wanted)
    assert sums == sums_without
