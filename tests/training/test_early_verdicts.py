"""Runs that stop sampling early: the same training for fewer tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
from runs import Listener, lines, small

from scrl.cli.main import main
from scrl.errors import ConfigError
from scrl.records import Question, Sampled
from scrl.training.early_verdicts import CHUNK, draw_until_decided, saved
from scrl.training.loop import train

TTRL = (
    "method=ttrl",
    "credit.which_trained=first",
    "completions=24",
    "trained=4",
    "steps=2",
    "evaluation.completions=2",
)


def test_the_same_is_learned_from_fewer_completions(tmp_path):
    """Up to the last digits of log-probabilities, which hang on how many rows are written side by side."""
    train(small(*TTRL), tmp_path / "all", Listener())
    train(small(*TTRL, "early_verdicts=true"), tmp_path / "early", Listener())
    whole, early = (
        {key(line): line for line in lines(tmp_path / name / "rollouts.jsonl")} for name in ("all", "early")
    )
    assert set(early) < set(whole)
    for place, line in early.items():
        for field in ("completion", "answer_class", "label", "reward", "advantage"):
            assert line[field] == whole[place][field]
    for one, other in zip(*(lines(tmp_path / name / "metrics.jsonl") for name in ("all", "early")), strict=True):
        for name in ("positive_share", "majority_accuracy", "advantage_abs_mean", "signal_share"):
            assert other[name] == one[name]
        assert (other["loss"], other["grad_norm"]) == pytest.approx((one["loss"], one["grad_norm"]), rel=1e-3, abs=1e-6)
        assert other["tokens_saved"] == pytest.approx(one["tokens"] - other["tokens"], rel=0.5)  # it is an estimate
        assert "tokens_saved" not in one
    drawn = len(early) / len(whole)
    assert 0 < drawn < 1
    shares = [line["completions_saved_share"] for line in lines(tmp_path / "early" / "metrics.jsonl")]
    assert sum(shares) / 2 == pytest.approx(1 - drawn)


def key(line):
    return line["step"], line["question_id"], line["sample"]


def test_the_command_says_what_was_saved(tmp_path, capsys):
    words = [
        f"--{setting}" for setting in ("model=embedded", "questions=arithmetic:easy:train:4", "steps=1", *TTRL[:4])
    ]
    more = ["--early_verdicts", "--questions_per_step=2", "--sampling.max_tokens=24", "--evaluation.every=0"]
    assert main(["train", *words, *more, "--out", str(tmp_path / "run")]) == 0
    [step] = lines(tmp_path / "run" / "metrics.jsonl")
    said = f"early verdicts saved about {step['tokens_saved']:,.0f} tokens; {step['tokens']:,} were sampled"
    assert (said in " ".join(capsys.readouterr().out.split())) == (step["tokens_saved"] > 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("method=scrl",), r"early_verdicts: with method 'scrl' its negative labels are about all completions"),
        (("method=rent",), r"with method 'rent' its credit is about all completions"),
        (("method=scrl-without-negative",), r"H̄, the mean entropy, is about all completions"),
        (("method=ttrl",), r"Set credit\.which_trained: first"),
    ],
)
def test_methods_that_need_all_completions_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        small("early_verdicts=true", *settings)


# How it draws


def drawing(log):
    """Groups whose completions are their numbers."""

    def draw(questions, first, number):
        log.append(([question.id for question in questions], first, number))
        samples = tuple(
            SimpleNamespace(number=first + place, tokens_drawn=first + place + 1) for place in range(number)
        )
        return [Sampled(question, np.zeros(1, int), samples) for question in questions]

    return draw


def test_only_open_questions_are_drawn_on_and_never_past_the_most():
    log, questions = [], [Question(name, name) for name in "abc"]
    enough = {"a": 4, "b": 12, "c": 99}
    groups = draw_until_decided(
        drawing(log), lambda sampled: len(sampled.samples_G) >= enough[sampled.question.id], questions, least=4, most=22
    )
    assert log == [
        (["a", "b", "c"], 0, 4),
        (["b", "c"], 4, CHUNK),
        (["c"], 12, CHUNK),
        (["c"], 20, 2),
    ]
    assert [[sample.number for sample in sampled.samples_G] for sampled in groups] == [
        list(range(4)), list(range(12)), list(range(22)),
    ]  # fmt: skip


def test_where_all_are_trained_on_all_are_drawn():
    log = []
    draw_until_decided(drawing(log), lambda sampled: pytest.fail("asked"), [Question("a", "a")], least=8, most=8)
    assert log == [(["a"], 0, 8)]


def test_what_was_saved():
    # 10 each: of a 4 are drawn, of 1 + 2 + 3 + 4 tokens: 6 more of 2.5 tokens = 15; of b all.
    draw = drawing([])
    groups = [*draw([Question("a", "a")], 0, 4), *draw([Question("b", "b")], 0, 10)]
    assert saved(groups, 10) == {"completions_saved_share": 6 / 20, "tokens_saved": 15.0}
