"""Every gold answer must score 1: what the check passes, and what it finds."""

import re

import pytest

from scrl.errors import ConfigError
from scrl.evaluation.gold import bare_gold, gold_problem
from scrl.records import Question

FINE = ["42", "025", "142.0", "-3", "70,000", r"\frac{3}{4}", r"\left( 3, \frac{\pi}{2} \right)", r"\text{east}",
        r"5\%", r"\$32.50", "p - q", "x^2 + 1", "So it is 3.\n#### 3", r"Thus \boxed{\sqrt{2}}."]  # fmt: skip


def questions(*golds):
    return [Question(f"q{place}", "?", gold) for place, gold in enumerate(golds)]


def test_gold_that_can_be_read_back_passes():
    assert gold_problem(questions(*FINE), "boxed") is None
    assert gold_problem(questions("A", "D", "(B)"), "choice") is None
    assert gold_problem(questions(None, "1", None), "boxed") is None  # those without gold are skipped
    assert gold_problem([], "boxed") is None


@pytest.mark.parametrize(("gold", "bare"), [
    ("so it is 7.\n#### 7", "7"), (r"#### 2\pi", r"2\pi"), ("#### 12, 13", "12, 13"), ("#### A", "A"),
    (r"\boxed{3} no\n#### \boxed{x^2}", "x^2"), (r"Thus \boxed{\sqrt{2}}.", r"\sqrt{2}"), (" 18 ", "18"),
    ("7 ####", "7 ####"),
])  # fmt: skip
def test_gold_is_all_that_stands_behind_the_hashes(gold, bare):
    assert bare_gold(gold) == bare


def test_gold_that_nobody_could_match_is_listed_by_id():
    assert gold_problem(questions("1", "}", "3", " ", "see {a"), "boxed") == (
        "3 of 5 would be graded as wrong when a model writes them into a box: q1, q3, q4. "
        "Correct them, or choose another reader than 'boxed'."
    )
    assert re.search(r"1 of 2 would .*: q1\. .* than 'choice'\.", gold_problem(questions("B", "42"), "choice"))
    with pytest.raises(ConfigError, match="unknown reader 'boxd'"):
        gold_problem(questions("1"), "boxd")
