"""Credit worked out by hand: every number's arithmetic stands beside it."""

from math import sqrt

import numpy as np
import pytest
from everything import credit_of_all

from scrl.credit import advantages as advantages_module
from scrl.credit.method import CreditSettings
from scrl.credit.methods import METHODS, find_method
from scrl.credit.rule import PRESETS, assign_credit, credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Completion, Group


def group_advantages(rewards_G, sample_std=False, eps=1e-6, std_floor=0.0):
    return advantages_module.group_advantages(rewards_G, sample_std=sample_std, eps=eps, std_floor=std_floor)


def group_of(votes, entropies=None, **place):
    """{"a": 3, None: 1} → a group with three answers a and one missing; one entropy a class."""
    answers = [answer for answer, count in votes.items() for _ in range(count)]
    if entropies is not None:
        entropies = [entropies[answer] for answer in answers]
    return Group.from_answers(answers, entropies, **place)


def credit_of(votes, entropies=None, method="scrl", **choices):
    return assign_credit(group_of(votes, entropies), method, **choices)


# One group for most tests. N = 16: 8 × "1", 4 × "2", 1 × "3", 1 × "4", 2 missing.
# H̄ = (8·0.2 + 4·0.3 + 1·0.6 + 1·0.1 + 2·0.5) / 16 = (1.6 + 1.2 + 0.6 + 0.1 + 1.0) / 16 = 4.5 / 16 = 0.28125
VOTES = {"1": 8, "2": 4, "3": 1, "4": 1, None: 2}
ENTROPIES = {"1": 0.2, "2": 0.3, "3": 0.6, "4": 0.1, None: 0.5}
PLACES = {"1": 0, "2": 8, "3": 12, "4": 13, None: 14}
MEAN = 0.28125


def earned(credit):
    return {answer: credit.rewards[place] for answer, place in PLACES.items()}


def test_scrl_on_the_worked_example():
    credit = credit_of(VOTES, ENTROPIES)
    # positive: p = 8/16 = 0.5 ≥ 0.375, margin 0.5 − 0.25 = 0.25 > 0.125
    assert credit.labels.positive == "1"
    # rare: 1/16 = 0.0625 < 0.125 for "3" and "4"; of these only "3" has H̄_j = 0.6 ≥ H̄
    assert credit.labels.negatives == {"3"}
    assert earned(credit) == pytest.approx(
        {
            "1": 0.5 - 0.1 * (0.2 - MEAN),  # 0.508125
            "2": -0.1 * (0.3 - MEAN),  # −0.001875
            "3": (0.0625 - 0.125) - 0.1 * (0.6 - MEAN),  # −0.0625 − 0.031875 = −0.094375
            "4": -0.1 * (0.1 - MEAN),  # +0.018125: rare but certain, so it is not punished
            None: -0.125,  # as a negative label of share 0, without the entropy term
        }
    )
    assert credit.tally.group_entropy == pytest.approx(MEAN)
    assert (credit.tally.size, credit.tally.num_missing) == (16, 2)
    assert credit.tally.shares_K == (0.5, 0.25, 0.0625, 0.0625)


def test_ttrl_on_the_worked_example():
    assert earned(credit_of(VOTES, method="ttrl")) == {"1": 1, "2": 0, "3": 0, "4": 0, None: 0}
    # f = 8/16: A⁺ = √((1−f)/f) = 1 (up to eps)
    assert credit_of(VOTES, method="ttrl").advantages[0] == pytest.approx(1, abs=1e-5)


def test_without_selective_takes_the_plain_majority():
    weak = {"1": 3, "2": 2, "3": 2, "4": 1}  # N = 8: p = 0.375, margin 0.125: not above τ_marg
    entropies = {"1": 0.1, "2": 0.2, "3": 0.3, "4": 0.4}
    assert credit_of(weak, entropies).labels.positive is None
    assert credit_of(weak, entropies, "scrl-without-selective").labels.positive == "1"


