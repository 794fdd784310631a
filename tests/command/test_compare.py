"""`scrl compare` and the tables of `scrl report`, as a user meets them."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from line_files import write_lines

ROOT = Path(__file__).parent.parent.parent

QUESTIONS = [f"q{number}" for number in range(12)]


def line(values, step=0, benchmark="amc", **more):
    """An evaluation; its values are those of the questions in order."""
    by_question = dict(zip(QUESTIONS, values, strict=False))
    mean = sum(values) / len(values)
    return {
        "step": step, "model": "tiny", "benchmark": benchmark, "questions": len(values), "samples": 16,
        "temperature": 0.6, "top_p": 0.95, "max_tokens": 3072, "seed": 0, "answered": 1.0, "truncated": 0.0,
        "pass@1": mean, "pass@1_low": mean - 0.1, "pass@1_high": mean + 0.1, "pass@1_by_question": by_question,
        "pass@16": mean, "pass@16_low": mean, "pass@16_high": mean, "pass@16_by_question": by_question,
        "maj@16": mean, "maj@16_low": mean, "maj@16_high": mean, "maj@16_by_question": by_question,
    } | more  # fmt: skip


LOW, HIGH = [0.25] * 12, [0.5] * 11 + [0.25]  # eleven questions gain ¼: p = 2 / 2¹¹ = 0.00098; the mean gain is 22.9
MIXED = [0.5, 0.0] * 6  # gains and losses of ¼ in equal number: mean 0, p = 1


@pytest.fixture
def place(tmp_path):
    """Write an evaluation folder."""

    def write(name, *lines):
        (tmp_path / name).mkdir()
        return str(write_lines(tmp_path / name / "evaluations.jsonl", lines).parent)

    return write


def cells(out):
    """The table, by line."""
    rows = [row.strip("|\n").split("|") for row in out.splitlines() if row.startswith("|")]
    return [[cell.strip() for cell in row] for row in [rows[0], *rows[2:]]]


# Compare


@pytest.mark.parametrize("what", ["questions_digest", "gold_digest"])
def test_the_same_ids_with_other_texts_or_right_answers_are_not_paired(what, place, refusal):
    first, second = place("a", line(LOW, **{what: "1f"})), place("b", line(LOW, **{what: "2e"}))
    assert "amc" in refusal("compare", first, second)


def test_evaluations_that_read_answers_differently_are_said_to(place, call):
    first = place("a", line(LOW, reader="boxed", prompt={"style": "chat"}))
    second = place("b", line(LOW, reader="sound:boxed", prompt={"style": "chat"}))
    _, out, _ = call("compare", first, second)
    said = [text for text in out.splitlines() if "differs" in text]
    assert said == ["warning: amc: reader differs: boxed for A, sound:boxed for B"]
    assert "differs" not in call("compare", first, place("old", line(LOW)))[1]  # which does not say


def test_two_places_are_compared_on_what_both_have(place, call):
    first = place("a", line(LOW), line(LOW, benchmark="math500"), line(LOW, benchmark="gsm8k"))
    second = place("b", line(HIGH, benchmark="math500"), line(MIXED))
    code, out, err = call("compare", first, second)
    assert (code, err) == (0, "")
    assert out.startswith(f"A = {first} (tiny)\nB = {second} (tiny)\n\npass@1 in %, paired by question")
    header, amc, math = cells(out)
    assert header == ["benchmark", "n", "A", "B", "B − A", "p", "verdict"]
    assert [re.findall(r"\d+", line)[-4:] for line in out.splitlines() if "learned" in line] == [
        ["6", "0", "0", "6"], ["11", "0", "0", "1"],
    ]  # fmt: skip
    # the sign-flip sums of 12 × ±¼: 0 is reached by all
    assert amc[:4] + amc[5:] == ["amc", "12", "25.0", "25.0", "1.000", "A and B are not told apart"]
    assert math[:4] + math[5:] == ["math500", "12", "25.0", "47.9", "< 0.001", "B is clearly ahead"]
    # One question of 12 gains nothing: a resample misses it with chance (11/12)¹² = 0.35 and gains 25; it has it 3 times
    # or more with chance 0.07 and 4 times or more with 0.01, so that the lower bound is 25 · 9/12 = 18.75
    assert math[4] == "+22.9 [+18.8, +25.0]"
    assert "not compared: gsm8k" in out
    assert "warning" not in out


def test_the_first_of_several_is_the_baseline(place, call):
    places = [place("a", line(HIGH)), place("b", line(LOW)), place("c", line(HIGH))]
    _, out, _ = call("compare", *places, "--metric", "maj@16")
    assert "C = " in out
    assert "maj@16 in %" in out
    assert [row[2:4] + row[6:] for row in cells(out)] == [
        ["A", "other", "verdict"],
        ["47.9", "25.0", "B is clearly behind"],
        ["47.9", "47.9", "A and C are not told apart"],
    ]


def test_a_run_alone_is_compared_with_its_start(place, call):
    run = place("run", line(LOW, 0), line(MIXED, 20), line(HIGH, 40), line(LOW, 0, "stream"), line(LOW, 40, "stream"))
    _, out, _ = call("compare", run)
    assert f"A = {run}@0 (tiny, step 0)\nB = {run}@40 (tiny, step 40)" in out
    verdicts = [row[0] + ": " + row[-1] for row in cells(out)[1:]]
    assert verdicts == ["amc: B is clearly ahead", "questions trained on: A and B are not told apart"]
    _, out, _ = call("compare", f"{run}@20")
    assert f"B = {run}@20 (tiny, step 20)" in out
    assert [row[-1] for row in cells(out)[1:]] == ["A and B are not told apart"]
    _, out, _ = call("compare", f"{run}@40", f"{run}@0")
    assert cells(out)[1][-1] == "B is clearly behind"


def test_a_step_is_named_of_training_runs_alone(place, call, tmp_path):
    """A checkpoint that scrl evaluate measured is not the model of step 0."""
    run, alone = place("run", line(LOW, 0)), place("alone", line(HIGH, model="run/checkpoints/last"))
    (tmp_path / "run" / "config.yaml").write_text("method: ttrl\nseed: 3\n")
    _, out, _ = call("compare", run, alone)
    assert out.startswith(f"A = {run} (tiny, step 0)\nB = {alone} (run/checkpoints/last)\n")
    _, out, _ = call("report", run, alone, "--format", "markdown")
    assert [row[4:6] for row in cells(out)] == [["evaluation", "step"], ["start", "0"], ["–", "–"]]


def test_what_was_measured_differently_is_warned_about(place, call):
    more = {"pass@64": 0.9, "maj@64": 0.8}
    other = line(HIGH, samples=64, temperature=1.0, max_tokens=512, significant_digits=3, **more)
    _, out, _ = call("compare", place("a", line(LOW)), place("b", other))
    warned = [text.split()[2] for text in out.splitlines() if text.startswith("warning: amc: ")]
    assert warned == ["samples", "temperature", "max_tokens", "significant_digits", "k"]


def test_questions_without_gold_are_left_out_and_told(place, call, refusal):
    bare = {key: value for key, value in line(LOW, 0, "stream").items() if "@" not in key}
    run = place("run", bare, bare | {"step": 9}, line(LOW, 0), line(HIGH, 9))
    code, out, _ = call("compare", run)
    assert code == 0
    assert len(cells(out)) == 2
    assert "not compared: " in out
    nothing = place("bare", bare, bare | {"step": 9})
    assert "gold" in refusal("compare", nothing)
    assert "bare" in refusal("compare", place("graded", line(LOW, 0, "stream")), nothing)


def without(record, *keys):
    return {key: value for key, value in record.items() if key not in keys}


def test_what_cannot_be_compared_is_refused_with_the_fix(place, call):
    base = place("base", line(LOW))
    wrong = {
        (): "scrl compare",
        (base,): base,
        (base, "nowhere"): "nowhere",
        (f"{base}@3", base): "step 3",
        (base, place("fewer", line(HIGH[:10]))): "'q10'",
        (base, place("amc2", line(HIGH, benchmark="math"))): "no benchmark in common",
        (base, base, "--metric", "pas@1"): "'pass@1'",
        (base, place("no16", without(line(LOW), "pass@16", "pass@16_by_question")), "--metric", "pass@16"): "no16",
        (place("twice", line(LOW), line(LOW, temperature=0.0)), base): "at step 0",
        (base,) * 27: "26",
    }
    for words, reason in wrong.items():
        code, out, err = call("compare", *words)
        assert (code, out) == (2, "")
        assert reason in err.replace("\n", " "), words


# Report


def test_a_table_goes_to_the_terminal_or_a_file(place, call, tmp_path):
    run = place("run", line(LOW, 0), line(HIGH, 40))
    (tmp_path / "run" / "config.yaml").write_text("method: ttrl\nseed: 3\n")
    code, out, err = call("report", run, "--format", "markdown")
    assert (code, err) == (0, "")
    assert [row[2:6] + row[-1:] for row in cells(out)] == [
        ["method", "benchmark", "evaluation", "step", "seeds"],
        ["ttrl", "amc", "start", "0", "3"],
        ["ttrl", "amc", "peak, last", "40", "3"],
    ]
    file = tmp_path / "table.csv"
    assert call("report", run, place("b", line(LOW)), "--format", "csv", "--out", file) == (0, f"wrote {file}\n", "")
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    assert [float(row["pass@1"]) for row in rows] == [0.25, sum(HIGH) / 12, 0.25]
    assert rows[2]["method"] == ""
    _, out, _ = call("report", run, "--format", "latex")
    assert out.startswith("\\begin{table}")


def test_a_report_is_refused_with_the_reason(place, refusal, tmp_path):
    run, file = place("run", line(LOW, 0)), tmp_path / "mine.txt"
    file.touch()
    wrong = {
        (run, "--format", "word"): "word",
        (run, "--format", "csv", "--out", tmp_path): str(tmp_path),
        (run, "--format", "csv", "--out", tmp_path / "no" / "t.csv"): "t.csv",
        (tmp_path, "--format", "csv"): "evaluations.jsonl",
        (file,): "mine.txt",
        (file, "--out", tmp_path / "page.html", "other"): "other",
        (run, "--out", tmp_path / "page.md"): "--format markdown",
    }
    for words, reason in wrong.items():
        assert reason in refusal("report", *words)


@pytest.mark.parametrize("run", sorted(path.name for path in (ROOT / "results/rates-0.5b").iterdir()))
def test_the_table_of_learning_rates_is_that_of_its_runs(run, call):
    _, out, _ = call("compare", ROOT / "results/rates-0.5b" / run)
    rows = [line.split("|") for line in out.splitlines() if line.startswith("| questions ")]
    kind, rate = run.split("-", 1)
    table = (ROOT / "docs/results.md").read_text(encoding="utf-8").split("### Learning rates")[1].split("\nOne seed")[0]
    first, second = table.split("| adapter of rank 16, ")
    row = next(line for line in (first if kind == "full" else second).splitlines() if rate in line and "[" in line)
    assert len(rows) == 2
    for _, _, _, _, after, change, *_ in rows:
        assert f"{after.strip()}, {change.strip()}" in row
    _, out, _ = call("compare", ROOT / "results/rates-0.5b" / run, "--metric", "maj@8")
    votes = [line.split("|")[4].strip() for line in out.splitlines() if line.startswith("| questions ")]
    assert f"| {', '.join(votes)} |" in row
    about = json.loads((ROOT / "results/rates-0.5b" / run / "about.json").read_text())
    assert row.endswith(f"| {about['moved_nats_per_token']:g} |")
