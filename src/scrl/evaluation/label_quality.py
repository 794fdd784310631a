"""Labels against gold: how often is consensus right, and what do the rules do about it?

The only place where gold answers meet labels; nothing here flows back into them. A value that is not defined (no
positive label anywhere, say) is None, never 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from scrl.answers.classes import Classes, find_class
from scrl.answers.forms import canonical_form
from scrl.answers.readers import read_boxed
from scrl.credit.pushes import gives, push
from scrl.credit.rule import CreditedGroup
from scrl.records import Credit, Question, Tally, Truth


class LabelQuality:
    """Running means over questions, one `add` a group."""

    def __init__(self) -> None:
        """An empty account."""
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = dict.fromkeys(_KEYS, 0)

    def add(self, classes: Classes, credit: Credit, gold: str) -> Truth | None:
        """Count one group and return its right class; None where the gold answer holds nothing to compare with."""
        tally, labels, found = credit.tally, credit.labels, right_class(classes, gold)
        if found is None:
            return None
        truth = found.key
        right = None if truth is None else tally.keys_K.index(truth)
        self._note("majority_accuracy", [majority_accuracy(tally, right)])
        self._note("positive_accuracy", [labels.positive == truth] if labels.positive is not None else [])
        self._note("negative_accuracy", [negative != truth for negative in labels.negatives])
        self._note("truth_flagged", [truth in labels.negatives] if truth is not None else [])
        auroc = entropy_auroc(tally, right)
        self._note("entropy_auroc", [] if auroc is None else [auroc])
        votes = 0 if right is None else tally.counts_K[right]
        self._note("pass@1", [votes / tally.size])
        self._note("pass@n", [votes > 0])
        return found

    def add_pushes(self, credit: Credit, truth: Truth) -> None:
        """Where the advantages of one group push; towards stock answers only where these are known."""
        self._note("push_right", [push(credit, gives(credit.tally, (truth.key,)))])
        if credit.stock:
            self._note("push_stock_wrong", [push(credit, gives(credit.tally, set(credit.stock) - {truth.key}))])

    def summary(self) -> dict[str, float | None]:
        """The means, None where nothing was counted."""
        return {key: self._sums[key] / count if count else None for key, count in self._counts.items()}

    def _note(self, key: str, values: Iterable[float]) -> None:
        for value in values:
            self._sums[key] = self._sums.get(key, 0.0) + value
            self._counts[key] += 1


_KEYS = (
    "majority_accuracy", "positive_accuracy", "negative_accuracy", "truth_flagged", "entropy_auroc", "pass@1", "pass@n",
    "push_right", "push_stock_wrong",
)  # fmt: skip


def step_label_quality(groups_B: Sequence[CreditedGroup]) -> dict[str, float]:
    """How right the labels of one training step are, for `metrics.jsonl`; empty where no question has gold."""
    quality = LabelQuality()
    for group in groups_B:
        gold = group.sampled.question.gold
        truth = None if gold is None else quality.add(group.classes, group.credit, gold)
        if truth is not None:
            quality.add_pushes(group.credit, truth)
    found = quality.summary()
    return {key: value for key in _STEP_KEYS if (value := found[key]) is not None}


_STEP_KEYS = (
    "majority_accuracy", "positive_accuracy", "negative_accuracy", "truth_flagged", "pass@1",
    "push_right", "push_stock_wrong",
)  # fmt: skip


def gold_fields(question: Question, classes: Classes) -> list[dict[str, Any]]:
    """For each completion of a group the fields `gold` and `correct` of its rollout line; empty without gold."""
    if question.gold is None:
        return [{} for _ in classes.class_of_G]
    answer = bare_gold(question.gold)
    if canonical_form(answer) is None:
        return [{"gold": question.gold} for _ in classes.class_of_G]
    right = find_class(classes, answer)
    return [{"gold": question.gold, "correct": right is not None and j == right} for j in classes.class_of_G]


def right_class(classes: Classes, gold: str) -> Truth | None:
    """The right class of a group; None where the gold answer holds nothing to compare with."""
    answer = bare_gold(gold)
    if canonical_form(answer) is None:
        return None
    right = find_class(classes, answer)
    return Truth(None if right is None else classes.keys_K[right])


def bare_gold(gold: str) -> str:
    """Gold as data sets write it: behind `####` as in GSM8K, in a box, or bare."""
    last = gold.rpartition("####")[2].strip() or gold
    return read_boxed(last) or last


def majority_accuracy(tally: Tally, right: int | None) -> float:
    """The chance that the most frequent answer is right, a tie being broken at random; no answer is wrong."""
    if right is None:
        return 0.0
    most = max(tally.counts_K)
    return float(tally.counts_K[right] == most) / tally.counts_K.count(most)


def entropy_auroc(tally: Tally, right: int | None, among: Container[str] | None = None) -> float | None:
    """The share of wrong classes with a higher mean entropy than the right class of the same question (ties half).

    `among` leaves out all other classes; None where the right one, or every wrong one, is not there.
    """
    if right is None or tally.class_entropies_K is None:
        return None
    truth = tally.class_entropies_K[right]
    kept = [j for j, key in enumerate(tally.keys_K) if among is None or key in among]
    wrong = [tally.class_entropies_K[j] for j in kept if j != right]
    if right not in kept or not wrong:
        return None
    return sum((h > truth) + 0.5 * (h == truth) for h in wrong) / len(wrong)
