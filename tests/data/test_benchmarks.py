"""Benchmarks by name: from a folder, from the hub, some levels of them; and everything that may be wrong with them."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_files import write_lines

from scrl.data.benchmarks import BENCHMARKS, load_benchmark, with_options
from scrl.data.questions import lost_command, with_backslashes
from scrl.errors import ConfigError, DataError
from scrl.records import Question


def rows_for(name):
    """As many rows as the benchmark has, in the form of the files."""
    source = BENCHMARKS[name]
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(source.num_questions)]
    return [{**row, "level": i % 5 + 1} for i, row in enumerate(rows)] if source.levels else rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of benchmarks; `folder(NAME, rows)` puts one there."""
    monkeypatch.delenv("SCRL_DATA", raising=False)

    def write(name, rows=None):
        return write_lines(tmp_path / f"{name}.jsonl", rows_for(name) if rows is None else rows).parent

    return write


@pytest.fixture
def hub(monkeypatch):
    """A fake hub; `hub(rows)` sets what it returns and gives the list of its calls."""
    monkeypatch.delenv("SCRL_DATA", raising=False)

    def give(rows):
        calls = []

        def load_dataset(path, **options):
            calls.append((path, options))
            if isinstance(rows, Exception):
                raise rows
            return rows

        fake: Any = ModuleType("datasets")
        fake.load_dataset = load_dataset
        monkeypatch.setitem(sys.modules, "datasets", fake)
        return calls

    return give


# From a folder


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_loads_from_a_folder(folder, name):
    loaded = load_benchmark(name, data_dir=folder(name))
    assert len(loaded.questions) == BENCHMARKS[name].num_questions
    level = "2" if name == "math500" else None
    assert loaded.questions[1] == Question(f"{name}-p1", "What is 1 + 1?", "2", level)


