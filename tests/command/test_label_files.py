"""`scrl label` and its files: what it refuses to read, and what it never destroys."""

import gzip
import json
import os
import signal
import subprocess

import pytest
from commands import COMMAND, row, scrl, untraced
from line_files import read_lines, write_lines


def refusal(*words):
    done = scrl("label", *words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


GOOD = json.dumps(row("q", "1"))


@pytest.mark.parametrize(("lines", "arguments", "message"), [
    ([GOOD, "{"], [], r"r.jsonl:2"),
    ([GOOD, '{"question_id": "q", "answer": ' + "9" * 5000 + "}"], [], r"r.jsonl:2"),
    ([GOOD, "[1]"], [], r"r.jsonl:2"),
    ([GOOD, '{"completion": "x", "entropy": 1}'], [], r"r.jsonl:2: field 'question_id'"),
    ([GOOD, '{"question_id": "q", "entropy": 1}'], [], r"r.jsonl:2"),
    ([GOOD, '{"question_id": "q", "completion": 5, "entropy": 1}'], [], r"r.jsonl:2: field 'completion'"),
    ([GOOD, '{"question_id": "q", "completion": "x"}'], [], "entropy for every completion (question 'q'"),
    ([GOOD, '{"question_id": "q", "completion": "x", "entropy": NaN}'], [], r"r.jsonl:2: field 'entropy'"),
    ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1' + "0" * 400 + "}"], [], r"r.jsonl:2: field 'entropy'"),
    ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1e308}'], [], r"r.jsonl:2: field 'entropy'"),
    ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1, "num_tokens": 1' + "0" * 400 + "}"], [], r"r.jsonl:2: field 'num_tokens'"),
    ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1, "num_tokens": "9"}'], [], r"r.jsonl:2: field 'num_tokens'"),
    ([GOOD, '{"question_id": "q", "completion": "x", "entropy": 1, "step": -1}'], [], r"r.jsonl:2: field 'step'"),
    ([GOOD, '{"question_id": "q", "answer": true, "entropy": 1}'], [], r"r.jsonl:2: field 'answer'"),
    ([GOOD, '{"question_id": "q", "answer": {}, "entropy": 1}'], [], r"r.jsonl:2: field 'answer'"),
    ([json.dumps(row("q", "1", sample=1)), json.dumps(row("q", "2", sample=1))], [], r"r.jsonl:2"),
    ([json.dumps(row("q", "1", gold="1")), json.dumps(row("q", "2", gold="2"))], [], r"r.jsonl:2: field 'gold'"),
    ([], [], "r.jsonl"),
    ([GOOD], ["--method", "scrll"], "'scrl'"),
    ([GOOD], ["--min-share", "1.5"], "min_share"),
    ([GOOD], ["--trained", "2"], "fewer than the 2"),
    ([GOOD], ["--reader", "boxd"], "'boxed'"),
    ([GOOD], ["--preset", "x"], "official"),
    ([GOOD], ["--treshold", "1"], "--treshold"),
    ([GOOD, '{"question_id": "q", "completion": "\\boxed{1}", "entropy": 1}'], [], r"r.jsonl:2: field 'completion'"),
    ([GOOD, '{"question_id": [], "completion": "x", "entropy": 1}'], [], r"r.jsonl:2: field 'question_id'"),
    ([GOOD], ["--method", "ttrl", "--min-share", "0.4"], "--min-share"),
    ([GOOD], ["--trained", "2.5"], "--trained"),
])  # fmt: skip
def test_bad_input_is_refused_and_nothing_is_written(tmp_path, lines, arguments, message):
    source = tmp_path / "r.jsonl"
    source.write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    files = ("--out", out / "l.jsonl", "--summary", out / "s.json", "--audit", out / "a.jsonl")
    assert message in refusal(source, *arguments, *files)
    assert list(out.iterdir()) == []


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path):
    binary = tmp_path / "r.jsonl"
    binary.write_bytes(b'{"question_id": "\xff"}')
    assert "r.jsonl:1" in refusal(binary)
    assert "none.jsonl" in refusal(tmp_path / "none.jsonl")


