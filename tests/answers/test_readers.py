r"""Completion text → answer."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.answers.classes import same_answer
from scrl.answers.readers import READERS, get_reader, read_boxed, read_choice, read_last_number, read_number
from scrl.errors import ConfigError, ReaderError


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {12}", "12"),
        (r"\fbox{7}", "7"),
        (r"\boxed 5", "5"),
        (r"\boxed 12, as claimed", "12"),
        (r"\boxed\frac12 and so on", r"\frac12"),
        (r"$\boxed\frac{1}{2}$ and so on", r"\frac{1}{2}"),
        (r"\boxed\text{B}", r"\text{B}"),
        (r"\boxed x^{2", None),
        (r"first \boxed{1}, finally \boxed{2}", "2"),
        (r"\boxed{3} and \boxed{5}", "3, 5"),  # one answer in parts
        (r"\(\boxed{3}\), \(\boxed{5}\), and \(\boxed{\frac{1}{2}}\)", r"3, 5, \frac{1}{2}"),
        (r"$x=\boxed{3}$ and $y=\boxed{5}$.", "x = 3, y = 5"),
        (r"\boxed{5}, or \boxed{5}", "5"),
        (r"$\boxed{A}$ or $\boxed{B}$", r"A \text{ or } B"),
        (r"$(\boxed{1}, \boxed{2})$", "(1, 2)"),
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{3}. Hence \boxed{5}", "5"),
        (r"\boxed{5} and then \boxed{6", "5"),  # the last *balanced* box
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),  # an escaped brace does not count
        (r"\fbox{1} \boxed{2}", "2"),
        (r"\boxed{ 42 }", "42"),
        (r"\boxed{a} } \boxed{b} {", "b"),
        (r"\boxed{x \fbox{y} z", "y"),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        (r"\boxed{5} \boxed{}", "5"),  # an echo of the instruction
        (r"\boxed{7}. Write it as \boxed{ }, \fbox{}.", "7"),
        (r"(a) $\boxed{4}$ since so. (b) Now $\boxed{9}$", "9"),
        (r"(a) $\boxed{4}$. As seen above, (b) $\boxed{9}$", "(a) 4, (b) 9"),
        (r"(i) $x = \boxed{4}$, thus (ii) \(\boxed{-1}\).", "(i) 4, (ii) -1"),
        (r"(a) \boxed{4} so far (a) \boxed{6}", "6"),
        ("(a) So\n$$x = \\boxed{4}$$\n**Part (b)** It is $\\boxed{9}$.", "(a) 4, (b) 9"),
        ("(a) So \\boxed{4}.\n(b) It is \\boxed{9}.\nHence \\boxed{(4, 9)}", "(4, 9)"),
        ("<think>(c) \\boxed{1}</think>(a) \\boxed{4} (b) \\boxed{9}", "(a) 4, (b) 9"),
        (r"<think>so \boxed{3}</think> Hence \boxed{4}", "4"),
        (r"<think>so \boxed{3}</think> That is it.", "3"),
        (r"<think>so \boxed{3} but wait", None),  # cut
        (r"\boxed{2} <think>again: \boxed{3} but wait", "2"),
        (r"\boxedness{3}", None),
        (r"\boxed", None),
        (r"\boxed{", None),
        ("the answer is 5", None),
        ("", None),
    ],
)
def test_the_last_balanced_box_is_the_answer(text, answer):
    assert read_boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("#### 18", "18"), ("5 + 13 = 18\n#### 1,234", "1,234"), ("#### $18", "18"), ("#### -7.5", "-7.5"),
        ("#### 3\nwait\n#### 4", "4"), ("#### 18\nCheck: 18x = 36, fine.", "18"), ("#### 5\n(we had 5-7 of them)", "5"), (r"\boxed{18}", "18"), ("The answer is 42.", "42"),
        ("the answer is: 1/2", "1/2"), ("Answer: −3", "-3"), ("The answer is about 7.\nThe answer is 8", "8"),
        ("The answer is unknown. The answer is 5 apples", "5"), ("so 3+4=7", None),
        (r"The answer is $\frac{3}{4}$.", r"\frac{3}{4}"), ("The answer is 2^{10}", None),
        ("The answer is 5 × 10^3", "5 × 10^3"), ("#### 3 1/2", "3 1/2"), ("#### 2:30", None), ("#### $-5", "-5"),
        ("#### -$5", "-5"), ("The answer is 20 - 5 = 15", "15"), ("The answer is 12:30", None),
        ("The answer is 1 000", "1000"), ("The answer is 5!", "5!"), ("The answer is (3, 4)", "(3, 4)"),
        ("The answer is not 5 but 7", "7"), ("The answer is 5, not 7", "5"), ("The answer isn't 5.", None),
        ("The answer is negative 5", "-5"), ("The answer is 5 million", "5 million"), ("The answer is 2x+3", None),
        ("#### 5-7", None), (r"The answer is \(\frac{3}{4}\).", r"\frac{3}{4}"),
        ("The answer is $18. She earns $9 per day.", "18"), ("Answer: $1,200 ($600 each)", "1,200"),
        ("The answer is $5 and not $6.", "5"), ("The answer is $18$, not $9$.", "18"), ("The answer is 3*10^8", "3*10^8"),
        ("The answer is 3 x 10^8", "3 x 10^8"), ("The answer is 2π", None), (r"#### 2\pi", None), ("The answer is 5√2", None),
        ("The answer is 12 pizzas", "12"), ("The answer is 3.5π", None), ("The answer is 1/2π", None),
        ("#### 1,200π", None), ("The answer is 6.02 x 10^23", "6.02 x 10^23"), ("The answer is 1.5^2", None),
        (r"The answer is $ \frac{3}{4} $.", r"\frac{3}{4}"), ("The answer is $ x = 5 $", "x = 5"),
        ("The answer is $ 18. She earns $ 9", "18"), ("#### 3. Check the sum\nThe answer is 12.", "12"),
        ("#### 2) Simplify\n#### 40", "40"), ("#### 1 Setup\nno more", None), (r"#### 2. Solve: \boxed{6}", "6"),
        (r"\boxed{6}\n#### 7", "7"), (r"#### 7 so \boxed{6}", "6"), ("#### 6 * 7 = 42", "42"), ("#### 40 pens", "40"),
        (r"The answer is 4.1 \times 10^{-7}.", r"4.1 \times 10^{-7}"), ("Answer: 2, 8 and 11.", "2, 8 and 11"),
        ("The answer is 4 or −6", "4 or -6"), ("The answer is x = 4 or x = -6.", "4 or -6"),
        ("The answer is 18, and 5 of them are red.", "18"), ("The answer is 4 or 5 pens", None),
        ("**Final Answer:**\n\n$\\frac{2}{7}$", r"\frac{2}{7}"), ("Final answer:\n\n 250", "250"),
        ("### Final Answer\n31", "31"), ("The answer would be 9", "9"),
    ],
)  # fmt: skip
def test_a_number_is_read_where_it_is_announced(text, answer):
    assert read_number(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("5 - 3", "3"), ("so it is 3 1/2", "3 1/2"), ("so 3+4=7", "7"), ("from 5-3 we get 2 apples", "2"),
        ("10-3", "3"), ("it is -3", "-3"), ("none", None), ("#### 1 or 2", "1 or 2"), ("the roots are 4, 6 and 9", "4, 6 and 9"), ("on May 3, 2020", "2020"),
        ("it weighs 1.5 × 10^4", "1.5 × 10^4"),
    ],
)  # fmt: skip
def test_the_last_number_is_read_on_request(text, answer):
    assert read_last_number(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{C}", "C"), (r"\boxed{\text{C}}", "C"), (r"\boxed{(c)}", "C"), (r"\boxed{\text{(C) } 12}", "C"),
        (r"\boxed{C. twelve}", "C"), (r"\boxed{12}", None), (r"\boxed{\mathbf{C}}", "C"),
        (r"\boxed{\text{\textbf{C}}}", "C"), (r"\boxed{\text{Option C}}", "C"), (r"\boxed{\text{Answer: C}}", "C"),
        (r"\boxed{c}", "C"), (r"\boxed{\text{a circle}}", None), ("The answer is (B).", "B"), ("Answer: **D**", "D"),
        ("answer: C", "C"), (r"The correct answer is \(B\)", "B"), (r"the answer is \text{E}", "E"),
        ("The answer is option A", "A"), ("The answer is (b).", "B"), ("(C)", "C"), ("Thinking about it:\nB.", "B"),
        ("Option C is correct.", "C"), ("So the correct option is **C**", "C"),
        ("the best choice is C because A is wrong", "C"), ("The answer is a dog", None),
        ("The answer: I am not sure", None), ("The answer is A triangle", None),
        ("The answer is A because of this", "A"), (r"\boxed{The answer is C}", "C"), (r"\boxed{A\text{ or }B}", None),
        (r"\boxed{A, B, C, D}", None), (r"\boxed{A/B}", None), (r"\boxed{\text{A is wrong, so B}}", None),
        ("The answer is A, B, C and D.", None), ("The answer is A, since it fits", "A"), (r"\boxed{A, the first}", "A"),
        ("I am not sure", None), ("", None), (r"\boxed{B_2H_6}", None), (r"\boxed{F = ma}", None), ("I don't know", None),
        (r"\boxed{\text{A mixture of both}}", None), (r"\boxed{\text{I cannot tell}}", None), (r"\boxed{\text{A is right}}", "A"),
        ("The answer: D_4", None), ("Option E = hf", None), ("The answer would be C.", "C"), ("The answer must be (D)", "D"),
        ("Hence B is correct.", "B"), ("So B is not correct.", None), ("D is the best answer", "D"),
        ("The answer is not A, it is C.", "C"), ("It is not B; it is (D).", "D"), ("The answer is not A but C", "C"),
        ("We compute.\n\nB. 3.2 eV", "B"), ("We compute.\n**C) 40 J**", "C"), ("A. 3 eV\nB. 4 eV", None),
        ("Answer:\n\nC", "C"), ("答案：C", "C"), ("答案是 (B)", "B"), ("<think>the answer is C", None),
        ("<think>A or B</think>\nThe answer is B", "B"),
    ],
)  # fmt: skip
def test_a_choice_is_read_as_a_capital_letter(text, answer):
    assert read_choice(text) == answer


READS = [json.loads(line) for line in (Path(__file__).parent / "reads.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("read", READS)
def test_completions_by_somebody_who_had_not_seen_the_readers_are_read(read):
    found, wanted = READERS[read["reader"]](read["completion"]), read["answer"]
    assert found is wanted is None or same_answer(found or "", wanted or "")


def test_a_regex_of_the_user_takes_the_last_match_and_its_first_group():
    assert get_reader(r"regex:Answer=(\d+)")("Answer=1 Answer=22") == "22"
    assert get_reader(r"regex:\d+")("a1 b2") == "2"
    assert get_reader(r"regex:(x)?\d")("7") is None
    assert get_reader(r"regex:\d")("none") is None


def test_a_function_of_the_user_is_found_by_its_import_path(tmp_path, monkeypatch):
    (tmp_path / "my_reader.py").write_text(
        "NOT_A_FUNCTION = 3\n"
        "def last_word(text): return text.split()[-1]\n"
        "def number(text): return 5\n"
        "def nothing(text): return None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert get_reader("my_reader.last_word")("so it is Tuesday") == "Tuesday"
    assert get_reader("my_reader.nothing")("x") is None
    with pytest.raises(ReaderError, match="raised IndexError"):
        get_reader("my_reader.last_word")("")
    with pytest.raises(ReaderError, match="returned int"):
        get_reader("my_reader.number")("")
    for spelled in ("my_reader:last_word", "my_reader.last_word"):
        assert get_reader(spelled)("one more") == "more"
    with pytest.raises(ConfigError, match="'NOT_A_FUNCTION'"):
        get_reader("my_reader:NOT_A_FUNCTION")
    with pytest.raises(ConfigError, match="'last_word'"):
        get_reader("my_reader:last_words")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("boxd", "'boxed'"), ("regex:(", "regular expression"), ("no_such_package.read", "ModuleNotFoundError"),
        ("scrl.no_such_function", "'no_such_function'"), ("os.system", r"'os\.system'"), ("builtins:eval", "part of Python"),
        ("scrl.user_code.contextmanager", "part of Python"), ("..", "raised"),
    ],
)  # fmt: skip
def test_an_unknown_reader_is_refused_with_a_reason(name, message):
    with pytest.raises(ConfigError, match=message):
        get_reader(name)


FRAGMENTS = st.sampled_from(
    [
        r"\boxed", r"\fbox", "{", "}", "\\", r"\{", r"\text{", "answer is ", "Answer: ", "#### ", "(", "C", "5", ",000",
        "-", "\n", "é", "\x00",
    ]
)  # fmt: skip


@given(st.lists(FRAGMENTS | st.text(max_size=5), max_size=40).map("".join))
def test_no_text_makes_a_reader_raise(text):
    for read in READERS.values():
        answer = read(text)
        assert answer is None or answer.strip() == answer != ""


@pytest.mark.parametrize(
    "unit", [r"\boxed{", "{", r"\boxed ", "answer is ", "1,", "####", "answer: (", "- ", "\\", " "]
)
@pytest.mark.parametrize("name", READERS)
def test_reading_is_linear_in_the_text(name, unit):
    """Half a megabyte of one fragment: quadratic code would need minutes and trip the suite's patience."""
    assert READERS[name](unit * (500_000 // len(unit))) is None or name in ("last-number",)
