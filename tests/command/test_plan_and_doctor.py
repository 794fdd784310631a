"""`scrl plan`, `scrl doctor` and `scrl report`: what is said before and after a run."""

import re
import sys
from pathlib import Path

import pytest
from processes import scrl

from scrl.config import build_config
from scrl.errors import InputError
from scrl.planning.plan import make_plan, warnings

BASE = {
    "model": "embedded", "questions": "arithmetic:easy", "method": "scrl", "prompt": {"instruction": ""},
    "sampling": {"max_tokens": 64}, "steps": 100,
}  # fmt: skip


def config(**changes):
    return build_config({name: value for name, value in (BASE | changes).items() if value is not None})


# Plan


def test_the_plan_counts_what_a_run_will_do_and_writes_nothing(tmp_path, call):
    words = ["--model", "embedded", "--questions", "arithmetic:easy", "sampling.max_tokens=72", "steps=12"]
    code, plan, _ = call("plan", *words)
    assert code == 0
    first, *lines = plan.splitlines()
    assert first.endswith("--gpus 1 --gpu-memory 24")
    assert "contrast-label: 8 questions × 16 completions → 16 trained → 128 sequences → 8 updates a step" in lines
    # 12 · 8 updates; 64 questions are 8 steps; 12 · 8 · 16 completions and twice 64 · 16 votes of 72 tokens
    assert "12 steps, 96 updates, 1.5 passes over 64 questions; up to 258,048 tokens sampled" in lines
    assert any(line.startswith("757,888 weights; about ") for line in lines)
    # best has 4 bytes a weight, last 12, twice while the second replaces the first
    assert any(line.startswith("up to 0.021 GB ") for line in lines)
    assert re.fullmatch(r"first prompt: 'Compute \S+\.\\n'", lines[-1])
    assert call("train", *words, "--dry-run")[:2] == (0, plan.replace(first, "for this machine: CPU, float32"))
    assert list(tmp_path.iterdir()) == []


def test_without_steps_a_run_takes_passes_over_its_questions():
    plan = make_plan(config(limit=10, questions_per_step=4, steps=None, completions=8, trained=4))
    # 10 questions are 3 steps of 4, 4 and 2; PASSES is 3
    assert any(line.startswith("9 steps, 30 updates, 3.0 passes over 10 questions") for line in plan.lines)


def test_votes_that_decide_are_counted():
    options = {"limit": 8, "questions_per_step": 4, "steps": 4, "completions": 8, "trained": 4, "label_completions": 16}
    for votes, drawn in (("present", 0), ("start", 8 * 16), ("round", 2 * 8 * 16)):
        plan = make_plan(config(method="contrast-label", label_votes=votes, **options))
        assert any(line.endswith(f"up to {(4 * 4 * 8 + drawn) * 64:,} tokens sampled") for line in plan.lines)


@pytest.mark.parametrize(("there", "is_warned"), [(2**40, False), (2**20, True), (None, False)])
def test_a_plan_that_does_not_fit_is_warned_of(there, is_warned, monkeypatch):
    monkeypatch.setattr("scrl.planning.plan.memory_of", lambda device, which: there)
    lines = make_plan(config(limit=4, completions=8, trained=4)).lines
    assert any("does not fit" in line for line in lines) == is_warned
    assert any(line.endswith("this machine has 1024.0 GiB") for line in lines) == (there == 2**40)


