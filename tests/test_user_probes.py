r"""What goes wrong when answers are grouped by a single library call; each case must hold here."""

import itertools

import pytest

from scrl.answers.classes import classify, same_answer


@pytest.mark.parametrize(
    "answers",
    [
        ["50", r"50\%", "0.5"],  # math-verify: 50 ~ 50 % ~ 0.5 but 50 ≁ 0.5
        ["(1,2)", "1,2", "2,1"],  # (1,2) ~ 1,2 ~ 2,1 but (1,2) ≁ 2,1
        ["x=5", "5", "y=5"],  # x=5 ~ 5 ~ y=5 but x=5 ≁ y=5
    ],
)
def test_where_math_verify_is_not_transitive_we_are(answers):
    found = {frozenset(map(str, classify(order).keys_K)) for order in itertools.permutations(answers)}
    assert len(found) == 1
    for a, b, c in itertools.permutations(answers):
        if same_answer(a, b) and same_answer(b, c):
            assert same_answer(a, c)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("50", r"50\%"), ("10,080", "10080"), ("C", r"\text{C}"), (r"\frac12", "1/2"), ("142", r"142\text{ units}"),
        ("142", "x=142"),
    ],
)  # fmt: skip
def test_what_the_vote_key_splits_is_one_class(first, second):
    assert same_answer(first, second)


@pytest.mark.parametrize(
    "answers",
    [
        [r"x\in[0,1]", r"x\in[-2,7]", r"n\in\{1,2\}"],  # there all three are the class "False"
        ["1,000", "(1, 0)", "1,0"],  # there 1,000 → (1, 0)
        ["12:00", "12:30", "0"],  # there 12:00 → zoo
        ["10,080", "(10, 0)"],
    ],
)
def test_what_the_vote_key_merges_stays_apart(answers):
    assert len(classify(answers).keys_K) == len(answers)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (r"50\%", "0.5"),  # percent is dropped, not converted
        ("50", "0.5"),
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),  # equal for math-verify 0.9.0
        (r"e^{-40\pi}", r"e^{-41\pi}"),
        ("1e-9", "2e-9"),
        (r"\frac13", "0.333333"),  # math-verify rounds to six places
    ],
)
def test_what_is_nearly_equal_stays_apart(first, second):
    assert not same_answer(first, second)


def test_numbers_are_rounded_if_asked_to():
    assert same_answer(r"\frac13", "0.333333", significant_digits=5)
