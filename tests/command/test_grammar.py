"""One grammar: the names people touch work, and mean the same, in every command that has use for them."""

import io
import re

import pytest
import yaml
from commands import row
from line_files import write_lines
from rich.console import Console

from scrl.cli.main import app
from scrl.config import NAMES
from scrl.setting_names import as_option

STREAM = "arithmetic:easy:train:2"
TOUCHED = "model questions method steps completions trained max_tokens temperature learning_rate seed"


@pytest.fixture
def rollouts(tmp_path):
    return write_lines(tmp_path / "rollouts.jsonl", [row("q", n % 2, entropy=0.5) for n in range(4)])


RUN = (
    "--model embedded --questions arithmetic:easy --method ttrl --steps 3 --completions 8 --trained 4 --max-tokens 48 "
    "--temperature 0.5 --learning-rate 1e-4 --seed 3"
).split()
LONG = (
    "--model=embedded questions=arithmetic:easy --method ttrl --steps 3 --completions 8 --trained 4 "
    "--sampling.max_tokens 48 --sampling.temperature 0.5 --optimizer.learning-rate 1e-4 --seed 3"
).split()


@pytest.mark.parametrize("words", [("train", "--dry-run"), ("plan",)], ids=" ".join)
def test_train_and_plan_take_them_all(call, words):
    code, short, err = call(*words, *RUN, "--out", "new")
    assert (code, err) == (0, "")
    assert call(*words, *LONG) == (0, short, "")
    assert "ttrl: 8 questions × 8 completions → 4 trained" in short


def test_evaluate_takes_those_of_a_measurement(call, tmp_path):
    new = ("--model", "embedded", "--questions", STREAM, "--completions", 2, "--max-tokens", 24, "--temperature", 0.5)
    old = ("embedded", STREAM, "--samples", 2, "--sampling.max-tokens", 24, "--temperature=0.5")
    mixed = ("--trust-remote-code", "embedded", "--questions", STREAM, "--completions", 2, "--max_tokens", 24)
    for name, words in {"new": new, "old": old, "mixed": (*mixed, "--sampling.temperature", 0.5)}.items():
        assert call("evaluate", *words, "--seed", 3, "--compute.sampler-rows", 16, "--out", name)[0] == 0
        settings = yaml.safe_load((tmp_path / name / "evaluation.yaml").read_text())
        assert (settings["model"], settings["benchmarks"], settings["samples"]) == ("embedded", [STREAM], 2)
        assert settings["sampling"] | {"max_tokens": 24, "temperature": 0.5, "top_p": 0.95} == settings["sampling"]
        assert (settings["seed"], settings["compute"]["sampler_rows"]) == (3, 16)
    call("evaluate", "embedded", "--questions", STREAM, "--questions", "arithmetic:hard:train:2", *new[4:], "--k", 1, "--k", 2,
         "--out", "two")  # fmt: skip
    settings = yaml.safe_load((tmp_path / "two" / "evaluation.yaml").read_text())
    assert (settings["benchmarks"], settings["ks"]) == ([STREAM, "arithmetic:hard:train:2"], [1, 2])


def test_answers_takes_them_for_a_model_and_refuses_them_for_a_run(call, refusal, tmp_path):
    sampling = ("--completions", 2, "--max-tokens", 24, "--seed", 3)
    assert call("answers", "--model", "embedded", "--questions", STREAM, *sampling, "--out", "new")[0] == 0
    assert call("answers", "embedded", STREAM, "--samples", 2, *sampling[2:], "--out", "old")[0] == 0
    assert (tmp_path / "new" / "answers.csv").read_bytes() == (tmp_path / "old" / "answers.csv").read_bytes()
    assert call("answers", "new", "--seed", 4)[0] == 0
    for words, reason in {
        ("new", "--max-tokens", "5"): "--sampling.max-tokens: new has its completions already",
        ("new", "--seed", "x"): "--seed: must be a whole number; got 'x'",
        ("--model", "embedded"): "give the folder of a run, or --model and one set of --questions",
        ("--questions", "new"): "give the folder of a run, or --model and one set of --questions",
        (): "give the folder of a run, or --model and one set of --questions",
        ("a", "b", "c"): "give the folder of a run, or --model and one set of --questions",
    }.items():
        assert reason in refusal("answers", *words)


def test_label_takes_those_that_credit_needs(call, rollouts, tmp_path):
    new = ("--method", "scrl", "--trained", 2, "--seed", 3, "--max-tokens", 24, "--credit.min-share", 0.4)
    old = ("--method", "scrl", "--trained", 2, "--seed", 3, "--max-tokens", 24, "--min-share", 0.4)
    for name, words in {"new": new, "old": old}.items():
        assert call("label", rollouts, *words, "--out", name)[0] == 0
    assert (tmp_path / "new").read_bytes() == (tmp_path / "old").read_bytes()
    assert "give one file of completions; got none" in call("label", "--min-share", 0.4)[2]


def test_reproduce_takes_them_for_every_run(call):
    words = ("reproduce", "table-ablation", "--scale", "demo", "--steps", 2, "--seed", 3)
    given = ("--completions", 8, "--trained", 4, "--max-tokens", 24, "--temperature", 0.5, "--learning-rate", 1e-4)
    code, out, err = call(*words, *given, "--model", "embedded")
    assert (code, err, "for seed 3" in out) == (0, "", True)
    assert (
        "trained (9) is more than completions (8): lower trained or raise completions"
        in call(*words, *given[:2], "--trained", 9)[2]
    )


