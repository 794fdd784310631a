"""What happened to the groups of one step, as numbers: the part of `metrics.jsonl` that every engine has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from scrl.credit.labels import majority_positive
from scrl.credit.pushes import stock_values
from scrl.credit.rule import CreditedGroup
from scrl.records import Credit


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
        "label_flip_share": label_flip_share(groups_B, labels_before),
        "first_answer_share": first_answer_share(groups_B, first_answers),
        "same_answer_share": same_answer_share(credit_B),
        "entropy_mean": _mean([sample.entropy for sample in samples]),
        "length_mean": _mean([len(sample.tokens_T) for sample in samples]),
        "truncated_share": _mean([not sample.is_finished for sample in samples]),
        "tokens": tokens_drawn(groups_B),
    }
    return {key: value for key, value in metrics.items() if value is not None}


def tokens_drawn(groups_B: Sequence[CreditedGroup]) -> int:
    """What it took to sample these groups."""
    return sum(sample.tokens_drawn for group in groups_B for sample in group.sampled.samples_G)


def positive_labels(groups_B: Sequence[CreditedGroup]) -> dict[str, str | None]:
    """The positive label of each question."""
    return {group.sampled.question.id: group.credit.labels.positive for group in groups_B}


def agreement(credit_B: Sequence[Credit]) -> float:
    """The share of completions that give the most frequent answer of their question."""
    return _mean([max(credit.tally.counts_K, default=0) / credit.tally.size for credit in credit_B])


def label_flip_share(groups_B: Sequence[CreditedGroup], labels_before: Mapping[str, str | None]) -> float | None:
    """Among the questions labelled now and at their last visit, the share whose label changed."""
    pairs = [(labels_before.get(group.sampled.question.id), group.credit.labels.positive) for group in groups_B]
    return _mean_of_defined([None if before is None or now is None else before != now for before, now in pairs])


def most_frequent(groups_B: Sequence[CreditedGroup]) -> dict[str, str | None]:
    """The most frequent answer of each question; None where no completion has one."""
    return {g.sampled.question.id: majority_positive(g.credit.tally, first_seen_wins=False) for g in groups_B}


def first_answer_share(groups_B: Sequence[CreditedGroup], first_answers: Mapping[str, str | None]) -> float | None:
    """Among the questions seen before, the share whose most frequent answer is the first one."""
    now = most_frequent(groups_B)
    return _mean_of_defined([now[name] == first_answers[name] for name in now if name in first_answers])


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


def _mean_of_defined(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return _mean(defined) if defined else None
