"""Files of questions, the good and the broken ones."""

import json
import sys
from decimal import Decimal
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.data.questions import load_questions
from scrl.errors import ConfigError, DataError
from scrl.records import Question

TWO = (Question("amc-0", "What is 1 + 1?", "2"), Question("amc-1", "What is 2 + 2?", "4"))
ROWS = [{"question": question.text, "answer": question.gold} for question in TWO]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def notes_of(path, **options):
    return "\n".join(load_questions(path, **options).notes)


# Formats


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("amc.jsonl", jsonl(*ROWS)),
        ("amc.JSONL", jsonl(*ROWS)),
        ("amc.jsonl", "\ufeff" + jsonl(*ROWS).replace("\n", "\r\n\r\n")),
        ("amc.json", json.dumps(ROWS, indent=2)),
        ("amc.json", json.dumps({"version": 1, "data": ROWS})),
        ("amc.json", json.dumps({"Questions": ROWS})),
        ("amc.csv", "question,answer\nWhat is 1 + 1?,2\n\nWhat is 2 + 2?,4\n,\n"),
        ("amc.csv", "question;answer\nWhat is 1 + 1?;2\nWhat is 2 + 2?;4\n"),
        ("amc.csv", 'level, of 5;question;answer\n1;"What is 1 + 1?";2\n2,5;What is 2 + 2?;4\n'),
        ("amc.csv", '"level, of 5";"question";"answer"\r\n"1";"What is 1 + 1?";"2"\r\n"2";"What is 2 + 2?";"4"\r\n'),
        ("amc.csv", '"level; of 5",question,answer\n1;5,What is 1 + 1?,2\n2,What is 2 + 2?,4\n'),
        ("amc.csv", "question\tanswer\nWhat is 1 + 1?\t2\nWhat is 2 + 2?\t4\n"),
        ("amc.csv", '\ufeffquestion,answer\r\n"What is 1 + 1?",2\r\n"What is 2 + 2?",4'),
        ("amc.tsv", "Question\tGround Truth\nWhat is 1 + 1?\t2\nWhat is 2 + 2?\t4\n"),
    ],
)
def test_every_format_gives_the_same_questions(write, name, content):
    path = write(name, content)
    assert load_questions(path).questions == TWO
    assert load_questions(str(path)).questions == TWO


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("amc.txt", "What is 1 + 1?\nWhat is 2 + 2?"),
        ("amc.txt", b"\xef\xbb\xbfWhat is 1 + 1?\r\n\r\n  What is 2 + 2?  \r\n"),
        ("amc.txt", "What is 1 + 1?\rWhat is 2 + 2?\r"),
        ("amc.json", json.dumps(["What is 1 + 1?", "What is 2 + 2?"])),
        ("amc.jsonl", jsonl("What is 1 + 1?", "What is 2 + 2?")),
    ],
)
def test_bare_texts_are_questions(write, name, content):
    assert load_questions(write(name, content)).questions == tuple(Question(q.id, q.text) for q in TWO)


@given(
    texts=st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0\b\f"), min_size=1).filter(str.strip), min_size=1
    )
)
def test_any_text_comes_back_as_it_was(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    path.write_text("\n".join(json.dumps({"question": t}, ensure_ascii=False) for t in texts), "utf-8", newline="")
    assert [question.text for question in load_questions(path).questions] == [text.strip() for text in texts]


def test_a_cell_may_hold_lines_and_separators(write):
    path = write("a.csv", 'id,question\n1,"Two lines,\nand a comma"\n2,\n')
    with pytest.raises(DataError, match=r"a\.csv:4: field 'question' is empty"):  # the record before it takes two lines
        load_questions(path)
    assert load_questions(path, limit=1).questions == (Question("1", "Two lines,\nand a comma"),)


def test_line_separators_of_unicode_do_not_end_a_line(write):
    path = write("a.txt", "one\u2028still one\x85and one\ntwo")
    assert len(load_questions(path).questions) == 2


def test_blank_lines_count_as_lines_but_not_as_rows(write):
    path = write("a.jsonl", '{"question": "x"}\n\n\n{"question": ""}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:4: field 'question' is empty"):
        load_questions(path)
    path = write("b.txt", "\none\n\n\ntwo\n")
    assert [question.id for question in load_questions(path).questions] == ["b-0", "b-1"]
    assert "3 blank line(s) skipped" in notes_of(path)


# Columns


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"ID": "x", "Problem": "q", "Solution": "Prose.", "Answer": "7"}, Question("x", "q", "7")),
        ({"problem": "q", "solution": "So \\boxed{7}."}, Question("a-0", "q", "So \\boxed{7}.")),
        ({"question": "q", "prompt": "Solve: q", "label": "7"}, Question("a-0", "q", "7")),
        ({"unique_id": 12, "query": "q", "target": 7}, Question("12", "q", "7")),
        ({"index": 0, "text": "q", "expected answer": 0.5}, Question("0", "q", "0.5")),
        ({"uid": "x", "idx": 4, "input": " q ", "gold": " 7 "}, Question("x", "q", "7")),
        ({"question": "q", "answer": None}, Question("a-0", "q")),
        ({"question": "q", "answer": " "}, Question("a-0", "q")),
        ({"question": "q", "answer": 10**400}, Question("a-0", "q", "1" + "0" * 400)),
        ({"question": "q", "rephrased": " r "}, Question("a-0", "q", rephrased="r")),
        ({"question": "q", "Rephrased Question": "r", "paraphrase": "p"}, Question("a-0", "q", rephrased="r")),
        ({"question": "q", "paraphrase": "p"}, Question("a-0", "q", rephrased="p")),
        ({"question": "q", "rephrased": [{"role": "user", "content": "r"}]}, Question("a-0", "q", rephrased="r")),
        ({"question": "q", "rephrased": None}, Question("a-0", "q")),
        ({"question": "q", "rephrased": " "}, Question("a-0", "q")),
    ],
)
def test_columns_are_found_by_their_names(write, row, expected):
    assert load_questions(write("a.jsonl", jsonl(row))).questions == (expected,)