def test_without_negative_has_none():
    credit = credit_of(VOTES, ENTROPIES, "scrl-without-negative")
    assert (credit.labels.positive, credit.labels.negatives) == ("1", frozenset())
    assert earned(credit)["3"] == pytest.approx(-0.1 * (0.6 - MEAN))


def test_without_gate_rules_out_every_rare_answer():
    credit = credit_of(VOTES, ENTROPIES, "scrl-without-gate")
    assert credit.labels.negatives == {"3", "4"}
    assert earned(credit)["4"] == pytest.approx((0.0625 - 0.125) - 0.1 * (0.1 - MEAN))  # −0.044375


def test_without_shaping_pays_plus_one_zero_minus_one():
    assert earned(credit_of(VOTES, ENTROPIES, "scrl-without-shaping")) == {"1": 1, "2": 0, "3": -1, "4": 0, None: -1}


# --- thresholds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "positive"),
    [
        ({"1": 12, "2": 7, **{str(n): 1 for n in range(3, 16)}}, "1"),  # 12/32 = 0.375, margin 5/32 = 0.15625
        ({"1": 12, "2": 8, **{str(n): 1 for n in range(3, 15)}}, None),  # margin 4/32 = 0.125 exactly
        ({"1": 11, "2": 1, **{str(n): 1 for n in range(3, 23)}}, None),  # 11/32 < 0.375
        ({"1": 8, "2": 8}, None),  # a tie
        ({"1": 10, "2": 4, **{str(n): 1 for n in range(3, 13)}}, "1"),  # N = 24
        ({"1": 1}, "1"),
    ],
)
def test_the_positive_label_needs_share_and_margin(votes, positive):
    assert credit_of(votes, dict.fromkeys(votes, 0.1)).labels.positive == positive


def test_a_margin_of_three_of_twenty_four_abstains():
    # 7/24 − 4/24 = 0.125 in exact arithmetic, but 0.12500000000000003 in floating point
    assert 7 / 24 - 4 / 24 > 0.125
    votes = {"1": 7, "2": 4, **{str(n): 1 for n in range(3, 16)}}
    assert credit_of(votes, dict.fromkeys(votes, 0.1), min_share=0.25).labels.positive is None


def test_a_share_of_exactly_tau_neg_is_not_negative():
    votes = {"1": 6, "2": 1, "3": 1}  # N = 8: 1/8 = 0.125
    assert credit_of(votes, {"1": 0.1, "2": 0.9, "3": 0.9}).labels.negatives == frozenset()


def test_the_gate_passes_equality():
    votes = {"1": 14, "2": 1, "3": 1}
    assert credit_of(votes, dict.fromkeys(votes, 0.3)).labels.negatives == {"2", "3"}


def test_missing_answers_count_in_n_and_in_the_mean_entropy():
    # 3 of 4 answers agree, but of N = 16 that is 0.1875 < 0.375
    votes, entropies = {"1": 3, "2": 1, None: 12}, {"1": 0.1, "2": 0.2, None: 1.0}
    credit = credit_of(votes, entropies)
    assert credit.labels.positive is None
    # H̄ = (0.3 + 0.2 + 12)/16 = 0.78125, so "2" (0.2) does not pass the gate although it is above the answered mean
    assert credit.labels.negatives == frozenset()
    assert credit.tally.group_entropy == pytest.approx(0.78125)


def test_a_missing_answer_is_never_first_second_or_negative():
    # 12 missing would be the majority; "1" has no rival with an answer: margin 4/16 = 0.25
    credit = credit_of({"1": 4, None: 12}, {"1": 0.2, None: 0.1}, min_share=0.25)
    assert credit.labels.positive == "1"
    assert credit_of({None: 1, "1": 31}, {None: 9.0, "1": 0.1}).labels.negatives == frozenset()


def test_the_positive_class_is_never_negative():
    # with max_negative_share = 1 the winner itself is "rare"
    credit = credit_of({"1": 3, "2": 1}, {"1": 0.9, "2": 0.1}, max_negative_share=1.0)
    assert credit.labels.positive == "1"
    assert "1" not in credit.labels.negatives


# --- advantages -----------------------------------------------------------------------------------------------------


