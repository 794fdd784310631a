"""What holds for every group, whatever its votes."""

import numpy as np
import pytest
from everything import credit_of_all as credit_of
from hypothesis import given, settings
from hypothesis import strategies as st

from scrl.credit.methods import METHODS
from scrl.credit.rule import credit_rule

VOTES = st.lists(
    st.tuples(st.sampled_from("12345678") | st.none(), st.floats(0, 3, allow_nan=False)), min_size=1, max_size=40
)
RULES = {name: credit_rule(name) for name in METHODS}
OFFICIAL = {name: credit_rule(name, preset="official") for name in METHODS}


PER_COMPLETION = {"random", "compass"}
"""Methods that reward a completion for other things than its answer."""
UNCENTRED = {"restrain"}
"""Advantages that are not centred: all −δ where nobody agrees."""


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"random"}))  # a coin knows nothing but the place
@settings(max_examples=40)
@given(votes=VOTES, data=st.data())
def test_the_order_of_the_completions_changes_no_bit(method, votes, data):
    order = data.draw(st.permutations(range(len(votes))))
    straight = credit_of(RULES[method], votes)
    shuffled = credit_of(RULES[method], [votes[i] for i in order])
    assert shuffled.labels == straight.labels
    assert shuffled.rewards.tolist() == straight.rewards[list(order)].tolist()
    assert shuffled.advantages.tolist() == straight.advantages[list(order)].tolist()


@given(votes=VOTES, data=st.data())
def test_renaming_the_answers_changes_nothing(votes, data):
    """Names carry no information (a tie of TTRL apart, which needs some rule)."""
    names = data.draw(st.permutations("12345678"))
    renamed = [(None if a is None else names[int(a) - 1], h) for a, h in votes]
    before, after = credit_of(RULES["scrl"], votes), credit_of(RULES["scrl"], renamed)
    assert after.rewards.tolist() == before.rewards.tolist()
    assert after.advantages.tolist() == before.advantages.tolist()


@pytest.mark.parametrize("rules", [RULES, OFFICIAL], ids=["paper", "official"])
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(votes=VOTES)
def test_labels_are_consistent_and_advantages_balance(method, rules, votes):
    credit = credit_of(rules[method], votes)
    assert credit.labels.positive not in credit.labels.negatives
    assert {credit.labels.positive} | credit.labels.negatives <= set(credit.tally.keys_K) | {None}
    assert method in UNCENTRED or abs(credit.advantages.sum()) < 1e-6
    same_reward = {}
    if method in PER_COMPLETION:
        return
    for answer, reward in zip(credit.answers, credit.rewards, strict=True):
        assert same_reward.setdefault(answer, reward) == reward  # equal answers earn equal rewards


@given(votes=VOTES)
def test_a_positive_label_outvotes_everything(votes):
    credit = credit_of(RULES["scrl"], votes)
    if credit.labels.positive is not None:
        counts = dict(zip(credit.tally.keys_K, credit.tally.counts_K, strict=True))
        top = counts.pop(credit.labels.positive)
        assert top > max(counts.values(), default=0)
        assert credit.labels.positive == credit_of(RULES["ttrl"], votes).labels.positive


@given(votes=VOTES, extra=st.integers(1, 5))
def test_a_missing_answer_never_helps_a_label(votes, extra):
    diluted = credit_of(RULES["scrl"], votes + [(None, 0.0)] * extra)
    if diluted.labels.positive is not None:
        assert credit_of(RULES["scrl"], votes).labels.positive == diluted.labels.positive


@given(votes=VOTES, scale=st.floats(0.01, 100))
def test_advantages_do_not_depend_on_the_scale_of_rewards(votes, scale):
    from scrl.credit.advantages import group_advantages

    rewards = credit_of(RULES["ttrl"], votes).rewards
    plain = {"sample_std": False, "eps": 0.0, "std_floor": 0.0}
    assert np.allclose(group_advantages(rewards, **plain), group_advantages(rewards * scale, **plain))
