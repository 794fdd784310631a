"""Every number that a run writes per training step, with its meaning.

`metrics.jsonl` has one line per step; an undefined value is absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Better = Literal["high", "low", "neither"]
PASS_OR_MAJ = re.compile(r"(pass|maj)@([0-9]{1,9})")
"""The names of pass@k and maj@k, for any k."""
SETS = {"stream": "questions trained on", "held-out": "questions held out"}
"""The sets of questions that a run is measured on, in words."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number: its key in the file and its meaning."""

    key: str
    meaning: str
    better: Better = "neither"
    is_share: bool = False
    """Whether it is in [0, 1] and shown as a percentage."""
    needs_gold: bool = False


def _share(key: str, meaning: str, better: Better = "neither", *, needs_gold: bool = False) -> Metric:
    return Metric(key, meaning, better, is_share=True, needs_gold=needs_gold)


STEP_METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("step", "training steps before this one"),
        Metric("loss", "mean loss of the step's updates"),
        Metric("learning_rate", "learning rate of the step's last update"),
        Metric("grad_norm", "mean norm of the gradient before clipping"),
        Metric("kl", "mean KL estimate to the start model", "low"),
        _share("clipped_share", "tokens whose ratio was clipped"),
        Metric("reward_mean", "mean reward over all completions"),
        Metric("advantage_abs_mean", "mean |advantage| over trained completions: 0 is a step without signal"),
        _share("positive_share", "questions with a positive label"),
        _share("unanimous_share", "questions on which all completions agree"),
        _share("signal_share", "questions with a trained completion whose advantage is not 0"),
        _share("agreement", "completions that give the most frequent answer of their question"),
        Metric("distinct_answers", "distinct answers per question"),
        Metric("negative_answers", "answers ruled out per question"),
        _share("no_answer_share", "completions without an answer", "low"),
        _share("stock_share", "completions that give one of the three answers most popular over the other questions"),
        _share("stock_label_share", "positive labels that are one of those stock answers", "low"),
        Metric("push_stock", "where the rule pushes: cov(advantage, the completion gives a stock answer)", "low"),
        _share("entropy_only_share", "questions whose only signal is the entropy term", "low"),
        _share("label_flip_share", "questions whose positive label differs from the one they had last time", "low"),
        _share("first_answer_share", "questions whose most frequent answer is what it was at the start", "high"),
        _share("same_answer_share", "questions that share the most common majority answer: 1 is a collapse", "low"),
        Metric("entropy_mean", "mean entropy of a completion, in nats"),
        Metric("length_mean", "mean tokens per completion"),
        _share("truncated_share", "completions cut at the token limit", "low"),
        Metric("tokens", "tokens sampled in the step"),
        Metric(
            "tokens_saved", "tokens that the questions left out, which teach nothing, would have taken beside these"
        ),
        Metric("votes_drawn", "votes that decide labels, drawn before the step (label_votes)"),
        Metric("tokens_votes", "tokens of these votes"),
        Metric("sampler_drift", "mean |difference| of a token's log-probability between vLLM and the policy", "low"),
        _share("resampled_share", "questions that took the place of one without signal"),
        Metric("resampling_rounds", "extra draws of other questions", "low"),
        Metric("seconds_votes", "seconds spent on votes that decide labels", "low"),
        Metric("seconds_rollout", "seconds spent sampling", "low"),
        Metric("seconds_credit", "seconds spent on answers, labels, rewards", "low"),
        Metric("seconds_update", "seconds spent on the update", "low"),
        _share("majority_accuracy", "the most frequent answer is right", "high", needs_gold=True),
        _share("positive_accuracy", "the positive label is right", "high", needs_gold=True),
        _share("negative_accuracy", "a ruled-out answer is wrong", "high", needs_gold=True),
        _share("truth_flagged", "the right answer was ruled out", "low", needs_gold=True),
        _share("pass@1", "completions that are right", "high", needs_gold=True),
        Metric("push_right", "cov(advantage, the completion is right)", "high", needs_gold=True),
        Metric("push_stock_wrong", "cov(advantage, it gives a stock answer that is wrong)", "low", needs_gold=True),
    )
}
"""The columns of `metrics.jsonl`."""