def test_advantages_of_a_small_group():
    # rewards 1, 0, 0, 0: mean 1/4; population std √(3/16) = 0.4330127; (1 − 0.25)/0.4330137 = 1.7320468
    advantages = group_advantages(np.array([1.0, 0, 0, 0]))
    assert advantages == pytest.approx([1.7320468, -0.5773489, -0.5773489, -0.5773489], abs=1e-6)


def test_advantages_above_zero_are_weighted():
    # as above, · 0.1 where they are above 0
    found = advantages_module.reward_advantages(np.array([1.0, 0, 0, 0]), CreditSettings(positive_weight=0.1))
    assert found == pytest.approx([0.17320468, -0.5773489, -0.5773489, -0.5773489], abs=1e-6)


def test_advantages_by_name():
    rewards = np.array([1.0, 0.0, 0.5])  # the mean is 0.5
    for name, expected in {"centred": [0.5, -0.5, 0.0], "leave-one-out": [0.75, -0.75, 0.0]}.items():  # · 3/2
        settings = CreditSettings(advantage=name)
        assert advantages_module.reward_advantages(rewards, settings).tolist() == expected
        assert not advantages_module.reward_advantages(np.ones(3), settings).any()


@pytest.mark.parametrize("positives", [1, 4, 12, 16, 31])
def test_amplification_of_a_positive_label(positives):
    """Paper, eq. 3: Â⁺ = √((1−f)/f); f = 1/32 gives √31 = 5.57, f = 12/32 gives √(20/12) = 1.29."""
    f = positives / 32
    credit = credit_of({"1": positives, None: 32 - positives}, method="ttrl", eps=0.0)
    assert credit.advantages[0] == pytest.approx(sqrt((1 - f) / f), rel=1e-12)


def test_equal_rewards_and_groups_of_one_have_advantage_zero():
    assert group_advantages(np.full(7, 0.1)).tolist() == [0.0] * 7
    assert group_advantages(np.array([3.0])).tolist() == [0.0]
    assert group_advantages(np.array([1.0, 1.0 + 1e-15, 1.0]), eps=0.0).tolist() == [0.0] * 3  # equal but for rounding
    assert credit_of({"1": 1}, {"1": 0.4}).advantages.tolist() == [0.0]


def test_the_std_floor_makes_an_abstention_quiet():
    # rewards ±0.005: std 0.005; with a floor of 0.1 the advantage is ±0.05 (up to eps)
    rewards = np.array([0.005, -0.005])
    assert group_advantages(rewards)[0] == pytest.approx(1, rel=1e-3)
    assert group_advantages(rewards, std_floor=0.1)[0] == pytest.approx(0.05, rel=1e-4)


def test_groups_whose_only_signal_is_entropy_are_flagged():
    spread = {str(n): 1 for n in range(4)}
    trap = credit_of(spread, {key: 0.1 + int(key) / 100 for key in spread})
    assert trap.labels.positive is None
    assert not trap.labels.negatives  # N = 4: an answer seen once has share 0.25
    assert trap.is_entropy_only
    assert np.abs(trap.advantages).max() > 1  # full strength, although the rewards differ by 0.003
    assert not credit_of(spread, {key: 0.1 + int(key) / 100 for key in spread}, entropy_weight=0.0).is_entropy_only
    assert not credit_of(VOTES, ENTROPIES).is_entropy_only
    assert not credit_of({"1": 8}, {"1": 0.3}).is_entropy_only


@pytest.mark.parametrize("entropy", [0.1, 0.2, 0.3, 0.7, 1.1])
def test_equal_entropies_are_no_signal_whatever_rounding_does(entropy):
    for size in range(2, 30):
        spread = {str(n): 1 + n % 2 for n in range(size)}
        credit = credit_of(spread, dict.fromkeys(spread, entropy), "scrl-without-negative", min_share=1.0)
        assert not credit.is_entropy_only
        assert np.abs(credit.advantages).max() < 1e-6


