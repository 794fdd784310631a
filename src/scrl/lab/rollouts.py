"""`scrl rollouts`: the completions of all questions from a server, into one file that can be resumed.

    completions.jsonl            a rollout file: one completion per line, in the order they arrive
    completions.settings.json    the settings they were drawn with

A process that is killed leaves half a line at most, which the next one cuts off.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from scrl.errors import DataError, EndpointError, InputError
from scrl.files.jsonl import parse_object, read_object
from scrl.files.whole_files import only_writer, write_whole
from scrl.lab.endpoint import Endpoint
from scrl.lab.endpoint_settings import EndpointSettings
from scrl.listener import Listener
from scrl.records import Question
from scrl.settings import changed_settings

CompletionKey = tuple[str, int]
"""(question_id, number of the completion)."""
_OTHERWISE = "or give another file with --out"
SUSPECT_REPEATS = 8
"""A confident model repeats itself too, but hardly eight times in full sentences."""
REPEATS_NOTE = (
    "Completions of the same question are word for word the same: is the server sampling at all? Some take the "
    "likeliest token whatever the temperature (transformers serve: set do_sample in generation_config.json)."
)


def sample_rollouts(settings: EndpointSettings, out: Path, listener: Listener) -> int:
    """Add the completions that `out` does not have yet; returns how many it then has.

    Every question gets one completion before any gets two. However this ends, the same call resumes it.
    """
    loaded = settings.load_questions()
    for note in loaded.notes:
        listener.note(f"{settings.questions}: {note}")
    total = settings.completions * len(loaded.questions)
    with open_journal(out, settings.drawn_with(), loaded.questions, settings.completions) as journal:
        listener.progress("completions", len(journal.stored), total)
        failures = asyncio.run(_fill(journal, loaded.questions, settings, listener))
        if failures:
            question_id, reason = failures[0]
            missing = f"{len(failures)} of {total} completions are missing, the first of question {question_id!r}"
            raise EndpointError(f"{out}: {missing}: {reason}. The same command asks for them again.")
        return len(journal.stored)


async def _fill(
    journal: Journal, questions: Sequence[Question], settings: EndpointSettings, listener: Listener
) -> list[tuple[str, str]]:
    total, stored = settings.completions * len(questions), frozenset(journal.stored)
    places = ((question, number) for number in range(settings.completions) for question in questions)
    missing = ((question, number) for question, number in places if (question.id, number) not in stored)
    texts: dict[str, str] = {}
    repeats: list[bool] = []

    async def work(endpoint: Endpoint) -> None:
        for question, number in missing:
            line = await endpoint.complete(question, number)
            if line is not None:
                journal.add(line)
                if question.id in texts and len(repeats) < SUSPECT_REPEATS:
                    repeats.append(texts[question.id] == line["completion"])
                    if settings.sampling.temperature and len(repeats) == SUSPECT_REPEATS and all(repeats):
                        listener.note(REPEATS_NOTE)
                texts.setdefault(question.id, line["completion"])
                listener.progress("completions", len(journal.stored), total)

    have = Counter(question_id for question_id, _ in stored)
    num_questions = sum(have[question.id] < settings.completions for question in questions)
    async with aclosing(Endpoint(settings, listener, num_questions)) as endpoint:
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(settings.concurrency, total - len(stored))):
                    workers.create_task(work(endpoint))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
    return endpoint.failures


# The file


@dataclass(frozen=True, slots=True)
class Journal:
    """The open file, and the completions in it."""

    file: IO[bytes]
    stored: set[CompletionKey]

    def add(self, fields: Mapping[str, Any]) -> None:
        """Add a completion and flush it, so that a kill loses nothing."""
        line = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        self.file.write(line.encode("utf-8", "replace") + b"\n")  # half a surrogate pair is not text
        self.file.flush()
        self.stored.add((fields["question_id"], fields["sample"]))


@contextmanager
def open_journal(
    path: Path, drawn_with: Mapping[str, Any], questions: Sequence[Question], completions: int
) -> Iterator[Journal]:
    """The file at `path`, new or resumed; refused if its completions were drawn for something else."""
    if path.suffix != ".jsonl" or not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise InputError(f"--out: {path}: give a file NAME.jsonl in a folder that exists")
    settings_file = path.with_suffix(".settings.json")
    with only_writer(path.with_name(f".{path.name}.lock"), f"{path}: another process is writing to this file"):
        stored: set[CompletionKey] = set()
        if settings_file.exists() and not path.exists():
            raise InputError(f"{settings_file}: exists without {path.name}; move it away, {_OTHERWISE}")
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
    changes = "; ".join(words for _, words in changed_settings(read_object(settings_file), drawn_with))
    if changes:
        reason = f"its completions were drawn with other settings: {changes}"
        raise InputError(f"--out: {path}: {reason}. Put it back, {_OTHERWISE}.")


def _read(path: Path, questions: Mapping[str, Question], completions: int) -> tuple[set[CompletionKey], int]:
    """The completions in the file, and where the last whole line ends."""
    stored: set[CompletionKey] = set()
    end = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.endswith(b"\n"):
                break
            end += len(raw)
            fields = parse_object(raw, path, number)
            question_id, sample = fields.get("question_id"), fields.get("sample")
            reason = None
            if not isinstance(question_id, str) or type(sample) is not int or sample < 0:
                raise DataError(path, f"is not what scrl rollouts wrote; remove the line, {_OTHERWISE}", number)
            question = questions.get(question_id)
            if question is None or (question.text, question.gold) != (fields.get("question"), fields.get("gold")):
                answered = f"{question_id!r}, {fields.get('question')!r}"
                reason = f"holds a completion of {answered}, which is not asked; put that question back"
            elif sample >= completions:
                reason = f"has completion {sample + 1} of {question_id!r}; ask for as many (--completions)"
            elif (question_id, sample) in stored:
                reason = f"has completion {sample + 1} of {question_id!r} twice; remove the line"
            if reason is not None:
                raise DataError(path, f"{reason}, {_OTHERWISE}", number)
            stored.add((question_id, sample))
    return stored, end
