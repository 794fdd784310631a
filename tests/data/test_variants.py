"""Variants: other numbers of the same size and roundness, and nothing else of the question."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.config import PASSES, build_config
from scrl.data.variants import with_variants
from scrl.records import Question


def variants(text, copies=200, seed=0):
    return [each.text for each in with_variants([Question("7", text, gold="5")], copies, seed)][1:]


@pytest.mark.parametrize(
    ("number", "others"),
    [
        ("2", {"3", "4"}),  # from max(2, ⌈4/3⌉) to max(3, 2 + 2), without 2
        ("7", {"5", "6", "8", "9", "10"}),  # from ⌈14/3⌉ to ⌊21/2⌋
        ("40", {"30", "50", "60"}),  # 4 tens: from ⌈8/3⌉ to 6
        ("15", {"10", "20", "25"}),  # 3 fives: from 2 to max(4, 3 + 2)
        ("1,200", {f"{100 * units:,}" for units in range(8, 19) if units != 12}),  # 12 hundreds: from 8 to 18
    ],
)
def test_a_number_becomes_any_other_of_its_size_and_roundness(number, others):
    found = {text.removeprefix("Add ").removesuffix(".") for text in variants(f"Add {number}.")}
    assert found == others


@pytest.mark.parametrize("text", ["Add 0 and 1.", "$x_2 + 3x$", "1.5", "3/4", "the 2nd, 3rd and 4th", "twice", ""])
def test_what_is_no_whole_number_stays_and_a_question_without_one_has_no_variant(text):
    assert variants(text) == []


def test_a_number_that_stands_twice_is_replaced_by_one_number():
    for text in variants("6 of 6 apples"):
        one, other = re.findall(r"\d+", text)
        assert one == other != "6"


@given(st.text("0123456789,./ ab-$", max_size=30), st.integers(0, 3))
def test_only_digits_and_their_commas_change_and_draws_depend_on_seed_id_and_copy_alone(text, copies):
    questions = [Question("1", "Add 3."), Question("2", text, gold="5", level="easy")]
    found = list(with_variants(questions, copies, 5))
    assert found[:2] == questions
    assert [each for each in found if "2" in (each.id, each.varies)] == list(with_variants(questions[1:], copies, 5))
    for each in found[2:]:
        source = questions[int(each.varies) - 1]
        assert re.sub(r"[\d,]", "", each.text) == re.sub(r"[\d,]", "", source.text)
        assert each.gold is None
        assert each.level == source.level
    assert len({each.id for each in found}) == len(found)


def test_a_run_loads_them_and_says_so(tmp_path):
    (tmp_path / "q.txt").write_text("What is 3 + 4?\nWho is she?\n")
    settings = {"model": "embedded", "questions": str(tmp_path / "q.txt"), "variants": 2, "questions_per_step": 1}
    config = build_config(settings)
    loaded = config.load_questions()
    assert [question.varies for question in loaded.questions] == [None, None, "q-0", "q-0"]
    assert any("2 variants" in note for note in loaded.notes)
    assert config.with_steps().steps == 4 * PASSES
