"""Contrast in a run: the votes of other questions, resumed exactly, and what the first step says."""

import collections

import pytest
from line_files import read_lines
from listeners import Listener
from runs import differences, do, go_on, metrics, small, stop_after_a_step

from scrl.errors import InputError
from scrl.training.loop import train

pytestmark = pytest.mark.usefixtures("no_report")
STREAM = (
    "method=contrast", "questions=arithmetic:easy:train:12", "questions_per_step=5", "steps=3", "completions=4",
    "sampling.max_tokens=40", "evaluation.completions=0",
)  # fmt: skip
FEW = "the other questions' votes (p̄, stock answers) count once 8 of them have been seen"


def shares(rows):
    votes = collections.Counter(row["answer_class"] for row in rows if row["answer_class"] is not None)
    return {answer: count / len(rows) for answer, count in votes.items()}


def expected_rewards(rollouts):
    """(step, question, sample) → R = p − 1.5 p̄, from the written votes alone."""
    steps = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rollouts:
        steps[row["step"]][row["question_id"]].append(row)
    last, found = {}, {}
    for step, groups in sorted(steps.items()):
        last |= {question: shares(rows) for question, rows in groups.items()}
        for question, rows in groups.items():
            others = [each for other, each in last.items() if other != question]
            weight = 1.5 / len(others) if len(others) >= 8 else 0.0
            worth = {a: p - weight * sum(each.get(a, 0) for each in others) for a, p in shares(rows).items()}
            worst = min(worth.values(), default=0.0) - 0.125
            found |= {(step, question, row["sample"]): worth.get(row["answer_class"], worst) for row in rows}
    return found


def test_rewards_are_the_shares_here_less_those_elsewhere_and_a_stopped_run_goes_on_exactly(tmp_path):
    _, listener = do(tmp_path / "whole", *STREAM)
    rollouts = read_lines(tmp_path / "whole" / "rollouts.jsonl")
    expected = expected_rewards(rollouts)
    assert len(expected) == (5 + 5 + 2) * 4
    for row in rollouts:
        key = (row["step"], row["question_id"], row["sample"])
        assert row["reward"] == pytest.approx(expected[key], abs=1e-9)
    found = metrics(tmp_path / "whole")
    assert ["push_stock" in line for line in found] == [False, True, True]  # 4 others, then 9 and more
    assert listener.notes.count(FEW) == 1
    stop_after_a_step(tmp_path / "run", *STREAM)
    go_on(tmp_path / "run")
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_a_small_stream_is_told_that_popularity_never_counts(tmp_path):
    _, listener = do(tmp_path / "run", *STREAM, "questions=arithmetic:easy:train:4", "steps=1")
    assert f"{FEW}, and this stream has only 3: they never count" in listener.notes


def test_one_question_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="'contrast' compares a question's votes with those of other questions"):
        train(small(*STREAM, "questions=arithmetic:easy:train:1"), tmp_path / "run", Listener())
    assert not (tmp_path / "run").exists()
