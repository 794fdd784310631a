r"""Does every gold answer score 1?

A model that knows an answer writes it into a box. Where gold itself, written like that, is not read or is not found
equal to gold, nobody could ever be right on the question: then the data are wrong, or the reader is not the one for
them, and every number measured on them is too low.
"""

from __future__ import annotations

from collections.abc import Sequence

from scrl.answers.classes import same_answer
from scrl.answers.judge import Judge
from scrl.answers.readers import Reader, get_reader
from scrl.errors import DataError
from scrl.evaluation.label_quality import bare_gold
from scrl.records import Question

BOX_READERS = ("boxed", "choice")
"""Those that read what stands in a box."""
ENDINGS = (
    "\\boxed{%s}",
    "Since $\\frac{1}{2} \\cdot 4 = 2$, this holds {for all $n$}.\n\nTherefore, the answer is $\\boxed{%s}$.",
)
"""How completions end; %s is the answer."""


def check_gold(questions: Sequence[Question], reader: str | Reader, judge: Judge | None = None) -> None:
    """Refuse questions whose gold answer would be graded as wrong; those without gold are passed over."""
    problem = gold_problem(questions, reader, judge)
    if problem is not None:
        raise DataError("gold answers", problem)


def gold_problem(questions: Sequence[Question], reader: str | Reader, judge: Judge | None = None) -> str | None:
    """Which gold answers would be graded as wrong, in words; None where there are none."""
    read = get_reader(reader) if isinstance(reader, str) else reader
    golden = [question for question in questions if question.gold is not None]
    lost = [question.id for question in golden if not _scores(bare_gold(question.gold or ""), read, judge)]
    if not lost:
        return None
    name = f" {reader!r}" if isinstance(reader, str) else " this one"
    return (
        f"{len(lost)} of {len(golden)} would be graded as wrong when a model writes them into a box: "
        f"{', '.join(lost[:10])}{', …' if len(lost) > 10 else ''}. Correct them, or choose another reader than{name}."
    )


def _scores(gold: str, read: Reader, judge: Judge | None) -> bool:
    """Whether gold is read out of every ending, and equal to gold by the relation that groups votes."""
    answers = [read(ending % gold) for ending in ENDINGS]
    return all(answer is not None and same_answer(answer, gold, judge=judge) for answer in answers)
