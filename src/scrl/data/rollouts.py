"""Rollout files: one sampled completion a line of JSON, in any order.

    {"question_id": "amc-17", "step": 0, "sample": 3, "completion": "…", "entropy": 0.27, "gold": "142", …}

Required: `question_id`, and `completion` or `answer` (somebody's reading; null is a missing answer; it wins). A group
is (step, question_id). Other fields may stand there too. A broken line raises `DataError` with file, line and field.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scrl.data.tables import fault_in_json
from scrl.errors import DataError
from scrl.records import FACTS, UNREAD, Question, Sample, Unread

_LARGEST = 1e100
"""Of a number that means something, so that sums of them are numbers too."""
_SHAPE = 'Each line is one object such as {"question_id": "q1", "completion": "… \\\\boxed{4}", "entropy": 0.3}.'
GroupKey = tuple[int, str]
"""(step, question_id)."""


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

    @property
    def group(self) -> GroupKey:
        """The group this completion belongs to."""
        return (self.step, self.question_id)


@dataclass(slots=True)
class GroupIndex:
    """What the first pass over a file notes down of a group."""

    size: int = 0
    samples: set[int] | None = None
    """The sample numbers seen; None while they come as 0, 1, 2, …"""
    gold: str | None = None

    def has(self, sample: int) -> bool:
        """Whether this sample number was seen."""
        return sample < self.size if self.samples is None else sample in self.samples

    def add(self, sample: int) -> None:
        """Note one completion."""
        if self.samples is None and sample != self.size:
            self.samples = set(range(self.size))
        if self.samples is not None:
            self.samples.add(sample)
        self.size += 1


def rollout_fields(question: Question, step: int, number: int, sample: Sample) -> dict[str, Any]:
    """What every rollout says of a completion that was just drawn; gold and credit are others' to add."""
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


def read_rollouts(path: Path, on_bytes: Callable[[int], None] | None = None) -> Iterator[Rollout]:
    """The completions of a file, line by line; `on_bytes` hears how far the reading has come."""
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if on_bytes is not None:
                    on_bytes(len(raw))
                if raw.strip():
                    yield _parse(raw, path, number)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(path, f"cannot be read: {reason}", number + 1 if number else None) from error


def index_rollouts(
    path: Path,
    *,
    needs: Collection[str] = (),
    method: str = "",
    on_bytes: Callable[[int], None] | None = None,
) -> dict[GroupKey, GroupIndex]:
    """Check every line and count the groups, before anything is written.

    `needs` are the fields that `method` cannot do without in any line: the entropy, or some of FACTS.
    """
    groups: dict[GroupKey, GroupIndex] = {}
    for rollout in read_rollouts(path, on_bytes):
        for name in needs:
            if (rollout.entropy if name == "entropy" else rollout.facts.get(name)) is None:
                raise DataError(
                    path,
                    f"field {_field_of(name)!r} is missing, and method {method!r} needs one for every completion. "
                    "Record it while sampling, or use --method ttrl.",
                    rollout.line,
                )
        _note(groups.setdefault(rollout.group, GroupIndex()), rollout, path)
    if not groups:
        raise DataError(path, "there are no rollouts in this file")
    return groups


def _note(group: GroupIndex, rollout: Rollout, path: Path) -> None:
    sample = group.size if rollout.sample is None else rollout.sample
    if group.has(sample):
        raise DataError(
            path,
            f"sample {sample} of question {rollout.question_id!r} at step {rollout.step} stands here a second time",
            rollout.line,
        )
    if rollout.gold is not None and group.gold not in (None, rollout.gold):
        raise DataError(
            path,
            f"field 'gold' is {rollout.gold!r}, but an earlier line of question {rollout.question_id!r} "
            f"has {group.gold!r}",
            rollout.line,
        )
    group.add(sample)
    group.gold = rollout.gold if rollout.gold is not None else group.gold


def _parse(raw: bytes, path: Path, number: int) -> Rollout:
    try:
        fields = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(path, f"is not UTF-8 text: {error.reason} at byte {error.start}", number) from error
    except json.JSONDecodeError as error:
        raise DataError(path, f"{fault_in_json(error)}. {_SHAPE}", number) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"is not JSON: {error}", number) from error
    if not isinstance(fields, dict):
        raise DataError(path, f"must be a JSON object, found {_kind(fields)}. {_SHAPE}", number)
    try:
        return Rollout(
            line=number,
            question_id=_identifier(fields),
            step=_whole(fields, "step") or 0,
            sample=_whole(fields, "sample"),
            text=_text(fields),
            answer=_answer(fields, "answer") if "answer" in fields else UNREAD,
            entropy=_entropy(fields),
            gold=(_answer(fields, "gold") or "").strip() or None,
            facts=_facts(fields),
        )
    except ValueError as error:
        raise DataError(path, str(error), number) from error


def _identifier(fields: dict[str, Any]) -> str:
    value = fields.get("question_id")
    if value is None:
        raise ValueError(f"field 'question_id' is missing; this line has: {', '.join(fields) or 'no fields'}")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"field 'question_id' must be text or a whole number, found {_kind(value)}")
    return str(value)


def _text(fields: dict[str, Any]) -> str:
    if "completion" not in fields:
        if "answer" in fields:
            return ""
        raise ValueError(
            f"neither field 'completion' nor field 'answer' is there; this line has: {', '.join(fields) or 'no fields'}"
        )
    value = fields["completion"]
    if value is None and "answer" in fields:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"field 'completion' must be text, found {_kind(value)}")
    if "\boxed{" in value:
        raise ValueError("field 'completion' has a backspace before 'oxed{': in JSON a backslash is written \\\\")
    return value


def _answer(fields: dict[str, Any], name: str) -> str | None:
    """Text as it is; a JSON number as its digits (142 and "142" are the same answer)."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value in (math.inf, -math.inf)
        or value != value
    ):
        raise ValueError(f"field {name!r} must be text, a number or null, found {_kind(value)}")
    return str(value)


def _whole(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"field {name!r} must be a whole number from 0 on, found {value!r}")
    return value


def _entropy(fields: dict[str, Any]) -> float | None:
    value = fields.get("entropy")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e-6 <= value < _LARGEST:
        raise ValueError(f"field 'entropy' must be a number ≥ 0 (nats), found {value!r}")
    return float(value)


def _facts(fields: dict[str, Any]) -> dict[str, float]:
    """Those of FACTS that stand there."""
    found = {name: fields.get(_field_of(name)) for name in FACTS}
    for name, value in found.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
        if value is not None and not is_number:
            raise ValueError(f"field {_field_of(name)!r} must be a number, found {value!r}")
    return {name: float(value) for name, value in found.items() if value is not None}


def _field_of(fact: str) -> str:
    """What a line calls it: the length is `num_tokens` there."""
    return "num_tokens" if fact == "length" else fact


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names[type(value)]
