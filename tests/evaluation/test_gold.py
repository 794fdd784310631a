"""Gold answers: what the one method that is told them does, and whether all can be read back."""

import pytest
from line_files import read_lines, write_lines

from scrl.credit.methods import METHODS
from scrl.credit.rule import credit_rule
from scrl.errors import ConfigError, InputError
from scrl.evaluation.gold import bare_gold, gold_problem, require_gold, truth_for
from scrl.lab.label import label_file
from scrl.records import Group, Question

ORACLE = credit_rule("oracle")
ANSWERS = ["7", "7", "7", "5", "14/2", None]


def group(answers=ANSWERS, name="q"):
    return Group.from_texts(["?" if answer is None else f"\\boxed{{{answer}}}" for answer in answers], question_id=name)


def rewards(gold, answers=ANSWERS):
    classes = ORACLE.classify(group(answers))
    truth = truth_for(ORACLE, Question("q", "", gold), classes)
    return ORACLE.credit(group(answers), classes, truth=truth).rewards.tolist()


@pytest.mark.parametrize(
    ("gold", "expected"),
    [
        ("7", [1, 1, 1, 0, 1, 0]),
        ("5", [0, 0, 0, 1, 0, 0]),  # the majority earns nothing
        ("9", [0] * 6),  # nobody knew
        ("so it is 7.\n#### 7", [1, 1, 1, 0, 1, 0]),
        ("\\boxed{5}", [0, 0, 0, 1, 0, 0]),
        ("7.0", [1, 1, 1, 0, 1, 0]),
    ],
)
def test_rewards_are_one_where_the_answer_is_gold(gold, expected):
    assert rewards(gold) == expected
    assert rewards(gold, [None, None]) == [0, 0]


def test_no_other_method_is_told():
    for name in METHODS.keys() - {"oracle"}:
        rule = credit_rule(name)
        if "truth" not in rule.needs:
            assert truth_for(rule, Question("q", "", "7"), ORACLE.classify(group())) is None


@pytest.mark.parametrize("gold", [None, "", "   "])
def test_a_question_without_gold_is_refused_by_name(gold):
    questions = [Question("a", "", "7"), Question("b", "", gold), Question("c", "", gold)]
    with pytest.raises(InputError, match=r"method"):
        require_gold(ORACLE, questions)
    require_gold(ORACLE, questions[:1])
    require_gold(credit_rule("ttrl"), questions)
    classes = ORACLE.classify(group())
    assert truth_for(ORACLE, questions[1], classes) is None
    with pytest.raises(InputError, match="question 'q': method 'oracle' needs"):
        ORACLE.credit(group(), classes)


# The lab


def rollouts(path, golds):
    return write_lines(path, (
        {"question_id": name, "sample": sample, "completion": f"\\boxed{{{answer}}}"} | ({"gold": gold} if gold else {})
        for name, gold in golds.items() for sample, answer in enumerate(("4", "4", "2/4"))
    ))  # fmt: skip


def test_the_lab_labels_by_gold(tmp_path):
    file = rollouts(tmp_path / "r.jsonl", {"a": "4", "b": "0.5", "c": "9"})
    summary = label_file(file, ORACLE, out=tmp_path / "labels.jsonl")
    found = read_lines(tmp_path / "labels.jsonl")
    assert [line["reward"] for line in found] == [1, 1, 0, 0, 0, 1, 0, 0, 0]
    assert [line["label"] for line in found] == ["positive", "positive", *[None] * 3, "positive", *[None] * 3]
    assert (summary["positive_questions"], summary["positive_accuracy"]) == (2, 1.0)
    assert summary["pass@1"] == pytest.approx((2 + 1 + 0) / 9)  # the mean reward of the oracle is pass@1


def test_the_lab_names_file_and_question_without_gold_and_writes_nothing(tmp_path):
    file = rollouts(tmp_path / "r.jsonl", {"a": "4", "b": None})
    with pytest.raises(InputError, match=r"r\.jsonl"):
        label_file(file, ORACLE, out=tmp_path / "labels.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]


# Every gold answer must score 1

FINE = ["42", "025", "142.0", "-3", "70,000", r"\frac{3}{4}", r"\left( 3, \frac{\pi}{2} \right)", r"\text{east}",
        r"5\%", r"\$32.50", "p - q", "x^2 + 1", "So it is 3.\n#### 3", r"Thus \boxed{\sqrt{2}}."]  # fmt: skip


def questions(*golds):
    return [Question(f"q{place}", "?", gold) for place, gold in enumerate(golds)]


def test_gold_that_can_be_read_back_passes():
    assert gold_problem(questions(*FINE), "boxed") is None
    assert gold_problem(questions("A", "D", "(B)"), "choice") is None
    assert gold_problem(questions(None, "1", None), "boxed") is None  # those without gold are skipped
    assert gold_problem([], "boxed") is None


@pytest.mark.parametrize(("gold", "bare"), [
    ("so it is 7.\n#### 7", "7"), (r"#### 2\pi", r"2\pi"), ("#### 12, 13", "12, 13"), ("#### A", "A"),
    (r"\boxed{3} no\n#### \boxed{x^2}", "x^2"), (r"Thus \boxed{\sqrt{2}}.", r"\sqrt{2}"), (" 18 ", "18"),
    ("7 ####", "7 ####"),
])  # fmt: skip
def test_gold_is_all_that_stands_behind_the_hashes(gold, bare):
    assert bare_gold(gold) == bare


def test_gold_that_nobody_could_match_is_listed_by_id():
    assert "q1, q3, q4" in gold_problem(questions("1", "}", "3", " ", "see {a"), "boxed")
    assert "q1" in gold_problem(questions("B", "42"), "choice")
    with pytest.raises(ConfigError, match="'boxd'"):
        gold_problem(questions("1"), "boxd")
