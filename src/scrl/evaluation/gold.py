"""Gold answers: which class of a group they make right, whether they can be graded, and how right labels are."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from math import fsum
from typing import Any

from scrl.answers.classes import Classes, same_answer
from scrl.answers.forms import canonical_form
from scrl.answers.readers import SOUND, get_reader, read_boxed
from scrl.credit.group_metrics import gives, push
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.errors import InputError
from scrl.records import Credit, Question, Tally, Truth

BOX_READERS = ("boxed", "choice")
ENDINGS = (
    "\\boxed{%s}",
    "Since $\\frac{1}{2} \\cdot 4 = 2$, this holds {for all $n$}.\n\nTherefore, the answer is $\\boxed{%s}$.",
)
"""Typical ends of completions; %s is the answer."""


def bare_gold(gold: str) -> str:
    """Gold as data sets write it: after `####` as in GSM8K, in a box, or bare."""
    last = gold.rpartition("####")[2].strip() or gold
    return read_boxed(last) or last


def gold_key(gold: str) -> str | None:
    """What right answers have in common, however they are spelled; None if it holds nothing to compare with."""
    form = canonical_form(bare_gold(gold))
    return None if form is None else form.key


def right_class(classes: Classes, gold: str | None) -> Truth | None:
    """The right class of a group; None without gold, or if gold holds nothing to compare with."""
    form = None if gold is None else canonical_form(bare_gold(gold), classes.significant_digits)
    return None if form is None else Truth(form.key if form.key in classes.keys_K else None, form.key)


def gold_fields(question: Question, classes: Classes) -> list[dict[str, Any]]:
    """For each completion of a group, the fields `gold` and `correct` of its rollout line; empty without gold."""
    fields = {} if question.gold is None else {"gold": question.gold}
    truth = right_class(classes, question.gold)
    if truth is None:
        return [dict(fields) for _ in classes.class_of_G]
    right = None if truth.key is None else classes.keys_K.index(truth.key)
    return [fields | {"correct": j == right} for j in classes.class_of_G]


# Methods that are trained with gold answers, as an upper bound for those without labels


def truth_for(rule: CreditRule, question: Question, classes: Classes) -> Truth | None:
    """The right class, for a rule that needs the truth; None for all other rules, and without gold."""
    return right_class(classes, question.gold) if "truth" in rule.needs else None


def require_gold(rule: CreditRule, questions: Sequence[Question], source: str = "method") -> None:
    """Refuse a method that needs gold for questions without it, before anything is sampled or written."""
    unknown = [q.id for q in questions if q.gold is None or gold_key(q.gold) is None]
    if "truth" in rule.needs and unknown:
        raise InputError(
            f"{source}: {rule.method.name!r} is told the right answers, and {len(unknown)} of {len(questions)} "
            f"questions have none ({', '.join(unknown[:3])}). Give them gold answers, or use a method that needs none."
        )


# Would gold itself be graded as right?


def gold_problem(questions: Sequence[Question], reader: str) -> str | None:
    """Which gold answers would be graded as wrong if a model wrote them into a box, in words; None: none of them.

    Then the data are wrong or the reader does not suit them, and every number measured on them is too low.
    """
    read = get_reader(reader.removeprefix(SOUND))
    golds = {question.id: bare_gold(question.gold) for question in questions if question.gold is not None}
    answers = {name: [read(ending % gold) for ending in ENDINGS] for name, gold in golds.items()}
    lost = [name for name in golds if any(each is None or not same_answer(each, golds[name]) for each in answers[name])]
    if not lost:
        return None
    return (
        f"{len(lost)} of {len(golds)} would be graded as wrong when a model writes them into a box: "
        f"{', '.join(lost[:10])}{', …' if len(lost) > 10 else ''}. Correct them, or choose another reader than "
        f"{reader!r}."
    )


# Labels against gold: the only place where they meet; nothing here flows back into labels. A value that is not defined,
# such as the accuracy of positive labels where there are none, is None, never 0.

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
