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

from scrl.data.prompts import PromptSettings, prompt_text, usable_questions
from scrl.errors import InputError
from scrl.planning.plan import make_plan
from scrl.policy.model import load_tokenizer, model_shape
from scrl.policy.model_paths import model_folder
from scrl.records import Question
from scrl.training.base_run import prepare
from scrl.training.loop import train
from scrl.training.run_folder import RunFolder

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
    (["model=model"], "model: model cannot be loaded: "),
    (["model=./nowhere"], "model: there is no folder ./nowhere. Give a folder, a hub id"),
    (["questions=broken.jsonl"], "broken.jsonl:2: is not JSON"),
    (["questions=long.txt"], "question 'long-1' has the longest prompt, 304 tokens; with 48 more that is beyond the 256"),
    (["sampling.max_tokens=250"], "beyond the 256 tokens the model can read. Lower it to 243."),
    (["prompt.max_tokens=5"], "prompt.max_tokens: 6 of 6 prompts have more than 5 tokens, the longest 13"),
    (["prompt.instruction=Think."], "prompt: the tokenizer does not know"),
    (["trained=9"], "error: trained (9) is more than completions (8): lower trained or raise completions\n"),
])  # fmt: skip
def test_what_is_wrong_is_said_and_nothing_is_written(model, tmp_path, settings, reason):
    os.truncate(model / "model.safetensors", 1_000)
    (tmp_path / "broken.jsonl").write_text('{"question": "Compute 1+1."}\n{"question": \n')
    (tmp_path / "long.txt").write_text("Compute 1+1.\nCompute " + "1+" * 150 + "1.\n")
    assert_refused(tmp_path, *settings, reason=reason)


@pytest.mark.parametrize("texts", [("What is it?", "Compute 1+1."), ("Compute 1+1.", "What is it?")])
def test_every_prompt_is_looked_at_for_tokens_that_the_model_does_not_know(texts):
    questions = [Question(text[:4], text) for text in texts]
    tokenizer = load_tokenizer(str(EMBEDDED), trust_remote_code=False)
    with pytest.raises(InputError) as error:
        usable_questions(questions, tokenizer, PromptSettings(), model_shape(str(EMBEDDED)), 48)
    first = "prompt: the tokenizer does not know some tokens of 1 of 2 prompts, first that of question 'What', 'What is"
    assert str(error.value).startswith(first)


def test_a_plan_refuses_the_held_out_prompts_that_a_run_refuses(tmp_path):
    (tmp_path / "long.txt").write_text("Compute " + "1+" * 150 + "1.\nCompute 1+1.\n")
    settings = (f"evaluation.held_out={tmp_path / 'long.txt'}", "prompt.max_tokens=100")
    config = small(*settings)
    for start in (lambda: make_plan(config), lambda: train(config, tmp_path / "run", Listener())):
        with pytest.raises(InputError, match=r"prompt.max_tokens: 1 of 2 prompts have more than"):
            start()
    lines = make_plan(small(*settings, "prompt.overlong=drop")).lines
    assert any("they are left out (prompt.overlong: drop)" in line for line in lines)


def test_an_instruction_that_is_left_out_is_said_once(tmp_path):
    (tmp_path / "q.txt").write_text("Compute 1+1.\nCompute 1+2.\n")
    listener, source = Listener(), str(tmp_path / "q.txt")
    config = small(f"questions={source}", f"evaluation.held_out={source}", "prompt.instruction=null")
    base = prepare(config, RunFolder(tmp_path / "run"), listener, config.compute)
    assert listener.notes == [
        "questions are asked without an instruction: the tokenizer does not know the words of the usual one"
    ]
    tokenizer = base.language_model.tokenizer
    assert prompt_text(base.stream.questions[0], tokenizer, base.config.prompt) == "Compute 1+1.\n"


def test_a_folder_that_exists_is_refused_and_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("precious")
    done = scrl("train", *SMALL, "--out", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: run: exists already; give a new folder with --out\n"
    (tmp_path / "run" / "config.yaml").touch()
    said = scrl("train", *SMALL, "--out", "run", cwd=tmp_path).stderr
    assert said == "error: run: exists already; resume that run with --resume, or give a new folder with --out\n"
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
    assert done.stderr.startswith("failed: run/checkpoints/")
    assert "the checkpoint cannot be written: " in done.stderr
    assert "File too large" in done.stderr
    assert "is intact: run/checkpoints/" in done.stderr
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
    assert "nan: training cannot continue. Lower optimizer.learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
    assert read_lines(tmp_path / "run" / "metrics.jsonl") == []
    assert (tmp_path / "run" / "report.html").exists()


def test_a_model_that_breaks_later_leaves_the_last_sound_checkpoint(tmp_path, whole):
    done = scrl("train", *UNMEASURED, "--out", "run", cwd=tmp_path, prepare=break_the_loss_at_the_second_step)
    assert done.returncode == 1
    assert "failed: the loss is nan" in done.stderr
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
    assert done.stderr.startswith("failed: the model's outputs are not numbers: its weights are broken.")
    assert "Traceback" not in done.stderr


def test_a_folder_whose_name_is_not_utf8_is_refused_at_the_start(tmp_path):
    reason = "the name of the folder is not UTF-8; give another with --out"
    assert_refused(tmp_path, reason=reason, out=os.fsdecode(b"r\xff"))
