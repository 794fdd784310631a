"""Classes of answers: an equivalence relation that looks at keys alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.answers.classes import MISSING, Spelling, classify, find_class, same_answer


def test_missing_answers_are_in_no_class():
    classes = classify(["5", None, "", "5.0", r"\text{}"])
    assert classes.class_of_G == (0, MISSING, MISSING, 0, MISSING)
    assert classes.keys_K == ("5",)


def test_a_group_of_missing_answers_has_no_class():
    assert classify([None, None]).keys_K == ()


@pytest.mark.parametrize(("answer", "place"), [("0.50", 0), ("x = 3", 1), ("4", None), ("", None)])
def test_an_answer_from_outside_is_found_by_its_key(answer, place):
    assert find_class(classify(["3", "1/2", None, "0.5"]), answer) == place


def test_the_audit_names_spellings_by_class_the_most_frequent_first():
    classes = classify(["1/2", "0.5", "0.5", "3", None, ""])
    assert classes.audit() == {
        "1/2": (Spelling("0.5", 2, ""), Spelling("1/2", 1, "exact")),
        "3": (Spelling("3", 1, ""),),
    }


def test_tolerance_merges_physics_answers_and_stays_transitive():
    spellings = ["1.602e-19", r"1.6 \times 10^{-19}", "1.60e-19", r"1.604\cdot10^{-19}"]
    assert len(classify(spellings).keys_K) == 3
    assert len(classify(spellings, significant_digits=2).keys_K) == 1
    assert find_class(classify(spellings, significant_digits=2), "1.5999e-19") == 0
    assert same_answer(*spellings[:2], significant_digits=2)


SPELLINGS = st.sampled_from(
    [
        "1/2", r"\frac12", "0.5", ".50", "50%", "50", r"50\%", "x=5", "5", "y = 5", "(1,2)", "1,2", "2,1", r"\{1,2\}",
        "C", r"\text{C}", "1,000", "1000", r"\sqrt{8}", r"2\sqrt2", "x^2-1", "(x-1)(x+1)", r"\text{no}", "on", "",
        "[0,1)", r"0 \le x < 1",
    ]
)  # fmt: skip


@given(SPELLINGS, SPELLINGS, SPELLINGS)
def test_equality_is_reflexive_symmetric_and_transitive(a, b, c):
    assert same_answer(a, a) == (a != "")
    assert same_answer(a, b) == same_answer(b, a)
    if same_answer(a, b) and same_answer(b, c):
        assert same_answer(a, c)


@given(st.lists(SPELLINGS | st.none(), max_size=8))
def test_the_class_of_an_answer_does_not_depend_on_the_others(answers):
    classes = classify(answers)
    found = [None if j == MISSING else classes.keys_K[j] for j in classes.class_of_G]
    assert found == [next(iter(classify([answer]).keys_K), None) for answer in answers]
    assert classes.keys_K == tuple(sorted({key for key in found if key is not None}))
