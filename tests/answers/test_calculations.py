r"""Calculations in a completion: which are found, which hold, and which completions of a question vote by them."""

import random
from operator import add, mul, sub

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_files import write_lines

from scrl.answers.calculations import Claim, calculations_of, claims_of, voters
from scrl.answers.readers import get_reader, read_answer, read_answers
from scrl.cli.main import main
from scrl.credit.rule import assign_credit
from scrl.data.prompts import asked_by
from scrl.records import Group


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16 - 3 - 4 = 9 eggs, so 9 × $2 = $18", [("16 - 3 - 4", "9", True), ("9 * 2", "18", True)]),
        ("16 - 3 - 4 = 11", [("16 - 3 - 4", "11", False)]),
        (r"\[ 130,000 \times 1.15 = 149{,}500 \]", [("130000 * 1.15", "149500", True)]),
        (r"\frac{48}{6} \text{ rows} = 8 \text{ rows}", [("((48)/(6))", "8", True)]),
        ("2 + 3 = 5 = 10 / 2 = 4", [("2 + 3", "5", True), ("5", "10 / 2", True), ("10 / 2", "4", False)]),
        ("20% * 50 = 10", [("(20/100) * 50", "10", True)]),
        ("3 / 4 * 100 = 75%", [("3 / 4 * 100", "(75/100)", True)]),  # a share as a percentage
        ("10 / 3 = 3.33", [("10 / 3", "3.33", True)]),  # off by 0.0033, less than 0.01
        ("10 / 3 = 3.4", [("10 / 3", "3.4", True)]),  # off by 0.067, less than 0.1
        ("10 / 3 = 3.5", [("10 / 3", "3.5", False)]),
        ("7 / 2 = 4", [("7 / 2", "4", True)]),  # rounded to a whole number
        ("- 4 + 1 = 5", [("4 + 1", "5", True)]),  # a bullet
        ("2. 4 + 1 = 5", [("4 + 1", "5", True)]),
        ("3 x 4 = 12 and 2x$5=$11", [("3*4", "12", True), ("2*5", "11", False)]),
        ("4.0 x 3 + 2 = 14", [("4.0*3 + 2", "14", True)]),
        ("4.0x3 = 12 and 0 x 5 = 0", [("4.0*3", "12", True), ("0*5", "0", True)]),
        ("15 / 60 = 25%", [("15 / 60", "(25/100)", True)]),
        ("9 * 2 = 1800", [("9 * 2", "1800", False)]),  # nobody speaks of percentages
        (r"9 * 2 = \boxed{17}", [("9 * 2", "17", False)]),
        ("(20/60) * 100 = 33.33%", [("(20/60) * 100", "(33.33/100)", True)]),
        ("20 / 60 = 35% and 20% * 50 = 1", [("20 / 60", "(35/100)", False), ("(20/100) * 50", "1", False)]),
        ("5 / 20 = 26 percent", [("5 / 20", "(26/100)", False)]),
        ("$50 * (1 - 10%) = $45", [("50 * (1 - (10/100))", "45", True)]),
        ("100% - 20% = 80%", [("(100/100) - (20/100)", "(80/100)", True)]),
        ("10.5 + 3.2 = 13.8", [("10.5 + 3.2", "13.8", False)]),  # 13.7 is not rounded
        ("33.33 * 3 = 100", [("33.33 * 3", "100", True)]),
        ("1 / 2 * 4 / 9 = 23/100", [("1 / 2 * 4 / 9", "23/100", False)]),  # 2/9 is not
        ("10 / 3 * 3 = 3.33 * 3", [("10 / 3 * 3", "3.33 * 3", True)]),
        ("2 * 152 - 1 = 302 - 1", [("2 * 152 - 1", "302 - 1", False)]),
        ("1200-50-25 = 1125", [("1200-50-25", "1125", True)]),  # no date
        (r"\[ - 3 + 4 = 1 \]", [("- 3 + 4", "1", True)]),  # no bullet
        ("so **5 + 3 = 8** and **2 + 2 = 5**", [("5 + 3", "8", True), ("2 + 2", "5", False)]),
        (r"x &= 3 + 4 \\ y &= 2 + 2 = 5 \\", [("2 + 2", "5", False)]),
        (r"\begin{align*} 3 + 4 &= 8 \end{align*}", [("3 + 4", "8", False)]),
        (r"1,\!000 + 500 = 1,\!500", [("1000 + 500", "1500", True)]),
        (r"3 + 5 = 9 \text{ and } 2 + 2 = 4", [("3 + 5", "9", False), ("2 + 2", "4", True)]),
        (r"8 \text{ pens} - 1 \text{ pen} = 6 \text{ pens}", [("8 - 1", "6", False)]),
        ("8 pens * 12 pens/box = 96 pens", [("8 * 12", "96", True)]),
        ("20 pens + 15 rulers = 36 things", [("20 + 15", "36", False)]),  # no measures that could be converted
        (r"\frac{45 \text{ miles}}{30 \text{ miles per hour}} = 1.5 \text{ hours}", [("((45 )/(30 ))", "1.5", True)]),
        ("x ≤ 6 * 3 = 19, given by 3 * 3 = 8", [("6 * 3", "19", False), ("3 * 3", "8", False)]),
        (r"x \leq 6 * 3 = 19 of these", [("6 * 3", "19", False)]),
        ("3 * 4 = 13 models", [("3 * 4", "13", False)]),
        ("6 / 2 = 4 dollars and 3 * 4 = 12", [("6 / 2", "4", False), ("3 * 4", "12", True)]),
        ("a = 16 - 3\nprice = 2", []),  # two lines are no equation
        (" + ".join(["12500"] * 21) + " = 262500", []),  # longer than what is looked at
    ],
)
def test_calculations_by_hand(text, expected):
    assert [tuple(claim) for claim in claims_of(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "She has 11 eggs left.", "x - 2 = 5", "2x = 8", "2 apples = 3 + 4", "2 hours + 30 minutes = 150 minutes",
        "√16 + 2 = 6", "3 1/2 + 1/2 = 4", "1 200 + 300 = 1 500", "0x10 = 16", "700 + 500 = 1 200", "12 / 4 = 3 1/2", "20% of 50 + 10 = 20", "3 times 5 + 2 = 17", "12 eggs x 3 + 2 = 38",
        "5 X 3 + 2 = 17", "x * (1 - 0.3) = 7", "a fifth of 20 = 4", "5 = 5", "n = 12",
        r"2 \text{ hours} + 30 \text{ minutes} = 150 \text{ minutes}", r"2 \text{ hours} = 2 * 60 \text{ minutes}", r"20 \text{ of } 50 + 10 = 20",
        "5 plus 3 * 2 = 6", "10 minus 2 + 3 = 5", "multiplied by 2 + 3 = 5", "5 more than 2 * 3 = 6", "5 from 3 - 1 = 2", "6 over 1 + 2 = 2",
        "the sum of 5 and 3 * 2 = 6", "7 mod 5 + 3 = 5", "7 choose 2 - 7 = 0", "5 ± 3 + 1 = 9", r"\log 1 - 3 = -3", r"2 \diamond 3 + 1 = 9", r"\sum_{i=1}^9 \frac12 * 3 = 9",
        r"\frac{3}{2} (1 + 0) = 3/2", r"\left(\frac{2}{3}\right) \left(\frac{4}{6}\right) = \frac{4}{9}", "P_1 (1 - 4) = 0", "3,5 + 1 = 4,5", "1:30 + 30 = 2:00", "2**3 = 8", "2 + 6 = 2**3", "3 + 6 = 3²",
        "$50 - 10% = $45", "1,500,000 * 2 = 3 million", "24 * 2 = 4 dozen", "100 / 60 = 1 hour 40 minutes", "90 / 60 = 1 hour and 30", "90 * 4 + 30 = 6:30", "7 / 2 = 3,5", "1/4 + 1 = 3/6 : 4/6",
        "3 * 4 = 20% of 60", "3 + 4 = 2 plus 5", "3 + 4 = 12 base 5", "1 + 1 = 4ab", r"1 - 1 = \frac{3}{4}abc", "1 + 1 = 4AB", r"x &= 3 + 4 \\ &= 7", r"3 + 5 = 8\boxed{8}", "32ab = 2 * 8ab",
        "3 + 4 = y", "3 + 4 = 7x", "1 + 1 >= 3", "1 + 1 == 3", "1 + 1 := 3", r"2 \ne 1 + 2", "2^3 = 9", "1 / 0 = 5", "",
    ],
)  # fmt: skip
def test_what_is_not_plain_arithmetic_is_no_calculation(text):
    assert list(claims_of(text)) == []
    assert not calculations_of(text).are_sound