# --- missing answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "reward"),
    [("negative", -0.125), ("zero", 0.0), (-0.7, -0.7), ("-0.7", -0.7), ("entropy", -0.1 * (0.5 - MEAN))],
)
def test_what_a_missing_answer_earns(choice, reward):
    assert earned(credit_of(VOTES, ENTROPIES, missing_reward=choice))[None] == pytest.approx(reward)


def test_missing_reward_entropy_without_missing_answers():
    assert credit_of({"1": 2}, {"1": 0.5}, missing_reward="entropy").rewards.tolist() == [1.0, 1.0]


# --- the preset of the authors' code: each difference by itself ------------------------------------------------------


def test_official_pays_minus_one_for_a_missing_answer():
    assert earned(credit_of(VOTES, ENTROPIES, preset="official"))[None] == -1.0
    assert earned(credit_of(VOTES, preset="official", method="ttrl"))[None] == 0.0  # ttrl: 0 in both presets


def test_official_divides_by_the_sample_std():
    # rewards 1, 0, 0, 0: sample std √(3·(1/16) + 9/16)/3) = 0.5; 0.75/0.500001 = 1.499997
    credit = credit_of({"1": 1, None: 3}, method="ttrl", preset="official")
    assert credit.advantages[0] == pytest.approx(1.499997, abs=1e-6)


def test_official_takes_the_first_seen_of_tied_answers():
    votes = {"9": 2, "2": 2}
    assert credit_of(votes, method="ttrl").labels.positive == "2"  # the smallest key
    assert credit_of(votes, method="ttrl", preset="official").labels.positive == "9"


def test_official_trains_on_the_first_rows_and_paper_on_random_ones():
    group = group_of({"1": 8, "2": 8}, question_id="q", step=3)
    rule = credit_rule("ttrl", preset="official", num_trained=4)
    assert rule.credit(group).trained == (0, 1, 2, 3)
    chosen = {credit_rule("ttrl", num_trained=4, seed=seed).credit(group).trained for seed in range(20)}
    assert len(chosen) > 10
    assert credit_rule("ttrl", num_trained=4, seed=1).credit(group).trained in chosen


def test_presets_differ_in_nothing_else():
    assert PRESETS["paper"] == {}
    assert set(PRESETS["official"]) == {"missing_reward", "std", "ties", "which_trained"}
    paper, official = credit_rule("scrl").settings, credit_rule("scrl", preset="official").settings
    same = {"min_share": 0.375, "min_margin": 0.125, "max_negative_share": 0.125, "entropy_weight": 0.1, "eps": 1e-6}
    assert {name: getattr(paper, name) for name in same} == same
    assert {name: getattr(official, name) for name in same} == same


def test_official_numbers_of_the_released_code():
    """Measured on it: n = 32, 14 votes for y⁺ (p = .4375), 3 other classes, equal entropies, k unparsable answers.

    k = 0: adv(y⁺) = +1.12, others −0.87; k = 1: +0.91 / −0.53 / none −3.82; k = 2: +0.84 / −0.35 / −3.09.
    By hand for k = 1: mean (14·.4375 − 1)/32 = .16016, sample std .30363: (.4375 − .16016)/.30363 = .913.
    """
    for k, expected in {0: (1.12, -0.87), 1: (0.91, -0.53, -3.82), 2: (0.84, -0.35, -3.09)}.items():
        others = 18 - k
        votes = {"1": 14, "2": others // 3, "3": others // 3, "4": others - 2 * (others // 3)} | (
            {None: k} if k else {}
        )
        credit = credit_of(votes, dict.fromkeys(votes, 0.2), preset="official")
        found = (credit.advantages[0], credit.advantages[14], credit.advantages[31])[: len(expected)]
        assert found == pytest.approx(expected, abs=0.006)


# --- the M of N -----------------------------------------------------------------------------------------------------


def test_labels_and_rewards_come_from_all_and_advantages_from_the_trained():
    whole = credit_of(VOTES, ENTROPIES)
    part = credit_of(VOTES, ENTROPIES, num_trained=6, seed=5)
    assert part.labels == whole.labels
    assert part.rewards.tolist() == whole.rewards.tolist()
    trained = list(part.trained)
    assert part.advantages[trained] == pytest.approx(group_advantages(whole.rewards[trained]))
    assert np.isnan(np.delete(part.advantages, trained)).all()


