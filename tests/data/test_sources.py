"""Questions by name: a file, a benchmark, or a generated stream with its level, stream, number and seed."""

import pytest
from line_files import write_lines

from scrl.data.arithmetic import arithmetic_questions
from scrl.data.benchmarks import BENCHMARKS
from scrl.data.sources import DEFAULT_NUMBER, benchmark_of, load_source
from scrl.errors import ConfigError, DataError


@pytest.mark.parametrize(("source", "level", "number", "stream", "seed"), [
    ("arithmetic:easy", "easy", DEFAULT_NUMBER, "train", 5),
    ("arithmetic:hard:held-out", "hard", DEFAULT_NUMBER, "held-out", 5),
    ("arithmetic:medium:train:3", "medium", 3, "train", 5),
    ("arithmetic:medium:held-out:4:9", "medium", 4, "held-out", 9),
    ("arithmetic:medium:train::9", "medium", DEFAULT_NUMBER, "train", 9),
    ("arithmetic:medium::2", "medium", 2, "train", 5),
    ("arithmetic:medium:train:2:0", "medium", 2, "train", 0),
])  # fmt: skip
def test_the_parts_of_a_name_are_level_stream_number_and_seed(source, level, number, stream, seed):
    loaded = load_source(source, seed=5)
    assert loaded.questions == arithmetic_questions(level, number, stream=stream, seed=seed)


@pytest.mark.parametrize(("source", "reason"), [
    ("arithmetic", "level"), ("arithmetic:esy", "'easy'"), ("arithmetic:easy:trian", "'train'"),
    *((f"arithmetic:easy:train:{rest}", "arithmetic:LEVEL:STREAM:NUMBER:SEED") for rest in ("few", "3:-1", "3:1:7")),
    ("arithmetic:easy:train:0", "arithmetic:easy:train:0"), (" ", "empty"),
])  # fmt: skip
def test_a_name_that_is_none_is_refused(source, reason):
    with pytest.raises(ConfigError, match=reason):
        load_source(source, seed=0)


def test_any_other_name_is_a_file(tmp_path):
    (tmp_path / "mine.csv").write_text("q,a,n\nWhat is 2 + 2?,4,x\nWhat is 3 + 3?,6,y\n")
    columns = {"question_column": "q", "gold_column": "a", "id_column": "n"}
    (question,) = load_source(str(tmp_path / "mine.csv"), seed=0, limit=1, **columns).questions
    assert (question.id, question.text, question.gold) == ("x", "What is 2 + 2?", "4")
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        load_source(str(tmp_path / "nowhere.txt"), seed=0)


def test_several_files_are_one_set_of_questions(tmp_path):
    one, two, both = tmp_path / "one.txt", tmp_path / "two.csv", tmp_path / "one.txt,two.csv"
    one.write_text("1 + 1?\n2 + 2?\n")
    two.write_text("question,gold\n3 + 3?,6\n")
    loaded = load_source(f"{one},{two}", seed=0)
    assert [question.id for question in loaded.questions] == ["one-0", "one-1", "two-0"]
    assert all(note.startswith((f"{one}: ", f"{two}: ")) for note in loaded.notes)
    assert len(load_source(f"{one},{two}", seed=0, limit=1).questions) == 1
    with pytest.raises(DataError, match="'one-0'"):
        load_source(f"{one},{one}", seed=0)
    both.write_text("question\n1 + 1?\n")  # the name of one file
    assert len(load_source(str(both), seed=0).questions) == 1


# Benchmarks


def test_a_benchmarks_name_is_known_with_levels_and_without():
    assert benchmark_of("math500") is benchmark_of("math500:3-5") is BENCHMARKS["math500"]
    for other in ("arithmetic:easy", "owner/math500", "math500.jsonl", "Math500", ""):
        assert benchmark_of(other) is None


def test_a_benchmark_is_loaded_from_the_folder_of_benchmarks(tmp_path):
    rows = [{"id": f"p{i}", "question": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(30)]
    write_lines(tmp_path / "aime24.jsonl", rows)
    loaded = load_source("aime24", seed=0, limit=2, data_dir=tmp_path, question_column="of another source")
    assert [question.id for question in loaded.questions] == ["aime24-p0", "aime24-p1"]


@pytest.mark.parametrize(("source", "near"), [
    ("aime2024", "aime24"), ("AIME24", "aime24"), ("math-500", "math500"), ("math-500:5", "math500"),
    ("gpqa-diamond", "gpqa_diamond"), ("arithmetc:easy", "arithmetic:easy"), ("arithmetic-hard", "arithmetic:hard"),
    ("my-question", "my-questions.jsonl"),
])  # fmt: skip
def test_a_name_that_is_nothing_suggests_the_nearest(tmp_path, monkeypatch, source, near):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-questions.jsonl").touch()
    with pytest.raises(DataError, match=f"{source}.*{near!r}"):
        load_source(source, seed=0)
