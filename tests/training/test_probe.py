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
from scrl.training.probe import (
    PREFERRED,
    Probe,
    cost_note,
    count_answers,
    duration,
    no_answers_note,
    probe_notes,
    proposals,
    shift,
    shift_note,
    why_no_signal,
)
from scrl.training.run import open_run

QUIET = ("evaluation.completions=0", "steps=1")


def probe_of(*texts, cut=0, tokens=10, rollout_seconds=2.0, score_seconds=0.5):
    """Of one question; the first `cut` completions are cut."""
    rows, zeros = np.zeros(tokens, dtype=np.int64), np.zeros(tokens)
    samples = tuple(Sample(text, rows, zeros, zeros, is_finished=n >= cut) for n, text in enumerate(texts))
    return Probe([Sampled(Question("q", "?"), rows, samples)], rollout_seconds, score_seconds, [])


def test_a_run_whose_start_model_gives_no_answers_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"reader: only 0 of 8 completions .*--max-tokens 8.*--probe 0"):
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
    others = {name: count_answers(texts, name) for name in PREFERRED if name != "boxed"}
    assert proposals(probe, count_answers(texts, "boxed"), others, small()) == expected


def test_few_answers_are_a_note_hardly_any_a_refusal():
    texts = [r"\boxed{4}"] + ["The answer is 4."] * 7  # 1 of 8 is 1/8: just enough
    first, second = probe_notes(probe_of(*texts), small())
    assert first == (
        "probe: 1 of 8 completions of the start model have an answer (boxed); found by others: choice 0, number 8, "
        "last-number 8; 10 tokens on average"
    )
    assert second == "consider --reader number, which finds 8"
    with pytest.raises(InputError, match=r"Try --reader number, which finds 7\."):
        list(probe_notes(probe_of(*texts[1:]), small()))


def noted_cost(*changes, num_held_out=0, recomputes=False):
    """Of 6 questions, after a probe of 4 completions; `recomputes`: not enough memory to keep activations."""
    config, model = small(*changes), load_model("embedded", ComputeSettings(device="cpu"))
    settings = (config.loss, config.optimizer, config.compute)
    policy = Policy(model, *settings, updates=1, temperature=1.0, max_tokens=48)
    if recomputes:
        policy._recompute()
    probe = probe_of(*["abc"] * 4)
    return cost_note(probe, config, policy, rows=512, num_questions=6, num_held_out=num_held_out)


def test_what_a_run_will_take():
    """4 completions took 2 s, their scoring 0.5 s; a step has 2 × 8 completions, of which 2 × 4 are trained on."""
    note = noted_cost("steps=10", "evaluation.completions=4")
    # rollout 2 s × 16 / 4 = 8 s; update 3 × 0.5 s × 8 / 4 = 3 s; two evaluations of 6 × 4: 2 × 2 s × 24 / 4 = 24 s
    # disk: 757,888 weights × (4 in best + 2 × 12 in last) bytes + 10 × 16 × 303 bytes = 0.0213 GB
    # in all 10 × 11 + 24 = 134 s
    expected = "about 11 s per step, 2 min in all with evaluations; 0.021 GB on disk"
    assert note == f"estimated from the probe: {expected}"
    # a single last: 757,888 × (4 + 12) bytes + 0.00005 GB = 0.0122 GB
    assert noted_cost("steps=10", "checkpoint_every=10").endswith("0.012 GB on disk")
    note = noted_cost("steps=1000")
    assert "To take less: --steps (now 1000), --completions (8)" in note  # 1000 × 11 s
    assert [duration(seconds) for seconds in (3.14, 42, 600, 9000)] == ["3.1 s", "42 s", "10 min", "2.5 h"]


@pytest.mark.parametrize(
    ("method", "num_held_out", "expected"),
    [
        # as above, and two evaluations of (6 + 10) × 4: 2 × 2 s × 64 / 4 = 64 s; in all 10 × 11 + 64 = 174 s
        ("scrl", 10, "about 11 s per step, 3 min in all"),
        # the start model answers all 6 questions first: 2 s × 48 / 4 = 24 s; in all 24 + 10 × 11 + 24 = 158 s
        ("restrain", 0, "about 11 s per step, 3 min in all"),
    ],
)
def test_held_out_questions_and_the_start_models_answers_count(method, num_held_out, expected):
    note = noted_cost("steps=10", "evaluation.completions=4", f"method={method}", num_held_out=num_held_out)
    assert note.startswith(f"estimated from the probe: {expected}")


