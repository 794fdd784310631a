"""ETMR: the plan of the tree, the vote of its leaves, and advantages reshaped by entropy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.config import read_config
from scrl.credit.method import Tree
from scrl.credit.methods.etmr import EtmrSettings, plan
from scrl.credit.rule import assign_credit, credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Group

RUN = ("model=embedded", "questions=arithmetic:easy", "trained=4")
ANSWERS = ["7", "7", "5", "3", None]
ENTROPIES = [0.1, 0.2, 0.2, 0.5, 0.0]


def credit_of(answers=ANSWERS, entropies=ENTROPIES, **choices):
    group = Group.from_answers(answers, entropies, question_id="q")
    return assign_credit(group, "etmr", **choices)


# The plan


def test_the_tree_of_the_paper():
    assert plan(60, EtmrSettings()) == Tree(roots=12, forks=2, branches=2)
    assert plan(60, EtmrSettings()).leaves == 60
    assert plan(7, EtmrSettings(forks=3)) == Tree(1, 3, 2)


@pytest.mark.parametrize(
    ("number", "settings", "possible"),
    [(32, {}, "Take 30 or 35,"), (64, {}, "Take 60 or 65,"), (4, {}, "Take 5,"), (8, {"forks": 3}, "Take 7 or 14,")],
)
def test_a_number_that_no_tree_has_is_refused_with_the_nearest_that_one_has(number, settings, possible):
    with pytest.raises(ConfigError, match=f"^completions.* {number} .*{possible}"):
        plan(number, EtmrSettings(**settings))


@given(st.integers(1, 200), st.integers(1, 4), st.integers(1, 4))
def test_a_plan_has_as_many_leaves_as_asked_for_or_is_refused(number, forks, branches):
    settings = EtmrSettings(forks=forks, branches=branches)
    if number % (1 + forks * branches):
        with pytest.raises(ConfigError):
            plan(number, settings)
    else:
        assert plan(number, settings).leaves == number


def test_a_run_that_cannot_be_is_refused_with_its_settings():
    with pytest.raises(ConfigError, match="completions"):
        read_config(None, [*RUN, "method=etmr", "completions=8"])
    assert read_config(None, [*RUN, "method=etmr", "completions=9", "credit.forks=1"]).completions == 9
    assert read_config(None, [*RUN, "method=ttrl", "completions=8"]).completions == 8


# The reward and the advantage


def test_reward_and_advantage_are_those_of_ttrl_unless_reshaped():
    credit = credit_of()
    ttrl = assign_credit(Group.from_answers(ANSWERS), "ttrl")
    assert credit.labels == ttrl.labels
    assert credit.rewards.tolist() == ttrl.rewards.tolist() == [1, 1, 0, 0, 0]
    assert credit.advantages.tolist() == ttrl.advantages.tolist()


def test_residual_advantages_by_hand():
    # mean 2/5 = 0.4, σ = √(0.4 · 0.6) = 0.489898: Â = 0.6/0.489898 = 1.224745 and −0.4/0.489898 = −0.816497
    # h̄ = 1.0/5 = 0.2; 2 − h/h̄ = 2 − 0.5, 2 − 1, 2 − 1, 2 − 2.5 → 0, 2 − 0
    credit = credit_of(reshape="residual", eps=0)
    assert credit.advantages == pytest.approx([1.837117, 1.224745, -0.816497, 0, -1.632993], abs=1e-6)
    assert credit.split_advantages[0] == pytest.approx(np.maximum(credit.advantages, 0))
    assert credit.split_advantages[1] == pytest.approx(np.minimum(credit.advantages, 0))


def test_the_mean_entropy_is_that_of_the_completions_trained_on():
    trained = {"reshape": "residual", "eps": 0, "num_trained": 3, "which_trained": "first"}
    # rewards 1, 1, 0: mean ⅔, σ = √2/3 = 0.471405: Â = 0.707107, 0.707107, −1.414214
    # trained: h̄ = 0.5/3 = 1/6: 2 − 0.6 = 1.4, 2 − 1.2 = 0.8, 0.8
    assert credit_of(**trained).advantages[:3] == pytest.approx([0.989949, 0.565685, -1.131371], abs=1e-6)


def test_without_any_entropy_nothing_is_reshaped():
    plain = credit_of(entropies=[0.0] * 5)
    assert credit_of(entropies=[0.0] * 5, reshape="residual").advantages.tolist() == plain.advantages.tolist()


def test_entropies_are_needed_only_where_they_reshape():
    assert credit_rule("etmr").needs == frozenset()
    with pytest.raises(InputError, match="'etmr'"):
        credit_of(entropies=None, reshape="residual")
    with pytest.raises(ConfigError, match="reshape"):
        credit_rule("etmr", reshape="residue")


@given(votes=st.lists(st.tuples(st.sampled_from("123") | st.none(), st.floats(0, 3)), min_size=1, max_size=20))
def test_reshaping_turns_no_advantage_round_and_doubles_none(votes):
    answers, entropies = [a for a, _ in votes], [h for _, h in votes]
    plain, reshaped = (credit_of(answers, entropies, reshape=how).advantages for how in ("none", "residual"))
    assert (plain * reshaped >= 0).all()
    assert (np.abs(reshaped) <= 2 * np.abs(plain) + 1e-12).all()


def test_groups_without_anything_to_tell_apart():
    for answers in (["7"], ["7"] * 4, [None] * 3):
        credit = credit_of(answers, [0.3] * len(answers), reshape="residual")
        assert not credit.advantages.any()
