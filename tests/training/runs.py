"""Runs in small, in this process: the embedded model, a few questions, a few tokens."""

import hashlib
import json
import os
import signal
from contextlib import contextmanager

import pytest
from line_files import read_lines
from listeners import Listener

from scrl.config import read_config
from scrl.reporting import report
from scrl.training.guard import FLOORS
from scrl.training.loop import resume, train

SMALL = (
    "model=embedded", "questions=arithmetic:easy:train:6", "method=scrl", "prompt.instruction=", "steps=3",
    "questions_per_step=2", "completions=8", "trained=4", "sampling.max_tokens=48", "optimizer.learning_rate=1e-4", "evaluation.completions=4",
    "checkpoint_every=1",
)  # fmt: skip
"""As settings of `read_config`, and as words of the command."""
GOLD_METRICS = {
    "majority_accuracy", "positive_accuracy", "negative_accuracy", "truth_flagged", "pass@1", "push_right",
    "push_stock_wrong",
}  # fmt: skip


def small(*changes):
    return read_config(None, [*SMALL, *changes])


def do(out, *changes):
    """A whole run in `out`, and who listened to it."""
    listener = Listener()
    return train(small(*changes), out, listener), listener


def go_on(out):
    listener = Listener()
    return resume(out, listener), listener


def no_page():
    """In a process of its own: the page is not drawn, which takes longer than these runs."""
    report.write_report = lambda folders, out: out.touch()


@contextmanager
def no_reports():
    """Drawing the page takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())
        yield


@contextmanager
def any_entropy_is_low():
    """From the second step on it is below 100 times that of the first; with guard.window=1 the guard speaks then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FLOORS, "entropy_mean", (100.0, "entropy has collapsed"))
        yield


def state_of(folder):
    return json.loads((folder / "checkpoints" / "last" / "trainer_state.json").read_text())


def metrics(folder):
    """Without how long it took."""
    steps = read_lines(folder / "metrics.jsonl")
    return [{key: value for key, value in step.items() if not key.startswith("seconds_")} for step in steps]


def weights(folder, which="last"):
    """Of a checkpoint, as a digest of their bytes."""
    return digest(folder / "checkpoints" / which)


def digest(checkpoint):
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(checkpoint.glob("*.safetensors"))]


def left_behind(folder):
    """All that must be the same in two runs that are the same, by name."""
    checkpoints = folder / "checkpoints"
    return {
        "files": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")), "metrics": metrics(folder),
        "rollouts": (folder / "rollouts.jsonl").read_bytes(),
        "evaluations": (folder / "evaluations.jsonl").read_bytes(),
        "state": state_of(folder) | {"files": None, "sums": None},
        "config": (folder / "config.yaml").read_bytes(), "card": (checkpoints / "last" / "README.md").read_bytes(),
        "last": weights(folder), "best": weights(folder, "best"),
    }  # fmt: skip


def differences(folder, other):
    """The names of what is not the same; to be compared with []."""
    one, two = left_behind(folder), left_behind(other)
    return [name for name in one if one[name] != two[name]]


def stop_after_a_step(folder, *settings):
    """As Ctrl-C does."""

    class Stopper(Listener):
        def step(self, metrics, words):
            os.kill(os.getpid(), signal.SIGINT)  # held back until the step is done

    with pytest.raises(KeyboardInterrupt):
        train(small(*settings), folder, Stopper())
    assert len(metrics(folder)) == 1
    (folder / "report.html").unlink()
