"""Self-Harmony and Co-rewarding by hand: a question, and the same question in other words."""

from collections import Counter
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.credit.methods.related.self_harmony import divergence, harmonic_answer
from scrl.credit.rule import credit_rule
from scrl.credit.tally import count_votes
from scrl.errors import InputError
from scrl.records import Group

HARMONY = credit_rule("self-harmony")
CENTRED = credit_rule("self-harmony", advantage="centred")
CO = credit_rule("co-rewarding")
VOTES = st.lists(st.sampled_from("1234") | st.none(), min_size=1, max_size=12)


def group_of(answers):
    return Group.from_answers(list(answers), question_id="q")


def credits_of(rule, as_it_is, rephrased):
    """Of both forms."""
    groups = [group_of(as_it_is), group_of(rephrased)]
    classes = [rule.classify(group) for group in groups]
    tallies = [count_votes(each, None) for each in classes]
    return [
        rule.credit(groups[side], classes[side], partner=tallies[1 - side], is_rephrased=bool(side)) for side in (0, 1)
    ]


def tallies_of(as_it_is, rephrased):
    classes = [HARMONY.classify(group_of(answers)) for answers in (as_it_is, rephrased)]
    return [count_votes(each, None) for each in classes]


# Self-Harmony


def test_self_harmony_on_a_worked_example():
    # as it is: 5 × 1, 2 × 2, 1 × 3 of 8; rephrased: 1 × 1, 4 × 2, 3 missing of 8
    one, other = credits_of(HARMONY, "11111223", ["1", "2", "2", "2", "2", None, None, None])
    # 1: 2·(5/8)(1/8)/(6/8) = 0.2083;  2: 2·(2/8)(4/8)/(6/8) = 0.3333;  3: 0.  So 2 wins, though 1 is the majority
    assert (one.labels.positive, other.labels.positive) == ("2", "2")
    assert one.rewards.tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    # p = (5, 2, 1)/8, q = (1, 4, 0)/5 of the answers that were given; m = (0.4125, 0.525, 0.0625)
    # KL(p‖m) = 0.625 ln(0.625/0.4125) + 0.25 ln(0.25/0.525) + 0.125 ln 2 = 0.259698 − 0.185484 + 0.086643 = 0.160857
    # KL(q‖m) = 0.2 ln(0.2/0.4125) + 0.8 ln(0.8/0.525) = −0.144784 + 0.336971 = 0.192187
    # JS = 0.176522; pen = 1 − 0.176522/0.693147 = 0.745332; 1 − 0.1·pen = 0.925467
    assert divergence(one.tally, other.tally) == pytest.approx(0.176522, abs=1e-6)
    assert other.rewards == pytest.approx([0, *[0.925467] * 4, 0, 0, 0], abs=1e-6)


def test_ties_go_to_the_more_frequent_answer_then_to_the_smallest_key():
    # 1: p = q = 1/3, mean 1/3.  2: p = 1/2, q = 1/4: 2·(1/8)/(3/4) = 1/3 as well, and ¾ > ⅔ of votes
    assert harmonic_answer(*tallies_of("111122222234", "111122233345"), first_seen_wins=False) == "2"
    assert harmonic_answer(*tallies_of("1234", "4321"), first_seen_wins=False) == "1"
    # nothing shared: all scores are 0, and the most frequent of both wins
    assert harmonic_answer(*tallies_of("1112", "3344"), first_seen_wins=False) == "1"
    assert harmonic_answer(*tallies_of([None], [None]), first_seen_wins=False) is None


def test_ties_can_go_to_the_answer_seen_first_in_the_question_as_it_is_then_in_other_words():
    first = credit_rule("self-harmony", ties="first-seen")
    for as_it_is, rephrased, best in (("2121", "1212", "2"), ("21", "12", "2"), ([None, "3"], "42", "3")):
        one, other = credits_of(first, as_it_is, rephrased)
        assert one.labels.positive == best  # of both forms, wherever it is given
        assert other.labels.positive == (best if best in rephrased else None)
    # nothing as it is; in other words 4 is seen before 2
    assert credits_of(first, [None], "42")[1].labels.positive == "4"
    # the harmonic mean and frequency come first, as above
    assert credits_of(first, "111122222234", "111122233345")[0].labels.positive == "2"
    one, other = credits_of(HARMONY, "2121", "1212")
    assert (one.labels.positive, other.labels.positive) == ("1", "1")


