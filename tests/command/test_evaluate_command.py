"""`scrl evaluate` as a user meets it."""

import io
import json
import signal
from functools import partial

import pytest
import torch
from line_files import read_lines
from processes import Command, scrl, untraced
from rich.console import Console

from scrl.cli.evaluate import hints, results_tables
from scrl.cli.main import main
from scrl.policy import model
from scrl.policy.checkpoint import write_weights
from scrl.policy.settings import ComputeSettings, LoraSettings

TINY = ("--samples", "2", "--max-tokens", "24", "--sampler-rows", "4")
STREAM = "arithmetic:easy:train:4"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("SCRL_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def evaluate(call):
    return partial(call, "evaluate")


def questions(number):
    return [f'{{"id": {n}, "question": "Compute {n}+2.", "answer": "{n + 2}"}}' for n in range(number)]


# What it prints and leaves behind


def test_an_evaluation_of_two_sets_of_questions(evaluate, tmp_path):
    (tmp_path / "mine.txt").write_text("Compute 3+4.\n")
    words = (*TINY, "--k", 1, "--k", 2, "--instruction", "")
    code, out, err = evaluate("embedded", STREAM, "mine.txt", *words, "--out", "e")
    assert (code, err) == (0, "")
    figures = ("pass@1", "pass@2", "maj@1", "maj@2", "answered", "agreement", "truncated", "entropy, right")
    for row in ("questions × samples", *figures):
        assert f" {row} " in out
    first, second = read_lines(tmp_path / "e" / "evaluations.jsonl")
    assert (first["benchmark"], first["questions"], second["questions"]) == (STREAM, 4, 1)
    assert "maj@1" in first
    assert "pass@1" not in second


def test_an_adapter_is_measured_and_a_run_folder_points_at_it(evaluate, refusal, tmp_path):
    loaded = model.load_model("embedded", ComputeSettings(device="cpu"), lora=LoraSettings(rank=2))
    write_weights(loaded, tmp_path / "r" / "checkpoints" / "last", "")
    words = (STREAM, *TINY, "--instruction", "")
    assert evaluate("r/checkpoints/last", *words, "--out", "e")[0] == 0
    assert evaluate("embedded", *words, "--out", "start")[0] == 0  # untrained, the adapter does nothing
    (adapted,), (start,) = (read_lines(tmp_path / name / "evaluations.jsonl") for name in ("e", "start"))
    assert adapted == start | {"model": "r/checkpoints/last"}
    assert evaluate("r/checkpoints/last", *words, "--show-prompt")[0] == 0
    assert "model" in refusal("evaluate", "r", *words)


def test_hardly_any_answer_ends_with_what_to_try(evaluate, tmp_path):
    code, out, _ = evaluate("embedded", STREAM, "--samples", 1, "--temperature", 0, "--max-tokens", 1, "--out", "e")
    assert code == 0
    (record,) = read_lines(tmp_path / "e" / "evaluations.jsonl")
    assert (record["samples"], record["temperature"], record["maj@1"]) == (1, 0.0, record["pass@1"])
    assert "--max-tokens" in out.splitlines()[-1]
    record = {"benchmark": "mine", "answered": 0.1, "truncated": 0.0}
    assert not list(hints([record]))
    assert len(list(hints([record | {"answered": 0.09}, record, record | {"answered": 0.0}]))) == 1


def test_the_prompt_is_shown_and_nothing_is_written(evaluate, tmp_path):
    code, out, err = evaluate("embedded", STREAM, "--show-prompt")
    assert (code, err) == (0, "")
    assert "Compute " in out
    assert "boxed" not in out  # generated questions speak for themselves
    assert not list(tmp_path.iterdir())
    out = evaluate("embedded", STREAM, "--show-prompt", "--prompt-style", "plain", "--instruction", "Go!")[1]
    assert ". Go!\n⏎" in out


def test_the_lab_reads_what_was_written(evaluate, tmp_path, capsys):
    evaluate("embedded", STREAM, *TINY, "--out", "e")
    (record,) = read_lines(tmp_path / "e" / "evaluations.jsonl")
    file = next((tmp_path / "e" / "rollouts").iterdir())
    for method in ("ttrl", "oracle"):
        assert main(["label", str(file), "--method", method, "--summary", str(tmp_path / "s.json")]) == 0
        summary = json.loads((tmp_path / "s.json").read_text())
        assert (summary["questions"], summary["completions"], summary["gold_questions"]) == (4, 8, 4)
        assert summary["pass@1"] == pytest.approx(record["pass@1"])
        assert summary["pass@n"] == pytest.approx(record["pass@2"])
        assert summary["no_answer_share"] == pytest.approx(1 - record["answered"])
    capsys.readouterr()


# Interrupted and resumed


def one_thread():
    """As many as the process that is interrupted has: their number changes the last digits of an entropy."""
    untraced()
    torch.set_num_threads(1)


def test_ctrl_c_in_the_middle_and_resumed(tmp_path):
    words = ("embedded", "arithmetic:easy:train:10", "--samples", "2", "--max-tokens", "24", "--sampler-rows", "2")
    command = Command("evaluate", *words, "--out", "e", cwd=tmp_path, prepare=one_thread)
    rollouts = tmp_path / "e" / "rollouts" / "arithmetic-easy-train-10.jsonl"
    command.wait_for(rollouts.exists)
    command.signal(signal.SIGINT)
    done = command.finish()
    assert done.returncode == 130, done
    assert "scrl evaluate --resume --out e" in done.stdout
    assert "Traceback" not in done.stderr
    assert rollouts.read_bytes().count(b"\n") < 20
    assert not (tmp_path / "e" / "evaluations.jsonl").exists()
    for way in (("--resume", "--out", "e"), (*words, "--out", "whole")):
        done = scrl("evaluate", *way, cwd=tmp_path, prepare=one_thread)
        assert (done.returncode, done.stderr) == (0, "")
    for name in ("evaluations.jsonl", "evaluation.yaml", rollouts.relative_to(tmp_path / "e")):
        assert (tmp_path / "e" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_what_resume_takes_and_refuses(evaluate, refusal, tmp_path, monkeypatch):
    assert evaluate("embedded", STREAM, *TINY, "--out", "e")[0] == 0
    monkeypatch.setattr("scrl.sampling.local.LocalSampler.sample", lambda *a, **k: pytest.fail("drawn again"))
    before = {path: path.read_bytes() for path in (tmp_path / "e").rglob("*") if path.is_file()}
    for words in ((), ("embedded", STREAM), ("--samples", 2), ("embedded", STREAM, *TINY)):
        code, _, err = evaluate(*words, "--resume", "--out", "e")
        assert (code, err) == (0, "")
    for words in (("--samples", 4), ("embedded", "aime24"), ("--seed", 1), ("--temperature", 1), ("--k", 1)):
        error = refusal("evaluate", *words, "--resume", "--out", "e")
        assert "--resume" in error
    assert {path: path.read_bytes() for path in (tmp_path / "e").rglob("*") if path.is_file()} == before
    (tmp_path / "empty").mkdir()
    for words in (
        ("--resume",),
        ("--resume", "--out", "nothing"),
        ("--resume", "--out", "empty"),
        ("embedded", STREAM, "--out", "e"),
    ):
        assert words[-1] in refusal("evaluate", *words)


# What is wrong


@pytest.mark.parametrize(("words", "reason"), [
    ((), "model"),
    (("embedded",), "benchmark"),
    (("embedded", "AIME24x"), "'aime24'"),
    (("embedded", "math500:6", "--data-dir", "."), "math500:6"),
    (("embedded", "arithmetic:esay"), "'easy'"),
    (("embedded", "nothing.jsonl"), "nothing.jsonl"),
    (("embedded", STREAM, STREAM), STREAM),
    (("embedded", STREAM, *TINY, "--reader", ""), "reader"),
    (("embedded", STREAM, *TINY, "--k", "3"), "k"),
    (("embedded", STREAM, "--samples", "0"), "completions"),
    (("embedded", STREAM, "--top-p", "2"), "top_p"),
    (("embedded", STREAM, "--prompt-style", "poem"), "prompt_style"),
    (("embedded", STREAM, "--device", "abacus"), "compute.device"),
    (("embedded", STREAM, "--reader", "bxed"), "'boxed'"),
    (("embedded", STREAM), "max_tokens"),
    (("embedded", STREAM, *TINY, "--max-prompt-tokens", "2"), "prompt"),
    (("./no-model", STREAM), "model"),
    (("no-owner/no-model", STREAM), "model"),
    (("embedded", "aime24", "--data-dir", "nowhere"), "nowhere"),
    (("embedded", STREAM, "--smaples", "2"), "--smaples"),
])  # fmt: skip
def test_bad_input_is_named_and_nothing_stays_behind(refusal, tmp_path, words, reason):
    assert reason in refusal("evaluate", *words, "--out", "e")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("lines", "reason"), [
    (None, "aime24.jsonl"),
    ([*questions(9), "{", *questions(20)], "aime24.jsonl:10"),  # and all else that tests/data checks
    ([*questions(29), '{"id": 29, "question": "Compute 2+2.", "answer": "}{"}'], "aime24-29"),
])  # fmt: skip
def test_a_folder_of_benchmarks_with_something_wrong_in_it(refusal, tmp_path, lines, reason):
    (tmp_path / "data").mkdir()
    if lines is not None:
        (tmp_path / "data" / "aime24.jsonl").write_text("\n".join(lines))
    assert reason in refusal("evaluate", "embedded", "aime24", *TINY, "--data-dir", "data", "--out", "e")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_without_a_folder_or_a_network_both_ways_are_named(refusal, tmp_path):
    error = refusal("evaluate", "embedded", "amc", *TINY)
    assert all(way in error for way in ("--data-dir FOLDER", "SCRL_DATA", "AI-MO/aimo-validation-amc"))
    assert not list((tmp_path / "runs").iterdir())


# Memory


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(evaluate, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "memory_of", lambda device, which: 2**20)
    monkeypatch.setattr(model, "_load", lambda *given: pytest.fail("it was loaded"))
    code, _, err = evaluate("embedded", STREAM, *TINY, "--out", "e")
    assert (code, err.count("\n")) == (2, 1)
    assert "embedded" in err
    assert not list(tmp_path.iterdir())


def test_columns_of_a_file_can_be_named(evaluate, refusal, tmp_path):
    (tmp_path / "de.csv").write_text("frage,antwort\nCompute 2+2.,4\nCompute 3+3.,6\n", encoding="utf-8")
    words = ("embedded", "de.csv", *TINY, "--instruction", "", "--out", "e")
    assert "--question-column" in refusal("evaluate", *words)
    assert evaluate(*words, "--question-column", "frage", "--gold-column", "antwort")[0] == 0
    (record,) = read_lines(tmp_path / "e" / "evaluations.jsonl")
    assert (record["questions"], record["gold_questions"]) == (2, 2)


@pytest.mark.parametrize(("width", "tables"), [(80, 2), (120, 1), (50, 3)])
def test_as_many_benchmarks_side_by_side_as_there_are_columns_for(width, tables):
    record = {
        "questions": 6, "gold_questions": 6, "samples": 4, "pass@1": 0.625, "pass@1_low": 0.2917, "pass@1_high": 1.0,
        "answered": 1.0, "agreement": 0.875, "truncated": 0.0, "length_mean": 24.0,
    }  # fmt: skip
    records = [record | {"benchmark": f"arithmetic:{level}:6"} for level in ("easy", "medium", "hard")]
    console = Console(file=(file := io.StringIO()), width=width)
    for table in results_tables(records, console):
        console.print(table)
    out = file.getvalue()
    assert max(map(len, out.splitlines())) <= width
    assert out.count("tokens per completion") == tables
    assert out.count("62.5 [29.2, 100.0]") == 3
    assert "…" not in out
