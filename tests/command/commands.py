"""The `scrl` command as a user starts it, and what it is given."""

import os
import sys

from processes import scrl as scrl  # a process of its own, which starts at once

COMMAND = (sys.executable, "-m", "scrl")


def untraced(**more):
    """The environment of a process that will get signals: one that comes within coverage's code closes its lock for ever."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")} | more


def small_terminal(monkeypatch):
    """Let the output of a command in this process be a terminal of 80 columns, without colours."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def row(question, answer, entropy=0.2, **more):
    return {"question_id": question, "completion": f"So \\boxed{{{answer}}}.", "entropy": entropy} | more
