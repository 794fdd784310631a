"""Gold answers for the one method that is told them, the upper bound for label-free methods."""

from __future__ import annotations

from collections.abc import Sequence

from scrl.answers.classes import Classes, find_class
from scrl.answers.forms import canonical_form
from scrl.credit.rule import CreditRule
from scrl.errors import InputError
from scrl.evaluation.label_quality import bare_gold
from scrl.records import Question, Truth


def truth_for(rule: CreditRule, question: Question, classes: Classes) -> Truth | None:
    """Which class is right, for a rule that needs the truth; None for all other rules, and without gold."""
    if "truth" not in rule.needs or not _has_gold(question):
        return None
    right = find_class(classes, bare_gold(question.gold or ""))
    return Truth(None if right is None else classes.keys_K[right])


def require_gold(rule: CreditRule, questions: Sequence[Question], source: str = "method") -> None:
    """Refuse a method that needs gold for questions without it, before anything is sampled or written."""
    unknown = [question.id for question in questions if not _has_gold(question)]
    if "truth" in rule.needs and unknown:
        raise InputError(
            f"{source}: {rule.method.name!r} is told the right answers, and {len(unknown)} of {len(questions)} "
            f"questions have none ({', '.join(unknown[:3])}). Give them gold answers, or use a method that needs none."
        )


def _has_gold(question: Question) -> bool:
    return question.gold is not None and canonical_form(bare_gold(question.gold)) is not None
