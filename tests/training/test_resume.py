"""A run that was stopped, killed or crashed goes on as if nothing had happened: the same files, the same bits."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from line_files import read_lines
from listeners import Listener
from processes import Command, scrl, untraced
from runs import SMALL, differences, do, go_on, no_page, small, state_of, stop_after_a_step

from scrl.errors import InputError
from scrl.policy.checkpoint import write_optimizer, write_weights
from scrl.training import loop, run_folder
from scrl.training.loop import train
from scrl.training.run_folder import RunFolder

LONGER = (
    *SMALL, "steps=12", "completions=4", "trained=2", "sampling.max_tokens=24", "evaluation.completions=2",
    "checkpoint_every=2", "evaluation.every=5",
)  # fmt: skip
"""Steps enough to be hit by a signal between them."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = scrl("train", *LONGER, "--out", "run", cwd=folder, prepare=no_page)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_stopped_in_its_first_evaluation_leaves_no_checkpoint_and_starts_over(tmp_path, no_report):
    class Stopper(Listener):
        def progress(self, benchmark, questions, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small("steps=1"), tmp_path / "run", Stopper())
    assert not (tmp_path / "run" / "checkpoints" / "last").exists()
    go_on(tmp_path / "run")
    do(tmp_path / "whole", "steps=1")
    assert differences(tmp_path / "run", tmp_path / "whole") == []


def test_a_run_that_was_killed_four_times_equals_one_that_was_not(uninterrupted, tmp_path):
    rng = random.Random(5)
    folder = tmp_path / "run"
    for kill in range(4):
        is_started = (folder / "config.yaml").exists()
        if not is_started:
            shutil.rmtree(folder, ignore_errors=True)
        before = size_of(folder / "metrics.jsonl")
        words = ("--resume", "run") if is_started else (*LONGER, "--out", "run")
        command = Command("train", *words, cwd=tmp_path, prepare=no_page)
        if kill % 2 == 0:  # every second one comes while the run is being loaded, or wherever it is by then
            command.wait_for(lambda before=before: size_of(folder / "metrics.jsonl") > before)
        time.sleep(rng.uniform(0.0, 0.25))
        command.signal(signal.SIGKILL)
        killed = command.finish()
        assert killed.returncode == -signal.SIGKILL or has_finished(killed), killed.stderr
    assert has_finished(scrl("train", "--resume", "run", cwd=tmp_path, prepare=no_page))
    assert differences(folder, uninterrupted) == []


def has_finished(done):
    """Now, or before a kill on a fast machine."""
    return done.returncode == 0 or "has done all its 12 steps" in done.stderr


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def signalled():
    """Before a process that will get signals."""
    untraced()
    no_page()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_saves_itself_and_goes_on_exactly(number, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    command = Command("train", *LONGER, "--out", "run", cwd=tmp_path, prepare=signalled)
    command.wait_for(lambda: size_of(folder / "metrics.jsonl") > 2_000)  # some three steps
    command.signal(number)
    done = command.finish()
    assert done.returncode == 130
    steps = len(read_lines(folder / "metrics.jsonl"))
    assert f"step {steps}; resume with: scrl train --resume run" in done.stdout
    assert "Traceback" not in done.stderr
    assert state_of(folder)["step"] == steps
    assert (folder / "report.html").exists()
    resumed = scrl("train", "--resume", "run", cwd=tmp_path, prepare=no_page)
    assert resumed.returncode == 0, resumed.stderr
    assert f"resuming after step {steps}" in resumed.stdout
    assert differences(folder, uninterrupted) == []


def slow_saving():
    """A checkpoint that takes long enough to be hit by a second signal; where it has begun, a file says so."""
    signalled()

    def write(*arguments):
        Path("saving").touch()
        time.sleep(1)
        write_weights(*arguments)

    loop.write_weights = write  # type: ignore[attr-defined]


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGTERM)])
def test_a_second_signal_while_the_first_ones_checkpoint_is_written_loses_nothing(numbers, tmp_path):
    done = stop_while_saving(tmp_path, numbers).finish()
    assert done.returncode == 130
    steps = len(read_lines(tmp_path / "run" / "metrics.jsonl"))
    assert f"step {steps}; resume with: scrl train --resume run" in done.stdout
    assert state_of(tmp_path / "run")["step"] == steps