def test_outputs_that_would_destroy_something_are_refused(tmp_path):
    source = write_lines(tmp_path / "r.jsonl", [row("q", "1")])
    for outputs in ([source], [tmp_path], [tmp_path / "no" / "l"], [tmp_path / "l", "--audit", tmp_path / "l"]):
        refusal(source, "--out", *outputs)
    run, votes = tmp_path / "run", write_lines(tmp_path / "votes.jsonl", [row("q", "1")])
    run.mkdir()
    ours = write_lines(run / "rollouts.jsonl", [row("q", "1")])
    for out in (ours, votes):
        assert "overwrite" in refusal(run, "--method", "ttrl", "--label-votes", votes, "--out", out)
    assert len(read_lines(source)) == 1
    assert "label" not in read_lines(ours)[0].keys() | read_lines(votes)[0].keys()


def test_an_existing_output_survives_a_failing_run(tmp_path):
    (tmp_path / "reader_that_fails.py").write_text("def read(text):\n    return 1 / 0\n")
    source = write_lines(tmp_path / "r.jsonl", [row("q", "1")])
    (tmp_path / "l.jsonl").write_text("precious")
    done = scrl("label", source, "--reader", "reader_that_fails.read", "--out", tmp_path / "l.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert (tmp_path / "l.jsonl").read_text() == "precious"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_writes_nothing_and_exits_with_130(tmp_path):
    reader = "import time\ndef read(text):\n    print('reading', flush=True)\n    time.sleep(60)\n"
    (tmp_path / "slow_reader.py").write_text(reader)
    source = write_lines(tmp_path / "r.jsonl", [row("q", "1")])
    command = [*COMMAND, "label", str(source), "--reader", "slow_reader.read", "--out", "l.jsonl"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=untraced(), text=True, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout.readline() == "reading\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        finally:
            process.kill()  # does nothing where it has ended
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not (tmp_path / "l.jsonl").exists()
    assert not list(tmp_path.glob(".*"))


def test_broken_compressed_files_are_refused_by_name(tmp_path):
    whole = gzip.compress((json.dumps(row("q", "1")) + "\n").encode() * 1000)
    for name, content in (("cut", whole[:-20]), ("not", b"plain text"), ("bad", whole[:20] + b"\0" * 20 + whole[40:])):
        path = tmp_path / f"{name}.jsonl.gz"
        path.write_bytes(content)
        assert f"{name}.jsonl.gz" in refusal(path)


@pytest.mark.skipif(os.name != "posix", reason="needs FIFOs")
def test_what_is_no_file_is_neither_read_nor_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = write_lines(tmp_path / "r.jsonl", [row("q", "1")])
    refusal(source, "--out", pipe)
    assert not pipe.is_file()
    assert str(pipe) in refusal(pipe)


def test_answers_are_read_as_the_evaluation_that_wrote_them_did(tmp_path, call):
    (tmp_path / "eval" / "rollouts").mkdir(parents=True)
    (tmp_path / "eval" / "evaluation.yaml").write_text("reader: last-number\n")
    lines = [{"question_id": "a", "sample": each, "completion": f"so it is {each % 2}"} for each in range(4)]
    file = write_lines(tmp_path / "eval" / "rollouts" / "quiz.jsonl", lines)
    for place, words, answered in ((file, (), 4), (file, ("--reader", "boxed"), 0), (tmp_path / "eval", (), 4)):
        code, _, error = call("label", place, "--method", "ttrl", "--summary", "summary.json", *words)
        assert code == 0, error
        assert ("last-number" in error) == bool(answered)
        summary = json.loads((tmp_path / "summary.json").read_text())
        assert summary["no_answer_share"] == 1 - answered / 4
    (tmp_path / "eval" / "evaluation.yaml").write_text("reader: sound:last-number\n")
    assert call("label", file, "--method", "ttrl")[0] == 0
    write_lines(file.with_name("other.jsonl"), lines)
    code, _, error = call("label", tmp_path / "eval")
    assert (code, error.count(".jsonl")) == (2, 2)  # which of the two?


@pytest.mark.parametrize(
    "setting", ["reader: os:system", "reader: [1]", "reader: 'regex:(a+)+'", "significant_digits: x"]
)
def test_no_code_pattern_or_damage_is_taken_from_the_settings_beside_a_file(setting, tmp_path):
    (tmp_path / "config.yaml").write_text(setting)
    file = write_lines(tmp_path / "rollouts.jsonl", [row("q", "1")])
    assert f"config.yaml: {setting.split(':')[0]}: " in refusal(file)
