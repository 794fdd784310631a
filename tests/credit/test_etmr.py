"""ETMR: the plan of the tree, and the vote of its leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.config import read_config
from scrl.credit.method import Tree
from scrl.credit.methods.etmr import EtmrSettings, plan
from scrl.credit.rule import assign_credit
from scrl.errors import ConfigError
from scrl.records import Group

RUN = ("model=embedded", "questions=arithmetic:easy", "trained=4")
ANSWERS = ["7", "7", "5", "3", None]


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


def test_reward_and_advantage_are_those_of_ttrl():
    credit, ttrl = (assign_credit(Group.from_answers(ANSWERS), method) for method in ("etmr", "ttrl"))
    assert credit.labels == ttrl.labels
    assert credit.rewards.tolist() == ttrl.rewards.tolist() == [1, 1, 0, 0, 0]
    assert credit.advantages.tolist() == ttrl.advantages.tolist()
