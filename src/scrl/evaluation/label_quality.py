"""Labels against gold: how often is consensus right, and what do the rules do about it?

The only place where gold answers meet labels; nothing here flows back into them. A value that is not defined, such as
the accuracy of positive labels where there are none, is None, never 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from math import fsum

from scrl.credit.group_metrics import gives, push
from scrl.credit.rule import CreditedGroup
from scrl.evaluation.gold import right_class
from scrl.records import Credit, Tally, Truth

FIGURES = (
    "majority_accuracy", "positive_accuracy", "negative_accuracy", "truth_flagged", "entropy_auroc", "pass@1", "pass@n",
    "push_right", "push_stock_wrong",
)  # fmt: skip
_NOT_OF_A_STEP = ("entropy_auroc", "pass@n")


def label_quality(groups: Iterable[tuple[Credit, Truth]]) -> dict[str, float | None]:
    """The means of FIGURES over groups with their right classes, exactly rounded."""
    values_by_name: dict[str, list[float]] = {name: [] for name in FIGURES}
    for credit, truth in groups:
        for name, value in _figures(credit, truth):
            values_by_name[name].append(value)
    return {name: fsum(values) / len(values) if values else None for name, values in values_by_name.items()}


def _figures(credit: Credit, truth: Truth) -> Iterator[tuple[str, float]]:
    """The figures defined for one group; pushes towards stock answers only where these are known."""
    tally, labels, stock = credit.tally, credit.labels, set(credit.stock)
    keys = {truth.key, truth.gold} - {None}  # votes of others may know the right answer where no completion gives it
    right = None if truth.key is None else tally.keys_K.index(truth.key)
    votes = 0 if right is None else tally.counts_K[right]
    yield "majority_accuracy", majority_accuracy(tally, right)
    if labels.positive is not None:
        yield "positive_accuracy", labels.positive in keys
    yield from (("negative_accuracy", negative not in keys) for negative in labels.negatives)
    if truth.key is not None or keys & labels.negatives:
        yield "truth_flagged", bool(keys & labels.negatives)
    if (auroc := entropy_auroc(tally, right)) is not None:
        yield "entropy_auroc", auroc
    yield "pass@1", votes / tally.size
    yield "pass@n", votes > 0
    yield "push_right", push(credit, gives(tally, (truth.key,)))
    if stock:
        yield "push_stock_wrong", push(credit, gives(tally, stock - {truth.key}))


def step_label_quality(groups_B: Sequence[CreditedGroup]) -> dict[str, float]:
    """How right the labels of one training step are, for `metrics.jsonl`; empty where no question has gold."""
    truths = ((group.credit, right_class(group.classes, group.sampled.question.gold)) for group in groups_B)
    quality = label_quality((credit, truth) for credit, truth in truths if truth is not None)
    return {name: value for name, value in quality.items() if value is not None and name not in _NOT_OF_A_STEP}


def majority_accuracy(tally: Tally, right: int | None) -> float:
    """The chance that the most frequent answer is right, a tie being broken at random; no answer is wrong."""
    if right is None:
        return 0.0
    most = max(tally.counts_K)
    return float(tally.counts_K[right] == most) / tally.counts_K.count(most)


def entropy_auroc(tally: Tally, right: int | None, among: Container[str] | None = None) -> float | None:
    """The share of wrong classes with a higher mean entropy than the right class of the same question (ties half).

    `among` leaves out all other classes; None if the right one, or every wrong one, is missing.
    """
    entropies_K = tally.class_entropies_K
    if right is None or entropies_K is None:
        return None
    kept = [j for j, key in enumerate(tally.keys_K) if among is None or key in among]
    wrong = [entropies_K[j] for j in kept if j != right]
    if right not in kept or not wrong:
        return None
    return sum((h > entropies_K[right]) + 0.5 * (h == entropies_K[right]) for h in wrong) / len(wrong)
