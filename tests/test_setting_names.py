"""The names of settings: short ones lead to settings, other projects' words to names, typos to the nearest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.config import NAMES as RUN
from scrl.evaluation.settings import NAMES as EVALUATION
from scrl.lab.endpoint_settings import NAMES as ENDPOINT
from scrl.setting_names import FOREIGN_NAMES, NO_COUNTERPARTS, as_option, foreign
from scrl.settings import merged, setting_rows, tree_of

KNOWN = [name for name, _, _ in setting_rows(RUN.model)]


@pytest.mark.parametrize("names", [RUN, EVALUATION, ENDPOINT])
def test_every_short_name_leads_to_a_setting_and_hides_none(names):
    rows = {name for name, _, _ in setting_rows(names.model)}
    assert set(names.short.values()) <= rows
    assert not set(names.short) & rows
    assert not set(names.not_here) & (rows | set(names.short))


def test_every_foreign_word_leads_to_a_name_and_is_none_itself():
    here = {*KNOWN, *RUN.short, "out"}
    words = [word for words in FOREIGN_NAMES.values() for word in words]
    assert {name for words in FOREIGN_NAMES.values() for name in words.values()} <= here
    assert not {*words, *NO_COUNTERPARTS} & here
    assert len({*words, *NO_COUNTERPARTS}) == len(words) + len(NO_COUNTERPARTS)  # each belongs to one project


def test_of_a_dotted_word_the_end_is_enough():
    assert foreign("actor_rollout_ref.rollout.n") == foreign("rollout.n") == ("verl", "completions", "")
    assert foreign("actor_rollout_ref.actor.optim.lr") == ("verl", "learning_rate", "")
    assert foreign("n") is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("modle", "Did you mean --model?"),  # not guard.mode, which is as close
        ("max_token", "Did you mean --max-tokens?"),
        ("clip_high", "Did you mean --loss.clip-high?"),
        ("sampling.clip_high", "Did you mean --loss.clip-high?"),
        ("rnk", "Did you mean --lora.rank?"),
        ("evaluation.evry", "Did you mean --evaluation.every?"),
        ("zzz", "scrl train --list-settings shows all."),
    ],
)
def test_the_nearest_name(name, hint):
    assert RUN.about(name, is_option=True) == f"{as_option(name)}: there is no such setting. {hint}"


@given(st.sampled_from(KNOWN), st.data())
def test_a_letter_left_out_still_finds_some_setting(name, data):
    place = data.draw(st.integers(0, len(name) - 1))
    typo = name[:place] + name[place + 1 :]
    if typo in (*KNOWN, *RUN.short) or name[place] == "." or len(name) < 5 or foreign(typo):
        return
    assert "Did you mean" in RUN.about(typo, is_option=True)


@given(st.dictionaries(st.sampled_from(sorted(RUN.short)), st.integers(0, 9)))
def test_long_names_are_their_own_long_names(values):
    long = RUN.long(values)
    assert RUN.long(long) == long
    expected = {}
    for name, value in values.items():
        expected = merged(expected, tree_of(RUN.short[name], value))
    assert long == expected
    assert not list(RUN.unknown(long))
