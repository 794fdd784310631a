"""Every number that a run writes per training step, with its meaning.

`metrics.jsonl` has one line per step; an undefined value is absent.
"""

from __future__ import annotations

import re

PASS_OR_MAJ = re.compile(r"(pass|maj)@([0-9]{1,9})")
"""The names of pass@k and maj@k, for any k."""
SETS = {"stream": "questions trained on", "held-out": "questions held out"}
"""The sets of questions that a run is measured on, in words."""
STEP_METRICS = {
    "step": "training steps before this one",
    "loss": "mean loss of the step's updates",
    "learning_rate": "learning rate of the step's last update",
    "grad_norm": "mean norm of the gradient before clipping",
    "kl": "mean KL estimate to the start model",
    "clipped_share": "tokens whose ratio was clipped",
    "reward_mean": "mean reward over all completions",
    "advantage_abs_mean": "mean |advantage| over trained completions: 0 is a step without signal",
    "positive_share": "questions with a positive label",
    "unanimous_share": "questions on which all completions agree",
    "signal_share": "questions with a trained completion whose advantage is not 0",
    "agreement": "completions that give the most frequent answer of their question",
    "distinct_answers": "distinct answers per question",
    "negative_answers": "answers ruled out per question",
    "no_answer_share": "completions without an answer",
    "stock_share": "completions that give one of the three answers most popular over the other questions",
    "stock_label_share": "positive labels that are one of those stock answers",
    "push_stock": "where the rule pushes: cov(advantage, the completion gives a stock answer)",
    "entropy_only_share": "questions whose only signal is the entropy term",
    "label_flip_share": "questions whose positive label differs from the one they had last time",
    "first_answer_share": "questions whose most frequent answer is what it was at the start",
    "same_answer_share": "questions that share the most common majority answer: 1 is a collapse",
    "entropy_mean": "mean entropy of a completion, in nats",
    "length_mean": "mean tokens per completion",
    "truncated_share": "completions cut at the token limit",
    "tokens": "tokens sampled in the step",
    "tokens_saved": "tokens that the questions left out, which teach nothing, would have taken",
    "votes_drawn": "votes that decide labels, drawn before the step (label_votes)",
    "tokens_votes": "tokens of these votes",
    "seconds_votes": "seconds spent on votes that decide labels",
    "seconds_rollout": "seconds spent sampling",
    "seconds_credit": "seconds spent on answers, labels, rewards",
    "seconds_update": "seconds spent on the update",
    "majority_accuracy": "the most frequent answer is right",
    "positive_accuracy": "the positive label is right",
    "negative_accuracy": "a ruled-out answer is wrong",
    "truth_flagged": "the right answer was ruled out",
    "pass@1": "completions that are right",
    "push_right": "cov(advantage, the completion is right)",
    "push_stock_wrong": "cov(advantage, it gives a stock answer that is wrong)",
}
"""The columns of `metrics.jsonl`; those from `majority_accuracy` on need gold."""