def test_memory_is_counted_by_its_large_parts():
    weights = 757_888
    memory = make_plan(config(limit=4, completions=8, trained=4)).memory_bytes
    longest = len("12+34*56.\n") + 1  # "Compute " is one token, every other character is one
    cache = memory.pop("sampler's cache")
    assert memory == {"weights": 4 * weights, "masters": 0, "gradients": 4 * weights, "optimizer": 8 * weights, "start model": 0}  # fmt: skip
    # rows × tokens × 4 layers × (keys and values) × 1 head of 32 numbers × 4 bytes
    rows, a_token = 4 * 8, 4 * 2 * 32 * 4
    assert cache % (rows * a_token) == 0
    assert 64 < cache // (rows * a_token) <= 64 + longest + 4
    half = make_plan(config(limit=4, compute={"dtype": "bfloat16"}, loss={"kl_weight": 0.1})).memory_bytes
    assert (half["weights"], half["masters"], half["start model"]) == (2 * weights, 2 * weights, 2 * weights)
    # without a copy of the masters, averages of 2 bytes, and one backward pass for all 4 completions of an update
    options = {"optimizer": {"state": "bfloat16"}, "trained": 4, "completions": 8}
    lean = make_plan(config(limit=4, compute={"dtype": "bfloat16"}, **options)).memory_bytes
    parts = ("weights", "masters", "gradients", "optimizer")
    assert [lean[part] // weights for part in parts] == [2, 2, 2, 4]
    summed = make_plan(config(limit=4, compute={"dtype": "bfloat16", "micro_batch": 3}, **options)).memory_bytes
    assert [summed[part] // weights for part in parts] == [2, 2, 4, 4]
    adapter = make_plan(config(limit=4, lora={"rank": 2}, loss={"kl_weight": 0.1})).memory_bytes
    assert (adapter["gradients"], adapter["optimizer"], adapter["start model"]) == (0, 0, 0)


@pytest.mark.parametrize(("changes", "words"), [
    ({}, []),
    ({"completions": 8, "trained": 8, "limit": 8}, ["On 8 of 8 questions no answer"]),  # 8 · 0.125 = 1
    ({"completions": 16, "limit": 8}, ["On 8 of 8 questions only answers"]),  # 16 · 0.125 = 2
    ({"completions": 17}, []),
    ({"completions": 8, "trained": 8, "method": "ttrl"}, []),  # which rules nothing out
    ({"completions": 8, "trained": 8, "credit": {"max_negative_share": 0.3}}, []),  # 2.4 votes
    ({"sampling": {"top_p": 0.9, "max_tokens": 72}}, ["sampling.top_p"]),
    ({"sampling": {"top_k": 5, "max_tokens": 72}}, ["sampling.top_p or top_k"]),
    ({"sampling": {"temperature": 0, "max_tokens": 72}}, ["at sampling.temperature 0"]),
    ({"questions_per_step": 9, "limit": 8}, ["questions_per_step: 9"]),
])  # fmt: skip
def test_the_plan_warns_of_what_cannot_work(changes, words):
    found = list(warnings(config(**changes), num_questions=8, passes=10.0, num_weights=0))
    assert len(found) == len(words)
    for warning, beginning in zip(found, words, strict=True):
        assert warning.startswith(beginning)
    assert not words or set(found) <= set(make_plan(config(**changes)).lines)


@pytest.mark.parametrize(("weight", "expected"), [(1.5, 1), (0, 0)])
def test_the_plan_warns_where_right_answers_repeat(weight, expected):
    chosen = config(method="contrast-label", reader="choice", credit={"elsewhere_weight": weight})
    found = list(warnings(chosen, num_questions=16, passes=1.0, num_weights=0))
    assert ["--credit.elsewhere-weight 0" in warning for warning in found] == [True] * expected


@pytest.mark.parametrize(
    ("rate", "lora", "passes", "expected"),
    [
        ("1.4e-5", None, 10, []),
        ("1.6e-5", None, 10, ["WARNING: optimizer.learning_rate is 1.6e-05; 5e-07"]),
        ("1e-8", None, 10, ["WARNING: optimizer.learning_rate is 1e-08"]),
        ("1.6e-5", {}, 10, []),
        ("5e-7", None, 50, ["WARNING: 50 passes over 16 questions"]),
    ],
)
def test_the_plan_warns_of_many_passes_and_far_learning_rates(rate, lora, passes, expected):
    settings = config(optimizer={"learning_rate": rate}, lora=lora)
    found = list(warnings(settings, num_questions=16, passes=passes, num_weights=10**9))
    assert [line[: len(beginning)] for line, beginning in zip(found, expected, strict=True)] == expected


def test_the_plan_refuses_what_the_run_would_refuse():
    with pytest.raises(InputError, match="5 questions"):
        make_plan(config(limit=5, drop_last=True))
    with pytest.raises(InputError, match=r"model"):
        make_plan(config(model="./nowhere"))


def test_the_plan_looks_at_gold_at_held_out_questions_and_at_the_folder_as_the_run_does(tmp_path, call, refusal):
    Path("mine.txt").write_text("1+1=\n2+2=\n")
    Path("other.txt").write_text("2+2=\n3+3=\n4+4=\n")
    words = ["plan", "--model", "embedded", "--questions", "mine.txt", "prompt.instruction=", "sampling.max_tokens=64"]
    code, out, _ = call(*words, "--evaluation.held-out", "other.txt", "--out", "new")
    assert code == 0
    assert "1 of the 3 held-out questions" in out
    assert "none.txt" in refusal(*words, "--evaluation.held-out", "none.txt")
    assert "gold" in refusal(*words, "--method", "oracle")
    assert "--out" in refusal(*words, "--out", ".")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "other.txt"]


# Doctor


def look_here_first():
    """As `python -m` does."""
    sys.path.insert(0, "")


def test_the_doctor_says_what_there_is_and_tests_the_sampler(tmp_path):
    (tmp_path / "tensorboard").mkdir()  # a folder of that name is no package
    done = scrl("doctor", cwd=tmp_path, prepare=look_here_first)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.match(r"scrl \S+, Python 3\.", lines[0])
    assert any(line.startswith("ok    torch 2.") for line in lines)
    assert any(line.startswith(("none  tensorboard (", "ok    tensorboard ")) for line in lines)
    for name in ("vllm", "trl", "verl"):
        assert any(line.startswith((f"none  {name} (", f"ok    {name} ", "BAD   ")) for line in lines)
    assert all(re.match(r"(ok|none|low|BAD) ", line) for line in lines[1:])
    assert any(" GiB free here" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert re.match(r"ok    sampler .*e-0[4-9]", lines[-1])


# Report
