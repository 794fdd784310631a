"""`scrl answers`: a run's answers, any model's answers, and how far to trust them."""

import csv

import pytest
from line_files import read_lines, write_lines

from scrl.cli.main import main
from scrl.evaluation.answer_sheet import LEAST_COMPLETIONS, answer_rows, write_run_answers


def votes(*pairs, question="?"):
    return {"question": question, "votes": list(pairs)}


def evaluation(step, answers):
    return {
        "step": step, "model": "m", "benchmark": "stream", "questions": len(answers), "samples": 8,
        "temperature": 0.6, "top_p": 0.95, "max_tokens": 72, "answers": answers,
    }  # fmt: skip


START = {"a": votes(("1/2", 0.5), ("3", 0.25)), "b": votes(("7", 0.625)), "c": votes()}
END = {"a": votes(("0.5", 0.875), ("3", 0.125)), "b": votes(("8", 0.5), ("7", 0.375)), "c": votes()}


def test_rows_say_answer_agreement_trust_and_change():
    a, b, c = answer_rows(evaluation(4, END), evaluation(0, START))
    assert (a.answer, a.share, a.runner_up) == ("0.5", 0.875, "3")
    assert (a.is_trusted, a.start_answer, a.is_changed) == (True, "1/2", False)
    assert (b.answer, b.start_answer, b.is_changed) == ("8", "7", True)
    assert not b.is_trusted  # a lead of 0.125 is not above it
    assert (c.answer, c.share, c.is_trusted, c.is_changed) == (None, 0, False, False)
    assert a.p_right is None
    cut = {"a": votes(("0.5", 0.875), ("3", 0.125)) | {"cut": 0.625}}  # what is left has a share of 0.25
    assert not answer_rows(evaluation(4, cut))[0].is_trusted


@pytest.mark.parametrize(("samples", "is_trusted"), [(LEAST_COMPLETIONS - 1, False), (LEAST_COMPLETIONS, True)])
def test_few_votes_are_trusted_by_nobody(samples, is_trusted):
    all_agree = evaluation(4, {"a": votes(("5", 1.0))}) | {"samples": samples}
    (row,) = answer_rows(all_agree)
    assert (row.is_trusted, row.note is None) == (is_trusted, is_trusted)


@pytest.fixture
def run(tmp_path):
    """40 questions: what many completions agree on is right."""
    shares = [(q % 8 + 1) / 8 for q in range(40)]
    answers = {f"q{q}": votes((str(q), share), question=f"What is {q}?") for q, share in enumerate(shares)}
    return write_lines(tmp_path / "evaluations.jsonl", [evaluation(0, answers), evaluation(4, answers)]).parent


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_of_several_benchmarks_one_must_be_named(tmp_path, refusal):
    lines = [evaluation(0, {"a": votes(("1", 1.0))}) | {"benchmark": name} for name in ("amc", "mine.jsonl")]
    write_lines(tmp_path / "evaluations.jsonl", lines)
    assert "amc, mine.jsonl" in refusal("answers", tmp_path)
    assert main(["answers", str(tmp_path), "--benchmark", "mine.jsonl"]) == 0
    assert (tmp_path / "answers-mine.csv").is_file()


