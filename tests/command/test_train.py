"""`scrl train` as a user meets it: one real run of the command, and all that it leaves behind."""

import io
import json
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest
import yaml
from commands import scrl
from line_files import read_lines
from rich.console import Console
from rich.progress import Progress, TextColumn

from scrl.cli.progress import BarProgress, PlainProgress
from scrl.config import RunConfig, read_config
from scrl.metrics import STEP_METRICS

SETTINGS = """\
model: embedded
questions: arithmetic:easy:train:6
method: scrl
steps: 3
questions_per_step: 2
completions: 12
trained: 4
prompt: {instruction: ""}
sampling: {max_tokens: 48}
evaluation: {completions: 4, held_out: "arithmetic:easy:held-out:2"}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, and what was printed."""
    cwd = tmp_path_factory.mktemp("train")
    (cwd / "run.yaml").write_text(SETTINGS)
    words = ("--optimizer.learning-rate", "1e-4", "--checkpoint-every", "2", "seed=3")
    done = scrl("train", "run.yaml", *words, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return cwd / "runs" / "001", done.stdout


def test_a_run_leaves_exactly_these_files(trained):
    folder, _ = trained
    model = {
        "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        "config.yaml", "environment.json", "metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "report.html",
        "answers.jsonl", "answers.csv",
        *(f"checkpoints/{which}/{name}" for which in ("last", "best") for name in model),
        "checkpoints/last/optimizer.pt", "checkpoints/last/trainer_state.json", "checkpoints/last/checkpoint.json",
        "checkpoints/best/checkpoint.json",
    }  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_progress_in_a_terminal_is_a_bar():
    import pty

    ours, theirs = pty.openpty()
    code = (
        "from scrl.cli.progress import show_progress\nwith show_progress(1) as shown:\n    shown.step({}, 'two labels')"
    )
    called = [sys.executable, "-c", code.format("{'step': 0, 'agreement': 0.5, 'entropy_mean': 0.1}")]
    with subprocess.Popen(called, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        with suppress(OSError):  # which is how the end of a terminal is read
            while chunk := os.read(ours, 4096):
                printed += chunk
    assert process.returncode == 0, printed.decode()
    assert "━" in printed.decode()
    assert "1/1" in printed.decode()


def test_the_settings_are_written_out_in_full_and_can_be_used_again(trained):
    folder, _ = trained
    config = read_config(folder / "config.yaml")
    assert (config.seed, config.optimizer.learning_rate) == (3, 1e-4)
    assert (config.checkpoint_every, config.completions) == (2, 12)
    assert yaml.safe_load((folder / "config.yaml").read_text()).keys() == RunConfig.model_fields.keys()
    environment = json.loads((folder / "environment.json").read_text())
    assert environment.keys() >= {"versions", "commit", "device"}
    assert environment["seed"] == 3


def test_the_metrics_have_the_keys_that_were_promised_and_no_others(trained):
    folder, _ = trained
    metrics = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2]
    promised = (
        "step loss reward_mean positive_share negative_answers no_answer_share entropy_only_share entropy_mean "
        "length_mean truncated_share seconds_rollout seconds_credit seconds_update majority_accuracy"
    ).split()
    for line in metrics:
        assert set(promised) <= line.keys() <= STEP_METRICS.keys()
        assert all(isinstance(value, int | float) for value in line.values())
    assert all("positive_accuracy" in line for line in metrics if line["positive_share"] > 0)
    assert all("negative_accuracy" in line for line in metrics if line["negative_answers"] > 0)


def test_the_rollouts_have_one_line_a_completion(trained):
    folder, _ = trained
    rollouts = read_lines(folder / "rollouts.jsonl")
    assert len(rollouts) == 3 * 2 * 12
    assert list(rollouts[0]) == [
        "question_id", "step", "sample", "completion", "entropy", "num_tokens", "finished", "question", "answer_class",
        "label", "reward", "advantage", "gold", "correct",
    ]  # fmt: skip
    groups = {}
    for line in rollouts:
        groups.setdefault((line["step"], line["question_id"]), []).append(line)
    assert len(groups) == 6
    for lines in groups.values():
        assert [line["sample"] for line in lines] == list(range(12))
        assert sum(line["advantage"] is not None for line in lines) == 4  # of which it learned
    metrics = read_lines(folder / "metrics.jsonl")
    for step in range(3):
        mine = [line for line in rollouts if line["step"] == step]
        assert sum(line["num_tokens"] for line in mine) == metrics[step]["tokens"]
        assert sum(line["reward"] for line in mine) / 24 == pytest.approx(metrics[step]["reward_mean"])
        assert sum(line["correct"] for line in mine) / 24 == pytest.approx(metrics[step]["pass@1"])


def test_scrl_label_reads_the_rollouts_and_comes_to_the_same_credit(trained, tmp_path):
    folder, _ = trained
    words = ("--trained", 4, "--seed", 3, "--out", tmp_path / "labels.jsonl")
    done = scrl("label", folder / "rollouts.jsonl", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for mine, theirs in zip(read_lines(folder / "rollouts.jsonl"), read_lines(tmp_path / "labels.jsonl"), strict=True):
        for key in ("question_id", "step", "sample", "answer_class", "label"):
            assert mine[key] == theirs[key]
        assert mine["reward"] == pytest.approx(theirs["reward"], abs=1e-12)
        assert mine["advantage"] == (None if theirs["advantage"] is None else pytest.approx(theirs["advantage"]))


def test_the_evaluations_have_the_keys_that_were_promised(trained):
    folder, _ = trained
    evaluations = read_lines(folder / "evaluations.jsonl")
    measured = [(line["step"], line["benchmark"]) for line in evaluations]
    assert measured == [(0, "stream"), (0, "held-out"), (3, "stream"), (3, "held-out")]
    promised = (
        "step model benchmark questions samples temperature top_p max_tokens pass@1 pass@1_low pass@1_high pass@4 maj@4 "
        "answered truncated entropy_mean"
    ).split()
    for line in evaluations:
        assert set(promised) <= line.keys()
        assert ("entropy_correct" in line) == (line["pass@1"] > 0)
        assert ("entropy_incorrect" in line) == (line["pass@1"] < 1)
        assert (line["model"], line["samples"], line["max_tokens"]) == ("embedded", 4, 48)


@pytest.mark.parametrize("which", ["last", "best"])
def test_a_checkpoint_is_a_plain_model_folder(trained, which):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = trained
    place = folder / "checkpoints" / which
    model = AutoModelForCausalLM.from_pretrained(place)
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokens = tokenizer("Compute 2+3.\n", return_tensors="pt")
    written = model.generate(**tokens, max_new_tokens=48, do_sample=False)
    assert "\\boxed{" in tokenizer.decode(written[0])
    card = (place / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front == {
        "library_name": "transformers", "base_model": "embedded",
        "tags": ["test-time-reinforcement-learning", "label-free", "scrl"],
    }  # fmt: skip
    assert re.search(r"# embedded after [23] steps of scrl", card)
    inside = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert inside == yaml.safe_load((folder / "config.yaml").read_text())


# What is shown while it runs


def step(number):
    return {"step": number, "agreement": 0.5, "entropy_mean": 0.25, "signal_share": 1.0}


def test_elsewhere_than_on_a_terminal_the_first_and_the_last_step_are_lines_and_others_as_time_passes():
    text = io.StringIO()
    listener = PlainProgress(Console(file=text, width=40), 3, "TTRL")
    for number in range(3):
        listener.step(step(number), "2 of 8 questions had a label")
    listener.note("a note that is longer than the forty columns of this console")
    first, last, note = text.getvalue().splitlines()
    assert ("1/3" in first, "3/3" in last, note.endswith("console")) == (True, True, True)
    assert all(figure in last for figure in ("TTRL", "2 of 8", "50%", "0.250"))


def test_on_a_terminal_a_bar_moves():
    console = Console(file=(file := io.StringIO()), width=100, force_terminal=True)
    with Progress(TextColumn("{task.completed}/{task.total} {task.fields[words]}"), console=console) as progress:
        listener = BarProgress(console, 3, "SCRL", progress)
        listener.step(step(1), "all well")
        listener.note("a note")
        (task,) = progress.tasks
        shown = task.fields["words"]
        listener.tokens(7, 512)
    assert (task.completed, task.total, shown) == (2, 3, "50% agree, entropy 0.250; all well")
    assert task.fields["words"] == f"token 7 of at most 512; {shown}"
    assert "SCRL: a note" in file.getvalue()


def test_a_resumption_cannot_be_tried_dry(tmp_path, refusal):
    assert "--dry-run" in refusal("train", "--resume", tmp_path, "--dry-run")
