"""A few completions before training: what is refused, what is proposed, how far the model has moved."""

import numpy as np
import pytest
from listeners import Listener
from runs import do, go_on, small, stop_after_a_step

from scrl.errors import InputError
from scrl.policy.model import load_model
from scrl.policy.policy import Policy
from scrl.policy.settings import ComputeSettings
from scrl.records import Question, Sample, Sampled
from scrl.reporting.text import duration
from scrl.training.guard import why_no_signal
from scrl.training.loop import open_run
from scrl.training.probe import (
    Probe,
    cost_note,
    count_by_reader,
    probe_notes,
    proposals,
    shift,
    shift_note,
)

QUIET = ("evaluation.completions=0", "steps=1")


def probe_of(*texts, cut=0, tokens=10, rollout_seconds=2.0, score_seconds=0.5):
    """Of one question; the first `cut` completions are cut."""
    rows, zeros = np.zeros(tokens, dtype=np.int64), np.zeros(tokens)
    samples = tuple(Sample(text, rows, zeros, zeros, is_finished=n >= cut) for n, text in enumerate(texts))
    return Probe([Sampled(Question("q", "?"), rows, samples)], rollout_seconds, score_seconds, [])


def test_a_run_whose_start_model_gives_no_answers_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"max_tokens"):
        do(tmp_path / "run", "sampling.max_tokens=2", *QUIET)
    assert not (tmp_path / "run").exists()


def test_a_probe_can_be_left_out(tmp_path):
    _, heard = do(tmp_path / "run", "sampling.max_tokens=2", "probe=0", *QUIET)
    assert "probe" not in heard.text


def test_the_probe_changes_nothing_of_what_is_learned(tmp_path):
    folders = [tmp_path / name for name in ("with", "without")]
    for folder, number in zip(folders, ("4", "0"), strict=True):
        do(folder, f"probe={number}", *QUIET)
    with_probe, without = ((folder / "rollouts.jsonl").read_bytes() for folder in folders)
    assert with_probe == without


@pytest.mark.parametrize(
    ("texts", "cut", "expected"),
    [
        ([r"\boxed{4}"] * 8, 0, []),
        (["The answer is 4."] * 8, 0, ["--reader number, which finds 8"]),
        (["I get 4 apples"] * 8, 0, ["--reader last-number, which finds 8"]),
        (["first 4 then"] * 8, 8, ["--max-tokens 192"]),  # 4 × 48; the last number is one on the way
        ([r"\boxed{4}"] * 5 + ["so"] * 3, 3, ["--max-tokens 96"]),
        (["no idea"] * 8, 0, []),
        (["The answer is (B)."] * 8, 0, ["--reader choice, which finds 8"]),
    ],
)
def test_what_is_proposed(texts, cut, expected):
    probe = probe_of(*texts, cut=cut)
    assert proposals(probe, *count_by_reader(probe.samples, "boxed"), small()) == expected


def test_few_answers_are_a_note_hardly_any_a_refusal():
    texts = [r"\boxed{4}"] + ["The answer is 4."] * 7  # 1 of 8 is 1/8: just enough
    first, second = probe_notes(probe_of(*texts), small())
    assert "1 of 8" in first
    assert "--reader number" in second
    with pytest.raises(InputError, match="--reader number"):
        list(probe_notes(probe_of(*texts[1:]), small()))


@pytest.mark.parametrize(
    ("texts", "counted"),
    [
        (["first 4 then 12"] * 8, 3),  # the last number so far is no answer
        (["The answer is 4. For 12"] * 8, 8),  # marked
        (["The answer is 12"] * 8, 3),  # perhaps of 1240
    ],
)
def test_a_cut_completion_has_only_the_answer_it_marked(texts, counted):
    assert count_by_reader(probe_of(*texts, cut=5).samples, "last-number")[0] == counted
    assert count_by_reader(probe_of(*texts).samples, "last-number")[0] == 8


def test_a_run_whose_completions_are_mostly_cut_is_refused():
    texts = [r"\boxed{4}"] * 8
    assert len(list(probe_notes(probe_of(*texts, cut=2), small()))) == 1
    _, warning = probe_notes(probe_of(*texts, cut=4), small())
    assert warning.startswith("WARNING")
    with pytest.raises(InputError, match=r"max_tokens.*--max-tokens 96"):
        list(probe_notes(probe_of(*texts, cut=5), small()))