def test_a_third_signal_stops_at_once_and_says_what_is_lost(tmp_path):
    done = stop_while_saving(tmp_path, (signal.SIGTERM, signal.SIGINT, signal.SIGINT)).finish()
    assert done.returncode == 130
    assert "steps after 0" in done.stdout
    assert "Traceback" not in done.stderr
    assert scrl("train", "--resume", "run", cwd=tmp_path, prepare=no_page).returncode == 0


def stop_while_saving(folder, numbers):
    """A run of many steps between checkpoints; the first of the signals ends it, the others come while it saves."""
    first, *others = numbers
    settings = (*LONGER, "checkpoint_every=40", "evaluation.completions=0")
    command = Command("train", *settings, "--out", "run", cwd=folder, prepare=slow_saving)
    command.wait_for(lambda: size_of(folder / "run" / "metrics.jsonl") > 0)
    command.signal(first)
    command.wait_for((folder / "saving").exists)
    for number in others:
        command.signal(number)
        time.sleep(0.05)
    return command


class _Snapshots:
    """Copies the folder of a run before each thing that is done to its files: what a kill there would leave behind."""

    def __init__(self, folder, where):
        self.folder, self.where, self.taken, self._last = folder, where, {}, None

    def take(self, name):
        found = {path: path.stat().st_size for path in self.folder.rglob("*")}
        if self.folder / "config.yaml" not in found or found == self._last:
            return
        self._last = found
        place = self.where / f"{len(self.taken):02}"
        shutil.copytree(self.folder, place)
        self.taken[place] = name

    def before(self, name, function):
        def wrapped(*arguments, **options):
            self.take(f"before {name} {[a.name for a in arguments if isinstance(a, Path)]}")
            return function(*arguments, **options)

        return wrapped

    def in_halves(self, append):
        """A file of lines that is killed in the middle of one."""

        def wrapped(folder, name, rows):
            self.take(f"before {name} grows")
            append(folder, name, rows)
            path = folder.path / name
            whole = path.read_bytes()
            path.write_bytes(whole[:-7])
            self.take(f"in the middle of a line of {name}")
            path.write_bytes(whole)

        return wrapped


def test_a_kill_at_any_moment_of_a_steps_writing_leaves_a_run_that_goes_on_exactly(monkeypatch, tmp_path, no_report):
    settings = (*LONGER, "steps=2", "questions=arithmetic:easy:train:2", "checkpoint_every=1", "probe=0")
    do(tmp_path / "whole", *settings)
    snapshots = _Snapshots(tmp_path / "run", tmp_path / "snapshots")
    with monkeypatch.context() as patch:
        for name in ("mkdir", "rename"):
            patch.setattr(Path, name, snapshots.before(name, getattr(Path, name)))
        patch.setattr(run_folder, "_remove", snapshots.before("removing", run_folder._remove))
        patch.setattr(loop, "write_optimizer", snapshots.before("the state is written", write_optimizer))
        patch.setattr(RunFolder, "append", snapshots.in_halves(RunFolder.append))
        do(tmp_path / "run", *settings)
    later = {place: name for place, name in snapshots.taken.items() if (place / "metrics.jsonl").stat().st_size}
    assert len(later) > 15
    for place in later:
        go_on(place)
    broken = {name: differences(place, tmp_path / "whole") for place, name in later.items()}
    assert {name: found for name, found in broken.items() if found} == {}


def test_a_kill_before_the_first_checkpoint_starts_the_run_anew(tmp_path, no_report):
    do(tmp_path / "whole", "steps=1")
    folder = tmp_path / "run"
    shutil.copytree(tmp_path / "whole", folder)
    shutil.rmtree(folder / "checkpoints")
    (folder / "report.html").unlink()
    go_on(folder)
    assert differences(folder, tmp_path / "whole") == []


