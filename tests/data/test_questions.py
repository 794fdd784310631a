"""Questions from files: formats, columns, ids and notes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from question_files import ROWS, TWO, jsonl

from scrl.data.questions import load_questions
from scrl.errors import ConfigError, DataError
from scrl.records import Question


def notes_of(path, **options):
    return "\n".join(load_questions(path, **options).notes)


# Formats


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1. What is 1 + 1?\n2. What is 2 + 2?\n", "numbers or bullets"),
        ("- What is 1 + 1?\n* What is 2 + 2?\n", "numbers or bullets"),
        ("Q1: What is 1 + 1?\nQ2: What is 2 + 2?\n", "numbers or bullets"),
        ("# Sums\n\nWhat is 1 + 1?\nWhat is 2 + 2?\n", "Headings"),
    ],
)
def test_lists_lose_their_marks_and_headings_are_no_questions(tmp_path, text, said):
    (tmp_path / "amc.md").write_text(text)
    loaded = load_questions(tmp_path / "amc.md")
    assert [question.text for question in loaded.questions] == [question.text for question in TWO]
    assert said in " ".join(loaded.notes)


def test_numbers_that_are_no_marks_of_a_list_stay(tmp_path):
    (tmp_path / "amc.txt").write_text("3 - 1 is what?\n-5 + 2 is what?\n2. What?\n")
    texts = [question.text for question in load_questions(tmp_path / "amc.txt").questions]
    assert texts == ["3 - 1 is what?", "-5 + 2 is what?", "2. What?"]


def test_lines_between_the_items_of_a_list_are_named(tmp_path):
    (tmp_path / "a.md").write_text("Some words first.\n1. What is 1 + 1?\n2. What is 2 + 2?\n")
    loaded = load_questions(tmp_path / "a.md")
    assert len(loaded.questions) == 3
    assert any("line 1" in note and "Some words first." in note for note in loaded.notes)


def test_conversations_of_sharegpt_are_chats(tmp_path):
    turns = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "1 + 1?"},
        {"from": "gpt", "value": "2"},
    ]
    (tmp_path / "a.jsonl").write_text(jsonl({"conversations": turns}))
    (question,) = load_questions(tmp_path / "a.jsonl").questions
    assert (question.text, question.system) == ("1 + 1?", "Be brief.")


@pytest.mark.parametrize(("name", "content"), [
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
])  # fmt: skip
def test_every_format_gives_the_same_questions(write, name, content):
    path = write(name, content)
    assert load_questions(path).questions == TWO
    assert load_questions(str(path)).questions == TWO


@pytest.mark.parametrize(("name", "content"), [
    ("amc.txt", "What is 1 + 1?\nWhat is 2 + 2?"), ("amc.txt", "What is 1 + 1?\rWhat is 2 + 2?\r"),
    ("amc.txt", b"\xef\xbb\xbfWhat is 1 + 1?\r\n\r\n  What is 2 + 2?  \r\n"),
    ("amc.json", json.dumps(["What is 1 + 1?", "What is 2 + 2?"])),
    ("amc.jsonl", jsonl("What is 1 + 1?", "What is 2 + 2?")),
])  # fmt: skip
def test_bare_texts_are_questions(write, name, content):
    assert load_questions(write(name, content)).questions == tuple(Question(q.id, q.text) for q in TWO)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\b\f"), min_size=1).filter(str.strip)


@given(texts=st.lists(TEXTS, min_size=1))
def test_any_text_comes_back_as_it_was(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    path.write_text("\n".join(json.dumps({"question": t}, ensure_ascii=False) for t in texts), "utf-8", newline="")
    assert [question.text for question in load_questions(path).questions] == [text.strip() for text in texts]


def test_a_cell_may_hold_lines_and_separators(write):
    path = write("a.csv", 'id,question\n1,"Two lines,\nand a comma"\n2,\n')
    with pytest.raises(DataError, match=r"a\.csv:4: field 'question'"):  # the record before it takes two lines
        load_questions(path)
    assert load_questions(path, limit=1).questions == (Question("1", "Two lines,\nand a comma"),)


# Columns


@pytest.mark.parametrize(("row", "expected"), [
    ({"ID": "x", "Problem": "q", "Solution": "Prose.", "Answer": "7"}, Question("x", "q", "7")),
    ({"problem": "q", "solution": "So \\boxed{7}."}, Question("a-0", "q", "So \\boxed{7}.")),
    ({"question": "q", "prompt": "Solve: q", "label": "7"}, Question("a-0", "q", "7")),
    ({"unique_id": 12, "query": "q", "target": 7}, Question("12", "q", "7")),
    ({"index": 0, "text": "q", "expected answer": 0.5}, Question("0", "q", "0.5")),
    ({"uid": "x", "idx": 4, "input": " q ", "gold": " 7 "}, Question("x", "q", "7")),
    ({"question": "q", "answer": None}, Question("a-0", "q")),
    ({"question": "q", "answer": " "}, Question("a-0", "q")),
    ({"question": "q", "answer": 10**400}, Question("a-0", "q", "1" + "0" * 400)),
])  # fmt: skip
def test_columns_are_found_by_their_names(write, row, expected):
    assert load_questions(write("a.jsonl", jsonl(row))).questions == (expected,)


def test_columns_may_be_given_and_are_then_not_taken_for_anything_else(write):
    path = write("a.jsonl", jsonl({"question": "old", "Aufgabe": "q", "answer": "1", "wahr": 2, "id": "x", "nr": 5}))
    found = load_questions(path, question_column="Aufgabe", gold_column="wahr", id_column="nr")
    assert found.questions == (Question("5", "q", "2"),)
    path = write("a.jsonl", jsonl({"problem": "p", "answer": "Guess my question.", "solution": "s"}))
    found = load_questions(path, question_column="answer")
    assert found.questions == (Question("a-0", "Guess my question.", "s"),)


@pytest.mark.parametrize(("row", "words"), [
    ({"question": "a", "Problem": "b"}, "'question' and 'Problem'.*question_column"),
    ({"instruction": "a", "input": "b"}, "question_column"),
    ({"question": "a", "gold": "1", "answer": "2"}, "'gold' and 'answer'.*gold_column"),
    ({"question": "a", "id": "1", "question_id": "2"}, "'id' and 'question_id'.*id_column"),
    ({"Frage": "a", "note": "b"}, "Frage, note.*question_column"),
    ({"question": "a", "gold": " N/A "}, "'gold' is 'N/A'.*empty"),
    ({"question": "a", "answer": "?"}, "'answer' is '\\?'.*empty"),
])  # fmt: skip
def test_nothing_is_guessed(write, row, words):
    with pytest.raises(DataError, match=words):
        load_questions(write("a.jsonl", jsonl(row)))


def test_columns_of_another_file_are_taken_where_they_are_there(write):
    path = write("a.csv", "question,answer,Frage\na,1,b\n")
    found = load_questions(path, question_column="Frage", gold_column="Wert", may_lack=True)
    assert found.questions == (Question("a-0", "b", "1"),)
    assert any("'Wert'" in note for note in found.notes)
    with pytest.raises(DataError, match="Nr, Frage, Wert"):
        load_questions(write("b.csv", "Nr;Frage;Wert\n1;b;2\n"), question_column="text", may_lack=True)


@pytest.mark.parametrize("option", ["question_column", "gold_column", "id_column"])
def test_a_given_column_must_be_there(write, option):
    path = write("a.csv", "question,anwser\na,1\n")
    with pytest.raises(DataError, match=f"'answer'.*{option}.*'anwser'"):
        load_questions(path, **{option: "answer"})


@pytest.mark.parametrize(("source", "options", "words"), [
    ("a.txt", {"question_column": "a", "gold_column": "a"}, "column"), ("  ", {}, "questions"),
])  # fmt: skip
def test_options_are_checked(source, options, words):
    with pytest.raises(ConfigError, match=words):
        load_questions(source, **options)


# Chat messages


def test_the_last_user_message_is_the_question(write):
    turns = ["system:Be brief.", "user:Hello", "assistant:Hi", "user:What is 2 + 2?"]
    chat = [dict(zip(("role", "content"), turn.split(":"), strict=True)) for turn in turns]
    for column in ("prompt", "messages", "question"):
        path = write("a.jsonl", jsonl({column: chat}))
        assert load_questions(path).questions[0].text == "What is 2 + 2?"
        assert load_questions(path).questions[0].system == "Be brief."
    path = write("a.jsonl", jsonl({"messages": chat, "prompt": "What is 1 + 1?"}))
    assert load_questions(path).questions[0].text == "What is 1 + 1?"  # a text before a chat


USER = {"role": "user", "content": "What is 2 + 2?"}


@pytest.mark.parametrize("chat", [
    ["What?"], [{"role": "user"}], [], [{"role": "system", "content": "Be brief."}],
    [{"role": "system", "content": "A"}, {"role": "system", "content": "B"}, USER],
    [{"role": "system", "content": ["A"]}, USER],
    [{"role": "user", "content": " "}], [{"role": "user", "content": [{"type": "image"}]}],
])  # fmt: skip
def test_broken_chat_messages(write, chat):
    with pytest.raises(DataError, match=r"a\.jsonl:1: field 'prompt'"):
        load_questions(write("a.jsonl", jsonl({"prompt": chat})))


# Ids, repeats, limit, notes


def test_repeated_ids_are_refused_with_both_lines(write):
    rows = {"id": "1", "question": "a"}, {"id": "2", "question": "b"}, {"id": 1, "question": "c"}
    path = write("a.jsonl", jsonl(*rows))
    with pytest.raises(DataError, match=r"a\.jsonl:3"):
        load_questions(path)
    path = write("a.json", json.dumps([{"id": "1", "question": "a"}, {"id": "1", "question": "b"}]))
    with pytest.raises(DataError, match=r"a\.json"):
        load_questions(path)


@pytest.mark.parametrize("value", [None, " ", True, [1], 1.5])
def test_broken_ids(write, value):
    with pytest.raises(DataError, match=r"a\.jsonl:2: field 'id'"):
        load_questions(write("a.jsonl", jsonl({"id": "1", "question": "a"}, {"id": value, "question": "b"})))


def test_limit_takes_the_first(write):
    path = write("a.txt", "one\ntwo\nthree\n")
    assert [question.id for question in load_questions(path, limit=2).questions] == ["a-0", "a-1"]
    assert len(load_questions(path, limit=9).questions) == 3


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("A,B,C,D", "A, B, C, D"),
        ("a,b", "a, b"),
        ("option_a,Option B", "option_a, Option B"),
        ("choice1,choice2,level", "choice1, choice2"),
        ("a,choices", "choices"),
        ("level,source", None),
        ("a,level", None),
    ],
)
def test_options_in_columns_of_their_own_are_not_left_out_in_silence(write, columns, named):
    cells = ",".join("x" for _ in columns.split(","))
    notes = notes_of(write("quiz.csv", f"question,{columns}\nWhich?,{cells}\n"))
    assert ("WARNING" in notes) == (named is not None)
    assert named is None or named in notes
