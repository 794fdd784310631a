"""Answers of one group → classes: which of them mean the same.

One relation serves voting, label matching and grading. Equal canonical keys are equal. Two different keys are merged
only when the judge calls them equal, both ways round, *and* equal to exactly the same other keys of the group. That
"same neighbours" rule is symmetric, transitive and blind to the order of the completions by construction, and every
class it makes is one in which the judge called all pairs equal (complete link).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from scrl.answers.forms import Form, canonical_form, may_be_equal
from scrl.answers.judge import Judge, MathVerifyJudge, Pair

MISSING = -1
"""The class index of a completion without an answer."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way in which an answer of a class was written."""

    text: str
    count: int
    key: str
    merged_by: str
    """`form` when its canonical key is the class's own, `judge` when the judge merged its key into the class."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one group, in the order of their keys."""

    keys_K: tuple[str, ...]
    class_of_G: tuple[int, ...]
    """For each completion the index of its class, or MISSING."""
    forms_K: tuple[tuple[Form, ...], ...]
    """The canonical forms merged into each class, in the order of their keys."""
    answers_G: tuple[str | None, ...]
    undecided_pairs: int = 0
    """Pairs of keys that the judge did not decide in time; they count as different."""
    significant_digits: int | None = None

    def audit(self) -> dict[str, tuple[Spelling, ...]]:
        """For each class, which spellings were merged and by whom."""
        spellings: dict[str, list[Spelling]] = {key: [] for key in self.keys_K}
        counts = Counter((index, answer) for index, answer in zip(self.class_of_G, self.answers_G, strict=True))
        for (index, answer), count in counts.items():
            form = canonical_form(answer, self.significant_digits) if answer is not None else None
            if form is None or answer is None:
                continue
            key = self.keys_K[index]
            spellings[key].append(Spelling(answer, count, form.key, "form" if form.key == key else "judge"))
        return {key: tuple(sorted(found, key=lambda s: (-s.count, s.text))) for key, found in spellings.items()}


@cache
def default_judge() -> Judge:
    """The judge that is used when none is given: one for the whole process."""
    return MathVerifyJudge()


def classify(
    answers_G: Sequence[str | None], *, judge: Judge | None = None, significant_digits: int | None = None
) -> Classes:
    """Group answers that mean the same; None and empty answers are missing.

    `significant_digits` rounds real constants before they are compared (physics answers: 3.14 = 3.142 at 3 digits).
    """
    forms_G = [None if answer is None else canonical_form(answer, significant_digits) for answer in answers_G]
    forms: dict[str, Form] = {}
    for form in forms_G:
        if form is not None and (form.key not in forms or not form.is_closed):
            forms[form.key] = form
    class_of_key, undecided = {key: key for key in forms}, 0
    open_pairs = _open_pairs(forms)
    if open_pairs:
        class_of_key, undecided = _merge(forms, open_pairs, _spellings(answers_G, forms_G), judge or default_judge())
    keys_K = tuple(sorted(set(class_of_key.values())))
    index = {key: position for position, key in enumerate(keys_K)}
    members: dict[str, list[Form]] = {key: [] for key in keys_K}
    for key in sorted(forms):
        members[class_of_key[key]].append(forms[key])
    return Classes(
        keys_K=keys_K,
        class_of_G=tuple(MISSING if form is None else index[class_of_key[form.key]] for form in forms_G),
        forms_K=tuple(tuple(members[key]) for key in keys_K),
        answers_G=tuple(answers_G),
        undecided_pairs=undecided,
        significant_digits=significant_digits,
    )


def split_classes(classes: Classes, sizes: Sequence[int]) -> list[Classes]:
    """The classes of several groups that were classified together; equal answers keep equal keys.

    Undecided pairs may lie across groups, so they are those of the first part alone: none is counted twice.
    """
    ends = list(itertools.accumulate(sizes))
    parts = [_part(classes, end - size, end) for size, end in zip(sizes, ends, strict=True)]
    return [replace(part, undecided_pairs=0 if place else part.undecided_pairs) for place, part in enumerate(parts)]


