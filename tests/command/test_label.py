"""`scrl label` as a user meets it: real processes, real files."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMAND, read, scrl, untraced

from scrl import __version__ as scrl_version


def row(question, answer, entropy=0.2, **more):
    return {"question_id": question, "completion": f"So \\boxed{{{answer}}}.", "entropy": entropy} | more


def write(path, rows):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


# q1: 8 × 1/2 in four spellings, 4 × 3, 1 × 7 (uncertain), 1 × 8 (certain), 2 without an answer: N = 16
Q1 = (
    [row("q1", s, 0.2, gold="0.5") for s in ["1/2", r"\frac12", "0.5", r"\dfrac{1}{2}"] * 2]
    + [row("q1", "3", 0.3)] * 4
    + [row("q1", "7", 0.6), row("q1", "8", 0.1)]
    + [{"question_id": "q1", "completion": "no idea", "entropy": 0.5}] * 2
)
# q2: a tie of 2 : 2, with a field that scrl 0.1 had
Q2 = [row("q2", "5", 0.2, gold="5", undecided_pairs=1)] * 2 + [row("q2", "6", 0.4)] * 2


@pytest.fixture
def rollouts(tmp_path):
    interleaved = [r for pair in zip(Q1, Q2 + [None] * 12, strict=True) for r in pair if r is not None]
    return write(tmp_path / "rollouts.jsonl", interleaved)


@pytest.fixture
def label(tmp_path):
    """`label(rows, *options)`: the labels, the summary and, in one line, what a command printed that worked."""

    def run(rows, *options):
        source = rows if isinstance(rows, Path) else write(tmp_path / "r.jsonl", rows)
        done = scrl("label", source, *options, "--out", tmp_path / "l.jsonl", "--summary", tmp_path / "s.json")
        assert done.returncode == 0, done.stderr
        return read(tmp_path / "l.jsonl"), json.loads((tmp_path / "s.json").read_text()), " ".join(done.stdout.split())

    return run


def test_labels_are_one_line_a_completion_in_the_order_of_the_file(rollouts, label):
    given, (labels, _, _) = read(rollouts), label(rollouts, "--method", "scrl")
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
        "schema_version": 2,
        "method": "scrl",
        "preset": "paper",
        "steps": 1,
        "questions": 2,
        "completions": 20,
        "no_answer_share": 0.1,
        "positive_questions": 1,
        "abstained_questions": 1,
        "negative_answers": 1,
        "entropy_only_questions": 1,  # q2: a tie, so only the entropy term is left
        "merged_spellings": 3,
        "given_answers": 0,
        "group_sizes": {"4": 1, "16": 1},
        "gold_questions": 2,
        "majority_accuracy": 0.75,  # q1 right, q2 a tie of two: 1/2
        "positive_accuracy": 1.0,
        "negative_accuracy": 1.0,
        "truth_flagged": 0.0,
        # q1: wrong classes 3 (0.3), 7 (0.6), 8 (0.1) against 0.2: 2/3; q2: 0.4 against 0.2: 1; mean 5/6
        "entropy_auroc": pytest.approx(5 / 6),
        "pass@1": 0.5,  # 8/16 and 2/4
        "pass@n": 1.0,
        # half of the completions are right in both, so cov(Â, right) is half of their advantage: 1 in the tie of q2; in q1
        # (0.508125 − μ)/σ of the rewards 8 × 0.508125, 4 × −0.001875, −0.094375, 0.018125, 2 × −0.125
        "push_right": pytest.approx((0.5 + 0.5 * (0.508125 - 0.233203125) / 0.2779263) / 2, abs=1e-4),
        "push_stock_wrong": None,  # two questions have too few others for stock answers
    }
    assert "positive label" in printed
    assert "--std-floor" in printed


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
    labels, summary, printed = label(rows, "--method", "contrast")
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
    assert "at their last visit" in printed
    assert rewards_of(label(reversed(rows), "--method", "contrast")[0]) == rewards  # in any order


def test_a_file_without_steps_is_one_step_and_says_so(label):
    rows = [{key: value for key, value in line.items() if key != "step"} for line in stream(steps=1)]
    _, summary, printed = label(rows, "--method", "contrast")
    assert ("The file has one step" in printed, summary["steps"]) == (True, 1)
    assert label(rows, "--method", "ttrl")[2].count("push towards") == 3


def test_one_question_has_no_elsewhere(tmp_path):
    done = scrl("label", write(tmp_path / "r.jsonl", Q2), "--method", "contrast", "--out", tmp_path / "l")
    assert done.returncode == 2
    assert "method 'contrast' compares a question's votes with those of other questions" in done.stderr
    assert not (tmp_path / "l").exists()


def test_gold_changes_no_label(rollouts, label):
    labels, _, _ = label(rollouts)
    bare, summary, _ = label([{key: value for key, value in r.items() if key != "gold"} for r in read(rollouts)])
    assert bare == labels
    assert "majority_accuracy" not in summary


def test_undefined_accuracies_are_null(label):
    _, summary, _ = label([row("q", "1", gold="9"), row("q", "2")])
    undefined = ("positive_accuracy", "negative_accuracy", "truth_flagged", "entropy_auroc")
    assert {summary[name] for name in undefined} == {None}
    assert summary["majority_accuracy"] == summary["pass@1"] == summary["pass@n"] == 0.0


def test_groups_are_step_and_question(label):
    labels, _, _ = label([row("q", str(step), step=step, sample=n) for n in range(3) for step in (0, 1)])
    found = [(line["step"], line["sample"], line["share"]) for line in labels]
    assert found == [(step, n, 1.0) for n in range(3) for step in (0, 1)]


def test_an_answer_read_elsewhere_wins_over_the_completion(label):
    rows = [
        {"question_id": 3, "answer": "4", "completion": r"\boxed{5}"},
        {"question_id": 3, "answer": None, "completion": r"\boxed{5}"},
        {"question_id": 3, "answer": 4.0},
        {"question_id": 3, "answer": ""},
    ]
    labels, _, _ = label(rows, "--method", "ttrl")
    assert [line["answer"] for line in labels] == ["4", None, "4.0", None]
    assert [line["reward"] for line in labels] == [1.0, 0.0, 1.0, 0.0]


def test_the_m_of_n_are_marked_by_their_advantages(rollouts, label):
    labels, _, _ = label(rollouts, "--trained", 3, "--seed", 1)
    for question in ("q1", "q2"):
        assert sum(line["advantage"] is not None for line in labels if line["question_id"] == question) == 3
    assert all(line["reward"] is not None for line in labels)


def test_the_audit_says_which_spellings_were_merged_and_by_what(tmp_path):
    rows = [row("q", s) for s in ["1/2", r"\frac12", "3.0", "3", "3"]]
    done = scrl("label", write(tmp_path / "r.jsonl", rows), "--audit", tmp_path / "a.jsonl")
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "a.jsonl") == [
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


def test_compressed_files_byte_order_marks_and_null_completions_are_fine(tmp_path, label):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(row("q", "1")) + "\n").encode()))
    assert len(label(path)[0]) == 1
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"question_id": "q", "answer": "4", "completion": null, "entropy": 0}\n')
    assert label(path)[0][0]["answer"] == "4"


GOOD = json.dumps(row("q", "1"))


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        ([GOOD, "{"], [], r"r.jsonl:2: is not JSON"),
        ([GOOD, '{"a": "b'], [], r"r.jsonl:2: is not JSON: Unterminated string starting at column 7."),
        ([GOOD, '{"question_id": "q", "answer": ' + "9" * 5000 + "}"], [], r"r.jsonl:2: is not JSON"),
        ([GOOD, "[1]"], [], r"r.jsonl:2: must be a JSON object, found a list"),
        ([GOOD, '{"completion": "x", "entropy": 1}'], [], r"r.jsonl:2: field 'question_id' is missing; this line has: completion, entropy"),
        ([GOOD, '{"question_id": "q", "entropy": 1}'], [], r"r.jsonl:2: neither field 'completion' nor field 'answer' is there; this line has: question_id, entropy"),
        ([GOOD, '{"question_id": "q", "completion": 5, "entropy": 1}'], [], r"r.jsonl:2: field 'completion' must be text, found a number"),
        ([GOOD, '{"question_id": "q", "completion": "x"}'], [], r"r.jsonl:2: field 'entropy' is missing, and method 'scrl' needs one"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": "a"}'], [], r"r.jsonl:2: field 'entropy' must be a number"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": NaN}'], [], r"r.jsonl:2: field 'entropy' must be a number"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1' + "0" * 400 + "}"], [], r"r.jsonl:2: field 'entropy' must be a number"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1e308}'], [], r"r.jsonl:2: field 'entropy' must be a number"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1, "num_tokens": 1' + "0" * 400 + "}"], [], r"r.jsonl:2: field 'num_tokens' must be a number"),
        ([GOOD], ["--overlong-buffer", "9"], "overlong_buffer: needs to know at how many tokens completions are cut (max_tokens)"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1, "num_tokens": "9"}'], [], r"r.jsonl:2: field 'num_tokens' must be a number, found '9'"),
        ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1, "step": -1}'], [], r"r.jsonl:2: field 'step' must be a whole number"),
        ([GOOD, '{"question_id": "q", "answer": true, "entropy": 1}'], [], r"r.jsonl:2: field 'answer' must be text, a number or null, found true"),
        ([GOOD, '{"question_id": "q", "answer": {}, "entropy": 1}'], [], r"r.jsonl:2: field 'answer' must be text, a number or null, found an object"),
        ([json.dumps(row("q", "1", sample=1)), json.dumps(row("q", "2", sample=1))], [], r"r.jsonl:2: sample 1 of question 'q' at step 0 stands here a second time"),
        ([json.dumps(row("q", "1", gold="1")), json.dumps(row("q", "2", gold="2"))], [], r"r.jsonl:2: field 'gold' is '2', but an earlier line"),
        ([], [], "there are no rollouts in this file"),
        ([GOOD], ["--method", "scrll"], "Did you mean 'scrl'"),
        ([GOOD], ["--min-share", "1.5"], "min_share"),
        ([GOOD], ["--min-margin", "-1"], "min_margin"),
        ([GOOD], ["--max-negative-share", "2"], "max_negative_share"),
        ([GOOD], ["--trained", "2"], "has 1 completions, fewer than the 2 to train on"),
        ([GOOD], ["--trained", "x"], "--trained"),
        ([GOOD], ["--reader", "boxd"], "Did you mean 'boxed'"),
        ([GOOD], ["--preset", "x"], "Known: official, paper"),
        ([GOOD], ["--treshold", "1"], "--treshold: there is no such setting. scrl methods scrl shows all."),
        ([GOOD, '{"question_id": "q", "completion": "\\boxed{1}", "entropy": 1}'], [], r"r.jsonl:2: field 'completion' has a backspace"),
        ([GOOD, '{"question_id": [], "completion": "x", "entropy": 1}'], [], r"r.jsonl:2: field 'question_id' must be text"),
        ([GOOD], ["--method", "ttrl", "--min-share", "0.4"], "--min-share: method 'ttrl' has no such setting"),
        ([GOOD], ["--trained", "2.5"], "--trained: must be a whole number; got '2.5'"),
        ([GOOD], ["--sumary", "x"], "Did you mean --summary?"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_and_nothing_is_written(tmp_path, lines, arguments, message):
    source = tmp_path / "r.jsonl"
    source.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    done = scrl(
        "label", source, *arguments, "--out", out / "l.jsonl", "--summary", out / "s.json", "--audit", out / "a.jsonl"
    )
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert list(out.iterdir()) == []


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path):
    binary = tmp_path / "r.jsonl"
    binary.write_bytes(b'{"question_id": "\xff"}')
    done = scrl("label", binary)
    assert (done.returncode, "r.jsonl:1: is not UTF-8" in done.stderr) == (2, True)
    done = scrl("label", tmp_path / "none.jsonl")
    assert (done.returncode, "cannot be read: No such file" in done.stderr) == (2, True)


def test_outputs_that_would_destroy_something_are_refused(tmp_path):
    source = write(tmp_path / "r.jsonl", [row("q", "1")])
    for arguments in (
        ["--out", source],
        ["--out", tmp_path],
        ["--out", tmp_path / "no" / "l"],
        ["--out", tmp_path / "l", "--audit", tmp_path / "l"],
    ):
        assert scrl("label", source, *arguments).returncode == 2
    assert len(read(source)) == 1


def test_an_existing_output_survives_a_failing_run(tmp_path):
    (tmp_path / "reader_that_fails.py").write_text("def read(text):\n    return 1 / 0\n")
    source = write(tmp_path / "r.jsonl", [row("q", "1")])
    (tmp_path / "l.jsonl").write_text("precious")
    done = scrl("label", source, "--reader", "reader_that_fails.read", "--out", tmp_path / "l.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert (tmp_path / "l.jsonl").read_text() == "precious"
    assert not list(tmp_path.glob(".*"))


def test_small_groups_are_told_that_negatives_are_impossible(label):
    _, _, printed = label([row("q", str(n)) for n in range(8)])
    assert "On 1 of 1 questions no answer can be rare enough to be ruled out" in printed


def test_help_and_version():
    assert "Example: scrl label" in " ".join(scrl("label", "--help").stdout.split())
    assert scrl("--version").stdout.strip() == scrl_version
    assert scrl("lable").returncode == 2
    assert scrl("label").returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_writes_nothing_and_exits_with_130(tmp_path):
    (tmp_path / "slow_reader.py").write_text(
        "import time\ndef read(text):\n    print('reading', flush=True)\n    time.sleep(60)\n"
    )
    source = write(tmp_path / "r.jsonl", [row("q", "1")])
    command = [*COMMAND, "label", str(source), "--reader", "slow_reader.read", "--out", "l.jsonl"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=untraced(), text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "reading\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()  # does nothing where it has ended
    assert process.returncode == 130
    assert "no file was left half-written" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "l.jsonl").exists()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_progress_is_shown_on_a_terminal_and_a_plain_line_elsewhere(tmp_path):
    import pty

    source = write(tmp_path / "r.jsonl", [row(f"q{n}", "1") for n in range(200)])
    ours, theirs = pty.openpty()
    command = [*COMMAND, "label", str(source)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=False, timeout=120)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "labelling" in shown
    assert "%" in shown
    assert scrl("label", source).stderr.startswith(f"labelling {source}")


def test_broken_compressed_files_are_refused_by_name(tmp_path):
    whole = gzip.compress((json.dumps(row("q", "1")) + "\n").encode() * 1000)
    for name, content in (("cut", whole[:-20]), ("not", b"plain text"), ("bad", whole[:20] + b"\0" * 20 + whole[40:])):
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(content)
        done = scrl("label", path)
        assert done.returncode == 2, done.stderr
        assert f"{name}.jsonl.gz" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs FIFOs")
def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = write(tmp_path / "r.jsonl", [row("q", "1")])
    assert scrl("label", source, "--out", pipe).returncode == 2
    assert not pipe.is_file()
    assert "not a regular file" in scrl("label", pipe).stderr


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    scrl("label", write(tmp_path / "r.jsonl", [row("q", "1")]), "--out", tmp_path / "link.jsonl")
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(read(tmp_path / "real.jsonl")) == 1


def test_the_summary_names_the_preset_of_the_rule(tmp_path):
    import scrl

    source = write(tmp_path / "r.jsonl", [row("q", "1"), row("q", "{}"), row("q", r"\,")])
    summary = scrl.label_file(str(source), scrl.credit_rule("scrl", preset="official"))
    assert summary["preset"] == "official"
    assert summary["merged_spellings"] == 0  # missing answers are no spellings


@pytest.mark.parametrize(
    ("answers_and_gold", "questions", "accuracy"),
    [
        ([("18", "so she has 18 eggs\n#### 18"), (r"\frac12", r"\boxed{0.5}"), ("C", "C")], 3, 1.0),
        ([("1", ""), ("1", " "), ("1", r"\text{}")], 0, None),
        ([("1", "1"), ("1", r"\boxed{}")], 1, 1.0),
    ],
)
def test_gold_may_stand_in_a_box_or_behind_hashes_and_what_cannot_be_read_is_none(
    answers_and_gold, questions, accuracy, label
):
    _, summary, _ = label([row(f"q{n}", answer, gold=gold) for n, (answer, gold) in enumerate(answers_and_gold)])
    assert (summary["gold_questions"], summary["majority_accuracy"]) == (questions, accuracy)


def test_sample_numbers_may_come_in_any_order_and_size(tmp_path, label):
    labels, _, _ = label([row("q", "1", sample=n) for n in (5, 0, 10**9, 1)])
    assert [line["sample"] for line in labels] == [5, 0, 10**9, 1]
    mixed = write(tmp_path / "m.jsonl", [row("q", "1"), row("q", "1", sample=2), row("q", "1")])
    assert "sample 2 of question 'q' at step 0 stands here a second time" in " ".join(
        scrl("label", mixed).stderr.split()
    )


def test_a_reader_beside_the_rollouts_is_found_by_the_installed_command(tmp_path):
    (tmp_path / "beside.py").write_text("def read(text):\n    return '7'\n")
    source = write(tmp_path / "r.jsonl", [row("q", "1")])
    command = [
        str(Path(sys.executable).with_name("scrl")), "label", str(source), "--reader", "beside:read", "--out",
        "l.jsonl",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "l.jsonl")[0]["answer"] == "7"


FEW = [row("q", str(n), 0.1 + n / 100) for n in range(8)]


@pytest.mark.parametrize(
    ("rows", "options", "remark", "is_said"),
    [
        (FEW, ["--method", "scrl-without-negative"], "rare enough", False),
        (FEW, ["--method", "inverted"], "rare enough", False),  # it rules out the most frequent one
        (FEW, ["--method", "ddrl", "--trained", 1], "every advantage is 0", False),
        (FEW, ["--trained", 1], "every advantage is 0", True),
        ([row("q", str(n)) for n in range(16)], [], "only answers seen once can be ruled out", True),
        (FEW, ["--reader", "regex:zzz"], "Try --reader number", True),
        (FEW, [], "--std-floor", True),
        (FEW, ["--std-floor", 0.18], "--std-floor", False),
        ([row("q", "1") | {"answer": "2"}] * 3, [], "3 completions came with an 'answer'", True),
        ([row("q", "1") | {"answer": "2"}, row("q", "1")], [], "1 completion came with an 'answer'", True),
    ],
)
def test_remarks_fit_the_method_and_the_file(rows, options, remark, is_said, label):
    assert (remark in label(rows, *options)[2]) == is_said
