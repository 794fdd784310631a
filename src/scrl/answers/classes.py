"""Answers of one group → classes: which of them mean the same.

One relation serves voting, label matching and grading: equal canonical keys are equal answers. So it is symmetric and
transitive, and looks neither at the order of the completions nor at the other answers of the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scrl.answers.forms import canonical_form, spelling_of

MISSING = -1
"""The class index of a completion without an answer."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One of the ways in which the answer of a class was written."""

    text: str
    count: int
    merged_by: str
    """What made its key that of the class: `spelling` (only typed differently), `exact` arithmetic, `fingerprint` (the
    same values at points) or `words`; empty for the most frequent spelling."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one group, in the order of their keys."""

    keys_K: tuple[str, ...]
    class_of_G: tuple[int, ...]
    """For each completion the index of its class, or MISSING."""
    answers_G: tuple[str | None, ...]
    significant_digits: int | None = None

    def audit(self) -> dict[str, tuple[Spelling, ...]]:
        """For each class the spellings that were merged, the most frequent first."""
        spellings: dict[str, list[Spelling]] = {key: [] for key in self.keys_K}
        votes = Counter(zip(self.class_of_G, self.answers_G, strict=True))
        for (index, answer), count in sorted(votes.items(), key=lambda vote: (-vote[1], vote[0][1] or "")):
            if answer is not None and index != MISSING:
                merged = spellings[self.keys_K[index]]
                is_respelled = bool(merged) and spelling_of(answer) == spelling_of(merged[0].text)
                form = canonical_form(answer, self.significant_digits)
                decided_by = "spelling" if is_respelled or form is None else form.decided_by
                merged.append(Spelling(answer, count, decided_by if merged else ""))
        return {key: tuple(merged) for key, merged in spellings.items()}


def classify(answers_G: Sequence[str | None], *, significant_digits: int | None = None) -> Classes:
    """Group answers that mean the same; None and empty answers are missing.

    `significant_digits` rounds real constants before they are compared (physics answers: 3.14 = 3.142 at 3 digits).
    """
    forms_G = [None if answer is None else canonical_form(answer, significant_digits) for answer in answers_G]
    keys_K = tuple(sorted({form.key for form in forms_G if form is not None}))
    index = {key: position for position, key in enumerate(keys_K)}
    return Classes(
        keys_K=keys_K,
        class_of_G=tuple(MISSING if form is None else index[form.key] for form in forms_G),
        answers_G=tuple(answers_G),
        significant_digits=significant_digits,
    )


def find_class(classes: Classes, answer: str) -> int | None:
    """The class that an answer from outside the group belongs to, if any."""
    form = canonical_form(answer, classes.significant_digits)
    return classes.keys_K.index(form.key) if form is not None and form.key in classes.keys_K else None


def same_answer(first: str, second: str, *, significant_digits: int | None = None) -> bool:
    """Whether two answers mean the same; an empty one equals nothing."""
    return find_class(classify((first,), significant_digits=significant_digits), second) == 0
