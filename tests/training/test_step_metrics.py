"""The numbers of a step, from votes counted by hand."""

import numpy as np
import pytest

from scrl.credit.group_metrics import same_answer_share
from scrl.credit.methods import METHODS
from scrl.credit.rule import CreditedGroup, credit_rule
from scrl.metrics import STEP_METRICS
from scrl.policy.policy import UpdateReport
from scrl.records import Question, Sample, Sampled
from scrl.training.base_run import describe
from scrl.training.loop import step_metrics

UPDATE = UpdateReport(loss=0.5, grad_norm=2.0, clipped_share=0.1, learning_rate=1e-4, kl=None)


def sample(answer, entropy, tokens=2, is_finished=True):
    text = "?" if answer is None else f"\\boxed{{{answer}}}"
    zeros_T = np.zeros(tokens)
    return Sample(text, zeros_T.astype(np.int64), zeros_T, zeros_T + entropy, is_finished)


def credited(name, *samples, **settings):
    sampled = Sampled(Question(name, "?"), np.zeros(1, dtype=np.int64), samples)
    rule = credit_rule("scrl", **settings)
    classes = rule.classify(sampled.group)
    return CreditedGroup(sampled, classes, rule.credit(sampled.group, classes))


A = credited("a", *[sample("4", 0.1)] * 3, sample("5", 0.5, tokens=10, is_finished=False))
B = credited("b", sample("7", 0.3), sample("8", 0.3), sample(None, 0.3), sample(None, 0.3))
SURE = credited("c", *[sample("9", 0.0)] * 4)


def test_the_numbers_of_a_step():
    found = step_metrics([A, B], UPDATE, {})
    # a: H̄ = (3·0.1 + 0.5)/4 = 0.2; rewards 3 × 0.75 − 0.1·(0.1 − 0.2) = 0.76 and −0.1·(0.5 − 0.2) = −0.03, mean 0.5625;
    #    three of four alike and one apart: advantages 3 × 1/√3 and −√3, mean |Â| = √3/2
    # b: no label at 1 of 4 votes; rewards 0, 0 and −0.125, −0.125 (missing), mean −0.0625; advantages ±1
    assert found == {
        "loss": 0.5, "learning_rate": 1e-4, "grad_norm": 2.0, "clipped_share": 0.1,
        "reward_mean": pytest.approx(0.25), "advantage_abs_mean": pytest.approx((3**0.5 / 2 + 1) / 2, abs=1e-4),
        "positive_share": 0.5, "unanimous_share": 0.0, "signal_share": 1.0,
        "agreement": 0.5,  # 3/4 and 1/4
        "distinct_answers": 2.0, "negative_answers": 0.0,
        "no_answer_share": 0.25,  # 0 and 2/4
        "entropy_only_share": 0.0,
        "entropy_mean": pytest.approx(0.25),  # (3·0.1 + 0.5 + 4·0.3)/8
        "length_mean": 3.0,  # (7·2 + 10)/8
        "truncated_share": 0.125, "tokens": 24,
    }  # fmt: skip
    assert found.keys() <= STEP_METRICS.keys()


def test_a_question_without_signal_and_one_with_entropy_alone():
    tie = credited("t", *[sample("1", 0.1), sample("1", 0.2), sample("2", 0.3), sample("2", 0.4)])
    found = step_metrics([SURE, tie], UPDATE, {})
    assert found["unanimous_share"] == 0.5
    assert found["signal_share"] == 0.5  # where all agree, no completion is better than another
    assert found["entropy_only_share"] == 0.5  # a tie has no label, and its rewards are the entropy term
    words = "2 of 3 questions had a label, 1 unanimous, 1 abstained; 1 taught nothing"
    assert describe([SURE, tie, A], METHODS["scrl"]) == words
    assert describe([SURE, tie, A], METHODS["contrast"]) == "3 questions, 1 unanimous; 1 taught nothing"


def test_answers_that_were_ruled_out_are_counted_a_question():
    # 16 completions: 14 × 4, and 1 × 5 and 1 × 6 with shares of 1/16 < 1/8; only 6 is more uncertain than the group
    group = credited("n", *[sample("4", 0.2)] * 14, sample("5", 0.1), sample("6", 0.9))
    assert step_metrics([group, SURE], UPDATE, {})["negative_answers"] == 0.5


def test_labels_that_flip_are_counted_among_questions_labelled_both_times():
    assert "label_flip_share" not in step_metrics([A, B, SURE], UPDATE, {"b": "7"})  # b has no label now
    assert step_metrics([A, B, SURE], UPDATE, {"a": "4", "b": "7"})["label_flip_share"] == 0.0
    assert step_metrics([A, B, SURE], UPDATE, {"a": "5", "c": "9"})["label_flip_share"] == 0.5
    assert "label_flip_share" not in step_metrics([A], UPDATE, {"a": None})


def test_a_collapse_onto_one_answer_shows_from_four_questions_on():
    credit = {answer: credited(answer, *[sample(answer, 0.1)] * 2).credit for answer in ("1", "2")}
    silent = credited("s", sample(None, 0.1)).credit
    assert same_answer_share([credit["1"]] * 3) is None
    assert same_answer_share([credit["1"]] * 3 + [silent]) is None  # a question without answers is none
    assert same_answer_share([credit["1"]] * 3 + [credit["2"]]) == 0.75
    # ties go to the smaller answer, as a majority label does: 1 wins all four
    tied = [credited(other, sample("1", 0.1), sample(other, 0.1)).credit for other in ("2", "3", "4", "5")]
    assert same_answer_share(tied) == 1.0


def test_the_kl_is_told_where_there_is_one():
    assert step_metrics([A], UpdateReport(0.5, 2.0, 0.1, 1e-4, kl=0.03), {})["kl"] == 0.03


def test_advantages_are_those_of_the_trained_completions():
    some = credited("a", *[sample("4", 0.1)] * 3, sample("5", 0.5), num_trained=2, which_trained="first")
    assert step_metrics([some], UPDATE, {})["advantage_abs_mean"] == 0.0  # the first two are alike
    assert step_metrics([some], UPDATE, {})["reward_mean"] == pytest.approx(0.5625)  # but all four earned