def test_columns_may_be_given(write):
    path = write("a.jsonl", jsonl({"question": "old", "Aufgabe": "q", "answer": "1", "wahr": 2, "id": "x", "nr": 5}))
    found = load_questions(path, question_column="Aufgabe", gold_column="wahr", id_column="nr")
    assert found.questions == (Question("5", "q", "2"),)


def test_a_column_given_for_one_thing_is_not_taken_for_another(write):
    path = write("a.jsonl", jsonl({"problem": "p", "answer": "Guess my question.", "solution": "s"}))
    found = load_questions(path, question_column="answer", rephrased_column="problem")
    assert found.questions == (Question("a-0", "Guess my question.", "s", rephrased="p"),)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"question": "a", "Problem": "b"},
            "'question' and 'Problem' could each be it.*question_column.*Columns: question",
        ),
        ({"instruction": "a", "input": "b"}, "question_column"),
        ({"question": "a", "gold": "1", "answer": "2"}, "'gold' and 'answer' could each be it.*gold_column"),
        ({"question": "a", "id": "1", "question_id": "2"}, "'id' and 'question_id' could each be it.*id_column"),
        ({"question": "a", "rephrased": "b", "rephrased_question": "c"}, "could each be it.*rephrased_column"),
        ({"question": "a", "rephrased": 5}, "field 'rephrased' must be text or chat messages, found a number"),
        ({"Frage": "a", "note": "b"}, r"no column looks like the question. Columns: Frage, note\..*question_column"),
        ({}, "Columns: none"),
    ],
)
def test_nothing_is_guessed(write, row, words):
    with pytest.raises(DataError, match=words):
        load_questions(write("a.jsonl", jsonl(row)))


@pytest.mark.parametrize("option", ["question_column", "gold_column", "id_column", "rephrased_column"])
def test_a_given_column_must_be_there(write, option):
    path = write("a.csv", "question,anwser\na,1\n")
    with pytest.raises(DataError, match=f"no column 'answer', given as {option}. Did you mean 'anwser'.*question"):
        load_questions(path, **{option: "answer"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, "limit must be 1 or more, found 0"),
        ({"question_column": "a", "gold_column": "a"}, "different columns"),
        ({"question_column": "a", "rephrased_column": "a"}, "rephrased_column must be different columns, found a, a"),
    ],
)
def test_options_are_checked(write, options, words):
    with pytest.raises(ConfigError, match=words):
        load_questions(write("a.txt", "q"), **options)


@pytest.mark.parametrize("source", ["", "  "])
def test_no_source(source):
    with pytest.raises(ConfigError, match="source of questions is empty"):
        load_questions(source)


# Chat messages


def test_the_last_user_message_is_the_question(write):
    turns = ["system:Be brief.", "user:Hello", "assistant:Hi", "user:What is 2 + 2?"]
    chat = [dict(zip(("role", "content"), turn.split(":"), strict=True)) for turn in turns]
    path = write("a.jsonl", jsonl({"prompt": chat}))
    assert load_questions(path).questions[0].text == "What is 2 + 2?"
    assert "last user message is the question" in notes_of(path)


