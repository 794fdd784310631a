"""What is wrong is said in words, with the right exit code, no traceback, and nothing half-done left behind."""

import os
import resource
import shutil
from pathlib import Path

import pytest
from line_files import read_lines
from listeners import Listener
from processes import scrl
from runs import SMALL, differences, metrics, no_page, small, state_of, weights
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from scrl.errors import InputError
from scrl.planning.plan import make_plan
from scrl.policy.model_paths import model_folder
from scrl.training.loop import train

EMBEDDED = Path(model_folder("embedded"))


@pytest.fixture
def model(tmp_path):
    """A copy of the embedded model, to be damaged."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "model"))


def assert_refused(tmp_path, *settings, reason, out="run"):
    """The command, which must exit with 2, say why, and leave the folder as it was."""
    before = sorted(path.name for path in tmp_path.iterdir())
    done = scrl("train", *SMALL, *settings, "--out", out, cwd=tmp_path)
    assert reason in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before


# Of all that tests/data, tests/policy and tests/test_config.py refuse, something of each kind
@pytest.mark.parametrize(("settings", "reason"), [
    (["model=model"], "model"),
    (["model=./nowhere"], "model"),
    (["questions=broken.jsonl"], "broken.jsonl:2"),
    (["questions=long.txt"], "'long-1'"),
    (["sampling.max_tokens=250"], "243"),
    (["prompt.max_tokens=5"], "prompt.max_tokens"),
    (["prompt.instruction=Think."], "prompt"),
    (["trained=9"], "trained"),
])  # fmt: skip
def test_what_is_wrong_is_said_and_nothing_is_written(model, tmp_path, settings, reason):
    os.truncate(model / "model.safetensors", 1_000)
    (tmp_path / "broken.jsonl").write_text('{"question": "Compute 1+1."}\n{"question": \n')
    (tmp_path / "long.txt").write_text("Compute 1+1.\nCompute " + "1+" * 150 + "1.\n")
    assert_refused(tmp_path, *settings, reason=reason)


def test_a_plan_refuses_the_held_out_prompts_that_a_run_refuses(tmp_path):
    (tmp_path / "long.txt").write_text("Compute " + "1+" * 150 + "1.\nCompute 1+1.\n")
    settings = (f"evaluation.held_out={tmp_path / 'long.txt'}", "prompt.max_tokens=100")
    config = small(*settings)
    for start in (lambda: make_plan(config), lambda: train(config, tmp_path / "run", Listener())):
        with pytest.raises(InputError, match=r"prompt.max_tokens"):
            start()
    make_plan(small(*settings, "prompt.overlong=drop"))


def test_a_folder_that_exists_is_refused_and_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("precious")
    assert_refused(tmp_path, reason="--out")
    (tmp_path / "run" / "config.yaml").touch()
    assert_refused(tmp_path, reason="--resume")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.yaml", "mine"]


# A disk that is full


def fill_the_disk_at_the_second_step():
    """From then on no file may grow beyond a megabyte; the weights have three."""
    from scrl.cli.progress import PlainProgress

    step = PlainProgress.step

    def and_then(self, metrics, words):
        step(self, metrics, words)
        if metrics["step"] == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    PlainProgress.step = and_then


UNMEASURED = (*SMALL, "evaluation.completions=0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing went wrong with."""
    folder = tmp_path_factory.mktemp("whole")
    assert scrl("train", *UNMEASURED, "--out", "run", cwd=folder, prepare=no_page).returncode == 0
    return folder / "run"


def test_a_full_disk_ends_a_run_in_words_and_leaves_the_checkpoint_before_which_goes_on(tmp_path, whole):
    done = scrl("train", *UNMEASURED, "--out", "run", cwd=tmp_path, prepare=fill_the_disk_at_the_second_step)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "run/checkpoints/" in done.stderr
    assert "Traceback" not in done.stderr
    last = tmp_path / "run" / "checkpoints" / "last"
    assert state_of(tmp_path / "run")["step"] == 1
    AutoModelForCausalLM.from_pretrained(last)
    assert sorted(path.name for path in last.parent.iterdir()) == ["best", "last"]
    resumed = scrl("train", "--resume", "run", cwd=tmp_path, prepare=no_page)
    assert resumed.returncode == 0, resumed.stderr
    assert differences(tmp_path / "run", whole) == []


# Numbers that are none


def test_a_learning_rate_that_breaks_the_model_ends_the_run_in_words(tmp_path):
    done = scrl("train", *SMALL, "optimizer.learning_rate=1e30", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "nan" in done.stderr
    assert "Traceback" not in done.stderr
    assert read_lines(tmp_path / "run" / "metrics.jsonl") == []
    assert (tmp_path / "run" / "report.html").exists()


def test_a_model_that_breaks_later_leaves_the_last_sound_checkpoint(tmp_path, whole):
    done = scrl("train", *UNMEASURED, "--out", "run", cwd=tmp_path, prepare=break_the_loss_at_the_second_step)
    assert done.returncode == 1
    assert "failed" in done.stderr
    assert len(metrics(tmp_path / "run")) == 1
    assert state_of(tmp_path / "run")["step"] == 1
    assert scrl("train", "--resume", "run", cwd=tmp_path, prepare=no_page).returncode == 0
    assert weights(tmp_path / "run") == weights(whole)


def break_the_loss_at_the_second_step():
    """Its first question is learned from, its second gives no number: weights are then in the middle of a step."""
    from scrl.policy.policy import Policy

    gradient, calls = Policy.gradient, []

    def broken(self, rows):
        calls.append(rows)
        first, *others = gradient(self, rows)
        return [first._replace(loss=float("nan")) if len(calls) == 4 else first, *others]

    Policy.gradient = broken


def test_a_start_model_that_is_broken_is_found_at_the_first_completion(model, tmp_path):
    weights_of = load_file(model / "model.safetensors")
    weights_of["model.norm.weight"][3] = float("nan")
    save_file(weights_of, model / "model.safetensors", {"format": "pt"})
    done = scrl("train", *SMALL, "model=model", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "not numbers" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_whose_name_is_not_utf8_is_refused_at_the_start(tmp_path):
    assert_refused(tmp_path, reason="--out", out=os.fsdecode(b"r\xff"))