def test_evaluations_and_the_guard_are_not_skipped_by_a_kill_right_after_a_checkpoint(tmp_path, any_entropy):
    """The checkpoint of step 2 is there; its evaluation, and the guard's look at it, were still to come."""
    settings = ("checkpoint_every=2", "evaluation.every=2", "guard.window=1")
    _, heard = do(tmp_path / "whole", *settings)
    assert "guard, after step 2: " in heard.text

    class Killed(BaseException):
        pass

    folder = tmp_path / "run"
    saved = loop.Run.save_last

    def save_and_die(self):
        saved(self)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Run, "save_last", save_and_die)
        with pytest.raises(Killed):
            train(small(*settings), folder, Listener())
    (folder / "report.html").unlink()
    _, heard = go_on(folder)
    assert "guard, after step 2: " in heard.text
    assert [record["step"] for record in read_lines(folder / "evaluations.jsonl")] == [0, 2]
    assert differences(folder, tmp_path / "whole") == []
    with pytest.raises(InputError, match=r"guard.*step 2"):
        go_on(folder)


@pytest.mark.parametrize(
    "settings",
    [("lora.rank=2", "checkpoint_every=3"), ("loss.kl_weight=0.01",)],
    ids=["adapter", "KL to the start model"],
)
def test_a_run_with_more_to_remember_goes_on_exactly(settings, tmp_path, no_report):
    settings = (*settings, "steps=2", "evaluation.completions=0")
    do(tmp_path / "whole", *settings)
    stop_after_a_step(tmp_path / "run", *settings)
    go_on(tmp_path / "run")
    assert differences(tmp_path / "run", tmp_path / "whole") == []
    with pytest.raises(InputError, match="2 steps"):  # without evaluations, too
        go_on(tmp_path / "run")


@pytest.mark.parametrize("number", [2, 0])
def test_a_run_measured_in_another_way_from_here_on_ends_without_comparing_the_two(number, tmp_path, no_report):
    _, heard = do(tmp_path / "run", "steps=1")
    assert "the start model's was" in heard.text
    config = tmp_path / "run" / "config.yaml"
    text = config.read_text().replace("steps: 1", "steps: 2")
    config.write_text(
        text.replace("evaluation:\n  every: 0\n  completions: 4", f"evaluation:\n  every: 0\n  completions: {number}")
    )
    run, heard = go_on(tmp_path / "run")
    assert f"evaluation.completions was 4 and is {number}" in heard.text
    assert "the start model's was" not in heard.text
    assert (run.state.step, state_of(tmp_path / "run")["step"]) == (2, 2)


def test_what_cannot_be_resumed_is_refused_in_words(uninterrupted, tmp_path):
    shutil.copytree(uninterrupted, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    refused = {
        ("run",): "12 steps",
        ("empty",): "config.yaml",
        ("nowhere",): "nowhere",
        ("run", "steps=20"): "steps was 12 and is 20. Write that into run/config.yaml",
        ("run", "--steps", "20", "--temperature", "0.5"): "sampling.temperature was 1.0 and is 0.5",
        ("run", "--evaluation.every", "3"): "evaluation.every was 5 and is 3",
        ("--out", "new"): "new",
        ("--out", "run"): "12 steps",
        ("--out", "run", "--steps", "12"): "12 steps",
        (): "--out FOLDER",
    }
    for words, reason in refused.items():
        done = scrl("train", "--resume", *words, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert reason in done.stderr
    assert differences(tmp_path / "run", uninterrupted) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "run"]


def test_files_that_were_shortened_since_the_checkpoint_are_not_gone_on_from(tmp_path, no_report):
    stop_after_a_step(tmp_path / "run")
    os.truncate(tmp_path / "run" / "rollouts.jsonl", 10)
    with pytest.raises(InputError, match=r"rollouts\.jsonl"):
        go_on(tmp_path / "run")


@pytest.mark.parametrize("resumes", [False, True])
def test_the_allocator_is_set_up_before_a_model_is_loaded(resumes, tmp_path, monkeypatch):
    order = []

    def load(*_, **__):
        order.append("model")
        raise InputError("that is all")

    monkeypatch.setattr("scrl.training.loop.set_up_allocator", lambda compute: order.append(compute))
    monkeypatch.setattr("scrl.training.base_run.load_model", load)
    with pytest.raises(InputError, match="that is all"):
        loop.open_run(small(), tmp_path / "run", Listener(), resume=resumes)
    assert order == [small().compute, "model"]
