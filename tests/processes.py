"""The `scrl` command in processes that start at once: a server imports torch a single time and forks for each of them.

They are real processes: they have exit codes, get signals and can be killed.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess

_PRELOADED = (
    "scrl.cli.main", "scrl.cli.label", "scrl.training.loop", "scrl.reporting.report", "scrl.recipes.demo",
    "transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto", "torch._dynamo", "peft",
)  # fmt: skip
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(_PRELOADED))
_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.symlink", "shutil.rmtree"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Command:
    """`scrl ARGUMENTS`, running; `prepare` is called in the process first. A run's page has no plots: they take longer."""

    def __init__(self, *arguments, cwd=".", prepare=None):
        self._logs = tempfile.TemporaryDirectory()
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the server is started by the first process and inherits it
        words = [str(argument) for argument in arguments]
        given = (words, str(cwd), self._logs.name, dict(os.environ), prepare)
        self.process = _FORKS.Process(target=_main, args=given)
        self.process.start()

    def signal(self, number):
        with suppress(ProcessLookupError):  # it has ended
            os.kill(self.process.pid, number)

    def wait_for(self, is_there, seconds=600):
        """Until something is true, or the process ends."""
        deadline = time.monotonic() + seconds
        while not is_there() and self.process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)

    def finish(self, seconds=600):
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        with self._logs as folder:
            logs = [Path(folder) / name for name in ("1", "2")]  # one that was killed at once wrote none
            texts = [log.read_text(encoding="utf-8") if log.exists() else "" for log in logs]
        return CompletedProcess((), self.process.exitcode, *texts)


def scrl(*arguments, seconds=600, **options):
    """Run to the end."""
    return Command(*arguments, **options).finish(seconds)


def die_at(number, folder):
    """Kill this process right before it changes the files of `folder` for the `number`-th time."""
    count = 0

    def hook(event, arguments):
        nonlocal count
        if event not in _EVENTS or not str(arguments[0]).startswith(folder):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
            return
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def untraced():
    """Before a process that will get signals: one that comes within coverage's code leaves its lock closed for ever."""
    coverage = sys.modules.get("coverage")
    running = coverage.Coverage.current() if coverage else None
    if running is not None:
        running.stop()


def _end_with_parent():
    """A test that was killed leaves no command running."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _main(arguments, cwd, logs, environment, prepare):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for stream in (1, 2):
        file = os.open(f"{logs}/{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream)
        os.close(file)
    from scrl.cli.main import main
    from scrl.reporting import report

    vars(report)["draw_plots"] = lambda runs: []
    if prepare is not None:
        prepare()
    sys.exit(main(arguments))
