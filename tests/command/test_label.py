"""`scrl label` as a user meets it: real processes, real files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import row, scrl
from line_files import read_lines, write_lines

# q1: 8 × 1/2 in four spellings, 4 × 3, 1 × 7 (uncertain), 1 × 8 (certain), 2 without an answer: N = 16
Q1 = [row("q1", s, 0.2, gold="0.5") for s in ["1/2", r"\frac12", "0.5", r"\dfrac{1}{2}"] * 2]
Q1 += [row("q1", "3", 0.3)] * 4 + [row("q1", "7", 0.6), row("q1", "8", 0.1)]
Q1 += [{"question_id": "q1", "completion": "no idea", "entropy": 0.5}] * 2
# q2: a tie of 2 : 2, with a field that nothing reads
Q2 = [row("q2", "5", 0.2, gold="5", undecided_pairs=1)] * 2 + [row("q2", "6", 0.4)] * 2


@pytest.fixture
def rollouts(tmp_path):
    interleaved = [r for pair in zip(Q1, Q2 + [None] * 12, strict=True) for r in pair if r is not None]
    return write_lines(tmp_path / "rollouts.jsonl", interleaved)


@pytest.fixture
def label(tmp_path):
    """`label(rows, *options)`: the labels, the summary and, in one line, what a command printed that worked."""

    def run(rows, *options):
        source = rows if isinstance(rows, Path) else write_lines(tmp_path / "r.jsonl", rows)
        done = scrl("label", source, *options, "--out", tmp_path / "l.jsonl", "--summary", tmp_path / "s.json")
        assert done.returncode == 0, done.stderr
        summary = json.loads((tmp_path / "s.json").read_text())
        return read_lines(tmp_path / "l.jsonl"), summary, " ".join(done.stdout.split())

    return run


def test_labels_are_one_line_a_completion_in_the_order_of_the_file(rollouts, label):
    given, (labels, _, _) = read_lines(rollouts), label(rollouts, "--method", "scrl")
    assert [line["question_id"] for line in labels] == [line["question_id"] for line in given]
    assert list(labels[0]) == [
        "question_id", "step", "sample", "answer", "answer_class", "share", "label", "reward", "advantage",
    ]  # fmt: skip
    first = [line for line in labels if line["question_id"] == "q1"]
    assert [line["sample"] for line in first] == list(range(16))
    assert {line["answer_class"] for line in first[:8]} == {"1/2"}
    # H̄ = (8·0.2 + 4·0.3 + 0.6 + 0.1 + 2·0.5)/16 = 0.28125; 0.5 − 0.1·(0.2 − 0.28125) = 0.508125
    assert first[0] | {"answer": None} == {
        "question_id": "q1", "step": 0, "sample": 0, "answer": None, "answer_class": "1/2", "share": 0.5,
        "label": "positive", "reward": pytest.approx(0.508125), "advantage": first[0]["advantage"],
    }  # fmt: skip
    assert [line["label"] for line in first[8:]] == [None] * 4 + ["negative", None, None, None]
    assert first[15] | {"reward": 0, "advantage": 0} == {
        "question_id": "q1", "step": 0, "sample": 15, "answer": None, "answer_class": None, "share": None,
        "label": None, "reward": 0, "advantage": 0,
    }  # fmt: skip
    assert abs(sum(line["advantage"] for line in first)) < 1e-9


def test_the_summary_counts_and_grades(rollouts, label):
    _, summary, printed = label(rollouts)
    assert summary == {
        "schema_version": 2, "method": "scrl", "preset": "paper", "has_labels": True, "steps": 1, "questions": 2,
        "completions": 20, "no_answer_share": 0.1, "positive_questions": 1, "abstained_questions": 1, "negative_answers": 1,
        "entropy_only_questions": 1,  # q2: a tie, so only the entropy term is left
        "merged_spellings": 3, "given_answers": 0, "group_sizes": {"4": 1, "16": 1}, "gold_questions": 2,
        "majority_accuracy": 0.75,  # q1 right, q2 a tie of two: 1/2
        "positive_accuracy": 1.0, "negative_accuracy": 1.0, "truth_flagged": 0.0,
        # q1: wrong classes 3 (0.3), 7 (0.6), 8 (0.1) against 0.2: 2/3; q2: 0.4 against 0.2: 1; mean 5/6
        "entropy_auroc": pytest.approx(5 / 6),
        "pass@1": 0.5,  # 8/16 and 2/4
        "pass@n": 1.0,
        # half of the completions are right in both, so cov(Â, right) is half of their advantage: 1 in the tie of q2; in q1
        # (0.508125 − μ)/σ of the rewards 8 × 0.508125, 4 × −0.001875, −0.094375, 0.018125, 2 × −0.125
        "push_right": pytest.approx((0.5 + 0.5 * (0.508125 - 0.233203125) / 0.2779263) / 2, abs=1e-4),
        "push_stock_wrong": None,  # two questions have too few others for stock answers
        "labels": [
            {"question_id": "q1", "step": 0, "label": "1/2", "share": 0.5}, {"question_id": "q2", "step": 0, "label": None, "share": 0.5},
        ],
    }  # fmt: skip
    assert "--std-floor" in printed


def test_the_labels_are_shown_whole_and_only_some_where_there_are_many(label):
    answer = "+".join(f"x_{{{n}}}" for n in range(40))  # wider than the terminal
    _, _, printed = label([row(f"q{n}", answer) for n in (1, 1, 2, 2)], "--method", "ttrl")
    assert "".join(printed.split()).count("100%") >= 2
    assert "…" not in printed
    _, _, printed = label([row(f"q{n}", "7") for n in range(90) for _ in "ab"], "--method", "ttrl")
    assert "q4 7 100%" in printed
    assert "q5 7" not in printed
    assert "Labels" not in label(stream(), "--method", "contrast")[2]  # which gives none


def stream(steps=2, questions=9, own=("4", "4", "5", "6")):
    """Every question says 4 half of the time and an answer of its own; in the last step they say 7."""
    for step in range(steps):
        for number in range(questions):
            stock = "7" if step and step == steps - 1 else own[0]
            for answer in (stock, stock, own[2], f"{1000 + number}"):
                yield row(f"q{number}", answer, step=step, gold=f"{1000 + number}")


def rewards_of(labels):
    return {(line["step"], line["question_id"], line["answer_class"]): line["reward"] for line in labels}


def test_contrast_looks_at_the_other_questions_of_the_step_and_at_earlier_ones(label):
    rows = sorted(stream(), key=lambda line: line["question_id"])  # steps are mixed
    labels, summary, _ = label(rows, "--method", "contrast")
    rewards = rewards_of(labels)
    # step 0: 4 has ½ everywhere, 5 has ¼, the question's own answer is nowhere else
    assert rewards[0, "q3", "4"] == pytest.approx(0.5 - 1.5 * 0.5)
    assert rewards[0, "q3", "5"] == pytest.approx(0.25 - 1.5 * 0.25)
    assert rewards[0, "q3", "1003"] == 0.25
    assert rewards[1, "q3", "7"] == pytest.approx(0.5 - 1.5 * 0.5)  # the last visits of all others were of this step
    assert (summary["steps"], summary["positive_questions"]) == (2, 0)
    assert summary["stock_share"] == 0.75  # 4 or 7, 5, and the smallest of the answers given once, which is of others
    assert summary["push_stock"] < 0 < summary["push_right"]
    assert summary["push_stock_wrong"] == pytest.approx(summary["push_stock"])
    assert rewards_of(label(reversed(rows), "--method", "contrast")[0]) == rewards  # in any order


def test_one_question_has_no_elsewhere(tmp_path):
    done = scrl("label", write_lines(tmp_path / "r.jsonl", Q2), "--method", "contrast", "--out", tmp_path / "l")
    assert done.returncode == 2
    assert "'contrast'" in done.stderr
    assert not (tmp_path / "l").exists()


def test_gold_changes_no_label(rollouts, label):
    labels, _, _ = label(rollouts)
    bare, summary, _ = label([{key: value for key, value in r.items() if key != "gold"} for r in read_lines(rollouts)])
    assert bare == labels
    assert "majority_accuracy" not in summary


def test_undefined_accuracies_are_null(label):
    _, summary, _ = label([row("q", "1", gold="9"), row("q", "2")])
    undefined = ("positive_accuracy", "negative_accuracy", "truth_flagged", "entropy_auroc")
    assert {summary[name] for name in undefined} == {None}
    assert summary["majority_accuracy"] == summary["pass@1"] == summary["pass@n"] == 0.0


def test_an_answer_read_elsewhere_wins_over_the_completion(label):
    written = {"completion": r"\boxed{5}", "gold": None}
    rows = [{"answer": "4"} | written, {"answer": None} | written, {"answer": 4.0}, {"answer": ""}]
    labels, _, _ = label([{"question_id": 3, **line} for line in rows], "--method", "ttrl")
    assert [line["answer"] for line in labels] == ["4", None, "4.0", None]
    assert [line["reward"] for line in labels] == [1.0, 0.0, 1.0, 0.0]


def test_the_m_of_n_are_marked_by_their_advantages(rollouts, label):
    labels, _, _ = label(rollouts, "--trained", 3, "--seed", 1)
    for question in ("q1", "q2"):
        assert sum(line["advantage"] is not None for line in labels if line["question_id"] == question) == 3
    assert all(line["reward"] is not None for line in labels)


def test_the_audit_says_which_spellings_were_merged_and_by_what(tmp_path):
    rows = [row("q", s) for s in ["1/2", r"\frac12", "3.0", "3", "3"]]
    done = scrl("label", write_lines(tmp_path / "r.jsonl", rows), "--audit", tmp_path / "a.jsonl")
    assert done.returncode == 0, done.stderr
    assert read_lines(tmp_path / "a.jsonl") == [
        {"question_id": "q", "step": 0, "answer_class": "1/2", "votes": 2,
         "spellings": [
             {"text": "1/2", "votes": 1, "merged_by": ""}, {"text": r"\frac12", "votes": 1, "merged_by": "exact"}]},
        {"question_id": "q", "step": 0, "answer_class": "3", "votes": 3,
         "spellings": [
             {"text": "3", "votes": 2, "merged_by": ""}, {"text": "3.0", "votes": 1, "merged_by": "exact"}]},
    ]  # fmt: skip


def test_options_reach_the_rule(label):
    rows = [row("q", "3.14"), row("q", "3.141"), row("q", r"\pi"), row("q", "9")]
    labels, _, _ = label(rows, "--significant-digits", 3, "--min-share", 0.75)
    assert [line["label"] for line in labels] == ["positive"] * 3 + [None]
    labels, _, _ = label(rows, "--preset", "official", "--method", "ttrl", "--reader", r"regex:\d")
    assert [line["answer"] for line in labels] == ["4", "1", None, "9"]


@pytest.mark.parametrize(
    ("pairs", "questions", "accuracy"),
    [
        ([("18", "so she has 18 eggs\n#### 18"), (r"\frac12", r"\boxed{0.5}"), ("C", "C")], 3, 1.0),
        ([("1", ""), ("1", " "), ("1", r"\text{}")], 0, None),
        ([("1", "1"), ("1", r"\boxed{}")], 1, 1.0),
    ],
)
def test_gold_may_stand_in_a_box_or_behind_hashes_and_what_cannot_be_read_is_none(pairs, questions, accuracy, label):
    _, summary, _ = label([row(f"q{n}", answer, gold=gold) for n, (answer, gold) in enumerate(pairs)])
    assert (summary["gold_questions"], summary["majority_accuracy"]) == (questions, accuracy)


def test_a_reader_beside_the_rollouts_is_found_by_the_installed_command(tmp_path):
    (tmp_path / "beside.py").write_text("def read(text):\n    return '7'\n")
    source = write_lines(tmp_path / "r.jsonl", [row("q", "1")])
    command = [Path(sys.executable).with_name("scrl"), "label", source, "--reader", "beside:read", "--out", "l.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_lines(tmp_path / "l.jsonl")[0]["answer"] == "7"


FEW = [row("q", str(n), 0.1 + n / 100) for n in range(8)]


@pytest.mark.parametrize(
    ("rows", "options", "remark", "is_said"),
    [
        (FEW, [], "rare enough", True),
        (FEW, ["--method", "scrl-without-negative"], "rare enough", False),
        (FEW, ["--method", "inverted"], "rare enough", False),  # it rules out the most frequent one
        (FEW, ["--trained", 1], "every advantage is 0", True),
        (FEW, ["--reader", "regex:zzz"], "another --reader", True),
        (FEW, [], "--std-floor", True),
        (FEW, ["--std-floor", 0.18], "--std-floor", False),
        ([row("q", "1") | {"answer": "2", "gold": None}] * 3, [], "3 completions", True),
    ],
)
def test_remarks_fit_the_method_and_the_file(rows, options, remark, is_said, label):
    assert (remark in label(rows, *options)[2]) == is_said