def noted_cost(*changes, measured=(6,), recomputes=False):
    """Of 6 questions, after a probe of 4 completions; `recomputes`: not enough memory to keep activations."""
    config, model = small(*changes), load_model("embedded", ComputeSettings(device="cpu"))
    settings = (config.loss, config.optimizer, config.compute)
    policy = Policy(model, *settings, updates=1, temperature=1.0, max_tokens=48)
    if recomputes:
        policy._recompute()
    probe = probe_of(*["abc"] * 4)
    return cost_note(probe, config, policy, rows=512, num_questions=6, measured=measured)


def test_what_a_run_will_take():
    """4 completions took 2 s, their scoring 0.5 s; a step has 2 × 8 completions, of which 2 × 4 are trained on."""
    note = noted_cost("steps=10", "evaluation.completions=4")
    # rollout 2 s × 16 / 4 = 8 s; update 3 × 0.5 s × 8 / 4 = 3 s; two evaluations of 6 × 4: 2 × 2 s × 24 / 4 = 24 s
    # disk: 757,888 weights × (4 in best + 2 × 12 in last) bytes + 10 × 16 × 303 bytes = 0.0213 GB
    # in all 10 × 11 + 24 = 134 s
    assert all(figure in note for figure in ("11 s per step", " 2 min ", "0.021 GB"))
    # a single last: 757,888 × (4 + 12) bytes + 0.00005 GB = 0.0122 GB
    assert noted_cost("steps=10", "checkpoint_every=10").endswith("0.012 GB on disk")
    note = noted_cost("steps=1000")
    assert "lower --steps" in note  # 1000 × 11 s
    assert [duration(seconds) for seconds in (3.14, 42, 600, 9000)] == ["3.1 s", "42 s", "10 min", "2.5 h"]


def test_a_run_says_how_far_the_model_has_moved(tmp_path):
    _, heard = do(tmp_path / "run", "steps=2", "evaluation.completions=0", "optimizer.learning_rate=1e-4")
    assert " per token" in heard.text
    _, heard = do(tmp_path / "still", "optimizer.learning_rate=1e-12", *QUIET)
    assert "optimizer.learning_rate (now 1e-12)" in heard.text


def test_the_shift_is_the_mean_change_of_log_probabilities(tmp_path):
    run = open_run(small(), tmp_path / "run", Listener())
    assert shift(run.state.probe, run.language_model) == 0.0
    moved = [(prompt, tokens, [value - 0.25 for value in logprobs]) for prompt, tokens, logprobs in run.state.probe]
    assert shift(moved, run.language_model) == pytest.approx(0.25)
    assert "by 0.25 per token" in shift_note(0.25, run.config)
    assert shift_note(0.8, run.config).startswith("WARNING")


def test_a_run_without_a_signal_is_not_told_to_raise_the_learning_rate(tmp_path):
    run, heard = do(tmp_path / "run", "sampling.temperature=0", *QUIET)
    assert [line["signal_share"] for line in run.state.history] == [0.0]
    assert " per token" in heard.text  # moved by its weight decay
    assert "learning_rate" not in heard.text


@pytest.mark.parametrize(
    ("settings", "step", "words"),
    [
        (["sampling.temperature=0"], {"unanimous_share": 1.0}, "sampling.temperature"),
        (["reader=choice"], {"no_answer_share": 1.0}, "choice"),
        ([], {"unanimous_share": 1.0, "no_answer_share": 0.0}, "harder questions"),
        ([], {"unanimous_share": 0.5, "no_answer_share": 0.5}, "more completions"),
        ([], {}, "more completions"),  # of an engine that does not measure them
    ],
)
def test_why_there_was_no_signal(settings, step, words):
    assert words in why_no_signal([{"signal_share": 0.0} | step] * 2, small(*settings))


def test_a_run_stopped_and_resumed_still_knows_its_start(tmp_path, no_report):
    stop_after_a_step(tmp_path / "run", "steps=2")
    _, heard = go_on(tmp_path / "run")
    assert " per token" in heard.text
