"""RESTRAIN: all answers as candidates, their weights, the penalty, and the two scalars that stand for all of them."""

from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.credit.methods.restrain import gaussian_weights
from scrl.credit.rule import credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Group


def credit_of(answers, *, reference_share=None, num_trained=None, seed=0, **settings):
    settings = {"weigh_questions": reference_share is not None, "eps": 0} | settings
    rule = credit_rule("restrain", num_trained=num_trained, seed=seed, **settings)
    return rule.credit(Group.from_answers(answers, question_id="q"), reference_share=reference_share)


def answers_of(votes):
    return [answer for answer, count in votes.items() for _ in range(count)]


# Weights


def test_weights_of_the_candidates():
    # f = 0.5, 0.25 at k = 1, σ = 0.25: exponents −(0.5/0.25)²/2 = −2, −(0.75/0.25)²/2 = −4.5; ratio e^2.5 = 12.182
    weights = gaussian_weights([0.5, 0.25], centre=1.0, sigma=0.25)
    assert weights == pytest.approx([12.182494 / 13.182494, 1 / 13.182494], abs=1e-7)
    # k = 0.25: exponents −0.5 and 0
    weights = gaussian_weights([0.5, 0.25], centre=0.25, sigma=0.25)
    assert weights == pytest.approx([exp(-0.5) / (1 + exp(-0.5)), 1 / (1 + exp(-0.5))])


def test_weights_do_not_vanish_together():
    assert gaussian_weights([0.1, 0.05], centre=1.0, sigma=1e-3) == [1.0, 0.0]
    assert gaussian_weights([0.1, 0.1], centre=1.0, sigma=1e-3) == [0.5, 0.5]
    assert gaussian_weights([], centre=1.0, sigma=0.25) == []


# Advantages


def test_the_worked_example():
    # N = 8: 4 × "7", 2 × "5", 2 missing. w as above: 12.182494/13.182494 = 0.924142 and 0.075858
    # candidate 7, f = 0.5: A = +1 / −1; candidate 5, f = 0.25: A = √3 = 1.732051 / −1/√3 = −0.577350
    credit = credit_of([*"7777", *"55", None, None])
    rises, falls = credit.split_advantages
    assert rises == pytest.approx([0.924142] * 4 + [0.075858 * 1.732051] * 2 + [0, 0], abs=1e-6)
    # 7: −0.577350 · 0.075858 = −0.043797; 5: −0.924142; missing: −0.924142 − 0.043797
    assert falls == pytest.approx([-0.043797] * 4 + [-0.924142] * 2 + [-0.967939] * 2, abs=1e-6)
    assert credit.advantages == pytest.approx(rises + falls)
    assert credit.labels.positive == "7"
    assert credit.rewards == pytest.approx([0.924142] * 4 + [0.075858] * 2 + [0, 0], abs=1e-6)


@given(st.lists(st.sampled_from("1234") | st.none(), min_size=2, max_size=24))
def test_the_closed_form_where_the_ratio_is_1(answers):
    """Â_i = Σ_j w_j √((1 − f_j)/f_j) for those who gave a_j, −√(f_j/(1 − f_j)) for the others; 0 where all agree."""
    credit = credit_of(answers, min_share=0)
    shares = {a: answers.count(a) / len(answers) for a in set(answers) - {None}}
    raw = {a: exp(-((f - 1) ** 2) / (2 * 0.25**2)) for a, f in shares.items()}
    for answer, advantage in zip(answers, credit.advantages, strict=True):
        wanted = sum(
            raw[a] / sum(raw.values()) * (sqrt((1 - f) / f) if a == answer else -sqrt(f / (1 - f)))
            for a, f in shares.items()
            if f < 1
        )
        assert advantage == pytest.approx(wanted, abs=1e-9)


def test_one_answer_for_all_is_no_signal():
    credit = credit_of(["7"] * 6)
    assert not credit.advantages.any()
    assert [side.tolist() for side in credit.split_advantages] == [[0] * 6, [0] * 6]


def test_shares_come_from_all_and_advantages_from_those_trained_on():
    answers = answers_of({"7": 8, "5": 4, "3": 4})
    credit = credit_of(answers, num_trained=5, seed=1)
    trained = list(credit.trained)
    found = [answers[i] for i in trained]
    weights = dict(zip("357", gaussian_weights([0.25, 0.25, 0.5], centre=1, sigma=0.25), strict=True))
    for i in trained:
        wanted = 0.0
        for a, weight in weights.items():
            f = found.count(a) / 5
            if 0 < f < 1:
                wanted += weight * (sqrt((1 - f) / f) if answers[i] == a else -sqrt(f / (1 - f)))
        assert credit.advantages[i] == pytest.approx(wanted)
    assert np.isnan(np.delete(credit.advantages, trained)).all()
    assert np.isnan(np.delete(credit.split_advantages[0], trained)).all()


def test_the_settings_of_the_advantage_are_kept():
    # candidate 7 of [7, 5]: r = 1, 0, centred ±0.5; candidate 5 the other way round; weights ½ each
    credit = credit_of(["7", "5"], advantage="centred")
    assert credit.split_advantages[0].tolist() == [0.25, 0.25]
    assert credit.split_advantages[1].tolist() == [-0.25, -0.25]
    # sample std of (1, 0) is √½: ±0.5/√½ = ±0.7071
    assert credit_of(["7", "5"], std="sample").split_advantages[0] == pytest.approx([0.35355] * 2, abs=1e-5)


