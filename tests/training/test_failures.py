"""What is wrong is said in words, with the right exit code, no traceback, and nothing half-done left behind."""

import json
import os
import resource
import shutil
from pathlib import Path

import pytest
import torch
from processes import scrl
from runs import SMALL, differences, lines, metrics, weights
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from scrl.policy.model_paths import model_folder

EMBEDDED = Path(model_folder("embedded"))


@pytest.fixture
def model(tmp_path):
    """A copy of the embedded model, to be damaged."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "model"))


def refused(tmp_path, *settings, reason):
    """The command, which must exit with 2, say why, and leave the folder as it was."""
    before = sorted(path.name for path in tmp_path.iterdir())
    done = scrl("train", *SMALL, *settings, "--out", "run", cwd=tmp_path)
    assert reason in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before


# The model


def misname_its_kind(model):
    config = model / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"lama"'))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda model: (model / "model.safetensors").unlink(), "model has a config but no weights (*.safetensors)"),
        (lambda model: [path.unlink() for path in model.glob("tokenizer*")], "model cannot be loaded: "),
        (misname_its_kind, "model cannot be loaded: "),
        (lambda model: os.truncate(model / "model.safetensors", 1_000), "model cannot be loaded: "),
    ],
    ids=["no weights", "no tokenizer", "unknown kind", "half its weights"],
)
def test_a_damaged_model_folder_is_refused(model, tmp_path, damage, reason):
    damage(model)
    refused(tmp_path, "model=model", reason=f"model: {reason}")


def test_a_model_that_is_not_there_is_refused(tmp_path):
    refused(tmp_path, "model=./model", reason="model: there is no folder ./model. Give a folder, a hub id")
    refused(tmp_path, "model=nobody/nothing", reason="model: nobody/nothing cannot be loaded: ")


def test_chat_without_a_chat_template_is_refused(model, tmp_path):
    (model / "chat_template.jinja").unlink()
    reason = "prompt.style: 'chat' was asked for, but the tokenizer has no chat template; use 'plain'"
    refused(tmp_path, "model=model", "prompt.style=chat", reason=reason)


def test_a_device_that_is_not_there_is_refused(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("here it is there")
    refused(tmp_path, "compute.device=cuda", reason="compute.device: 'cuda' cannot be used here: ")


# The questions


def test_questions_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    refused(tmp_path, "questions=empty.jsonl", reason="empty.jsonl: is empty")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00\x01\x00")
    refused(tmp_path, "questions=binary.txt", reason="binary.txt:1: has NUL bytes: it is a binary file")
    (tmp_path / "broken.jsonl").write_text('{"question": "Compute 1+1."}\n{"question": \n')
    refused(tmp_path, "questions=broken.jsonl", reason="broken.jsonl:2: is not JSON")
    refused(tmp_path, "questions=nowhere.txt", reason="nowhere.txt: there is no such file")
    refused(tmp_path, "questions=arithmetic:esy", reason="arithmetic:esy: there is no such level. Did you mean 'easy'?")


def test_prompts_longer_than_the_model_can_read_are_refused(tmp_path):
    (tmp_path / "long.txt").write_text("Compute 1+1.\nCompute " + "1+" * 150 + "1.\n")
    reason = (
        "sampling.max_tokens: question 'long-1' has the longest prompt, 304 tokens; with 48 more that is beyond the 256"
    )
    refused(tmp_path, "questions=long.txt", reason=reason)
    refused(tmp_path, "sampling.max_tokens=250", reason="beyond the 256 tokens the model can read. Lower it to 243.")
    refused(
        tmp_path,
        "prompt.max_tokens=5",
        reason="prompt.max_tokens: 6 of 6 prompts have more than 5 tokens, the longest 13",
    )


def test_text_that_the_tokenizer_does_not_know_is_refused(tmp_path):
    refused(tmp_path, "prompt.instruction=Think.", reason="prompt: the tokenizer does not know")


# The settings


def test_wrong_settings_are_refused_by_name(tmp_path):
    reasons = {
        "methd=ttrl": "--methd: there is no such setting. Did you mean --method?",
        "method=scr": "method: unknown method 'scr'. Did you mean 'scrl'?",
        "trained=9": "error: trained: 9 completions of 8 cannot be trained on\n",
        "trackers=[tensorbord]": "trackers: unknown tracker 'tensorbord'. Did you mean 'tensorboard'?",
    }
    for setting, reason in reasons.items():
        refused(tmp_path, setting, reason=reason)
    (tmp_path / "bad.yaml").write_text("model: embedded\nloss: [1,\n  2\nsteps: }\n")
    done = scrl("train", "bad.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr[:30]) == (2, "error: bad.yaml:4: is not YAML")
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_exists_is_refused_and_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("precious")
    done = scrl("train", *SMALL, "--out", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "error: run: exists already; give a new folder with --out\n",
    )
    (tmp_path / "run" / "config.yaml").touch()
    done = scrl("train", *SMALL, "--out", "run", cwd=tmp_path)
    assert (
        done.stderr == "error: run: exists already; go on with that run by --resume, or give a new folder with --out\n"
    )
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


UNMEASURED = (*SMALL, "evaluation.is_off=true")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing went wrong with."""
    folder = tmp_path_factory.mktemp("whole")
    assert scrl("train", *UNMEASURED, "--out", "run", cwd=folder).returncode == 0
    return folder / "run"


