"""`scrl rollouts`: completions from any server that speaks OpenAI's protocol."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from scrl.cli.progress import progress_bar
from scrl.cli.words import Words, settings_in
from scrl.errors import ConfigError
from scrl.reporting.text import counted


def rollouts(*words: Words, out: Path) -> None:
    """Draw completions from a server: vLLM, llama.cpp, transformers serve, OpenAI's or any other of its kind.

    Example: scrl rollouts --endpoint http://localhost:8000/v1 --model NAME --questions mine.jsonl -n 32 --out c.jsonl

    The file is one for scrl audit, label and sweep. Requests that fail are retried, and each completion is written
    as it comes: after a stop or a crash the same command goes on, with nothing lost and nothing twice.

    Parameters
    ----------
    words
        The settings.
    out
        The file for the completions, .jsonl, new or begun by this command; what they were drawn with stands beside it.
    """
    from scrl.lab.endpoint_settings import NAMES, build_settings
    from scrl.lab.rollouts import sample_rollouts

    alone, given = settings_in(["--completions" if word == "-n" else word for word in words], NAMES)
    if alone or not {"endpoint", "model", "questions"} <= given.keys():
        got = f"; {alone[0]!r} has no name before it" if alone else ""
        raise ConfigError(f"scrl rollouts: give --endpoint, --model and --questions{got}")
    settings = build_settings(given)
    sampling, console = settings.sampling, Console(highlight=False, markup=False)
    with _followed(console) as lines:
        lines.note(
            f"{settings.model} at {settings.endpoint} on {settings.questions}: {settings.completions} completions a "
            f"question, at most {sampling.max_tokens} tokens, temperature {sampling.temperature}, top-p "
            f"{sampling.top_p}, seed {settings.seed} → {out}"
        )
        try:
            number = sample_rollouts(settings, out, lines)
        except KeyboardInterrupt:
            lines.note(
                f"stopped; {out} has {lines.stored:,} of {lines.total:,} completions, and the same command goes on"
            )
            raise
    again = f"; {counted(lines.retries, 'request')} made again" if lines.retries else ""
    console.print(f"wrote {out}: {number:,} completions{again}. Look at them: scrl audit {out}", soft_wrap=True)


class _Lines:
    """Progress as plain lines, at most one in ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()
        self.stored, self.total, self.retries, self._reason = 0, 0, 0, ""

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=not self._console.is_terminal)

    def progress(self, stored: int, total: int) -> None:
        self.stored, self.total = stored, total
        self._show()

    def retried(self, reason: str) -> None:
        self.retries, self._reason = self.retries + 1, reason
        self._show()

    def _words(self) -> str:
        return f"{counted(self.retries, 'request')} made again, the last after: {self._reason}" if self.retries else ""

    def _show(self) -> None:
        if time.monotonic() - self._last >= 10:
            self._last = time.monotonic()
            self.note("; ".join(filter(None, (f"{self.stored:,} of {self.total:,} completions", self._words()))))


class _Bar(_Lines):
    """The same as a bar."""

    def __init__(self, console: Console, bar: Progress) -> None:
        super().__init__(console)
        self._bar, self._task = bar, bar.add_task("completions", total=None, words="")

    def _show(self) -> None:
        self._bar.update(self._task, completed=self.stored, total=self.total, words=self._words())


@contextmanager
def _followed(console: Console) -> Iterator[_Lines]:
    """A bar on a terminal, lines elsewhere."""
    if not sys.stdout.isatty():
        yield _Lines(console)
        return
    with progress_bar(console) as bar:
        yield _Bar(console, bar)
