"""Control arms: told the truth, told nothing, told the opposite."""

import numpy as np
import pytest

from scrl.credit.rule import credit_rule
from scrl.records import Group, Truth

ANSWERS = ["7", "7", "7", "5", "5", "3", None, "9"]


def credit_of(method, *, truth=None, seed=0, step=0, question_id="q", answers=ANSWERS):
    rule = credit_rule(method, seed=seed)
    return rule.credit(Group.from_answers(answers, question_id=question_id, step=step), truth=truth)


def test_oracle_rewards_the_gold_answer_however_rare():
    credit = credit_of("oracle", truth=Truth("5"))
    assert credit.labels.positive == "5"
    assert credit.labels.negatives == frozenset()
    assert credit.rewards.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]
    # mean 2/8 = 0.25, σ = sqrt(0.25 · 0.75) = 0.4330: (1 − 0.25)/0.4330 = 1.7320, (0 − 0.25)/0.4330 = −0.5773
    assert credit.advantages == pytest.approx([-0.57735] * 3 + [1.73205] * 2 + [-0.57735] * 3, abs=1e-5)


@pytest.mark.parametrize("method", ["ttrl", "random", "inverted"])
def test_no_other_method_sees_the_truth(method):
    told, untold = credit_of(method, truth=Truth("5")), credit_of(method)
    assert told.labels == untold.labels
    assert told.rewards.tolist() == untold.rewards.tolist()


def test_inverted_is_the_reward_of_ttrl_negated():
    inverted, ttrl = credit_of("inverted"), credit_of("ttrl")
    assert inverted.rewards.tolist() == (-ttrl.rewards).tolist() == [-1, -1, -1, 0, 0, 0, 0, 0]
    assert inverted.labels.positive is None
    assert inverted.labels.negatives == {"7"}
    assert inverted.advantages == pytest.approx(-ttrl.advantages)
    assert credit_of("inverted", answers=[None, None]).labels.negatives == frozenset()


def test_random_rewards_are_fair_coins_that_a_seed_repeats():
    credit = credit_of("random", answers=["7"] * 4_000)
    assert set(credit.rewards.tolist()) == {0.0, 1.0}
    assert credit.rewards.mean() == pytest.approx(0.5, abs=0.04)  # 5 σ of a mean of 4,000 coins: 5 · 0.5 / 63 = 0.04
    assert np.array_equal(credit.rewards, credit_of("random", answers=["7"] * 4_000).rewards)
    assert credit.labels.positive is None


@pytest.mark.parametrize("other", [{"seed": 1}, {"step": 1}, {"question_id": "p"}])
def test_random_rewards_differ_from_group_to_group(other):
    many = ["7"] * 64
    assert not np.array_equal(
        credit_of("random", answers=many).rewards, credit_of("random", answers=many, **other).rewards
    )
