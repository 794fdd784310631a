"""Control arms in a run: the oracle is told gold and nobody else is; the others need none."""

import pytest
from line_files import read_lines, write_lines
from runs import GOLD_METRICS, do, metrics, small, weights

from scrl.data.sources import load_source
from scrl.errors import InputError
from scrl.training.loop import train

pytestmark = pytest.mark.usefixtures("no_report")
TINY = (
    "steps=1",
    "questions_per_step=2",
    "completions=6",
    "trained=6",
    "evaluation.completions=0",
    "checkpoint_every=9",
)


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """The same questions with and without gold, and with gold that is wrong."""
    folder = tmp_path_factory.mktemp("questions")
    drawn = load_source("arithmetic:easy:train:4", seed=0).questions
    golds: dict[str, list[str | None]] = {
        "with": [q.gold for q in drawn], "wrong": ["-1"] * 4, "without": [None] * 4, "partly": ["1", None, "2", "3"],
    }  # fmt: skip
    for name, gold_Q in golds.items():
        pairs = zip(drawn, gold_Q, strict=True)
        rows = [{"id": q.id, "question": q.text} | ({"answer": gold} if gold else {}) for q, gold in pairs]
        write_lines(folder / f"{name}.jsonl", rows)
    return folder


def run(questions, which, method, out):
    do(out, f"questions={questions / which}.jsonl", f"method={method}", *TINY)
    return out


def without_gold(records):
    return [{k: v for k, v in each.items() if k not in GOLD_METRICS | {"gold", "correct"}} for each in records]


def test_gold_changes_nothing_for_a_method_that_is_not_told(questions, tmp_path):
    told, untold = (run(questions, which, "random", tmp_path / which) for which in ("wrong", "without"))
    assert all("gold" in line for line in read_lines(told / "rollouts.jsonl"))
    assert not any("gold" in line for line in read_lines(untold / "rollouts.jsonl"))
    assert without_gold(metrics(told)) == metrics(untold)
    assert without_gold(read_lines(told / "rollouts.jsonl")) == read_lines(untold / "rollouts.jsonl")
    assert weights(told) == weights(untold)


def test_the_oracle_rewards_what_is_right_and_gold_moves_its_weights(questions, tmp_path):
    told, misled = (run(questions, which, "oracle", tmp_path / which) for which in ("with", "wrong"))
    rollouts = read_lines(told / "rollouts.jsonl")
    assert [line["reward"] for line in rollouts] == [float(line["correct"]) for line in rollouts]
    assert any(line["reward"] for line in rollouts)
    assert not any(line["reward"] for line in read_lines(misled / "rollouts.jsonl"))
    # the mean reward of the oracle is the accuracy of what was sampled
    assert [line["reward_mean"] for line in metrics(told)] == pytest.approx([m["pass@1"] for m in metrics(told)])
    assert weights(told) != weights(misled)  # whose advantages are all 0


def test_random_rewards_are_coins_and_inverted_ones_push_the_majority_down(questions, tmp_path):
    drawn = read_lines(run(questions, "with", "random", tmp_path / "random") / "rollouts.jsonl")
    assert {line["reward"] for line in drawn} == {0.0, 1.0}
    assert {line["label"] for line in drawn} == {None}
    turned = read_lines(run(questions, "with", "inverted", tmp_path / "inverted") / "rollouts.jsonl")
    assert {line["reward"] for line in turned} <= {-1.0, 0.0}
    assert all((line["reward"] == -1) == (line["label"] == "negative") for line in turned)


@pytest.mark.parametrize("which", ["without", "partly"])
def test_the_oracle_without_gold_is_refused_before_anything_is_written(questions, tmp_path, which):
    config = small(f"questions={questions / which}.jsonl", "method=oracle", *TINY)
    with pytest.raises(InputError, match=r"'oracle' is told the right answers, and [14] of 4 questions have none"):
        train(config, tmp_path / "run", None)
    assert not (tmp_path / "run").exists()