def test_a_full_disk_ends_a_run_in_words_and_leaves_the_checkpoint_before_which_goes_on(tmp_path, whole):
    done = scrl("train", *UNMEASURED, "--out", "run", cwd=tmp_path, prepare=fill_the_disk_at_the_second_step)
    assert done.returncode == 1
    assert done.stderr.startswith("failed: run/checkpoints/")
    assert "the checkpoint cannot be written: " in done.stderr
    assert "File too large" in done.stderr
    assert "is intact: run/checkpoints/" in done.stderr
    assert "Traceback" not in done.stderr
    last = tmp_path / "run" / "checkpoints" / "last"
    assert json.loads((last / "trainer_state.json").read_text())["step"] == 1
    AutoModelForCausalLM.from_pretrained(last)
    assert sorted(path.name for path in last.parent.iterdir()) == ["best", "last"]
    resumed = scrl("train", "--resume", "run", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert differences(tmp_path / "run", whole) == []


# Numbers that are none


def test_a_learning_rate_that_breaks_the_model_ends_the_run_in_words(tmp_path):
    done = scrl("train", *SMALL, "optimizer.learning_rate=1e30", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert "nan: training cannot go on. Lower optimizer.learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
    assert lines(tmp_path / "run" / "metrics.jsonl") == []
    assert (tmp_path / "run" / "report.html").exists()


def test_a_model_that_breaks_later_leaves_the_last_sound_checkpoint(tmp_path, whole):
    done = scrl("train", *UNMEASURED, "--out", "run", cwd=tmp_path, prepare=break_the_loss_at_the_second_step)
    assert done.returncode == 1
    assert "failed: the loss is nan" in done.stderr
    assert len(metrics(tmp_path / "run")) == 1
    assert json.loads((tmp_path / "run" / "checkpoints" / "last" / "trainer_state.json").read_text())["step"] == 1
    assert scrl("train", "--resume", "run", cwd=tmp_path).returncode == 0
    assert weights(tmp_path / "run") == weights(whole)


def break_the_loss_at_the_second_step():
    """Its first question is learned from, its second gives no number: weights are then in the middle of a step."""
    from scrl.policy.policy import Policy

    gradient, calls = Policy.gradient, []

    def broken(self, rows):
        calls.append(rows)
        return [*gradient(self, rows), *([{"loss": float("nan")}] if len(calls) == 4 else [])]

    Policy.gradient = broken


def test_a_start_model_that_is_broken_is_found_at_the_first_completion(model, tmp_path):
    weights_of = load_file(model / "model.safetensors")
    weights_of["model.norm.weight"][3] = float("nan")
    save_file(weights_of, model / "model.safetensors", {"format": "pt"})
    done = scrl("train", *SMALL, "model=model", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("failed: the model's outputs are not numbers: its weights are broken.")
    assert "Traceback" not in done.stderr


def test_a_folder_whose_name_is_not_utf8_is_refused_at_the_start(tmp_path):
    done = scrl("train", *SMALL, "--out", os.fsdecode(b"r\xff"), cwd=tmp_path)
    assert done.returncode == 2
    assert "the name of the folder is not UTF-8; give another with --out" in done.stderr
    assert list(tmp_path.iterdir()) == []