numbers = st.integers(0, 10**6)


@given(numbers, numbers, st.sampled_from([("+", add), (r"\times", mul), ("-", sub)]), st.integers(1, 99))
def test_a_right_calculation_holds_and_a_changed_one_does_not(a, b, operation, off):
    sign, work_out = operation
    right = work_out(a, b)
    assert calculations_of(f"First \\( {a} {sign} {b} = {right} \\). So \\boxed{{{right}}}.")
    assert not calculations_of(f"1 + 1 = 2, then {a} {sign} {b} = {right + off}").are_sound


@given(st.text("0123456789+-*/=()., $%\\{}x\n", max_size=200))
def test_no_text_raises(text):
    assert all(isinstance(claim, Claim) for claim in claims_of(text))


@pytest.mark.parametrize(
    "piece",
    ["(", "1 ", "1+", "1=", " -", "1", "1.", "\\frac{1}{", "\\text{", "\\text ", "=1+1\n", "1=1+", ") ", "%", "1%", "1 ab ", "1 ab+", "ab/ab", "1 ab =", "ab, ", "\\\\", "1 \\begin{"],
)  # fmt: skip
def test_a_long_text_takes_time_in_proportion_to_its_length(piece):
    text = piece * (20_000 // len(piece))
    assert all(isinstance(claim, Claim) for claim in claims_of(f"{text}=1+{text}"))


def test_a_sound_reader_finds_the_answer_of_completions_that_calculate_rightly_alone():
    read, number = get_reader("sound:boxed"), get_reader("sound:last-number")
    assert read(r"9 * 2 = 18, so \boxed{18}") == "18"
    assert read(r"9 * 2 = 17, so \boxed{17}") is None
    assert read(r"So \boxed{17}") is None
    assert number("9 * 2 = 18, then 1") == "1"
    assert read_answer(number, "9 * 2 = 18, then 1", is_cut=True) is None  # half a number, and none was marked
    assert asked_by("sound:last-number") == "number"


FULL, SHORT, FALSE = (
    r"16 - 3 - 4 = 9, and 9 * 2 = 18: \boxed{18}",
    r"16 * 2 = 32: \boxed{32}",
    r"16 - 3 = 12, and 12 * 2 = 24: \boxed{24}",
)


@pytest.mark.parametrize(
    ("text", "given", "used", "results"),
    [
        (FULL, {16, 3, 4, 2}, {16, 3, 4, 9, 2}, {9, 18}),  # 9 is come to, not given
        ("2 + 3 = 5 = 10 / 2", {2, 3}, {2, 3, 5}, {5}),
        ("5 * (2 + 1) = 5 * 3 = 15", {5, 2, 1}, {5, 2, 1, 3}, {15}),  # 5 * 3 is on the way, no result
        ("20% * 50 = 10", {20, 50}, {20, 50}, {10}),
        ("She has 11 eggs left.", set(), set(), set()),
    ],
)
def test_what_calculations_start_from_use_and_come_to(text, given, used, results):
    assert calculations_of(text)[1:] == (given, used, results)


@pytest.mark.parametrize(
    ("texts", "voting"),
    [
        ([FULL] * 2 + [SHORT] * 3, [True] * 2 + [False] * 3),  # 3 and 4 in 2 of 5: at least a third
        ([FULL] + [SHORT] * 3, [True] * 4),  # in 1 of 4
        ([FULL] * 2 + [SHORT] * 4 + [FALSE] * 9, [True] * 2 + [False] * 13),  # in 2 of 6 sound ones
        ([SHORT, r"16 * 2 = 32, 16 - 2 = 14: \boxed{32}"], [True, False]),  # what is 14 for?
        ([r"16 - 2 = 14: \boxed{9}", FALSE], [True, False]),  # none is complete: the sound one
        ([r"20% * 50 = 10: \boxed{10}", r"50 * 0.2 = 10: \boxed{10}"], [True, True]),
        ([r"20 / 100 * 50 = 10: \boxed{10}", r"20% * 50 = 10: \boxed{10}"], [True, True]),  # 100 comes with percentages
        ([r"3 - 5 = -2: \boxed{-2}", FALSE], [True, False]),
        ([r"So \boxed{17}", FALSE], [False, False]),
        (["16 - 3 = 13"], [False]),  # no answer
        ([], []),
    ],
)
def test_who_votes_by_hand(texts, voting):
    assert voters(texts, [get_reader("boxed")(text) for text in texts]) == voting


@given(
    st.lists(st.sampled_from([FULL, SHORT, FALSE, r"So \boxed{17}", r"16 - 3 = 13: \boxed{13}"]), max_size=9),
    st.randoms(),
)
def test_who_votes_depends_on_neither_order_nor_number_and_never_on_a_false_calculation(texts, random_):
    read = get_reader("sound:boxed")
    found = dict(zip(texts, read_answers(read, [(text, False) for text in texts]), strict=True))
    again = random_.sample(texts * 3, len(texts) * 3)
    assert read_answers(read, [(text, False) for text in again]) == [found[text] for text in again]
    assert found.get(FALSE) is None
    assert any(found.values()) == any(calculations_of(text).are_sound for text in texts)


def test_votes_of_those_who_leave_out_a_number_or_miscalculate_do_not_count(tmp_path, capsys):
    """5 of 8 sound completions leave out 3 and 4; 9 miscalculate."""
    texts = [SHORT] * 5 + [FULL] * 3 + [FALSE] * 9
    lines = [{"question_id": "q", "sample": i, "completion": text} for i, text in enumerate(texts)]
    file = write_lines(tmp_path / "c.jsonl", lines)
    for reader, label in (("boxed", "24"), ("sound:boxed", "18")):
        assert main(["label", str(file), "--method", "ttrl", "--reader", reader, "--out", str(tmp_path / reader)]) == 0
        assert f'"{label}"' in (tmp_path / reader).read_text()
        assert assign_credit(Group.from_texts(texts), "ttrl", reader=reader).labels.positive == label


def test_the_order_of_the_lines_changes_nothing():
    lines = ["1 + 1 = 2", "- 3 * 3 = 9", "and 4 - 5 = -1", "x = 3"]
    shuffled = random.Random(0).sample(lines, len(lines))
    assert sorted(claims_of("\n".join(lines))) == sorted(claims_of("\n".join(shuffled)))
