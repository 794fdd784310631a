"""COMPASS: votes weighed by confidence, credibility, and the reward of a decisive path."""

from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.credit.rule import assign_credit, credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Completion, Group

# Two say 7 with stds 0.4 and 0.1, three say 5 with 0.1, 0.2, 0.1, one says nothing with 0.5 and decisiveness 1.
ROWS = [("7", 0.4, 0.6), ("5", 0.1, 0.8), ("5", 0.2, 0.5), ("7", 0.1, 0.7), (None, 0.5, 1.0), ("5", 0.1, 0.9)]


def group_of(rows):
    """(answer, std of the margin, decisiveness) each."""
    return Group(
        tuple(Completion(answer=a, facts={"margin_std": s, "decisiveness": d}) for a, s, d in rows), question_id="q"
    )


def credit_of(rows=ROWS, **choices):
    return assign_credit(group_of(rows), "compass", **choices)


def test_the_worked_example():
    credit = credit_of()
    # 7: e^0.4 + e^0.1 = 1.4918 + 1.1052 = 2.5970; 5: 2 e^0.1 + e^0.2 = 2.2103 + 1.2214 = 3.4317
    assert credit.labels.positive == "5"
    assert credit.labels.negatives == frozenset()
    # κ = e^0.2 / e^0.5 = e^−0.3 = 0.7408: the most confident of all gave no answer
    kappa = 0.7408182
    assert credit.rewards == pytest.approx([0.6, kappa + 0.8, kappa + 0.5, 0.7, 0.0, kappa + 0.9])


def test_confidence_can_overrule_the_majority_one_way_or_the_other():
    rows = [("7", 0.5, 0), ("7", 0.5, 0), ("5", 0.0, 0), ("5", 0.0, 0), ("5", 0.05, 0)]
    # +: 7: 2 e^0.5 = 3.2974, 5: 2 + e^0.05 = 3.0513, κ = 1; −: 7: 2 e^−0.5 = 1.2131, 5: 2 + e^−0.05 = 2.9512, κ = 1
    for sign, positive in ((1, "7"), (-1, "5")):
        credit = credit_of(rows, exponent_sign=sign)
        assert credit.labels.positive == positive
        assert credit.rewards.tolist() == [float(answer == positive) for answer, _, _ in rows]


def test_credibility_cancels_under_normalisation_without_the_path_reward():
    """κ scales every positive reward alike, and dividing by the std takes the scale away: only ε is left of it."""
    low = [("7", 0.0, 0.9), ("7", 0.0, 0.1), ("7", 0.0, 0.5), ("5", 0.5, 0.3)]  # κ = e^−0.5 = 0.61
    high = [(answer, 0.5, d) for answer, _, d in low]  # κ = 1
    assert credit_of(low, path_weight=0).rewards[0] == pytest.approx(exp(-0.5))
    assert credit_of(high, path_weight=0).rewards[0] == 1
    same = {"path_weight": 0, "eps": 0}
    assert credit_of(low, **same).advantages == pytest.approx(credit_of(high, **same).advantages, abs=1e-12)
    # it acts with advantages that are not normalised, and where the path reward gives the rewards a second scale
    for changes in ({"path_weight": 0, "advantage": "centred"}, {"path_weight": 1}):
        difference = credit_of(low, **changes).advantages - credit_of(high, **changes).advantages
        assert np.abs(difference).max() > 0.05


def test_what_a_missing_answer_earns():
    assert credit_of().rewards[4] == 0
    assert credit_of([(None, 0.1, 0.4), (None, 0.3, 0.2)]).rewards.tolist() == [0, 0]
    assert credit_of([(None, 0.1, 0.4)]).labels.positive is None


def test_where_all_agree_only_the_path_is_left_and_that_is_counted():
    rows = [("7", 0.1, 0.2), ("7", 0.1, 0.4)]
    assert credit_of(rows).is_entropy_only
    assert credit_of(rows).advantages == pytest.approx([-1, 1], abs=1e-4)
    assert not credit_of(rows, path_weight=0).advantages.any()


def test_it_asks_for_what_it_needs_and_no_more():
    assert credit_rule("compass").needs == {"margin_std", "decisiveness"}
    assert credit_rule("compass", path_weight=0).needs == {"margin_std"}
    with pytest.raises(InputError, match=r"'compass'.*'decisiveness'"):
        assign_credit(Group.from_answers(["1", "2"], question_id="q"), "compass")
    with pytest.raises(ConfigError, match="exponent_sign"):
        credit_rule("compass", exponent_sign=2)
    assert (
        credit_rule("compass", exponent_sign="-1").settings.model_dump()["exponent_sign"] == -1
    )  # as the command line gives it


VOTES = st.lists(
    st.tuples(st.sampled_from("123") | st.none(), st.floats(0, 0.5), st.floats(0, 1)), min_size=1, max_size=20
)


@given(VOTES, st.sampled_from([1, -1]))
def test_rewards_lie_between_0_and_2_and_the_label_has_the_most_confidence(rows, sign):
    credit = credit_of(rows, exponent_sign=sign)
    assert ((credit.rewards >= 0) & (credit.rewards <= 2)).all()
    sums = {a: sum(exp(sign * s) for b, s, _ in rows if b == a) for a, _, _ in rows if a is not None}
    if sums:
        assert sums[credit.labels.positive] == pytest.approx(max(sums.values()))


@given(VOTES, st.floats(0, 0.5))
def test_equal_confidences_are_the_plain_majority(rows, std):
    ttrl = assign_credit(group_of(rows), "ttrl")
    level = [(answer, std, d) for answer, _, d in rows]
    for credit in (credit_of(level, path_weight=0), credit_of(rows, path_weight=0, exponent_sign=0)):
        assert credit.labels == ttrl.labels
        assert credit.rewards.tolist() == ttrl.rewards.tolist()
