"""What follows a run or an evaluation: by itself it shows nothing, and the commands' own show it to the user."""

from __future__ import annotations

import logging
from typing import Any

_LOG = logging.getLogger("scrl")


class Listener:
    """Receives notes, steps and results. Notes go to the log named `scrl` as warnings, all else at level INFO."""

    def note(self, text: str) -> None:
        """Something a user should know."""
        _LOG.warning(text)

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """A training step is done."""
        _LOG.info("step %d: %s", metrics["step"] + 1, words)

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        """This many questions of an evaluation have their completions; or this many completions came from a server."""
        _LOG.info("%s: %d of %d", benchmark, questions, total)

    def retried(self, reason: str) -> None:
        """A request to a server will be made again."""
        _LOG.info("retried: %s", reason)

    def tokens(self, done: int, most: int) -> None:
        """The completions being drawn have this many tokens."""

    def evaluation(self, record: dict[str, Any]) -> None:
        """An evaluation is done: one within a run, or a benchmark of `scrl evaluate`."""
        _LOG.info("evaluation: %s", {key: value for key, value in record.items() if not isinstance(value, dict)})
