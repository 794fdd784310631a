"""Broken and missing files, parquet, and the hub."""

import sys
from decimal import Decimal
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from question_files import ROWS, TWO

from scrl.data.questions import load_questions
from scrl.errors import DataError
from scrl.records import Question


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", "a.jsonl: is empty"),
        ("a.parquet", "", "a.parquet: is empty"),
        ("a.txt", "\n \n", r"no questions in it\. Write one question per line\.$"),
        ("a.txt", b"\xef\xbb\xbf", "no questions in it"),
        ("a.csv", "question,answer\n", "no questions in it"),
        ("a.csv", "\n\n", "no questions in it"),
        ("a.json", "[]", "no questions in it"),
        ("a.txt", b"fine\ncaf\xe9\n", "a.txt:2: is not UTF-8 text.*Save it as UTF-8"),
        ("a.txt", "fine\nfine".encode("utf-16-le"), "a.txt:1"),
        ("a.jsonl", b'{"question": "a"}\n{"question": "\0"}\n', "a.jsonl:2: has NUL bytes"),
        ("a.xlsx", "x", "unknown suffix '.xlsx'. Save it as one of: .jsonl, .json, .csv, .tsv, .parquet, .txt"),
        ("a", "x", "unknown suffix ''"),
        ("a.jsonl", '{"question": "a"}\n{"question"', "a.jsonl:2: is not JSON.*column.*Write each question as"),
        ("a.jsonl", '[\n{"question": "a"}\n]', "a.jsonl:1: is not JSON.*over many lines is a .json"),
        ("a.json", '{"question": "a"}\n{"question": "b"}', "a.json:2: is not JSON: Extra data.*named .jsonl"),
        ("a.jsonl", '{"question": "a', r"a.jsonl:1: is not JSON: Unterminated string starting at column 14\."),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: is not JSON"),
        ("a.jsonl", "7\n", "a.jsonl:1: must be an object or a text, found a number"),
        ("a.json", "[null]", r"a.json: row 0 \(from 0\): must be an object or a text, found null"),
        ("a.json", "7", "must hold a list of questions, found a number"),
        ("a.json", '{"question": ["a"], "answer": ["b"]}', "one of the keys data, .*found the keys: question, answer"),
        ("a.json", '{"data": ["a"], "rows": ["b"]}', "must hold one list of questions.*found the keys: data, rows"),
        ("a.json", "{}", "found the keys: none"),
        ("a.csv", "question,answer\na,b,c\n", r"a.csv:2: has 3 cells, .* header has 2 \(question, answer\).*quotes"),
        ("a.csv", "question,answer\na\n", "a.csv:2: has 1 cells"),
        ("a.csv", "question;answer\na;b\n\na;b;c\n", "a.csv:4: has 3 cells, but the header has 2"),
        ("a.csv", 'level, of 5;question\n1;"a\na"\n1;b\n2;b;c\n', "a.csv:5: has 3 cells, but the header has 2"),
        ("a.csv", 'question;answer\na;b\nc;"never closed\n', "a.csv:3: is not a table.*double quotes"),
        ("a.csv", "question,question\na,b\n", "a.csv:1: two columns have the same name"),
        ("a.csv", 'question\n"never closed\n', "a.csv:2: is not a table.*double quotes"),
        ("a.tsv", 'question\tanswer\n"a" b\tc\n', "a.tsv:2: is not a table"),
        ("a.json", '[{"question": "a"}, {"answer": "b"}]', "row 1 .*'question' is missing; there is only: answer"),
        ("a.json", '[{"question": "a"}, {"question": null}]', "row 1 .*field 'question' is empty"),
        ("a.jsonl", '{"question": 7}', "field 'question' must be text or chat messages, found a number"),
        ("a.jsonl", '{"question": {"a": 1}}', "found an object"),
        ("a.jsonl", r'{"question": "a\u0000b"}', "field 'question' has a NUL or half a surrogate pair"),
        ("a.jsonl", r'{"question": "a\ud800b"}', "field 'question' has a NUL or half a surrogate pair"),
        ("a.jsonl", r'{"question": "What is $\frac{1}{2}$?"}', "field 'question' has lost a backslash"),
        ("a.jsonl", r'{"question": "q", "answer": "\boxed{4}"}', "field 'answer' has lost a backslash"),
        (
            "a.jsonl",
            r'{"question": "$3 \times 4$"}',
            r"lost a backslash, that of '.times': in JSON it is written '..times'",
        ),
        ("a.jsonl", r'{"question": "$\theta$"}', "lost a backslash, that of '.theta'"),
        ("a.json", r'["a", "$x \neq 2$"]', r"row 1 \(from 0\): field 'question' has lost a backslash, that of '.neq'"),
        ("a.jsonl", '{"question": "q", "answer": true}', "'answer', taken as the gold.*true or false.*gold_column"),
        ("a.jsonl", '{"question": "q", "answer": NaN}', "found nan"),
        ("a.jsonl", '{"question": "q", "answer": 1e999}', "found inf"),
        ("a.jsonl", '{"question": "q", "answer": ["1"]}', "found a list"),
    ],
)
def test_broken_files(write, name, content, words):
    with pytest.raises(DataError, match=words) as caught:
        load_questions(write(name, content))
    assert name in str(caught.value)