@pytest.mark.parametrize(("words", "reason"), [
    (("train", "--modle", "x"), "--modle: there is no such setting. Did you mean --model?"),
    (("train", "--num-generations", "8"), "--num-generations is TRL's name; here it is --completions"),
    (("train", "--max_new_tokens=8"), "--max-new-tokens is transformers' name; here it is --max-tokens"),
    (("train", "--output_dir", "x"), "--output-dir is TRL's name; here it is --out"),
    (("train", "--lr", "1"), "--lr is verl's name; here it is --learning-rate"),
    (("plan", "--per-device-train-batch-size", "1"), "is TRL's name; here it is --compute.micro-batch"),
    (("plan", "--actor_rollout_ref.rollout.n=4"), "is verl's name; here it is --completions"),
    (("plan", *RUN, "--sampling.max-tokens", "8"), "max_tokens is short for sampling.max_tokens, and both are given"),
    (("evaluate", "--modle", "x"), "--modle: there is no such setting. Did you mean --model?"),
    (("evaluate", "--num-fewshot", "5"), "--num-fewshot is lm-eval's name; no examples are put before a question"),
    (("evaluate", "--model_args", "a=b"), "--model-args is lm-eval's name; each has its own name here"),
    (("evaluate", "a", "b", "--steps", "5"), "--steps: nothing is trained here; it is a setting of scrl train"),
    (("evaluate", "a", "b", "--method", "ttrl"), "--method: a method says what is rewarded, and nothing is rewarded here"),
    (("evaluate", "--lr", "5"), "here it is --learning-rate, but nothing is trained here"),
    (("evaluate", "a", "b", "--questions", "c", "--model", "m"), "'a': the questions are given with --questions already"),
    (("evaluate", "a", "b", "--completions", "2", "--samples", "3"), "completions is short for samples, and both are given"),
    (("answers", "a", "b", "--trained", "5"), "--trained: nothing is trained here"),
    (("label", "r", "--model", "x"), "--model: the completions of the file were sampled already"),
    (("label", "r", "--completions", "8"), "--completions: all completions of the file vote"),
    (("label", "r", "--learning-rate", "8"), "--learning-rate: nothing is trained here"),
    (("label", "r", "--num-generations", "8"), "is TRL's name; here it is --completions, but all completions of the file"),
    (("reproduce", "table-ablation", "--run", "--method", "ttrl"), "method: cannot be set in a reproduction; the experiment decides"),
    (("reproduce", "table-ablation", "--run", "--questions", "x"), "questions: cannot be set in a reproduction"),
    (("reproduce", "table-ablation", "--run", "--max-new-tokens", "3"), "here it is --max-tokens"),
    ("train --model embedded --epochs 2".split(), "--epochs: a run is counted in steps here; steps = epochs × questions / questions"),
    ("train --model embedded --batch-size 8".split(), "--batch-size: is several settings here: questions_per_step, questions_per_up"),
    ("evaluate --model embedded --batch-size 8".split(), "--batch-size is lm-eval's name; here it is --sampler-rows"),
    ("train --model embedded --questions a.txt --method SCRL".split(), "unknown method 'SCRL'. Did you mean 'scrl'?"),
    ("train --model a.txt --questions embedded".split(), "model: a.txt looks like a file of questions; are the model and the"),
    ("evaluate A.JSONL embedded".split(), "model: A.JSONL looks like a file of questions; are the model and the questions swapped"),
    ("plan --model embedded --questions arithmetic:easy:train:1 --method contrast --max-tokens 40".split(), "only one question"),
    ("plan --model embedded --questions arithmetic:easy:train:1 --method contrast --gpus 1".split(), "there is only one question"),
])  # fmt: skip
def test_a_name_that_is_wrong_or_has_no_use_is_one_line_and_nothing_is_written(call, tmp_path, words, reason):
    code, out, err = call(*words, "--out", "new")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert not list(tmp_path.iterdir())


def test_what_a_command_lacks_is_named(refusal):
    assert refusal("export", "runs/001") == "error: scrl export: give --out PATH; see scrl export --help"
    assert refusal("export", "--out", "new") == "error: scrl export: give RUN; see scrl export --help"


def test_a_switch_may_stand_before_a_file(call, tmp_path):
    (tmp_path / "run.yaml").write_text("model: embedded\nquestions: arithmetic:easy\nsteps: 3\nmax_tokens: 48\n")
    for words in (("--drop-last", "run.yaml"), ("--drop-last", "true", "run.yaml"), ("run.yaml", "--drop-last")):
        assert call("plan", *words)[0] == 0


# Help


def help_of(command, width):
    file = io.StringIO()
    app.help_print([command], console=Console(file=file, width=width))
    return file.getvalue()


def test_the_help_of_train_shows_the_settings_that_matter_first_each_with_its_default():
    out = help_of("train", 200)
    shown = re.findall(r"^│ +(--[a-z.-]+)", out, re.MULTILINE)
    assert shown[:10] == [as_option(name) for name in TOUCHED.split()]
    groups = re.findall(r"^╭─ (.*?) ─", out, re.MULTILINE)
    assert groups[0] == "Settings, those that matter most first"
    assert len(groups) == 7
    defaults = {"steps": 100, "completions": 32, "max-tokens": 1024, "seed": 0, "learning-rate": 5e-07}
    for name, default in defaults.items():
        assert re.search(rf"--{name} .*\[{default}\]", out), name
    assert "scrl train --list-settings" in out
    for option in shown[:-4]:  # the last are the command's own
        assert not list(NAMES.unknown({option[2:].replace("-", "_").partition(".")[0]: None})), option


@pytest.mark.parametrize("command", ["train", "evaluate", "rollouts", "answers", "plan", "label", "reproduce"])
def test_every_help_fits_80_columns(command):
    assert max(map(len, help_of(command, 80).splitlines())) <= 80