@pytest.mark.parametrize(
    ("chat", "words"),
    [
        (["What?"], "not of chat messages"),
        ([{"role": "user"}], "not of chat messages"),
        ([{"role": "system", "content": "Be brief."}], "none of role 'user'"),
        ([], "none of role 'user'"),
        ([{"role": "user", "content": " "}], "field 'prompt' is empty"),
        ([{"role": "user", "content": [{"type": "image"}]}], "must be text or chat messages, found a list"),
    ],
)
def test_broken_chat_messages(write, chat, words):
    with pytest.raises(DataError, match=rf"a\.jsonl:1: field 'prompt'.*{words}|a\.jsonl:1: {words}"):
        load_questions(write("a.jsonl", jsonl({"prompt": chat})))


# Ids, repeats, limit, notes


def test_repeated_ids_are_refused_with_both_lines(write):
    path = write(
        "a.jsonl", jsonl({"id": "1", "question": "a"}, {"id": "2", "question": "b"}, {"id": 1, "question": "c"})
    )
    with pytest.raises(DataError, match=r"a\.jsonl:3: id '1' stands here again, first on line 1\. Make ids unique"):
        load_questions(path)
    path = write("a.json", json.dumps([{"id": "1", "question": "a"}, {"id": "1", "question": "b"}]))
    with pytest.raises(DataError, match=r"a\.json: row 1 \(from 0\): id '1' .* first on row 0"):
        load_questions(path)


@pytest.mark.parametrize(
    ("value", "words"), [(None, "is empty"), (" ", "is empty"), (True, "true or false"), ([1], "a list"), (1.5, "1.5")]
)
def test_broken_ids(write, value, words):
    with pytest.raises(DataError, match=rf"a\.jsonl:2: field 'id' .*{words}"):
        load_questions(write("a.jsonl", jsonl({"id": "1", "question": "a"}, {"id": value, "question": "b"})))


def test_repeated_questions_are_kept_and_noted(write):
    path = write("a.txt", "one\ntwo\none\none\n")
    assert [question.text for question in load_questions(path).questions] == ["one", "two", "one", "one"]
    assert "2 question(s) repeat the text of an earlier one; they are kept" in notes_of(path)


def test_limit_takes_the_first(write):
    path = write("a.txt", "one\ntwo\nthree\n")
    assert [question.id for question in load_questions(path, limit=2).questions] == ["a-0", "a-1"]
    assert "first 2 question(s) are taken" in notes_of(path, limit=2)
    assert "limit" not in notes_of(path, limit=9)


def test_notes_say_what_was_taken_as_what(write):
    path = write("a.csv", "level,Problem,Answer\n1,p,\n2,q,7\n")
    assert load_questions(path).notes == (
        "Question: column 'Problem'.",
        "Gold answer: column 'Answer', for measuring alone.",
        "Id: numbered, from a-0 on.",
        "Columns left out: level.",
        "1 of 2 questions have a gold answer.",
    )


def test_notes_say_what_separates_cells_where_it_is_no_comma(write):
    for delimiter, name in {";": "semicolons", "\t": "tabs"}.items():
        path = write("a.csv", f"question{delimiter}answer\n1,5 + 1,5{delimiter}3\n")
        assert load_questions(path).notes[0] == f"Cells are separated by {name}."
    assert "separated" not in notes_of(write("a.csv", "question,answer\n1; 2?,3\n"))
    assert "separated" not in notes_of(write("a.csv", "question\nWhat; or\twhere?\n"))


def test_notes_without_gold(write):
    assert load_questions(write("a.jsonl", jsonl({"id": 1, "question": "q"}))).notes == (
        "Question: column 'question'.",
        "Gold answer: no column; accuracy is not measured.",
        "Id: column 'id'.",
    )


def test_notes_say_what_was_taken_as_the_question_in_other_words(write):
    path = write("a.csv", "question,paraphrase,mine\np,,x\nq,r,y\n")
    assert load_questions(path).notes[3:] == (
        "Rephrased question: column 'paraphrase', for methods that ask both.",
        "Columns left out: mine.",
        "1 of 2 questions have a rephrasing.",
    )
    assert "Rephrased question: column 'mine'" in notes_of(path, rephrased_column="mine")


def test_notes_name_the_list_that_was_read(write):
    path = write("a.json", json.dumps({"questions": ["a"], "answers": ["1"]}))
    assert "The list under 'questions' is read.\nLeft out beside that list: answers." in notes_of(path)