def _part(classes: Classes, first: int, end: int) -> Classes:
    """Some completions with the classes and the forms that they have between them."""
    answers_G, own_G = classes.answers_G[first:end], classes.class_of_G[first:end]
    kept = sorted(set(own_G) - {MISSING})
    place = {index: position for position, index in enumerate(kept)} | {MISSING: MISSING}
    forms = [canonical_form(answer, classes.significant_digits) for answer in answers_G if answer is not None]
    keys = {form.key for form in forms if form is not None}
    return replace(
        classes,
        keys_K=tuple(classes.keys_K[index] for index in kept),
        class_of_G=tuple(place[index] for index in own_G),
        forms_K=tuple(tuple(form for form in classes.forms_K[index] if form.key in keys) for index in kept),
        answers_G=answers_G,
    )


def find_class(classes: Classes, answer: str, *, judge: Judge | None = None) -> tuple[int | None, int]:
    """The class that an answer from outside the group belongs to, and the number of undecided pairs.

    The same relation as in `classify`: its canonical key is in the class, or the judge calls it equal to every key of
    exactly one class. The classes themselves are never changed by what is looked up.
    """
    form = canonical_form(answer, classes.significant_digits)
    if form is None:
        return None, 0
    for index, forms in enumerate(classes.forms_K):
        if any(member.key == form.key for member in forms):
            return index, 0
    candidates = [i for i, forms in enumerate(classes.forms_K) if all(may_be_equal(form, member) for member in forms)]
    if not candidates:
        return None, 0
    spelling = _spellings(classes.answers_G, [
        None if given is None else canonical_form(given, classes.significant_digits) for given in classes.answers_G
    ])  # fmt: skip
    pairs = {i: [_pair(answer, spelling[member.key]) for member in classes.forms_K[i]] for i in candidates}
    verdicts = (judge or default_judge()).compare(itertools.chain.from_iterable(pairs.values()))
    matching = [i for i in candidates if verdicts.equal.issuperset(pairs[i])]
    return (matching[0] if len(matching) == 1 else None), len(verdicts.undecided)


def same_answer(first: str, second: str, *, judge: Judge | None = None, significant_digits: int | None = None) -> bool:
    """Whether two answers mean the same; an empty one equals nothing."""
    classes = classify((first, second), judge=judge, significant_digits=significant_digits)
    return MISSING not in classes.class_of_G and len(classes.keys_K) == 1


def _open_pairs(forms: Mapping[str, Form]) -> list[Pair]:
    if all(form.is_closed for form in forms.values()):
        return []
    return [(a, b) for a, b in itertools.combinations(sorted(forms), 2) if may_be_equal(forms[a], forms[b])]


def _spellings(answers_G: Sequence[str | None], forms_G: Sequence[Form | None]) -> dict[str, str]:
    """For each key the shortest spelling seen, so that the judge's input does not depend on the order."""
    found: dict[str, str] = {}
    for answer, form in zip(answers_G, forms_G, strict=True):
        if answer is not None and form is not None:
            found[form.key] = min(found.get(form.key, answer), answer, key=lambda text: (len(text), text))
    return found


def _merge(
    forms: Mapping[str, Form], open_pairs: list[Pair], spelling: Mapping[str, str], judge: Judge
) -> tuple[dict[str, str], int]:
    """Class key of each key, by the same-neighbours rule; and the number of undecided pairs."""
    asked = {pair: _pair(spelling[pair[0]], spelling[pair[1]]) for pair in open_pairs}
    verdicts = judge.compare(asked.values())
    neighbours: dict[str, set[str]] = {key: {key} for key in forms}
    for (a, b), question in asked.items():
        if question in verdicts.equal:
            neighbours[a].add(b)
            neighbours[b].add(a)
    twins: dict[frozenset[str], str] = {}
    for key in sorted(forms):
        twins.setdefault(frozenset(neighbours[key]), key)
    class_of_key = {key: twins[frozenset(near)] for key, near in neighbours.items()}
    return class_of_key, sum(question in verdicts.undecided for question in asked.values())


def _pair(first: str, second: str) -> Pair:
    return (first, second) if first <= second else (second, first)