def test_a_label_that_a_form_does_not_have_rewards_nothing_there():
    one, other = credits_of(HARMONY, "1112", "3344")
    assert (one.labels.positive, one.rewards.tolist()) == ("1", [1, 1, 1, 0])
    assert (other.labels.positive, other.rewards.tolist()) == (None, [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("as_it_is", "rephrased", "expected"),
    [("12", "12", 0.0), ("11", "22", log(2)), ([None], "1", log(2)), (["1", None], "111", 0.0)],
)
def test_the_divergence_is_0_where_both_agree_and_ln_2_where_nothing_is_shared(as_it_is, rephrased, expected):
    assert divergence(*tallies_of(as_it_is, rephrased)) == pytest.approx(expected, abs=1e-12)


def test_the_penalty_cancels_in_normalised_advantages_and_acts_on_centred_ones():
    plain = credit_rule("self-harmony", agreement_penalty=0.0)
    votes = ("1112", "1122")
    assert credits_of(plain, *votes)[1].rewards.tolist() == [1, 1, 0, 0]
    assert credits_of(HARMONY, *votes)[1].rewards[0] < 0.95
    with_penalty, without = (credits_of(rule, *votes)[1].advantages for rule in (HARMONY, plain))
    assert with_penalty == pytest.approx(without, abs=1e-5)
    assert credits_of(CENTRED, *votes)[1].advantages[0] < 0.475  # ½ without it


@given(VOTES, VOTES)
def test_both_forms_agree_on_the_label_and_rewards_are_its_matches(as_it_is, rephrased):
    one, other = credits_of(HARMONY, as_it_is, rephrased)
    best = harmonic_answer(one.tally, other.tally, first_seen_wins=False)
    assert best == harmonic_answer(other.tally, one.tally, first_seen_wins=False)
    for credit, answers in ((one, as_it_is), (other, rephrased)):
        assert credit.labels.positive == (best if best in answers else None)
        assert [value > 0 for value in credit.rewards] == [answer is not None and answer == best for answer in answers]
    assert set(one.rewards.tolist()) <= {0.0, 1.0}
    assert all(value == 0 or 0.9 <= value <= 1 for value in other.rewards)


# Co-rewarding


def test_co_rewarding_on_a_worked_example():
    # the majority as it is: 1 (3 of 5); rephrased: 2 (2 of 4). Each form is held against the other's
    one, other = credits_of(CO, ["1", "1", "1", "2", None], "2213")
    assert (one.labels.positive, other.labels.positive) == ("2", "1")
    assert one.rewards.tolist() == [0, 0, 0, 1, 0]
    assert other.rewards.tolist() == [0, 0, 1, 0]


def test_without_a_label_all_earn_nothing():
    one, other = credits_of(CO, "112", [None, None])
    assert (one.labels.positive, one.rewards.tolist()) == (None, [0, 0, 0])  # the other form says nothing
    assert (other.labels.positive, other.rewards.tolist()) == (None, [0, 0])  # nobody here gives what the other says


def test_ties_are_a_setting():
    first_seen = credit_rule("co-rewarding", ties="first-seen")
    assert credits_of(CO, "12", "21")[0].labels.positive == "1"
    assert credits_of(first_seen, "12", "21")[0].labels.positive == "2"


@given(VOTES, VOTES)
def test_the_label_is_a_most_frequent_answer_of_the_other_form(as_it_is, rephrased):
    one, other = credits_of(CO, as_it_is, rephrased)
    for credit, votes in ((one, rephrased), (other, as_it_is)):
        counts = Counter(vote for vote in votes if vote is not None)
        if credit.labels.positive is not None:
            assert counts[credit.labels.positive] == max(counts.values())
        assert credit.rewards.tolist() == [float(a is not None and a == credit.labels.positive) for a in credit.answers]


@pytest.mark.parametrize("rule", [HARMONY, CO], ids=["self-harmony", "co-rewarding"])
def test_one_form_alone_is_refused(rule):
    with pytest.raises(
        InputError, match=r"question 'q': method '.*' needs completions of the same question put in other"
    ):
        rule.credit(group_of("12"))
