"""Gold answers: which class of a group they make right, and whether they can be graded at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scrl.answers.classes import Classes, same_answer
from scrl.answers.forms import canonical_form
from scrl.answers.readers import get_reader, read_boxed
from scrl.credit.rule import CreditRule
from scrl.errors import InputError
from scrl.records import Question, Truth

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
    unknown = [q.id for q in questions if q.gold is None or canonical_form(bare_gold(q.gold)) is None]
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
    read = get_reader(reader)
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
