"""An evaluation, from completions whose answers are counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from scrl.credit.rule import credit_rule
from scrl.data.prompts import PromptSettings
from scrl.evaluation.evaluate import Conditions, digest, evaluate
from scrl.records import Question, Sample, Sampled
from scrl.sampling.settings import SamplingSettings

RULE = credit_rule("scrl")
SAMPLING = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=32)


def sample(answer, entropy=0.2, *, tokens=4, is_finished=True):
    text = "?" if answer is None else f"So \\boxed{{{answer}}}."
    zeros_T = np.zeros(tokens)
    return Sample(text, zeros_T.astype(np.int64), zeros_T, zeros_T + entropy, is_finished)


def sampled(name, gold, *samples):
    return Sampled(Question(name, "?", gold), np.zeros(1, dtype=np.int64), samples)


def measure(*sampled_Q, k, rule=RULE):
    how = (SAMPLING, (k,) if isinstance(k, int) else k, 0, "boxed", PromptSettings(style="chat", asks_for="number"))
    conditions = Conditions("toy", "tiny", *how, step=7)
    return evaluate([(each.question, each.group) for each in sampled_Q], rule, conditions)


ONE = sampled("one", "4", sample("4", 0.1), sample("4.0", 0.3), sample("5", 0.6), sample(None, 0.8, is_finished=False))
TWO = sampled("two", "7.0", sample("8", 0.2), sample("8", 0.2), sample("8", 0.2), sample("7", 0.2, tokens=12))
BARE = sampled("bare", None, *[sample("1", 0.0)] * 4)


def test_the_numbers_of_an_evaluation():
    assert measure(ONE, TWO, BARE, k=4) == {
        "step": 7, "model": "tiny", "benchmark": "toy", "questions": 3,
        "questions_digest": digest([("bare", "?"), ("two", "?"), ("one", "?")]),  # in any order
        "samples": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 32, "seed": 0, "reader": "boxed",
        "prompt": {"style": "chat", "asks_for": "number"}, "significant_digits": None,
        "agreement": 0.75,  # 2/4, 3/4 and 4/4
        "answered": pytest.approx(11 / 12), "truncated": pytest.approx(1 / 12), "tokens": 56,
        "length_mean": pytest.approx(56 / 12),  # 11 · 4 + 12
        "entropy_mean": pytest.approx(2.6 / 12),  # 0.1 + 0.3 + 0.6 + 0.8 and 4 · 0.2
        "answers": {
            "one": {"question": "?", "votes": [["4", 0.5], ["5", 0.25]]},
            "two": {"question": "?", "votes": [["8", 0.75], ["7", 0.25]]},
            "bare": {"question": "?", "votes": [["1", 1.0]]},
        },
        "pass@1": 0.375,  # 2/4 and 1/4, of the two questions with gold
        "pass@1_low": 0.25, "pass@1_high": 0.5,  # each of the two is drawn twice a quarter of the time
        "pass@4": 1.0, "pass@4_low": 1.0, "pass@4_high": 1.0,
        "maj@4": 0.5, "maj@4_low": 0.0, "maj@4_high": 1.0,  # 4 has two votes of four, 7 one
        "gold_questions": 2, "gold_digest": digest([("two", "7"), ("one", "4")]),
        "accuracy_given_answer": pytest.approx(3 / 7),  # 2 of 3 and 1 of 4
        "entropy_correct": pytest.approx(0.2),  # 0.1, 0.3 and 0.2
        "entropy_incorrect": pytest.approx(2.0 / 5),  # 0.6, 0.8 and 3 · 0.2
        "pass@1_by_question": {"one": 0.5, "two": 0.25},
        "pass@4_by_question": {"one": 1.0, "two": 1.0},
        "maj@4_by_question": {"one": 1.0, "two": 0.0},
    }  # fmt: skip


def test_levels_are_told_apart_where_the_source_has_them():
    easy, hard = (replace(s, question=Question(level, "?", "4", level=level)) for s, level in ((ONE, "1"), (TWO, "5")))
    found = measure(easy, hard, k=4)["by_level"]
    assert {level: part["pass@1"] for level, part in found.items()} == {"1": 0.5, "5": 0.0}
    assert found["1"] == {"questions": 1, "pass@1": 0.5, "pass@1_low": 0.5, "pass@1_high": 0.5}


def test_pass_and_majority_at_a_smaller_k():
    found = measure(ONE, TWO, k=(1, 2))
    # 1 − C(2, 2)/C(4, 2) = 5/6 and 1 − C(3, 2)/C(4, 2) = 1/2
    assert found["pass@2"] == pytest.approx((5 / 6 + 1 / 2) / 2)
    # one: of six pairs {4, 4} and two {4, none} win, two {4, 5} tie: (1 + 2 + 2 · ½)/6 = 2/3; two: three of six pairs
    # are {8, 7}: ½ · ½ = 1/4; a thousand draws come within 0.05
    assert found["maj@2"] == pytest.approx((2 / 3 + 1 / 4) / 2, abs=0.05)
    assert {key for key in found if "@" in key and "_" not in key} == {"pass@1", "maj@1", "pass@2", "maj@2"}


def test_without_gold_nothing_is_said_about_right_and_wrong():
    found = measure(BARE, BARE, k=4)
    assert not any("@" in key or "correct" in key for key in found)
    assert found["agreement"] == 1.0


def test_gold_that_cannot_be_compared_with_counts_as_none():
    empty = sampled("empty", " ", sample("4"), sample("5"))
    assert "pass@1" not in measure(empty, k=2)
    assert measure(empty, sampled("two", "4", sample("4"), sample("4")), k=2)["pass@1_by_question"] == {"two": 1.0}


@pytest.mark.parametrize("gold", ["1/2", "\\frac{1}{2}", "0.5", "\\boxed{0.50}", "It is a half.\n#### 0.5"])
def test_gold_is_compared_by_what_it_means(gold):
    assert measure(sampled("half", gold, sample("\\frac12"), sample("2")), k=2)["pass@1"] == 0.5


def test_completions_without_answers_are_never_right_and_never_the_majority():
    found = measure(sampled("silent", "4", *[sample(None)] * 3, sample("4")), k=4)
    assert (found["pass@1"], found["maj@4"], found["answered"], found["agreement"]) == (0.25, 1.0, 0.25, 0.25)
    mute = sampled("mute", "4", *[sample(None)] * 4)
    nothing = measure(mute, k=4)
    assert (nothing["pass@1"], nothing["pass@4"], nothing["maj@4"]) == (0.0, 0.0, 0.0)
    assert "entropy_correct" not in nothing
    found = measure(ONE, mute, k=4)
    assert (found["pass@1"], found["pass@4"], found["maj@4"]) == (0.25, 0.5, 0.5)  # half of what ONE has alone
    assert found["accuracy_given_answer"] == pytest.approx(2 / 3)


def test_numbers_are_rounded_where_the_rule_rounds_them():
    close = sampled("pi", "3.14", sample("3.141"), sample("3.1"))
    assert measure(close, k=2)["pass@1"] == 0.0
    found = measure(close, k=2, rule=credit_rule("scrl", significant_digits=3))
    assert (found["pass@1"], found["significant_digits"]) == (0.5, 3)
    assert found["gold_digest"] == measure(close, k=2)["gold_digest"]  # the right answers are the same
