"""Runs on TRL that were damaged or edited before they go on: refused in words, or resumed to the same end."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from listeners import Listener

from scrl.errors import InputError
from scrl.files.checkpoint_file import write_sums

pytest.importorskip("trl")
from trl_runs import left_behind, small

from scrl.engines.trl import run as trl_run

SETTINGS = ("steps=2", "evaluation.held_out=arithmetic:easy:held-out:2:1", "evaluation.questions=2")
LAST = "checkpoints/last"
FILES = (
    "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "scrl_state.json", "checkpoint.json",
)  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after its first step, and the same run whole."""
    folder, as_it_is = tmp_path_factory.mktemp("runs"), trl_run.TrlRun.on_step

    def on_step(self, groups_B, metrics):
        as_it_is(self, groups_B, metrics)
        self.signals.append(2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())
        trl_run.train(small(*SETTINGS), folder / "whole", Listener())
        patch.setattr(trl_run.TrlRun, "on_step", on_step)
        with pytest.raises(KeyboardInterrupt):
            trl_run.train(small(*SETTINGS), folder / "run", Listener())
    return folder


@pytest.fixture
def run(stopped, tmp_path, monkeypatch):
    monkeypatch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())
    return Path(shutil.copytree(stopped / "run", tmp_path / "run"))


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def edit(run, before, after):
    text = (run / "config.yaml").read_text()
    assert before in text
    (run / "config.yaml").write_text(text.replace(before, after, 1))


class Code:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch SPRUNG",)


def hide_code(run):
    torch.save({"state": Code()}, run / LAST / "optimizer.pt")
    write_sums(run / LAST, 1, "")


DAMAGE = {
    **{f"a flipped byte in {name}": lambda run, n=name: flip(run / LAST / n) for name in FILES},
    **{f"{name} is empty": lambda run, n=name: (run / LAST / n).write_bytes(b"") for name in FILES},
    **{f"{name} is gone": lambda run, n=name: (run / LAST / n).unlink() for name in FILES},
    "optimizer.pt is empty, and the sums fit": lambda run: (run / LAST / "optimizer.pt").write_bytes(b"") or write_sums(run / LAST, 1, ""),
    "weights are half, and the sums fit": lambda run: os.truncate(run / LAST / "model.safetensors", 9999) or write_sums(run / LAST, 1, ""),
    "code in optimizer.pt": hide_code,
    "a flipped byte in metrics.jsonl": lambda run: flip(run / "metrics.jsonl"),
    "a flipped byte in rollouts.jsonl": lambda run: flip(run / "rollouts.jsonl"),
    "another seed": lambda run: edit(run, "seed: 0", "seed: 1"),
    "another learning rate": lambda run: edit(run, "learning_rate: 0.0001", "learning_rate: 0.1"),
    "another method": lambda run: edit(run, "method: scrl", "method: ttrl"),
    "other questions": lambda run: edit(run, "easy:train:4", "easy:train:5"),
    "other held-out questions": lambda run: edit(run, "easy:held-out:2:1", "easy:held-out:2:2"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_run_is_refused_in_words_and_nothing_of_it_changes(what, run, monkeypatch):
    monkeypatch.chdir(run)
    DAMAGE[what](run)
    before = {path: path.read_bytes() for path in run.rglob("*.jsonl")}
    with pytest.raises(InputError) as refused:
        trl_run.resume(run, Listener())
    assert "\n" not in str(refused.value)
    assert {path: path.read_bytes() for path in run.rglob("*.jsonl")} == before
    assert not (run / "SPRUNG").exists()


def test_a_stopped_run_goes_on_exactly(run, stopped):
    trl_run.resume(run, Listener())
    assert left_behind(run) == left_behind(stopped / "whole")


@pytest.mark.parametrize(
    "start", [trl_run.resume, lambda run, listener: trl_run.train(small(*SETTINGS), run / "new", listener)]
)
def test_an_error_in_training_is_not_blamed_on_the_checkpoint(start, run, monkeypatch):
    def closed(*_):
        raise EOFError("the server has closed the connection")

    monkeypatch.setattr(trl_run.TrlRun, "on_step", closed)
    with pytest.raises(EOFError, match="has closed the connection"):
        start(run, Listener())


def test_settings_that_may_change_are_followed_and_said(run):
    edit(run, "steps: 2", "steps: 3")
    listener = Listener()
    trl_run.resume(run, listener)
    assert "steps was 2 and is 3" in listener.text
    assert [metrics["step"] for metrics, _ in listener.steps] == [1, 2]
