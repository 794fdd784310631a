"""One grammar: the names people touch work, and mean the same, in every command that has use for them."""

import pytest
import yaml
from commands import row
from line_files import write_lines

STREAM = "arithmetic:easy:train:2"


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
    assert "max-tokens" in refusal("answers", "new", "--max-tokens", "5")
    assert "--seed" in refusal("answers", "new", "--seed", "x")
    for words in (("--model", "embedded"), ("--questions", "new"), (), ("a", "b", "c")):
        assert "--questions" in refusal("answers", *words)


def test_label_takes_those_that_credit_needs(call, rollouts, tmp_path):
    new = ("--method", "scrl", "--trained", 2, "--seed", 3, "--credit.min-share", 0.4)
    old = ("--method", "scrl", "--trained", 2, "--seed", 3, "--min-share", 0.4)
    for name, words in {"new": new, "old": old}.items():
        assert call("label", rollouts, *words, "--out", name)[0] == 0
    assert (tmp_path / "new").read_bytes() == (tmp_path / "old").read_bytes()
    assert call("label", "--min-share", 0.4)[0] == 2


def test_reproduce_takes_them_for_every_run(call):
    words = ("reproduce", "table-ablation", "--scale", "demo", "--steps", 2, "--seed", 3)
    given = ("--completions", 8, "--trained", 4, "--max-tokens", 24, "--temperature", 0.5, "--learning-rate", 1e-4)
    code, out, err = call(*words, *given, "--model", "embedded")
    assert (code, err, "for seed 3" in out) == (0, "", True)
    assert "trained (9)" in call(*words, *given[:2], "--trained", 9)[2]


@pytest.mark.parametrize(("words", "reason"), [
    (("train", "--modle", "x"), "--modle"),
    (("train", "--num-generations", "8"), "--num-generations"),
    (("train", "--max_new_tokens=8"), "--max-new-tokens"),
    (("plan", "--per-device-train-batch-size", "1"), "--compute.micro-batch"),
    (("plan", "--actor_rollout_ref.rollout.n=4"), "--completions"),
    (("plan", *RUN, "--sampling.max-tokens", "8"), "sampling.max_tokens"),
    (("evaluate", "--num-fewshot", "5"), "--num-fewshot"),
    (("evaluate", "--model_args", "a=b"), "--model-args"),
    (("evaluate", "a", "b", "--steps", "5"), "--steps"),
    (("evaluate", "a", "b", "--method", "ttrl"), "--method"),
    (("evaluate", "--lr", "5"), "--learning-rate"),
    (("evaluate", "a", "b", "--questions", "c", "--model", "m"), "'a'"),
    (("evaluate", "a", "b", "--completions", "2", "--samples", "3"), "samples"),
    (("label", "r", "--model", "x"), "--model"),
    (("label", "r", "--completions", "8"), "--completions"),
    (("label", "r", "--num-generations", "8"), "--completions"),
    (("reproduce", "table-ablation", "--run", "--method", "ttrl"), "method"),
    (("reproduce", "table-ablation", "--run", "--max-new-tokens", "3"), "--max-tokens"),
    ("train --model embedded --epochs 2".split(), "--epochs"),
    ("train --model embedded --batch-size 8".split(), "--batch-size"),
    ("evaluate --model embedded --batch-size 8".split(), "--batch-size"),
    ("train --model embedded --questions a.txt --method SCRL".split(), "'scrl'"),
    ("train --model a.txt --questions embedded".split(), "model"),
    ("evaluate A.JSONL embedded".split(), "model"),
    ("plan --model embedded --questions arithmetic:easy:train:1 --method contrast --max-tokens 40".split(), "contrast"),
])  # fmt: skip
def test_a_name_that_is_wrong_or_has_no_use_is_one_line_and_nothing_is_written(call, tmp_path, words, reason):
    code, out, err = call(*words, "--out", "new")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert not list(tmp_path.iterdir())


def test_what_a_command_lacks_is_named(refusal):
    assert "--out" in refusal("export", "runs/001")
    assert "RUN" in refusal("export", "--out", "new")


def test_a_switch_may_stand_before_a_file(call, tmp_path):
    (tmp_path / "run.yaml").write_text("model: embedded\nquestions: arithmetic:easy\nsteps: 3\nmax_tokens: 48\n")
    for words in (("--drop-last", "run.yaml"), ("--drop-last", "true", "run.yaml"), ("run.yaml", "--drop-last")):
        assert call("plan", *words)[0] == 0
