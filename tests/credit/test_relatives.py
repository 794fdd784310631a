"""RENT, EMPO, DDRL and DARE, worked out by hand."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.credit.methods import METHODS
from scrl.credit.methods.related.dare import probabilities
from scrl.credit.rule import credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Completion, Group

VOTES = st.lists(
    st.tuples(st.sampled_from("12345") | st.none(), st.floats(0, 3, allow_nan=False)), min_size=1, max_size=24
)


def group_of(answers, entropies=None, **place):
    entropies = [0.3] * len(answers) if entropies is None else entropies
    completions = tuple(
        Completion("", h, answer, {"length": 5.0}) for answer, h in zip(answers, entropies, strict=True)
    )
    return Group(completions, **{"question_id": "q"} | place)


def credit_of(method, answers, entropies=None, **choices):
    return credit_rule(method, **choices).credit(group_of(answers, entropies))


# --- RENT -------------------------------------------------------------------------------------------------------------

FOUR = ["7", "7", "5", None]


def test_rent_rewards_certainty_whatever_the_answer():
    credit = credit_of("rent", FOUR, [0.2, 0.4, 0.6, 0.8])
    assert credit.rewards.tolist() == [-0.2, -0.4, -0.6, -0.8]
    assert (credit.labels.positive, credit.labels.negatives) == (None, frozenset())
    # mean −0.5, deviations 0.3, 0.1, −0.1, −0.3; σ = √((0.09 + 0.01 + 0.01 + 0.09)/4) = √0.05 = 0.22361
    assert credit.advantages == pytest.approx([1.34164, 0.44721, -0.44721, -1.34164], abs=1e-4)


def test_rent_with_an_entropy_base_for_missing_answers():
    credit = credit_of("rent", FOUR, [0.2, 0.4, 0.6, 0.8], entropy_base=-7.0)
    assert credit.rewards.tolist() == [-0.2, -0.4, -0.6, -7.0]
    # mean −8.2/4 = −2.05; deviations 1.85, 1.65, 1.45, −4.95; variance (3.4225 + 2.7225 + 2.1025 + 24.5025)/4 = 8.1875
    # σ = 2.86138: 1.85/2.86138 = 0.64654, 0.57664, 0.50675, −1.72993
    assert credit.advantages == pytest.approx([0.64654, 0.57664, 0.50675, -1.72993], abs=1e-4)


def test_the_official_preset_of_another_paper_leaves_rents_missing_answers_alone():
    assert credit_of("rent", FOUR, [0.2, 0.4, 0.6, 0.8], preset="official").rewards[3] == -0.8


@given(votes=VOTES, answer=st.sampled_from("12345") | st.none())
def test_rent_does_not_look_at_answers(votes, answer):
    entropies = [h for _, h in votes]
    one, other = (
        credit_of("rent", [a for a, _ in votes], entropies),
        credit_of("rent", [answer] * len(votes), entropies),
    )
    assert one.advantages.tolist() == other.advantages.tolist()


def test_the_entropy_methods_refuse_completions_without_what_they_need():
    bare = Group.from_answers(["7", "5"], question_id="q")
    for method, need in (("compass", "fact 'decisiveness'"), ("rent", "entropy"), ("dare", "entropy")):
        with pytest.raises(InputError, match=f"'q'.*'{method}'.*{need}.*completion 0"):
            credit_rule(method).credit(bare)
    for method in ("empo", "ddrl"):
        credit_rule(method).credit(bare)


# --- EMPO -------------------------------------------------------------------------------------------------------------


def test_empo_pays_every_answer_its_share():
    credit = credit_of("empo", ["1"] * 4 + ["2"] * 2 + ["3", None])
    assert credit.rewards.tolist() == [0.5] * 4 + [0.25] * 2 + [0.125, 0.0]
    assert credit.labels.positive is None
    # mean (4·0.5 + 2·0.25 + 0.125)/8 = 2.625/8 = 0.328125; mean of squares (4·0.25 + 2·0.0625 + 0.015625)/8 = 0.142578
    # σ = √(0.142578 − 0.107666) = √0.034912 = 0.186848; (0.5 − 0.328125)/σ = 0.91987, (0 − 0.328125)/σ = −1.75611
    assert credit.advantages[[0, 7]] == pytest.approx([0.91987, -1.75611], abs=1e-3)


@pytest.mark.parametrize("answers", [["1", "2", "3", "4"], ["1", "2", None, None], [None] * 3, ["1"]])
def test_empo_is_silent_where_no_two_agree(answers):
    credit = credit_of("empo", answers)
    assert not credit.rewards.any()
    assert not credit.advantages.any()


@pytest.mark.parametrize(
    ("answers", "is_kept"),
    [
        (["1"] * 4 + list("234567"), True),  # 0.4
        (["1"] * 3 + list("2345678"), False),  # exactly 0.3, and the bounds are open
        (["1"] * 10, False),  # exactly 1
        (["1"] * 9 + [None], True),  # 0.9
        ([None] * 10, False),
    ],
)
def test_empo_can_leave_out_questions_by_their_confidence(answers, is_kept):
    assert credit_of("empo", answers, keep_shares=(0.3, 1)).rewards.any() == is_kept


def test_empo_takes_bounds_as_the_command_line_gives_them():
    for text in ("0.3,1", "[0.3, 1]"):
        assert credit_rule("empo", keep_shares=text).settings.model_dump()["keep_shares"] == (0.3, 1.0)


@pytest.mark.parametrize("bad", [(0.5, 0.5), (-0.1, 1), (0.3, 1.1), (1, 0.3)])
def test_empo_refuses_bounds_that_keep_nothing(bad):
    with pytest.raises(ConfigError, match=r"keep_shares"):
        credit_rule("empo", keep_shares=bad)


@given(votes=VOTES)
def test_empos_mean_reward_is_the_chance_that_two_completions_agree(votes):
    answers = [a for a, _ in votes]
    counts = Counter(a for a in answers if a is not None)
    wanted = sum(n * n for n in counts.values()) / len(answers) ** 2 if max(counts.values(), default=0) > 1 else 0.0
    assert credit_of("empo", answers).rewards.mean() == pytest.approx(wanted)


# --- DDRL -------------------------------------------------------------------------------------------------------------

EIGHT = ["7", "7", "7", "5", "5", "3", None, "9"]  # votes 3, 3, 3, 2, 2, 1, 0, 1


def test_ddrl_trains_on_both_ends_of_the_votes_with_advantages_of_one():
    credit = credit_of("ddrl", EIGHT, num_trained=4, which_trained="first")
    # K⁺ = min(3, ⌊4/2⌋) = 2: the first two 7s; K⁻ = 2 rarest: the missing answer (0 votes), then the 3 (1 vote)
    assert credit.trained == (0, 1, 5, 6)
    assert credit.labels.positive == "7"
    assert credit.rewards.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert credit.advantages[[0, 1, 5, 6]].tolist() == [1, 1, -1, -1]
    assert np.isnan(credit.advantages[[2, 3, 4, 7]]).all()


@pytest.mark.parametrize(
    ("answers", "number", "trained"),
    [
        (EIGHT, 5, (0, 1, 5, 6, 7)),  # ⌊5/2⌋ = 2 and 3 rarest
        (EIGHT, 7, (0, 1, 2, 3, 5, 6, 7)),  # min(3, 3) and 4: missing, 3, 9, one 5
        (EIGHT, 8, (0, 1, 2, 3, 4, 5, 6, 7)),
        (EIGHT, 1, (6,)),  # ⌊1/2⌋ = 0
        (["1", "2", "3", "4"], 4, (0, 1, 2, 3)),  # n_top = 1: one and three
        (["1"] * 6, 4, (0, 1, 2, 3)),  # nobody else: the majority fills the lower end
        ([None] * 6, 4, (0, 1, 2, 3)),  # n_top = 0
        (["2", "2", "1", "1", "3", None], 2, (2, 5)),  # a tie: the label's class, here the smallest key
    ],
)
def test_which_completions_ddrl_trains_on(answers, number, trained):
    assert credit_of("ddrl", answers, num_trained=number, which_trained="first").trained == trained


def test_ddrl_does_not_centre():
    assert credit_of("ddrl", ["1"] * 4).advantages.tolist() == [1] * 4
    assert credit_of("ddrl", [None] * 4).advantages.tolist() == [-1] * 4


def test_each_part_of_ddrl_can_be_switched_off():
    ttrl = credit_of("ttrl", EIGHT, num_trained=4, seed=3)
    neither = credit_of("ddrl", EIGHT, num_trained=4, seed=3, balanced=False, signed=False)
    assert neither.trained == ttrl.trained
    assert np.array_equal(neither.advantages, ttrl.advantages, equal_nan=True)
    signed = credit_of("ddrl", EIGHT, num_trained=4, seed=3, balanced=False)
    assert signed.trained == ttrl.trained
    assert set(signed.advantages[list(signed.trained)]) <= {-1.0, 1.0}
    balanced = credit_of("ddrl", EIGHT, num_trained=4, which_trained="first", signed=False)
    assert balanced.advantages[[0, 1, 5, 6]] == pytest.approx([1, 1, -1, -1], abs=1e-5)  # (1 − 0.5)/0.5
    assert credit_of("ddrl", ["1"] * 4, signed=False).advantages.tolist() == [0] * 4


@given(votes=VOTES, data=st.data())
def test_ddrl_keeps_the_ends(votes, data):
    answers = [a for a, _ in votes]
    number = data.draw(st.integers(1, len(answers)))
    credit = credit_of("ddrl", answers, num_trained=number, seed=data.draw(st.integers(0, 3)))
    assert len(set(credit.trained)) == number
    counts = Counter(a for a in answers if a is not None)
    label = [i for i in credit.trained if answers[i] is not None and answers[i] == credit.labels.positive]
    assert len(label) >= min(max(counts.values(), default=0), number // 2)
    others = {i for i in range(len(answers)) if answers[i] is None or answers[i] != credit.labels.positive}
    votes_of = {i: counts[answers[i]] if answers[i] is not None else 0 for i in others}
    left = [votes_of[i] for i in others - set(credit.trained)]
    assert max((votes_of[i] for i in others & set(credit.trained)), default=0) <= min(left, default=len(answers))


# --- DARE -------------------------------------------------------------------------------------------------------------

DARE = (["1"] * 4 + ["2"] * 2 + ["3", None], [0.5] * 4 + [0.2] * 2 + [0.5, 0.3])


def test_dare_divides_votes_by_entropy_drops_the_rare_and_pays_a_bonus():
    credit = credit_of("dare", *DARE, min_probability=0.15, bonus_weight=0.1)
    # n/u: 4/0.5 = 8, 2/0.2 = 10, 1/0.5 = 2; of 20 in all: 0.4, 0.5, 0.1; the last is below 0.15: p̃ = 8/18, 10/18, 0
    # bonus 0.1·(1 − 4/8)·(1 − 0.5) = 0.025; 0.1·(1 − 2/8)·(1 − 0.2) = 0.06; 0.1·(1 − 1/8)·(1 − 0.5) = 0.04375
    wanted = [0.444444 + 0.025] * 4 + [0.555556 + 0.06] * 2 + [0.04375, 0.0]
    assert credit.rewards == pytest.approx(wanted, abs=1e-5)
    assert credit.labels.positive == "2"  # fewer votes than 1, but surer ones
    silent = credit_of("dare", *DARE, min_probability=0.15, bonus_weight=0.1, bonus_for_dropped=False)
    assert silent.rewards == pytest.approx([*wanted[:6], 0.0, 0.0], abs=1e-5)


def test_dare_at_the_edges():
    none_kept = credit_of("dare", *DARE, min_probability=0.6)
    assert none_kept.labels.positive is None
    assert none_kept.rewards[[0, 4, 7]] == pytest.approx([0.025, 0.06, 0.0])  # the bonus alone
    unsure = credit_of("dare", ["1", "1", "2", "2"], [3.0] * 4, bonus_weight=0.1)
    assert unsure.rewards == pytest.approx([0.5 + 0.1 * 0.5 * -2] * 4)  # as printed, the bonus is negative for u > 1
    assert unsure.labels.positive == "1"  # a tie goes to the smallest key
    tied = {"answers": ["9", "1", "9", "1"], "entropies": [0.3] * 4}
    assert credit_of("dare", **tied).labels.positive == "1"
    assert credit_of("dare", **tied, ties="first-seen").labels.positive == "9"  # as TTRL's majority
    assert credit_of("dare", **tied, ties="first-seen", min_probability=0.6).labels.positive is None
    certain = credit_of("dare", ["1", "2", "2"], [0.0, 0.4, 0.4])
    # 1/10⁻⁶ against 2/0.4 = 5: the answer given without any doubt takes all
    assert certain.rewards[0] == pytest.approx(1 + 0.1 * (2 / 3), abs=1e-4)


@given(votes=VOTES)
def test_dares_probabilities_sum_to_one_and_are_the_shares_where_all_are_as_sure(votes):
    credit = credit_of("dare", [a for a, _ in votes], [h for _, h in votes])
    found = probabilities(credit.tally, credit_rule("dare").settings)
    assert sum(found) == pytest.approx(1) or not any(found)
    alike = credit_of("dare", [a for a, _ in votes], [0.3] * len(votes), min_probability=0.0, bonus_weight=0.0)
    answered = sum(alike.tally.counts_K)
    shares = [0.0 if j < 0 else alike.tally.counts_K[j] / answered for j in alike.tally.class_of_G]
    assert alike.rewards == pytest.approx(shares)


# --- all --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(0,), (0, 0), (0, 9), (-1, 1)])
def test_a_choice_of_ones_own_must_be_of_so_many_different_completions(rows):
    method = replace(METHODS["ddrl"], choose=lambda *given: rows)
    rule = replace(credit_rule("ddrl", num_trained=2), method=method)
    with pytest.raises(ConfigError, match="`choose`"):
        rule.credit(Group.from_answers(["1", "1", "2", "3"]))