# The penalty


def test_where_nobody_agrees_every_completion_gets_exactly_minus_delta():
    answers = [*(str(n) for n in range(15)), None]  # N = 16: κ = 2, the most frequent answer has 1
    credit = credit_of(answers)
    assert credit.advantages.tolist() == [-1.0] * 16
    assert credit.split_advantages[0].tolist() == [0.0] * 16
    assert credit.rewards.tolist() == [-1.0] * 16
    assert credit.labels.positive is None
    assert credit_of(answers, penalty=0.3).advantages.tolist() == [-0.3] * 16
    assert credit_of(answers, min_share=0).labels.positive is not None
    # exactly κ is enough: 2 of 16
    assert credit_of(["1", *answers[1:]]).labels.positive == "1"


def test_missing_answers_count_in_n_and_all_missing_is_nobody_agreeing():
    assert credit_of(["7", None, None, None], min_share=0.3).advantages.tolist() == [-1.0] * 4  # 1/4 < 0.3
    assert credit_of(["7"], min_share=0.3).advantages.tolist() == [0.0]
    assert credit_of([None] * 3).advantages.tolist() == [-1.0] * 3
    assert credit_of([None] * 3, min_share=0).advantages.tolist() == [0.0] * 3
    assert credit_of([None] * 3, min_share=0).rewards.tolist() == [0.0] * 3


# Weights of questions


@pytest.mark.parametrize("answers", [["7", "7", "5"], [str(n) for n in range(16)]], ids=["agree", "penalised"])
def test_a_question_weighs_by_how_far_the_start_model_agreed_with_itself(answers):
    plain = credit_of(answers)
    # σ = 0.5: g(0.5) = exp(−0.5²/(2 · 0.25)) = e^−0.5 = 0.60653; g(1) = 1
    assert credit_of(answers, reference_share=0.5).advantages == pytest.approx(0.6065307 * plain.advantages)
    assert credit_of(answers, reference_share=1.0).advantages == pytest.approx(plain.advantages)
    assert credit_of(answers, reference_share=0.5).rewards.tolist() == plain.rewards.tolist()
    narrow = credit_of(answers, reference_share=0.5, question_sigma=0.25)
    assert narrow.advantages == pytest.approx(exp(-2) * plain.advantages)


def test_the_share_of_the_start_model_is_needed_only_where_questions_are_weighed():
    assert credit_rule("restrain").needs == {"reference_share"}
    assert credit_rule("restrain", weigh_questions=False).needs == frozenset()
    with pytest.raises(InputError, match="start"):
        credit_rule("restrain").credit(Group.from_answers(["1", "2"]))
    with pytest.raises(ConfigError, match="sigma"):
        credit_rule("restrain", sigma=0)


# The objective for any ratio


def objective_by_hand(answers, rows, ratios_M, *, weight, low, high):
    """u Σ_j w_j min(r A_ij, clip(r) A_ij), answer by answer."""
    kinds = sorted(set(answers) - {None})
    raw = [exp(-((answers.count(a) / len(answers) - 1) ** 2) / (2 * 0.25**2)) for a in kinds]
    total_M = np.zeros(len(rows))
    for a, g in zip(kinds, raw, strict=True):
        hits_M = np.array([float(answers[i] == a) for i in rows])
        std = hits_M.std()
        advantages_M = (hits_M - hits_M.mean()) / std if std else np.zeros(len(rows))
        clipped_M = np.clip(ratios_M, 1 - low, 1 + high)
        total_M += weight * g / sum(raw) * np.minimum(ratios_M * advantages_M, clipped_M * advantages_M)
    return total_M


@given(
    st.lists(st.sampled_from("12345") | st.none(), min_size=4, max_size=20), st.integers(0, 2**31), st.floats(0, 0.5),
    st.floats(0, 0.5), st.floats(0, 1),
)  # fmt: skip
def test_two_scalars_are_the_clipped_objective_summed_over_all_answers(answers, seed, low, high, share):
    credit = credit_of(answers, reference_share=share, num_trained=4, seed=seed % 99, min_share=0)
    rows = list(credit.trained)
    ratios_M = np.exp(np.random.default_rng(seed).normal(0, 0.5, len(rows)))
    positive_part_M, negative_part_M = credit.split_advantages[0][rows], credit.split_advantages[1][rows]
    found_M = positive_part_M * np.minimum(ratios_M, 1 + high) + negative_part_M * np.maximum(ratios_M, 1 - low)
    weight = exp(-((share - 1) ** 2) / (2 * 0.5**2))
    wanted_M = objective_by_hand(answers, rows, ratios_M, weight=weight, low=low, high=high)
    assert found_M == pytest.approx(wanted_M, abs=1e-9)


@given(st.lists(st.sampled_from("12345") | st.none(), min_size=1, max_size=30), st.floats(0, 1))
def test_rises_rise_and_falls_fall_and_balance_where_not_all_are_penalised(answers, share):
    credit = credit_of(answers, reference_share=share)
    rises, falls = credit.split_advantages
    assert (rises >= 0).all()
    assert (falls <= 0).all()
    if credit.labels.positive is not None:
        assert (rises + falls).sum() == pytest.approx(0, abs=1e-9)
    else:
        assert len(set((rises + falls).tolist())) == 1
