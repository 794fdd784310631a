"""Rollout files: one sampled completion per line of JSON, in any order.

    {"question_id": "amc-17", "step": 0, "sample": 3, "completion": "…", "entropy": 0.27, "gold": "142", …}

Required: `question_id`, and `completion` or `answer`. `answer` is an answer that was read already and takes precedence;
null means that the completion has none. A group is (step, question_id). Other fields are ignored. A broken line raises
`DataError` with file, line and field.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from scrl.files.jsonl import kind
from scrl.records import FACTS, UNREAD, Question, Sample, Unread

_LARGEST = 1e100
"""Numbers stay below this, so that their sums are finite."""
SHAPE = 'Each line is one object such as {"question_id": "q1", "completion": "… \\\\boxed{4}", "entropy": 0.3}.'
GroupKey = tuple[int, str]
"""(step, question_id)."""
ESTIMATE = "entropy_is_estimate"
"""The field that says whether the entropy was estimated from log-probabilities."""
SEVERAL_GOLDS = "has_several_golds"
"""The field that says whether there is no gold because there are several right answers."""
FIELDS = {fact: "num_tokens" if fact == "length" else fact for fact in FACTS}
"""Fact → its field in a file."""


class Rollout(NamedTuple):
    """One line of a rollout file."""

    line: int
    question_id: str
    step: int
    sample: int | None
    text: str
    answer: str | Unread | None
    entropy: float | None
    gold: str | None
    facts: dict[str, float]
    is_finished: bool | None = None
    """Whether it ended by itself; None if the file does not say."""
    is_entropy_estimate: bool = False
    """Whether the entropy was estimated from log-probabilities."""
    has_several_golds: bool = False
    """Whether the file has more than one right answer, which cannot be measured against."""
    question: str = ""
    """The question's text, if the file has it."""

    @property
    def group(self) -> GroupKey:
        return (self.step, self.question_id)


def rollout_fields(question: Question, step: int, number: int, sample: Sample) -> dict[str, Any]:
    """The fields of a new completion; gold and credit are added elsewhere."""
    return {
        "question_id": question.id,
        "step": step,
        "sample": number,
        "completion": sample.text,
        "entropy": sample.entropy,
        "num_tokens": len(sample.tokens_T),
        "finished": sample.is_finished,
        "question": question.text,
        **{name: value for name, value in sample.facts.items() if name != "length"},
    }


def rollout_of(fields: dict[str, Any], line: int) -> Rollout:
    """The rollout with these fields; ValueError if one is wrong."""
    question_id, present = fields.get("question_id"), ", ".join(fields) or "no fields"
    if question_id is None:
        raise ValueError(f"field 'question_id' is missing; this line has: {present}")
    if not isinstance(question_id, str) and (isinstance(question_id, bool) or not isinstance(question_id, int)):
        raise ValueError(f"field 'question_id' must be text or a whole number, found {kind(question_id)}")
    if "completion" not in fields and "answer" not in fields:
        raise ValueError(f"neither field 'completion' nor field 'answer' is there; this line has: {present}")
    text = fields.get("completion")
    if text is None and "answer" in fields:
        text = ""
    if not isinstance(text, str):
        raise ValueError(f"field 'completion' must be text, found {kind(text)}")
    if "\boxed{" in text:
        raise ValueError("field 'completion' has a backspace before 'oxed{': in JSON a backslash is written \\\\")
    entropy = fields.get("entropy")
    if entropy is not None and not (_is_number(entropy) and -1e-6 <= entropy < _LARGEST):
        raise ValueError(f"field 'entropy' must be a number ≥ 0 (nats), found {entropy!r}")
    facts = {name: value for name, field in FIELDS.items() if (value := fields.get(field)) is not None}
    for name, value in facts.items():
        if not (_is_number(value) and abs(value) < _LARGEST):
            raise ValueError(f"field {FIELDS[name]!r} must be a number, found {value!r}")
    is_finished = fields.get("finished")
    if is_finished is not None and not isinstance(is_finished, bool):
        raise ValueError(f"field 'finished' must be true, false or null, found {kind(is_finished)}")
    return Rollout(
        line=line,
        question_id=str(question_id),
        step=_whole_number(fields, "step") or 0,
        sample=_whole_number(fields, "sample"),
        text=text,
        answer=_answer(fields, "answer") if "answer" in fields else UNREAD,
        entropy=None if entropy is None else float(entropy),
        gold=(_answer(fields, "gold") or "").strip() or None,
        facts={name: float(value) for name, value in facts.items()},
        is_finished=is_finished,
        is_entropy_estimate=fields.get(ESTIMATE) is True,
        has_several_golds=fields.get(SEVERAL_GOLDS) is True,
        question=question if isinstance(question := fields.get("question"), str) else "",
    )


def _answer(fields: dict[str, Any], name: str) -> str | None:
    """Text as it is; a JSON number as its digits (142 and "142" are the same answer)."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    if not _is_number(value) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"field {name!r} must be text, a number or null, found {kind(value)}")
    return str(value)


def _whole_number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"field {name!r} must be a whole number from 0 on, found {value!r}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
