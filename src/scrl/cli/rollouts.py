"""`scrl rollouts`: completions from any server that speaks OpenAI's protocol."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from scrl.cli.progress import Lines, progress_bar
from scrl.cli.settings import Words, settings_in
from scrl.cli.terminal import plain_console, say
from scrl.errors import ConfigError
from scrl.lab.endpoint_settings import NAMES, build_settings
from scrl.listener import Listener
from scrl.reporting.text import counted


def rollouts(*words: Words, out: Path) -> None:
    """Draw completions from a server: vLLM, llama.cpp, transformers serve, OpenAI's or any other of its kind.

    Example: scrl rollouts --endpoint http://localhost:8000/v1 --model NAME --questions mine.jsonl -n 32 --out c.jsonl

    scrl audit, label and sweep read the file. Requests that fail are retried, and each completion is written
    as it arrives: after a stop or a crash the same command resumes, with nothing lost and nothing drawn twice.

    Parameters
    ----------
    words
        The settings.
    out
        The file for the completions, .jsonl, new or begun by this command; the settings are kept beside it.
    """
    from scrl.lab.rollouts import sample_rollouts

    alone, given = settings_in(["--completions" if word == "-n" else word for word in words], NAMES)
    if alone or not {"endpoint", "model", "questions"} <= given.keys():
        got = f"; {alone[0]!r} follows no option name" if alone else ""
        raise ConfigError(f"scrl rollouts: give --endpoint, --model and --questions{got}")
    settings = build_settings(given)
    sampling, console = settings.sampling, plain_console()
    say(
        console,
        f"{settings.model} at {settings.endpoint} on {settings.questions}: {settings.completions} completions per "
        f"question, at most {sampling.max_tokens} tokens, temperature {sampling.temperature}, top-p "
        f"{sampling.top_p}, seed {settings.seed} → {out}",
    )
    bars: AbstractContextManager[Progress | None] = progress_bar(console) if sys.stdout.isatty() else nullcontext()
    with bars as bar:
        progress = _Progress(console, bar)
        try:
            number = sample_rollouts(settings, out, progress)
        except KeyboardInterrupt:
            stored, total = progress.stored, progress.total
            progress.note(f"stopped; {out} has {stored:,} of {total:,} completions, and the same command resumes")
            raise
    again = f"; {counted(progress.retries, 'request')} made again" if progress.retries else ""
    console.print(f"wrote {out}: {number:,} completions{again}. Look at them: scrl audit {out}", soft_wrap=True)


class _Progress(Lines, Listener):
    """How many completions are stored: a bar, or plain lines."""

    def __init__(self, console: Console, bar: Progress | None) -> None:
        super().__init__(console)
        self._bar, self._task = bar, bar.add_task("completions", total=None, words="") if bar else None
        self.stored, self.total, self.retries, self._words = 0, 0, 0, ""

    def progress(self, _what: str, stored: int, total: int) -> None:
        self.stored, self.total = stored, total
        self._show()

    def retried(self, reason: str) -> None:
        self.retries += 1
        self._words = f"{counted(self.retries, 'request')} made again, the last after: {reason}"
        self._show()

    def _show(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self.stored, total=self.total, words=self._words)
        else:
            self.now_and_then("; ".join(filter(None, (f"{self.stored:,} of {self.total:,} completions", self._words))))
