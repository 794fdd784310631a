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

BROKEN: dict[str, list[str | bytes]] = {
    "a.txt": ["\n \n", b"\xef\xbb\xbf"],
    "a.parquet": [""],
    "a.xlsx": ["x"],
    "a": ["x"],
    "a.jsonl": [""],
    "a.jsonl:1": [
        '[\n{"question": "a"}\n]', '{"question": "a', "[" * 100_000, "7\n", '{"question": 7}', '{"question": {"a": 1}}',
        r'{"question": "a\u0000b"}', r'{"question": "a\ud800b"}', r'{"question": "What is $\frac{1}{2}$?"}',
        r'{"question": "q", "answer": "\boxed{4}"}', r'{"question": "$3 \times 4$"}', r'{"question": "$\theta$"}',
        '{"question": "q", "answer": true}', '{"question": "q", "answer": NaN}', '{"question": "q", "answer": 1e999}',
        '{"question": "q", "answer": ["1"]}',
    ],
    "a.jsonl:2": [b'{"question": "a"}\n{"question": "\0"}\n', '{"question": "a"}\n{"question"'],
    "a.json": ["[]", "7", "{}", '{"question": ["a"], "answer": ["b"]}', '{"data": ["a"], "rows": ["b"]}'],
    "a.json: row 0": ["[null]"],
    "a.json: row 1": [
        '[{"question": "a"}, {"answer": "b"}]', '[{"question": "a"}, {"question": null}]', r'["a", "$x \neq 2$"]',
    ],
    "a.json:2": ['{"question": "a"}\n{"question": "b"}'],
    "a.txt:1": ["fine\nfine".encode("utf-16-le")],
    "a.txt:2": [b"fine\ncaf\xe9\n"],
    "a.csv": ["question,answer\n", "\n\n"],
    "a.csv:1": ["question,question\na,b\n"],
    "a.csv:2": ["question,answer\na,b,c\n", "question,answer\na\n", 'question\n"never closed\n'],
    "a.csv:3": ['question;answer\na;b\nc;"never closed\n'],
    "a.csv:4": ["question;answer\na;b\n\na;b;c\n"],
    "a.csv:5": ['level, of 5;question\n1;"a\na"\n1;b\n2;b;c\n'],
    "a.tsv:2": ['question\tanswer\n"a" b\tc\n'],
}  # fmt: skip


@pytest.mark.parametrize(
    ("place", "content"), [(place, each) for place, contents in BROKEN.items() for each in contents]
)
def test_broken_files(write, place, content):
    with pytest.raises(DataError, match=place):
        load_questions(write(place.partition(":")[0], content))


def test_a_missing_file_names_its_neighbours(write, tmp_path):
    write("questions.jsonl", "x")
    write("unrelated.pdf", "x")
    for source in (tmp_path / "question.jsonl", str(tmp_path / "question.jsonl"), str(tmp_path / "question")):
        with pytest.raises(DataError, match=r"'questions\.jsonl'"):
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
    assert load_questions("owner/one", limit=1).questions == (Question("one-0", TWO[0].text, "2"),)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("owner/amc", "owner/amc:test"),
        ("owner/amc:tets", "'test'"),
        ("owner/nothing", "owner/nothing does not exist"),
        ("owner/amc.jsonl", "there is no such file; give one"),  # a file's suffix: not looked for on the hub
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
