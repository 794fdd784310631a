"""The one method that is told gold: what it is told, and what it refuses to do without."""

import pytest
from line_files import read_lines, write_lines

from scrl.credit.methods import METHODS
from scrl.credit.rule import credit_rule
from scrl.errors import InputError
from scrl.evaluation.gold import require_gold, truth_for
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