def test_the_folder_may_be_named_by_the_environment(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("SCRL_DATA", str(folder("amc")))
    assert len(load_benchmark("amc", data_dir=None).questions) == 83
    with pytest.raises(DataError, match=r"elsewhere"):
        load_benchmark("amc", data_dir=tmp_path / "elsewhere")  # data_dir takes precedence
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SCRL_DATA", "~")
    assert len(load_benchmark("amc", data_dir=None).questions) == 83
    monkeypatch.setenv("SCRL_DATA", "elsewhere")
    assert len(load_benchmark("amc", data_dir=Path("~")).questions) == 83


def test_a_limit_takes_the_first_ones_of_a_whole_benchmark(folder):
    loaded = load_benchmark("aime24", data_dir=folder("aime24"), limit=2)
    assert [question.id for question in loaded.questions] == ["aime24-p0", "aime24-p1"]
    with pytest.raises(DataError, match="has 2 questions"):  # a limit does not excuse a short file
        load_benchmark("aime24", data_dir=folder("aime24", rows_for("aime24")[:2]), limit=2)


# Levels


def test_levels_are_chosen_by_name(folder):
    data_dir = folder("math500")
    five = load_benchmark("math500:5", data_dir=data_dir)
    assert [question.id for question in five.questions[:2]] == ["math500-p4", "math500-p9"]
    assert {question.level for question in five.questions} == {"5"}
    some = load_benchmark("math500:2-4", data_dir=data_dir, limit=4)
    assert [question.level for question in some.questions] == ["2", "3", "4", "2"]
    every = load_benchmark("math500", data_dir=data_dir).questions
    assert load_benchmark("math500:1-5", data_dir=data_dir).questions == every


@pytest.mark.parametrize(("name", "reason"), [
    *(
        (f"math500:{levels}", "math500:FROM-TO")
        for levels in ("", "0", "6", "5-3", "3-", "-3", "1-2-3", "five", "3,4")
    ),
    ("aime24:3", "aime24:3"), ("aime2024", "'aime24'"), ("MATH-500", "'math500'"), ("gpqa-main", "'gpqa'"),
])  # fmt: skip
def test_an_unknown_name_or_level_is_refused(name, reason):
    with pytest.raises(ConfigError, match=reason):
        load_benchmark(name, data_dir=None)


# What may be wrong with a folder


def test_a_file_that_is_not_there_names_both_ways(folder):
    data_dir = folder("amc")
    with pytest.raises(DataError, match=r"gpqa\.jsonl.*--data-dir.*Idavidrein/gpqa"):
        load_benchmark("gpqa", data_dir=data_dir)


@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_questions_is_refused(folder, change):
    rows = [*rows_for("aime24"), {"id": "more", "question": "?", "answer": "1"}][: 30 + change]
    with pytest.raises(DataError, match=rf"aime24\.jsonl: has {30 + change} questions"):
        load_benchmark("aime24", data_dir=folder("aime24", rows))


@pytest.mark.parametrize(("row", "named"), [
    ({"id": "a", "answer": "1"}, "'question'"), ({"id": "a", "question": " ", "answer": "1"}, "'question'"),
    ({"id": "a", "question": "?"}, "'answer'"), ({"id": "a", "question": "?", "answer": [1]}, "'answer'"),
    ({"id": "p0", "question": "?", "answer": "1", "level": 1}, "'p0'"), ({"id": "", "question": "?", "answer": "1"}, "'id'"),
    ({"id": "a", "question": "?", "answer": "1"}, "'level'"),
    ({"id": "a", "question": "?", "answer": "1", "level": 9}, "'level'"),
    ({"id": "a", "question": "?", "answer": "1", "level": 1.5}, "'level'"), (["a", "?"], ""),
])  # fmt: skip
def test_a_line_that_is_wrong_is_named(folder, row, named):
    rows = rows_for("math500")
    rows[6] = row
    with pytest.raises(DataError, match=rf"math500\.jsonl:7.*{named}"):
        load_benchmark("math500", data_dir=folder("math500", rows))


def test_a_file_that_is_no_json_is_named_with_its_line(folder):
    path = folder("amc") / "amc.jsonl"
    path.write_text(path.read_text() + "{oops}")
    with pytest.raises(DataError, match=r"amc\.jsonl:84"):
        load_benchmark("amc", data_dir=path.parent)


def test_lost_backslashes_are_put_back_and_told_of(folder):
    rows = rows_for("aime25")
    rows[3]["question"], rows[4]["answer"] = "Compute $\frac12 \times 4$.", "\frac12"
    loaded = load_benchmark("aime25", data_dir=folder("aime25", rows))
    assert loaded.questions[3].text == r"Compute $\frac12 \times 4$."
    assert loaded.questions[4].gold == r"\frac12"
    assert any("2 rows" in note for note in loaded.notes)


@given(st.text())
def test_text_without_control_characters_is_left_alone(text):
    clean = re.sub("[\b\f\t\n\r]", "", text)
    assert with_backslashes(clean) == clean
    tabbed = f"{clean}\tan extra tab\r\n"
    assert with_backslashes(tabbed) == tabbed
    assert with_backslashes(with_backslashes(text)) == with_backslashes(text)
    assert lost_command(with_backslashes(text)) is None


COMMANDS = r"""
$3 \times 4$ | $\theta$ | $x \neq 2$ | $x \neq -2$ | $x\neq y$ | $\nabla f$ | $x \notin S$ | \tfrac12 | \tfrac{1}{2} | \text{a}
\textbf{a} | \tilde{x} | \triangle ABC | \therefore | $\tan(x)$ | \tan^2 x | $\tau$ | \tau_1 | \beta | \bar{x} | \bmod 7 | \frac12
\forall x | \left( 1 \right) | x \rightarrow 0 | $\rho$ | \boxed{4} | \begin{array} | \binom{4}{2}
"""
ORDINARY = (
    "one\nequals two", "one\nequation (2)", "see\neq. 2", "see\neq (2)", "either\not or\nunder", "the\nablation", "do\nu know",
    "x\to\tx", "a\tan apple\tau lait", "a\textra\texts\tfraction\ttilde", "one\r\nright", "one\rrow", "page\fone",
)  # fmt: skip


@pytest.mark.parametrize("text", re.split(r" \| |\n", COMMANDS.strip()))
def test_commands_that_have_lost_a_backslash_are_found(text):
    """As JSON and Python read them."""
    garbled = re.sub(r"\\([bfnrt])", lambda escape: json.loads(f'"{escape[0]}"'), text)
    assert garbled != text
    assert lost_command(garbled) in text
    assert with_backslashes(garbled) == text


@pytest.mark.parametrize("text", ORDINARY)
def test_tabs_and_new_lines_of_ordinary_text_are_left_alone(text):
    assert lost_command(text) is None
    assert with_backslashes(text) == text


# From the hub


@pytest.mark.parametrize(("name", "fields", "question"), [
    ("aime24", {"id": 60, "problem": "P", "answer": "025"}, Question("aime24-60", "P", "025")),
    ("aime25", {"id": "0", "problem": "P", "answer": "70"}, Question("aime25-0", "P", "70")),
    ("amc", {"id": 0, "problem": "P", "answer": 142.0, "url": "u"}, Question("amc-0", "P", "142.0")),
    ("math500", {"problem": "P", "solution": "s", "answer": "p - q", "level": 5, "unique_id": "test/a/1.json"},
     Question("math500-test/a/1.json", "P", "p - q", "5")),
    ("minerva", {"question": "P", "answer": "1.6"}, Question("minerva-0", "P", "1.6")),
    ("gsm8k", {"question": "P", "answer": "9 * 2 = <<9*2=18>>18\n#### 18"}, Question("gsm8k-0", "P", "18")),
])  # fmt: skip
def test_the_hubs_columns_become_a_question(hub, name, fields, question):
    source = BENCHMARKS[name]
    others = [{**fields, source.id_column: f"{i}x"} if source.id_column else fields for i in range(1, 2_000)]
    calls = hub([fields, *others][: source.num_questions])
    loaded = load_benchmark(name, data_dir=None)
    assert loaded.questions[0] == question
    assert len(loaded.questions) == source.num_questions
    hub_name, split, revision, config = source.hub
    assert calls == [(hub_name, {"split": split, "revision": revision} | ({"name": config} if config else {}))]
    assert revision in loaded.notes[1]


GPQA_ROW = {
    "Question": "Which is even?\n", "Correct Answer": " two", "Incorrect Answer 1": "one",
    "Incorrect Answer 2": "three\n", "Incorrect Answer 3": "five", "Record ID": "rec0",
}  # fmt: skip


@given(st.text(min_size=1).filter(str.strip))
def test_options_are_in_an_order_of_their_question_alone(asked):
    shaped = with_options({**GPQA_ROW, "Question": asked})
    again = with_options({**GPQA_ROW, "Question": asked, "Record ID": "another"})
    assert (shaped["Question"], shaped["Correct Answer"]) == (again["Question"], again["Correct Answer"])
    text, _, options = shaped["Question"].rpartition("\n\n")
    assert text == asked.strip()
    by_letter = dict(line.split(". ") for line in options.split("\n"))
    assert list(by_letter) == ["A", "B", "C", "D"]
    assert sorted(by_letter.values()) == ["five", "one", "three", "two"]
    assert by_letter[shaped["Correct Answer"]] == "two"


def test_the_right_answer_is_at_every_letter_about_as_often():
    letters = [with_options({**GPQA_ROW, "Question": f"Question {i}"})["Correct Answer"] for i in range(400)]
    # 400 draws at 1/4: mean 100, standard deviation sqrt(400 · 1/4 · 3/4) = 8.7
    assert all(70 <= letters.count(letter) <= 130 for letter in "ABCD")


def test_another_number_of_rows_on_the_hub_is_refused(hub):
    hub([{"question": "P", "answer": "1"}] * 271)
    with pytest.raises(DataError, match=r"math-ai/minervamath.* 271"):
        load_benchmark("minerva", data_dir=None)


@pytest.mark.parametrize(("name", "is_gated"), [("gpqa", True), ("amc", False)])
def test_without_folder_and_without_the_hub_both_ways_are_named(hub, monkeypatch, name, is_gated):
    hub(ConnectionError("no route to host"))
    with pytest.raises(DataError) as error:
        load_benchmark(name, data_dir=None)
    assert "no route to host" in str(error.value)
    assert "--data-dir" in str(error.value)
    assert ("accept its terms" in str(error.value)) is is_gated
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"scrl\[hub\]"):
        load_benchmark(name, data_dir=None)