# Broken files


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", "a.jsonl: is empty"),
        ("a.parquet", "", "a.parquet: is empty"),
        ("a.txt", "\n \n", r"no questions in it\. Write one question a line\.$"),
        ("a.txt", b"\xef\xbb\xbf", "no questions in it"),
        ("a.csv", "question,answer\n", "no questions in it"),
        ("a.csv", "\n\n", "no questions in it"),
        ("a.json", "[]", "no questions in it"),
        ("a.txt", b"fine\ncaf\xe9\n", "a.txt:2: is not UTF-8 text.*Save it as UTF-8"),
        ("a.txt", "fine\nfine".encode("utf-16-le"), "a.txt:1: has NUL bytes: it is a binary file or UTF-16"),
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
        (
            "a.csv",
            "question,answer\na,b,c\n",
            r"a.csv:2: has 3 cells, but the header has 2 \(question, answer\).*quotes",
        ),
        ("a.csv", "question,answer\na\n", "a.csv:2: has 1 cells"),
        (
            "a.csv",
            "question;answer\na;b\n\na;b;c\n",
            r"a.csv:4: has 3 cells, but the header has 2 \(question, answer\)",
        ),
        ("a.csv", 'level, of 5;question\n1;"a\na"\n1;b\n2;b;c\n', "a.csv:5: has 3 cells, but the header has 2"),
        ("a.csv", 'question;answer\na;b\nc;"never closed\n', "a.csv:3: is not a table.*double quotes"),
        ("a.csv", "question,question\na,b\n", "a.csv:1: two columns have the same name"),
        ("a.csv", 'question\n"never closed\n', "a.csv:2: is not a table.*double quotes"),
        ("a.tsv", 'question\tanswer\n"a" b\tc\n', "a.tsv:2: is not a table"),
        (
            "a.json",
            '[{"question": "a"}, {"answer": "b"}]',
            "row 1 .*field 'question' is missing; there is only: answer",
        ),
        ("a.json", '[{"question": "a"}, {"question": null}]', "row 1 .*field 'question' is empty"),
        ("a.jsonl", '{"question": 7}', "field 'question' must be text or chat messages, found a number"),
        ("a.jsonl", '{"question": {"a": 1}}', "found an object"),
        ("a.jsonl", r'{"question": "a\u0000b"}', "field 'question' has a NUL or half a surrogate pair"),
        ("a.jsonl", r'{"question": "a\ud800b"}', "field 'question' has a NUL or half a surrogate pair"),
        ("a.jsonl", r'{"question": "What is $\frac{1}{2}$?"}', "field 'question' has lost a backslash"),
        ("a.jsonl", r'{"question": "q", "answer": "\boxed{4}"}', "field 'answer' has lost a backslash"),
        (
            "a.jsonl",
            '{"question": "q", "answer": true}',
            "'answer', taken as the gold answer,.*true or false.*gold_column",
        ),
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
    for source in (tmp_path / "question.jsonl", str(tmp_path / "question.jsonl"), str(tmp_path / "question")):
        with pytest.raises(
            DataError, match=r"no such file.* Did you mean 'questions\.jsonl'\? Known: questions\.jsonl\.$"
        ):
            load_questions(source)


@pytest.mark.parametrize("source", ["nowhere/a.jsonl", "a/b/c", "./a", "gsm8k", "a\0b", "x" * 5_000 + ".txt"])
def test_a_missing_file_with_nothing_near(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"there is no such file; give one, or a hub data set \(owner/name"):
        load_questions(source)


def test_a_folder_is_no_file(write, tmp_path):
    write("amc.csv", "x")
    with pytest.raises(DataError, match=r"is a folder; give one file of questions\..*amc\.csv"):
        load_questions(tmp_path)


def test_special_and_unreadable_files(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("q")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    with pytest.raises(DataError, match=r"a\.txt: cannot be read: Permission denied"):
        load_questions(path)
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: False)  # a pipe, say
    with pytest.raises(DataError, match="is not a regular file"):
        load_questions(path)


# Parquet


def test_parquet_needs_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"a\.parquet: .*pip install pyarrow"):
        load_questions(write("a.parquet", "PAR1"))


def test_parquet(tmp_path):
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


def test_broken_parquet(write):
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as parquet"):
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
    fake = ModuleType("pyarrow")
    fake.parquet = ModuleType("pyarrow.parquet")
    fake.parquet.ParquetFile = FakeParquetFile
    fake.ArrowException = FakeArrowError
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake.parquet)
    assert load_questions(write("amc.parquet", "good")).questions == TWO
    with pytest.raises(DataError, match="cannot be read as parquet: magic bytes not found"):
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

    fake = ModuleType("datasets")
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
    with pytest.raises(DataError, match=r"owner/amc: there is no such file, and .*pip install 'scrl\[hub\]'\.$"):
        load_questions("owner/amc")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "amc.csv").write_text("x")
    with pytest.raises(DataError, match=r"pip install.*Did you mean 'amc\.csv'"):
        load_questions("data/amc")


def test_a_file_wins_over_the_hub(hub, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "a.txt").write_text("q")
    assert load_questions("owner/a.txt").questions == (Question("a-0", "q"),)