@pytest.mark.parametrize("preset", PRESETS)
def test_more_trained_than_sampled_is_refused(preset):
    with pytest.raises(ConfigError, match="has 16 completions"):
        credit_of(VOTES, ENTROPIES, num_trained=17, preset=preset)


# --- odd groups and bad settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "votes", [{"1": 1}, {None: 1}, {None: 5}, {"1": 6}, {str(n): 1 for n in range(20)}, {"1": 1, None: 1}]
)
def test_groups_of_any_kind_have_finite_credit(method, preset, votes):
    listed = [(answer, 0.3) for answer, count in votes.items() for _ in range(count)]
    for number in {None, 1, len(listed)}:
        credit = credit_of_all(credit_rule(method, preset=preset, num_trained=number), listed)
        assert np.isfinite(credit.rewards).all()
        assert np.isfinite(credit.advantages[list(credit.trained)]).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("yaml:dump", "'yaml:dump'"),
        ("yaml:Scrl", "'Scrl'"),
        ("scrl.credit.methods.scrl:SCRLL", "'SCRLL'"),
    ],
)
def test_a_method_that_is_not_there_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        find_method(name)


def test_a_method_is_found_by_its_path_and_stays_itself():
    assert find_method("scrl.credit.methods.scrl:SCRL") is METHODS["scrl"]
    assert find_method(METHODS["ttrl"]) is METHODS["ttrl"]


def test_an_empty_group_is_refused():
    with pytest.raises(InputError, match="one completion"):
        assign_credit(Group(()))


def test_entropies_are_required_where_they_are_used_and_only_there():
    for method in ("scrl", "scrl-without-selective", "scrl-without-shaping"):
        with pytest.raises(InputError, match=r"'q'.*entropy.*ttrl"):
            assign_credit(group_of(VOTES, question_id="q"), method)
    assert credit_of(VOTES, method="ttrl").labels.positive == "1"
    assert credit_of(VOTES, method="scrl-without-gate", entropy_weight=0).labels.negatives == {"3", "4"}
    assert credit_of(VOTES, method="scrl-without-negative", entropy_weight=0).labels.positive == "1"
    half = Group((Completion(answer="1", entropy=0.1), Completion(answer="1", entropy=float("nan"))))
    with pytest.raises(InputError, match=r"completion 1 has nan"):
        assign_credit(half)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"method": "scrll"}, "'scrl'"),
        ({"preset": "papr"}, "'paper'"),
        ({"min_shar": 0.5}, "'min_share'"),
        ({"min_share": 1.5}, "min_share"),
        ({"min_margin": -0.1}, "min_margin"),
        ({"max_negative_share": float("nan")}, "max_negative_share"),
        ({"entropy_weight": "much"}, "entropy_weight.*much"),
        ({"missing_reward": "minus"}, "missing_reward"),
        ({"std": "median"}, "std.*median"),
        ({"num_trained": 0}, "num_trained"),
        ({"significant_digits": 0}, "significant_digits"),
        ({"method": "ttrl", "min_share": 0.5}, "'ttrl'"),
    ],
)
def test_bad_settings_are_refused_by_name(choices, message):
    with pytest.raises(ConfigError, match=message):
        credit_rule(**choices)


def test_entropies_must_be_one_each():
    with pytest.raises(ValueError, match="1 entropies"):
        Group.from_texts(["a", "b"], [0.1], question_id="q")


def test_groups_refuse_what_is_no_list_of_answers():
    with pytest.raises(InputError, match=r"answer 1.*int"):
        Group.from_answers(["5", 5])
    with pytest.raises(InputError, match="one text"):
        Group.from_texts(r"\boxed{1}")


def test_a_function_can_be_the_reader():
    group = Group.from_texts(["x=4", "x=4", "x=5"])
    assert assign_credit(group, "ttrl", reader=lambda text: text[2:]).labels.positive == "4"
