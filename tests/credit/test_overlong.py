"""Soft overlong shaping: a completion near the limit loses some of its reward, whatever the method."""

import pytest
from everything import credit_of_all
from hypothesis import given
from hypothesis import strategies as st

from scrl.credit.methods import METHODS
from scrl.credit.rule import assign_credit, credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Completion, Group

LENGTHS = (10, 60, 70, 90, 100)


def group_of(answers, lengths):
    completions = zip(answers, lengths, strict=True)
    return Group(tuple(Completion("", 0.3, answer, {"length": float(length)}) for answer, length in completions), "q")


def test_the_reward_falls_over_the_buffer():
    group = group_of(["7"] * 4 + ["5"], LENGTHS)
    credit = assign_credit(group, "ttrl", max_tokens=100, overlong_buffer=40)
    # nothing up to 100 − 40 = 60 tokens; then −(T − 60)/40: 70 → −0.25, 90 → −0.75, 100 → −1
    assert credit.rewards == pytest.approx([1, 1, 0.75, 0.25, -1])
    # mean 0.4, deviations 0.6, 0.6, 0.35, −0.15, −1.4; σ² = (0.36 + 0.36 + 0.1225 + 0.0225 + 1.96)/5 = 0.565
    assert credit.advantages == pytest.approx([0.79822, 0.79822, 0.46563, -0.19956, -1.86252], abs=1e-4)
    assert not credit.is_entropy_only


def test_a_group_that_differs_in_length_alone_is_told_apart_and_not_taken_for_an_entropy_term():
    group = group_of(["7"] * 5, LENGTHS)
    credit = assign_credit(group, "scrl", max_tokens=100, overlong_buffer=100)
    assert credit.rewards == pytest.approx([0.9, 0.4, 0.3, 0.1, 0.0])  # 1 − T/100
    assert not credit.is_entropy_only


@pytest.mark.parametrize("method", sorted(METHODS))
def test_off_is_the_default_and_a_buffer_that_nobody_reaches_changes_nothing(method):
    votes = [("1", 0.1), ("1", 0.5), ("2", 0.9), (None, 0.2)]  # a fact `length` below 1
    plain = credit_of_all(credit_rule(method), votes)
    unreached = credit_of_all(credit_rule(method, max_tokens=100, overlong_buffer=50), votes)
    assert plain.rewards.tolist() == unreached.rewards.tolist()
    assert plain.advantages.tolist() == unreached.advantages.tolist()
    assert credit_rule(method, max_tokens=100).needs == METHODS[method].needs(METHODS[method].settings())


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 50))
def test_penalties_lie_between_minus_one_and_zero_and_fall_with_length(lengths, buffer):
    group = group_of([None] * len(lengths), lengths)
    rewards = assign_credit(group, "ttrl", max_tokens=50, overlong_buffer=buffer).rewards
    assert ((rewards >= -1) & (rewards <= 0)).all()
    for length, reward in zip(lengths, rewards, strict=True):
        assert (reward < 0) == (length > 50 - buffer)
        assert all(reward >= other for far, other in zip(lengths, rewards, strict=True) if far >= length)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match=r"overlong_buffer"):
        credit_rule("ttrl", overlong_buffer=200, max_tokens=100)
    with pytest.raises(ConfigError, match=r"overlong_buffer"):
        credit_rule("ttrl", overlong_buffer=10)
    with pytest.raises(ConfigError, match="overlong_buffer"):
        credit_rule("ttrl", overlong_buffer=-1, max_tokens=100)
    with pytest.raises(InputError, match="'length'"):
        assign_credit(Group.from_answers(["7"]), "ttrl", overlong_buffer=10, max_tokens=100)
