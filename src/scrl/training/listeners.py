"""Receivers of the progress of a run."""

from __future__ import annotations

import logging
from typing import Any, Protocol

_LOG = logging.getLogger("scrl")


class RunListener(Protocol):
    """Receives what a run does: notes, steps and evaluations."""

    def note(self, text: str) -> None:
        """Something a user should know."""

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """A step is done."""

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        """This many questions of an evaluation have their completions."""

    def evaluation(self, record: dict[str, Any]) -> None:
        """An evaluation is done."""


class Silent:
    """Shows nothing; notes go to the log named `scrl`."""

    def note(self, text: str) -> None:
        """Log it."""
        _LOG.warning(text)

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """Log it, for those who ask for it."""
        _LOG.info("step %d: %s", metrics["step"] + 1, words)

    def evaluation(self, record: dict[str, Any]) -> None:
        """Log it, for those who ask for it."""
        _LOG.info("evaluation: %s", {key: value for key, value in record.items() if not isinstance(value, dict)})

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        """Log it, for those who ask for it."""
        _LOG.info("%s: %d of %d questions", benchmark, questions, total)

    result = evaluation
    """Of a benchmark of `scrl evaluate`."""