def test_the_votes_of_a_file_of_completions(tmp_path, capsys, refusal):
    """A table of another tool; the last visit of a question counts, and a right answer does not."""
    said = ["so it is 4", "it is 4.0", "perhaps 5", "4"] * 2
    rows = [{"id": "q", "question": "2 + 2?", "response": text, "answer": "5", "step": 1} for text in said]
    rows += [{"id": "q", "question": "2 + 2?", "response": "9", "answer": "5", "step": 0}] * 8
    file = write_lines(tmp_path / "mine.jsonl", rows)
    assert main(["answers", str(file), "--reader", "last-number"]) == 0
    (found,) = read(tmp_path / "mine-answers.csv")
    assert (found["question"], found["answer"], found["share"], found["is_trusted"]) == ("2 + 2?", "4", "0.75", "True")
    assert "id: id" in capsys.readouterr().err
    assert "temperature" in refusal("answers", file, "--temperature", 1)
    for name in ("mine-answers.jsonl", "mine-answers.csv"):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_text("mine, not scrl's\n")
        assert name in refusal("answers", file)
        (tmp_path / name).write_bytes(kept)
    assert main(["answers", str(file), "--reader", "number", "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "mine-answers.jsonl").is_file()


def test_the_votes_of_a_folder_by_a_column_that_is_named(tmp_path):
    """One file per step, as trainers write them; names keep their dots; few votes on one question doubt that alone."""
    (tmp_path / "qwen2.5-3b").mkdir()
    for step, row in enumerate(({"q": "a", "txt": "it is 4"}, {"q": "b", "txt": "it is 5"})):
        write_lines(tmp_path / "qwen2.5-3b" / f"{step}.jsonl", [row] * (8 - step))
    words = ["--completion-column", "txt", "--question-column", "q", "--reader", "last-number"]
    assert main(["answers", str(tmp_path / "qwen2.5-3b"), *words]) == 0
    rows = read(tmp_path / "qwen2.5-3b-answers.csv")
    assert [(row["question"], row["answer"], row["is_trusted"]) for row in rows] == [
        ("a", "4", "True"),
        ("b", "5", "False"),  # seven votes
    ]


def test_files_and_tables_from_a_runs_folder(run, capsys):
    assert main(["answers", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "Most agreement: 5 of 40" in shown
    assert "What is 7?" in shown
    assert "5 of 10" in shown  # shares of 1/8 and 2/8 are below 0.375
    rows = read(run / "answers.csv")
    assert rows[3]["question"] == "What is 3?"
    assert "p_right" not in rows[3]
    assert read_lines(run / "answers.jsonl")[3] == {
        "question_id": "q3", "question": "What is 3?", "answer": "3", "share": 0.5, "runner_up_share": 0.0,
        "is_trusted": True, "start_answer": "3", "start_share": 0.5, "is_changed": False,
    }  # fmt: skip


@pytest.fixture
def stopped(run):
    """The same run after Ctrl-C: measured at step 0 and at step 4, and stopped after step 7 of 12."""
    (run / "config.yaml").write_text("questions: mine.jsonl\nsteps: 12\n")
    (run / "checkpoints" / "last").mkdir(parents=True)
    (run / "checkpoints" / "last" / "trainer_state.json").write_text('{"version": 1, "step": 7, "stopped_for": []}')
    return run


@pytest.mark.parametrize("step", [4, 0])
def test_answers_of_an_earlier_step_than_the_run_has_come_to_say_so(stopped, step, capsys):
    lines = [line for line in read_lines(stopped / "evaluations.jsonl") if line["step"] <= step]
    write_lines(stopped / "evaluations.jsonl", lines)
    assert main(["answers", str(stopped)]) == 0
    shown = capsys.readouterr().out
    assert f"scrl train --resume {stopped}" in shown
    assert f"scrl answers --model {stopped}/checkpoints/last --questions mine.jsonl" in shown
    (note,) = {row["note"] for row in read(stopped / "answers.csv")}
    assert f"step {step}" in note
    assert "step 7" in note
    write_run_answers(stopped)  # as a run does when it is stopped
    assert {line["note"] for line in read_lines(stopped / "answers.jsonl")} == {note}


def test_answers_of_where_a_run_stands_need_no_note(stopped, capsys):
    (stopped / "checkpoints" / "last" / "trainer_state.json").write_text('{"version": 1, "step": 4, "stopped_for": []}')
    assert main(["answers", str(stopped)]) == 0
    assert "measured at" not in capsys.readouterr().out
    assert "note" not in read(stopped / "answers.csv")[0]


def fill_in(run, path, is_right):
    rows = read(run / "checks.csv")
    for row in rows:
        number = int(row["question_id"][1:])
        row["answer"] = str(number if is_right(number) else -1)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_checked_answers_make_chances_and_a_guarantee(run, tmp_path, capsys):
    assert main(["answers", str(run), "--draw-check", "30"]) == 0
    drawn = read(run / "checks.csv")
    assert len({row["question_id"] for row in drawn}) == 30
    assert drawn[0]["question"].startswith("What is")
    fill_in(run, tmp_path / "filled.csv", lambda number: number % 8 >= 1)
    capsys.readouterr()
    assert main(["answers", str(run), "--check", str(tmp_path / "filled.csv"), "--max-error", "0.3"]) == 0
    assert "at most 30%" in " ".join(capsys.readouterr().out.split())
    rows = read(run / "answers.csv")
    assert float(rows[7]["p_right"]) == 1  # share 1
    assert float(rows[0]["p_right"]) == 0  # share 1/8
    assert rows[7]["is_answered"] == "True"
    assert rows[0]["is_answered"] == "False"


def test_ids_that_look_like_formulas_are_guarded_and_read_back(tmp_path):
    answers = {f"=q{q}": votes((str(q), 1.0)) for q in range(10)}
    write_lines(tmp_path / "evaluations.jsonl", [evaluation(0, answers)])
    assert main(["answers", str(tmp_path), "--draw-check", "10"]) == 0
    text = (tmp_path / "checks.csv").read_text()
    assert "'=q7," in text
    (tmp_path / "filled.csv").write_text(text.replace(",?,", ",?,7"))
    assert main(["answers", str(tmp_path), "--check", str(tmp_path / "filled.csv")]) == 0
    assert [line["checked"] for line in read_lines(tmp_path / "answers.jsonl")] == [q == 7 for q in range(10)]


@pytest.mark.parametrize(("digits", "is_same"), [({"significant_digits": 3}, True), ({}, False)])
def test_answers_are_compared_as_the_evaluation_compared_them(tmp_path, digits, is_same):
    """3.142 is 3.14 to three digits. Files without the field are of exact comparisons."""
    start, end = ({f"q{q}": votes((answer, 1.0)) for q in range(10)} for answer in ("3.1416", "3.142"))
    write_lines(tmp_path / "evaluations.jsonl", [evaluation(0, start) | digits, evaluation(4, end) | digits])
    rows = "".join(f"q{q},3.14\n" for q in range(10))
    (tmp_path / "filled.csv").write_text(f"question_id,answer\n{rows}")
    assert main(["answers", str(tmp_path), "--check", str(tmp_path / "filled.csv")]) == 0
    for line in read_lines(tmp_path / "answers.jsonl"):
        assert (line["checked"], line["is_changed"]) == (is_same, not is_same)


@pytest.mark.parametrize("digits", ["3", True, 0, 2.5])
def test_digits_that_no_evaluation_has_are_refused(run, digits, refusal):
    write_lines(run / "evaluations.jsonl", [evaluation(0, END) | {"significant_digits": digits}])
    assert "significant_digits" in refusal("answers", run)


def test_checks_are_read_as_gold_answers_are(tmp_path):
    """Numbers of JSON, 0 too; in a box; behind ####; and as answers.csv guards what looks like a formula."""
    answers = {"0": "0", "1": "1/2", "2": "7", "3": "-\\frac12", "4": "-x"} | {str(q): "5" for q in range(5, 10)}
    line = evaluation(0, {question_id: votes((answer, 1.0)) for question_id, answer in answers.items()})
    write_lines(tmp_path / "evaluations.jsonl", [line])
    given = [0, "\\boxed{0.5}", "3 + 4 = 7\n#### 7", "'-\\frac12", "-x", *[5] * 5]
    checks = [{"question_id": number, "answer": answer} for number, answer in enumerate(given)]
    assert main(["answers", str(tmp_path), "--check", str(write_lines(tmp_path / "checks.jsonl", checks))]) == 0
    lines = read_lines(tmp_path / "answers.jsonl")
    assert [line["checked"] for line in lines] == [True] * 10
    assert "'-\\frac12" in (tmp_path / "answers.csv").read_text()


def test_a_step_at_which_these_questions_were_not_measured_is_refused(run, refusal):
    lines = [*read_lines(run / "evaluations.jsonl"), evaluation(2, END) | {"benchmark": "held-out"}]
    write_lines(run / "evaluations.jsonl", lines)
    assert f"{run}@2" in refusal("answers", f"{run}@2")
    assert main(["answers", f"{run}@2", "--benchmark", "held-out"]) == 0


def test_where_nothing_qualifies_nothing_is_answered(run, tmp_path):
    assert main(["answers", str(run), "--draw-check", "10", "--seed", "1"]) == 0
    fill_in(run, tmp_path / "filled.csv", lambda _: False)
    assert main(["answers", str(run), "--check", str(tmp_path / "filled.csv"), "--max-error", "0.1"]) == 0
    assert {row["is_answered"] for row in read(run / "answers.csv")} == {"False"}


def test_an_answer_that_nobody_could_check_counts_as_wrong(run, tmp_path, capsys):
    unknown = ["I do not know", "don't know", "?", "{}"]
    rows = [f"q{q},{unknown[q] if q < 4 else q}" for q in range(20)]
    (tmp_path / "filled.csv").write_text("\n".join(["question_id,answer", *rows]))
    assert main(["answers", str(run), "--check", str(tmp_path / "filled.csv"), "--out", str(tmp_path / "new")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    # Clopper-Pearson of 16 in 20: 0.563 to 0.943
    assert "16 of the 20 answers checked" in shown
    assert "80% [56%, 94%]; 4 could not be checked" in shown
    assert [row["checked"] for row in read(tmp_path / "new" / "answers.csv")][:5] == [*["False"] * 4, "True"]


def test_where_the_hard_questions_cannot_be_checked_the_promise_holds(tmp_path, capsys):
    """90 easy questions are right; of 30 hard ones, as unanimous, nobody knows. 20 + 10 are checked.

    With the 10 left out all 90 unchecked would be answered, 20 of them perhaps wrong: more than 10 %.
    """
    write_lines(tmp_path / "evaluations.jsonl", [evaluation(0, {f"q{q}": votes(("1", 1.0)) for q in range(120)})])
    rows = [f"q{q},{'1' if q < 90 else 'I do not know'}" for q in [*range(20), *range(90, 100)]]
    (tmp_path / "filled.csv").write_text("\n".join(["question_id,answer", *rows]))
    assert main(["answers", str(tmp_path), "--check", str(tmp_path / "filled.csv"), "--max-error", "0.125"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "at most 12.5% is not shown (20 of 30 checked answers are right)" in shown
    assert {row["is_answered"] for row in read(tmp_path / "answers.csv")} == {"False"}


def test_checks_beside_the_answers_count_once_they_are_filled_in(run):
    assert main(["answers", str(run), "--draw-check", "10"]) == 0
    assert main(["answers", str(run)]) == 0
    assert "p_right" not in read(run / "answers.csv")[0]
    drawn = [row["question_id"] for row in read(run / "checks.csv")]
    (run / "checks.csv").write_text("\n".join(["question_id,answer", *(f"{name},{name[1:]}" for name in drawn)]))
    for words in ((), ("--max-error", "0.5")):
        assert main(["answers", str(run), *words]) == 0
        assert sum(row["checked"] == "True" for row in read(run / "answers.csv")) == 10
    lines = [*read_lines(run / "evaluations.jsonl"), evaluation(4, {"other": votes(("1", 1.0))}) | {"benchmark": "amc"}]
    write_lines(run / "evaluations.jsonl", lines)
    before = (run / "answers.csv").read_bytes()
    assert main(["answers", str(run), "--benchmark", "amc"]) == 0  # whose questions these are not
    assert "p_right" not in read(run / "answers-amc.csv")[0]
    assert main(["answers", f"{run}@0"]) == 0
    assert {"answers-amc.jsonl", "answers-step-0.csv"} <= {path.name for path in run.iterdir()}
    assert (run / "answers.csv").read_bytes() == before


def test_checks_that_cannot_be_counted_do_not_hide_the_answers(run, capsys, refusal):
    """Of held-out questions, for instance, which another mine.txt numbers in the same way."""
    asked = ["question_id,question,answer", *(f"q{q},Another {q}?,{q}" for q in range(10))]
    texts = ("\n".join(asked), "question_id,answer\nq0, \n", "question_id,answer\nq0,0\n", "question_id,answer\n", "")
    for text in texts:
        (run / "checks.csv").write_text(text)
        assert main(["answers", str(run)]) == 0
        assert "not counted: " in capsys.readouterr().out
        assert "p_right" not in read(run / "answers.csv")[0]
        assert "checks.csv" in refusal("answers", run, "--max-error", 0.5)


def test_where_all_is_checked_nothing_is_left_to_answer(run, tmp_path, capsys):
    rows = [f"q{q},{q}" for q in range(40)]
    (tmp_path / "filled.csv").write_text("\n".join(["question_id,answer", *rows]))
    assert main(["answers", str(run), "--check", str(tmp_path / "filled.csv"), "--max-error", "0.5"]) == 0
    assert "none is left to answer" in capsys.readouterr().out
    words = ["answers", str(run), "--check", str(tmp_path / "filled.csv"), "--max-error", "0.5", "--population"]
    assert main(words) == 0
    assert "answers to all such questions" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("width", [80, 120])
def test_no_answer_is_cut(tmp_path, monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    long = votes(("104000000000000000001", 1.0), ("7", 0.0), question="What is the largest of " + "these numbers " * 9)
    evaluations = [evaluation(step, {"a-long-name-of-a-question": long}) for step in (0, 4)]
    main(["answers", str(write_lines(tmp_path / "evaluations.jsonl", evaluations).parent)])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines()[:6])) <= width
    assert "104000000000000000" in shown
    assert "001" in shown  # on the next line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--max-error", "0.2"], "--max-error"),
        (["--draw-check", "5"], "--draw-check"),
        (["--draw-check", "-5"], "--draw-check"),
        (["--benchmark", "amc"], "'amc'"),
        (["--check", "gone.csv"], "gone.csv"),
        (["--check", "bad.csv"], "bad.csv:3"),
        (["--check", "words.txt"], "words.txt:1"),
        (["--check", "empty.csv"], "empty.csv:2"),
        (["--check", "few.csv"], "few.csv"),
        (["--check", "yes.csv"], "the right answers themselves"),
        (["--check", "twice.csv"], "twice.csv:3"),
        (["--check", "nothing.csv"], "nothing.csv"),
        (["--check", "few.csv", "--max-error", "2"], "--max-error"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(run, words, named, refusal):
    (run / "bad.csv").write_text("question_id,answer\nq1,1\nq99,5\n")
    (run / "empty.csv").write_text("question_id,answer\nq1,\n")
    (run / "words.txt").write_text("What is 1?\n")
    (run / "twice.csv").write_text("question_id,answer\nq1,1\nq1,2\n")
    (run / "nothing.csv").write_text("question_id,answer\nq1,{}\n")
    (run / "few.csv").write_text("question_id,answer\nq1,1\n")
    (run / "yes.csv").write_text("question_id,answer\nq1,Yes\nq2,no\nq3,I do not know\n")
    assert named in refusal("answers", run, *words)
    assert not (run / "answers.csv").exists()
    assert not (run / "checks.csv").exists()


def test_an_evaluation_that_was_not_finished_is_gone_on_with(tmp_path, refusal):
    (tmp_path / "evaluation.yaml").write_text("model: m\n")
    assert f"scrl evaluate --resume --out {tmp_path}" in refusal("answers", tmp_path)


def test_checks_that_were_drawn_are_kept_and_more_can_be_added(run, refusal):
    assert main(["answers", str(run), "--draw-check", "10"]) == 0
    filled = (run / "checks.csv").read_text().replace(",\n", ",I do not know\n", 1)
    (run / "checks.csv").write_text(filled)
    assert main(["answers", str(run), "--draw-check", "4"]) == 0
    text = (run / "checks.csv").read_text()
    assert text.startswith(filled)
    rows = read(run / "checks.csv")
    assert len({row["question_id"] for row in rows}) == len(rows) == 14
    (run / "checks.csv").write_text(text.replace("\nq", "\nold-q", 1))
    assert "old-q" in refusal("answers", run, "--draw-check", 10)


def test_checks_that_a_spreadsheet_saved_are_counted_and_added_to(tmp_path):
    """With a byte order mark, a column of the user's, semicolons, and decimal commas, as Excel writes in Germany."""
    answers = {f"q{q}": votes((f"{q}.5", 1.0)) for q in range(14)}
    write_lines(tmp_path / "evaluations.jsonl", [evaluation(0, answers)])
    rows = "".join(f"{q};q{q};?;{q},5\r\n" for q in range(12))
    (tmp_path / "checks.csv").write_bytes(f"\ufeffnr;question_id;question;answer\r\n{rows}".encode())
    assert main(["answers", str(tmp_path)]) == 0
    assert sum(line.get("checked") or False for line in read_lines(tmp_path / "answers.jsonl")) == 12
    assert main(["answers", str(tmp_path), "--draw-check", "2"]) == 0
    text = (tmp_path / "checks.csv").read_text("utf-8-sig")
    assert sorted(line for line in text.split("\n") if line.startswith(";")) == [";q12;?;", ";q13;?;"]
    (tmp_path / "checks.csv").write_text(text.replace("?;\n", "?;1,5\n"))
    assert main(["answers", str(tmp_path)]) == 0
    assert [line["checked"] for line in read_lines(tmp_path / "answers.jsonl")] == [True] * 12 + [False] * 2


def test_each_set_of_questions_has_its_own_checks(tmp_path, capsys):
    lines = [evaluation(0, {f"{name}{q}": votes(("1", 1.0)) for q in range(12)}) | {"benchmark": name} for name in "ab"]
    write_lines(tmp_path / "evaluations.jsonl", lines)
    for name in "ab":
        assert main(["answers", str(tmp_path), "--benchmark", name, "--draw-check", "10"]) == 0
        assert {row["question_id"][0] for row in read(tmp_path / f"checks-{name}.csv")} == {name}
        assert f"--benchmark {name} --check {tmp_path}" in capsys.readouterr().out


def test_files_of_evaluations_have_files_of_their_own_and_a_column_makes_no_evaluation(tmp_path):
    """A renamed evaluations.jsonl, and completions with a column of that name."""
    write_lines(tmp_path / "before.jsonl", [evaluation(0, START)])
    rows = [{"question_id": "q", "completion": r"\boxed{2}", "benchmark": "amc"}] * 8
    write_lines(tmp_path / "after.jsonl", rows)
    for name in ("before", "after"):
        assert main(["answers", str(tmp_path / f"{name}.jsonl")]) == 0
        assert (tmp_path / f"{name}-answers.csv").is_file()


def test_evaluations_that_are_damaged_are_refused(tmp_path, refusal):
    line = evaluation(0, {"a": [["1", 1.0]]})
    write_lines(tmp_path / "evaluations.jsonl", [line])
    assert "field 'answers.a'" in refusal("answers", tmp_path)
