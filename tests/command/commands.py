"""The `scrl` command as a user starts it, and the files of lines it writes."""

import json
import os
import subprocess
import sys

COMMAND = (sys.executable, "-m", "scrl")


def scrl(*arguments, **options):
    """Run to the end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        **options,
    )


def untraced(**more):
    """The environment of a process that will get signals: one that comes within coverage's code closes its lock for ever."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")} | more


def small_terminal(monkeypatch):
    """Let the output of a command in this process be a terminal of 80 columns, without colours."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