def test_a_missing_file_names_its_neighbours(write, tmp_path):
    write("questions.jsonl", "x")
    write("unrelated.pdf", "x")
    near = r"no such file.* Did you mean 'questions\.jsonl'\? Known: questions\.jsonl\.$"
    for source in (tmp_path / "question.jsonl", str(tmp_path / "question.jsonl"), str(tmp_path / "question")):
        with pytest.raises(DataError, match=near):
            load_questions(source)


@pytest.mark.parametrize("source", ["nowhere/a.jsonl", "a/b/c", "./a", "gsm8k", "a\0b", "x" * 5_000 + ".txt"])
def test_a_missing_file_with_nothing_near(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        load_questions(source)


def test_a_folder_is_no_file(write, tmp_path):
    write("amc.csv", "x")
    with pytest.raises(DataError, match=r"amc\.csv"):
        load_questions(tmp_path)


def test_special_and_unreadable_files(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("q")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(DataError, match=r"a\.txt"):
        load_questions(path)
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: False)  # a pipe, say
    with pytest.raises(DataError, match="is not a regular file"):
        load_questions(path)


# Parquet


def test_parquet_needs_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"a\.parquet"):
        load_questions(write("a.parquet", "PAR1"))


def test_parquet(tmp_path, write):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"prompt": [{"role": "user", "content": "a"}], "answer": Decimal("1.5"), "level": b"x"},
        {"prompt": [{"role": "user", "content": "b"}], "answer": None, "level": None},
    ]
    folder = tmp_path / "answer=9"  # a folder's name is no column
    folder.mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    assert load_questions(folder / "a.parquet").questions == (Question("a-0", "a", "1.5"), Question("a-1", "b"))
    with pytest.raises(DataError, match=r"a\.parquet"):
        load_questions(write("a.parquet", "no parquet"))


class FakeParquetFile:
    """Stands in for pyarrow, which only an extra brings."""

    def __init__(self, path):
        if path.read_bytes() != b"good":
            raise FakeArrowError("magic bytes not found")

    def __enter__(self):
        return SimpleNamespace(read=lambda: SimpleNamespace(to_pylist=lambda: ROWS))

    def __exit__(self, *_):
        pass


class FakeArrowError(Exception):
    pass


def test_parquet_is_read_through_pyarrow(write, monkeypatch):
    fake: Any = ModuleType("pyarrow")
    fake.parquet = ModuleType("pyarrow.parquet")
    fake.parquet.ParquetFile = FakeParquetFile
    fake.ArrowException = FakeArrowError
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake.parquet)
    assert load_questions(write("amc.parquet", "good")).questions == TWO
    with pytest.raises(DataError, match="parquet"):
        load_questions(write("b.parquet", "bad"))


# The hub


@pytest.fixture
def hub(monkeypatch):
    """A hub with one data set, two splits."""
    data = {"owner/amc": {"train": ROWS[:1], "test": ROWS}, "owner/one": {"test": ROWS}}

    def split_names(name):
        if name not in data:
            raise ConnectionError(f"{name} does not exist on the hub")
        return list(data[name])

    fake: Any = ModuleType("datasets")
    fake.get_dataset_split_names = split_names
    fake.load_dataset = lambda name, split: data[name][split]
    monkeypatch.setitem(sys.modules, "datasets", fake)


def test_hub_data_sets(hub):
    found = load_questions("owner/amc:test")
    assert found.questions == TWO
    assert found.notes[0] == "Hub data set owner/amc, split 'test'."
    assert load_questions("owner/one", limit=1).questions == (Question("one-0", TWO[0].text, "2"),)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("owner/amc", r"several splits \(train, test\); give one, as in owner/amc:test"),
        ("owner/amc:tets", "no split 'tets'. Did you mean 'test'"),
        ("owner/nothing", "no such file, and as a hub data set it cannot be loaded: owner/nothing does not exist"),
        ("owner/amc.jsonl", "there is no such file; give one"),  # a file's suffix: not looked for on the hub
        ("owner/amc/test", "there is no such file; give one"),
    ],
)
def test_hub_errors(hub, source, words):
    with pytest.raises(DataError, match=words):
        load_questions(source)


def test_the_hub_needs_an_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"owner/amc"):
        load_questions("owner/amc")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "amc.csv").write_text("x")
    with pytest.raises(DataError, match=r"pip install.*'amc\.csv'"):
        load_questions("data/amc")


def test_a_file_wins_over_the_hub(hub, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "a.txt").write_text("q")
    assert load_questions("owner/a.txt").questions == (Question("a-0", "q"),)
