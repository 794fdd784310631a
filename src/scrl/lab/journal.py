"""The file of `scrl rollouts`, which grows line by line and can be resumed.

    completions.jsonl            a rollout file: one completion a line, as they came
    completions.settings.json    the settings they were drawn with

A process that is killed leaves half a line at most, which the next one cuts off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from scrl.data.jsonl import parse_json, parse_object
from scrl.data.locks import only_writer
from scrl.data.whole_files import write_whole
from scrl.errors import DataError, InputError
from scrl.records import Question
from scrl.settings import changed_settings

Place = tuple[str, int]
"""(question_id, number of the completion)."""
_OTHERWISE = "or give another file with --out"


@dataclass(frozen=True, slots=True)
class Journal:
    """The file, open; its completions so far."""

    file: IO[bytes]
    stored: set[Place]

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add a completion and flush it, so that a kill loses nothing."""
        line = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        self.file.write(line.encode("utf-8", "replace") + b"\n")  # half a surrogate pair is no text
        self.file.flush()
        self.stored.add((fields["question_id"], fields["sample"]))


@contextmanager
def open_journal(
    path: Path, drawn_with: Mapping[str, Any], questions: Sequence[Question], completions: int
) -> Iterator[Journal]:
    """The file at `path`, new or resumed; refused where its completions answer something else."""
    if path.suffix != ".jsonl" or not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"--out: {path}: give a file NAME.jsonl in a folder that exists")
    settings_file = path.with_suffix(".settings.json")
    with only_writer(path.with_name(f".{path.name}.lock"), f"{path}: another process is writing to this file"):
        stored: set[Place] = set()
        if settings_file.exists() and not path.exists():
            raise InputError(f"{settings_file}: is there without {path.name}; move it away, {_OTHERWISE}")
        has_completions = path.exists() and path.stat().st_size > 0
        if settings_file.exists() or has_completions:
            _check_settings(path, settings_file, drawn_with)
        if has_completions:
            stored, end = _read(path, {question.id: question for question in questions}, completions)
            os.truncate(path, end)
        try:
            with path.open("ab") as file:
                write_whole(settings_file, json.dumps(drawn_with, indent=2) + "\n")
                yield Journal(file, stored)
        finally:
            if not path.stat().st_size:
                path.unlink()
                settings_file.unlink(missing_ok=True)


def _check_settings(path: Path, settings_file: Path, drawn_with: Mapping[str, Any]) -> None:
    if not settings_file.is_file():
        reason = f"exists already, without the settings it was drawn with ({settings_file.name})"
        raise InputError(f"--out: {path}: {reason}; give another file")
    before = parse_json(settings_file.read_bytes(), settings_file)
    changes = "; ".join(words for _, words in changed_settings(before, drawn_with))
    if changes:
        raise InputError(f"--out: {path}: its completions were drawn otherwise: {changes}. Put it back, {_OTHERWISE}.")


def _read(path: Path, questions: Mapping[str, Question], completions: int) -> tuple[set[Place], int]:
    """The completions in the file, and where the last whole line ends."""
    stored: set[Place] = set()
    end = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                break
            end += len(raw)
            fields = parse_object(raw, path, number)
            question_id, sample = fields.get("question_id"), fields.get("sample")
            if not isinstance(question_id, str) or type(sample) is not int:
                raise DataError(path, f"is not what scrl rollouts wrote; remove the line, {_OTHERWISE}", number)
            question = questions.get(question_id)
            if question is None or (question.text, question.gold) != (fields.get("question"), fields.get("gold")):
                reason = f"answers {question_id!r}, {fields.get('question')!r}, which is not in the questions like that"
                raise DataError(path, f"{reason}; put it back, {_OTHERWISE}", number)
            if sample >= completions:
                reason = f"has completion {sample + 1} of {question_id!r}, and --completions is {completions}"
                raise DataError(path, f"{reason}; ask for as many, {_OTHERWISE}", number)
            if (question_id, sample) in stored:
                reason = f"has completion {sample + 1} of {question_id!r} a second time"
                raise DataError(path, f"{reason}; remove the line, {_OTHERWISE}", number)
            stored.add((question_id, sample))
    return stored, end
