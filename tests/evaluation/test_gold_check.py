"""Every gold answer must score 1: what the check passes, and what it finds."""

import pytest

from scrl.answers.judge import NoJudge
from scrl.answers.readers import read_boxed
from scrl.errors import ConfigError, DataError
from scrl.evaluation.gold_check import check_gold
from scrl.evaluation.label_quality import bare_gold
from scrl.records import Question

FINE = ["42", "025", "142.0", "-3", "70,000", r"\frac{3}{4}", r"\left( 3, \frac{\pi}{2} \right)", r"\text{east}",
        r"5\%", r"\$32.50", "p - q", "x^2 + 1", "So it is 3.\n#### 3", r"Thus \boxed{\sqrt{2}}."]  # fmt: skip


def asked(*golds):
    return [Question(f"q{place}", "?", gold) for place, gold in enumerate(golds)]


def test_gold_that_can_be_read_back_passes():
    check_gold(asked(*FINE), "boxed")
    check_gold(asked(*FINE), read_boxed, NoJudge())
    check_gold(asked("A", "D", "(B)"), "choice")


@pytest.mark.parametrize(
    ("gold", "bare"),
    [
        ("so it is 7.\n#### 7", "7"),
        (r"#### 2\pi", r"2\pi"),
        ("#### 12, 13", "12, 13"),
        ("#### A", "A"),
        (r"\boxed{3} no\n#### \boxed{x^2}", "x^2"),
        (r"Thus \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (" 18 ", "18"),
        ("7 ####", "7 ####"),
    ],
)
def test_gold_is_all_that_stands_behind_the_hashes(gold, bare):
    assert bare_gold(gold) == bare


def test_questions_without_gold_are_passed_over():
    check_gold(asked(None, "1", None), "boxed")
    check_gold([], "boxed")


def test_gold_that_nobody_could_hit_is_listed_by_id():
    with pytest.raises(DataError) as error:
        check_gold(asked("1", "}", "3", " ", "see {a"), "boxed")
    assert str(error.value) == (
        "gold answers: 3 of 5 would be graded as wrong when a model writes them into a box: q1, q3, q4. "
        "Correct them, or choose another reader than 'boxed'."
    )


def test_a_reader_that_does_not_fit_is_found():
    with pytest.raises(DataError, match=r"1 of 2 would .*: q1\. .* another reader than 'choice'\."):
        check_gold(asked("B", "42"), "choice")
    with pytest.raises(DataError, match=r"2 of 2 .*another reader than this one\."):
        check_gold(asked("B", "42"), lambda text: None)
    with pytest.raises(ConfigError, match="unknown reader 'boxd'"):
        check_gold(asked("1"), "boxd")
