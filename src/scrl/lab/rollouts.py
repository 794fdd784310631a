"""`scrl rollouts`: the completions of all questions from a server, into one file."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from scrl.errors import EndpointError
from scrl.lab.endpoint import Endpoint, EndpointListener
from scrl.lab.endpoint_settings import EndpointSettings
from scrl.lab.journal import Journal, Place, open_journal
from scrl.records import Question

SUSPECT_REPEATS = 8
"""A model that is sure repeats itself too; in full sentences, and eight times, hardly."""


class RolloutListener(EndpointListener, Protocol):
    """Follows the completions as well."""

    def progress(self, stored: int, total: int) -> None:
        """This many completions are in the file."""


def sample_rollouts(settings: EndpointSettings, out: Path, listener: RolloutListener) -> int:
    """Add the completions that `out` does not have yet; how many it has then.

    All questions have one completion before any has two. Whatever ends it, the same call goes on.
    """
    loaded = settings.load_questions()
    for note in loaded.notes:
        listener.note(f"{settings.questions}: {note}")
    places = {
        (question.id, number): question for number in range(settings.completions) for question in loaded.questions
    }
    with open_journal(out, settings.drawn_with(), loaded.questions, settings.completions) as journal:
        missing = {place: question for place, question in places.items() if place not in journal.stored}
        listener.progress(len(journal.stored), len(places))
        failures = asyncio.run(_fill(journal, missing, settings, listener))
        if failures:
            question_id, reason = failures[0]
            raise EndpointError(
                f"{out}: {len(failures)} of {len(places)} completions are missing, the first of question "
                f"{question_id!r}: {reason}. The same command asks for them again."
            )
        return len(journal.stored)


@dataclass(slots=True)
class Repeats:
    """Notices a server that says the same again and again, as one does that ignores the temperature."""

    texts: dict[str, str] = field(default_factory=dict)
    """The first completion of each question."""
    number: int | None = 0
    """Completions that repeat it; None once one did not."""

    def is_suspect(self, question_id: str, text: str) -> bool:
        """Whether this one makes it suspect: eight repeats, and nothing else so far."""
        if self.number is None:
            return False
        is_first = question_id not in self.texts
        if self.texts.setdefault(question_id, text) != text:
            self.texts, self.number = {}, None
            return False
        self.number += not is_first
        return self.number == SUSPECT_REPEATS and not is_first


async def _fill(
    journal: Journal, missing: dict[Place, Question], settings: EndpointSettings, listener: RolloutListener
) -> list[tuple[str, str]]:
    """Store what is missing; the failures."""
    rest, total = iter(missing.items()), len(journal.stored) + len(missing)
    repeats = Repeats() if settings.sampling.temperature else None

    async def work(endpoint: Endpoint) -> None:
        for (_, number), question in rest:
            line = await endpoint.complete(question, number)
            if line is not None:
                journal.add(line)
                if repeats is not None and repeats.is_suspect(question.id, line["completion"]):
                    listener.note(
                        "Completions of the same question are word for word the same: does the server draw them? Some "
                        "take the likeliest token whatever the temperature (transformers serve: set do_sample in the "
                        "model's generation_config.json)."
                    )
                listener.progress(len(journal.stored), total)

    num_questions = len({question.id for question in missing.values()})
    async with aclosing(Endpoint(settings, listener, num_questions)) as endpoint:
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(settings.concurrency, len(missing))):
                    workers.create_task(work(endpoint))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
    return endpoint.failures
