"""What happened to the groups of one step, as numbers: the part of `metrics.jsonl` that every engine has.

Where a rule pushes is how an update changes the probability of some answers, to first order:

    push(e) = cov(Â, e) = (1/M) Σ_i Â_i (e_i − ē)        over the completions of a group that are trained on

If every question had its own table of probabilities, one step of natural policy gradient would change the probability
of an event e by push(e), times a constant. Two events are followed: the completion gives a stock answer, one of the
most popular answers of the other questions, and, in `evaluation/`, it is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from scrl.credit.labels import majority_positive
from scrl.credit.rule import CreditedGroup
from scrl.records import Credit, Floats, Tally


def push(credit: Credit, event_G: Floats) -> float:
    """cov(Â, e) over the completions trained on."""
    rows = list(credit.trained)
    event_M = event_G[rows]
    return float(np.mean(credit.advantages[rows] * (event_M - event_M.mean())))


def gives(tally: Tally, answers: Container[str | None]) -> Floats:
    """e_i: 1 where a completion gives one of these answers."""
    return np.array([float(key is not None and key in answers) for key in tally.completion_keys])


STOCK_FIGURES = ("stock_share", "stock_label_share", "push_stock")
"""Figures about stock answers, which need no gold; each is reported as its mean over the groups that have it."""


def stock_values(credits: Sequence[Credit]) -> dict[str, list[float]]:
    """Each of STOCK_FIGURES for the groups that have it: once enough others have been seen, the second with a label."""
    values: dict[str, list[float]] = {name: [] for name in STOCK_FIGURES}
    for credit in (each for each in credits if each.stock):
        is_stock_G = gives(credit.tally, credit.stock)
        values["stock_share"].append(float(is_stock_G.mean()))
        values["push_stock"].append(push(credit, is_stock_G))
        if credit.labels.positive is not None:
            values["stock_label_share"].append(float(credit.labels.positive in credit.stock))
    return {name: found for name, found in values.items() if found}


def group_metrics(
    groups_B: Sequence[CreditedGroup],
    labels_before: Mapping[str, str | None],
    first_answers: Mapping[str, str | None] = MappingProxyType({}),
) -> dict[str, float]:
    """Labels, rewards and completions of a step.

    `labels_before`: the positive label of each question at its last visit; None where the rule abstained.
    `first_answers`: the most frequent answer of each question at its first visit, or among the start model's votes.
    """
    samples = [sample for group in groups_B for sample in group.sampled.samples_G]
    credit_B = [group.credit for group in groups_B]
    labels_now, answers_now = positive_labels(groups_B), most_frequent(groups_B)
    flips = [
        labels_before[name] != label
        for name, label in labels_now.items()
        if label is not None and labels_before.get(name) is not None
    ]
    kept = [answer == first_answers[name] for name, answer in answers_now.items() if name in first_answers]
    metrics: dict[str, float | None] = {
        "reward_mean": _mean([credit.rewards.mean() for credit in credit_B]),
        "advantage_abs_mean": _mean([np.abs(credit.advantages[list(credit.trained)]).mean() for credit in credit_B]),
        "positive_share": _mean([credit.labels.positive is not None for credit in credit_B]),
        "unanimous_share": _mean([is_unanimous(credit) for credit in credit_B]),
        "signal_share": _mean([has_signal(credit) for credit in credit_B]),
        "agreement": agreement(credit_B),
        "distinct_answers": _mean([len(credit.tally.keys_K) for credit in credit_B]),
        "negative_answers": _mean([len(credit.labels.negatives) for credit in credit_B]),
        "no_answer_share": _mean([credit.tally.num_missing / credit.tally.size for credit in credit_B]),
        **{name: _mean(values) for name, values in stock_values(credit_B).items()},
        "entropy_only_share": _mean([credit.is_entropy_only for credit in credit_B]),
        "label_flip_share": _mean(flips) if flips else None,
        "first_answer_share": _mean(kept) if kept else None,
        "same_answer_share": same_answer_share(credit_B),
        "entropy_mean": _mean([sample.entropy for sample in samples]),
        "length_mean": _mean([len(sample.tokens_T) for sample in samples]),
        "truncated_share": _mean([not sample.is_finished for sample in samples]),
        "tokens": sum(sample.tokens_drawn for sample in samples),
    }
    return {key: value for key, value in metrics.items() if value is not None}


def positive_labels(groups_B: Sequence[CreditedGroup]) -> dict[str, str | None]:
    """The positive label of each question."""
    return {group.sampled.question.id: group.credit.labels.positive for group in groups_B}


def agreement(credit_B: Sequence[Credit]) -> float:
    """The share of completions that give the most frequent answer of their question."""
    return _mean([max(credit.tally.counts_K, default=0) / credit.tally.size for credit in credit_B])


def most_frequent(groups_B: Sequence[CreditedGroup]) -> dict[str, str | None]:
    """The most frequent answer of each question; None where no completion has one."""
    return {g.sampled.question.id: majority_positive(g.credit.tally, first_seen_wins=False) for g in groups_B}


def same_answer_share(credit_B: Sequence[Credit]) -> float | None:
    """The share of questions whose most frequent answer is the one most questions have; None below four questions."""
    tops = [majority_positive(c.tally, first_seen_wins=False) for c in credit_B if c.tally.keys_K]
    return Counter(tops).most_common(1)[0][1] / len(tops) if len(tops) >= 4 else None


def is_unanimous(credit: Credit) -> bool:
    """Whether all completions give one answer."""
    return credit.tally.counts_K == (credit.tally.size,)


def has_signal(credit: Credit) -> bool:
    """Whether some trained completion has an advantage."""
    return bool(np.any(credit.advantages[list(credit.trained)] != 0))


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values))
