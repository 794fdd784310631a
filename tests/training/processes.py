"""The `scrl` command in processes that start at once: a server imports torch a single time and forks for each of them.

They are real processes: they have exit codes, get signals and can be killed.
"""

import multiprocessing
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PRELOADED = (
    "scrl.cli.main", "scrl.training.loop", "scrl.reporting.report", "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto", "torch._dynamo", "peft",
)  # fmt: skip
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(_PRELOADED))


@dataclass(frozen=True)
class Done:
    """What a process left behind."""

    code: int
    out: str
    err: str


class Command:
    """`scrl ARGUMENTS`, running; `prepare` is called in the process first."""

    def __init__(self, *arguments, cwd, prepare=None):
        logs = Path(cwd) / "logs"
        logs.mkdir(exist_ok=True)
        number = len(list(logs.glob("*.out")))
        self._logs = logs / f"{number}.out", logs / f"{number}.err"
        words = [str(argument) for argument in arguments]
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the server is started by the first process and inherits it
        self.process = _FORKS.Process(target=_main, args=(words, str(cwd), *map(str, self._logs), prepare))
        self.process.start()

    def signal(self, number):
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.process.pid, number)

    def wait_for(self, is_there, seconds=120):
        """Until something is true, or the process ends."""
        deadline = time.monotonic() + seconds
        while not is_there() and self.process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)

    def finish(self, seconds=240):
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        texts = (log.read_text(encoding="utf-8") if log.exists() else "" for log in self._logs)
        return Done(self.process.exitcode, *texts)  # one that was killed at once wrote no log


def scrl(*arguments, cwd, prepare=None):
    """Run to the end."""
    return Command(*arguments, cwd=cwd, prepare=prepare).finish()


def untraced():
    """Before a process that will get signals: one that comes within coverage's code leaves its lock closed for ever."""
    coverage = sys.modules.get("coverage")
    running = coverage.Coverage.current() if coverage else None
    if running is not None:
        running.stop()


def _main(arguments, cwd, out, err, prepare):
    os.chdir(cwd)
    for stream, name in ((1, out), (2, err)):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream)
        os.close(file)
    from scrl.cli.main import main

    if prepare is not None:
        prepare()
    sys.exit(main(arguments))