@pytest.mark.parametrize(
    "how", [{"recomputes": True}, {"changes": ["compute.gradient_checkpointing=true"]}], ids=["by itself", "asked for"]
)
def test_activations_computed_twice_take_longer(how):
    # rollout 8 s as above; update 4 × 0.5 s × 8 / 4 = 4 s
    note = noted_cost("steps=10", *how.pop("changes", ()), **how)
    assert note.startswith("estimated from the probe: about 12 s per step")


def test_a_run_says_how_far_the_model_has_moved(tmp_path):
    _, heard = do(tmp_path / "run", "steps=2", "evaluation.completions=0", "optimizer.learning_rate=1e-4")
    assert "the model has moved by" in heard.text
    _, heard = do(tmp_path / "still", "optimizer.learning_rate=1e-12", *QUIET)
    assert "WARNING: the model has hardly moved" in heard.text
    assert "optimizer.learning_rate (now 1e-12)" in heard.text


def test_the_shift_is_the_mean_change_of_log_probabilities(tmp_path):
    run = open_run(small(), tmp_path / "run", Listener())
    assert shift(run.state.probe, run.language_model) == 0.0
    moved = [row | {"logprobs": [value - 0.25 for value in row["logprobs"]]} for row in run.state.probe]
    assert shift(moved, run.language_model) == pytest.approx(0.25)
    assert shift_note(0.25, run.config) == "the model has moved by 0.25 nats per token of what it wrote at the start"
    far = "WARNING: the model has moved far (0.8 nats per token of what it wrote at the start): look at its answers"
    assert shift_note(0.8, run.config).startswith(far)
    assert shift_note(0.8, run.config, had_signal=False).startswith(far)


def test_a_run_without_a_signal_is_not_told_to_raise_the_learning_rate(tmp_path):
    run, heard = do(tmp_path / "run", "sampling.temperature=0", *QUIET)
    assert [line["signal_share"] for line in run.state.history] == [0.0]
    assert any(note.startswith("the model has moved by ") for note in heard.notes)  # by its weight decay
    assert "learning_rate" not in heard.text


@pytest.mark.parametrize(
    ("settings", "step", "words"),
    [
        (["sampling.temperature=0"], {"unanimous_share": 1.0}, "at sampling.temperature 0 all completions of a"),
        (["reader=choice"], {"no_answer_share": 1.0}, "hardly any completion has an answer (choice). Try another"),
        ([], {"unanimous_share": 1.0, "no_answer_share": 0.0}, "completions agree already. Try harder questions"),
        ([], {"unanimous_share": 0.5, "no_answer_share": 0.5}, "nothing was learned. Sample more completions"),
        ([], {}, "nothing was learned. Sample more completions"),  # of an engine that does not measure them
    ],
)
def test_why_there_was_no_signal(settings, step, words):
    assert why_no_signal([{"signal_share": 0.0} | step] * 2, small(*settings)).startswith(words)


def test_readers_that_are_named_were_tried_and_find_more():
    texts = [r"\boxed{4}"] * 3 + ["I get 4"]
    note = no_answers_note(texts, "choice")
    assert "(choice finds 0 of 4): look at some" in note
    assert "Perhaps another reader (boxed finds 3, number finds 3, last-number finds 4), a longer" in note
    assert "Perhaps a longer sampling.max_tokens" in no_answers_note(["no idea"] * 4, "choice")
    assert "choice finds 1" not in no_answers_note(["The answer is (B)."], "choice").partition("Perhaps")[2]


def test_a_run_stopped_and_resumed_still_knows_its_start(tmp_path, no_report):
    stop_after_a_step(tmp_path / "run", "steps=2")
    _, heard = go_on(tmp_path / "run")
    assert "nats per token of what it wrote at the start" in heard.text
