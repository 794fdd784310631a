r"""Whether every gold answer would score 1.

A model that knows an answer writes it into a box. If gold itself, written like that, is not read or not found equal to
gold, the data are wrong or the reader does not suit them, and every number measured on them is too low.
"""

from __future__ import annotations

from collections.abc import Sequence

from scrl.answers.classes import same_answer
from scrl.answers.readers import get_reader
from scrl.evaluation.label_quality import bare_gold
from scrl.records import Question

BOX_READERS = ("boxed", "choice")
"""The readers of boxes."""
ENDINGS = (
    "\\boxed{%s}",
    "Since $\\frac{1}{2} \\cdot 4 = 2$, this holds {for all $n$}.\n\nTherefore, the answer is $\\boxed{%s}$.",
)
"""Typical ends of completions; %s is the answer."""


def gold_problem(questions: Sequence[Question], reader: str) -> str | None:
    """Which gold answers would be graded as wrong, in words; None if there are none.

    Gold must be read from every ending, and be equal to gold by the relation that groups votes.
    """
    read = get_reader(reader)
    golds = {question.id: bare_gold(question.gold) for question in questions if question.gold is not None}
    lost = []
    for id_, gold in golds.items():
        answers = [read(ending % gold) for ending in ENDINGS]
        if not all(answer is not None and same_answer(answer, gold) for answer in answers):
            lost.append(id_)
    if not lost:
        return None
    return (
        f"{len(lost)} of {len(golds)} would be graded as wrong when a model writes them into a box: "
        f"{', '.join(lost[:10])}{', …' if len(lost) > 10 else ''}. Correct them, or choose another reader than "
        f"{reader!r}."
    )
