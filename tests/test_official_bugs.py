r"""Each bug found in the authors' released code (B1–B11) has a test here that fails on that behaviour.

The numbers are those of our notes on that code; `docs/deviations.md` tells the story of each.
"""

import os
import threading

import pytest

from scrl.answers.classes import classify, find_class, same_answer
from scrl.answers.forms import canonical_form
from scrl.answers.readers import READERS
from scrl.credit.rule import assign_credit, credit_rule
from scrl.data.completion_files import open_completions
from scrl.lab.label import label_file
from scrl.records import Group


def test_b1_gold_answers_may_be_numbers(tmp_path):
    """There: `"\\boxed" in 70` raises TypeError after the first update."""
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"question_id": 7, "completion": "\\\\boxed{70}", "gold": 70}\n')
    (rollout,) = open_completions(path).rollouts()
    assert (rollout.question_id, rollout.gold) == ("7", "70")
    assert label_file(path, credit_rule("ttrl"))["majority_accuracy"] == 1.0


HOSTILE = [
    "__import__('os').system('touch {mark}')", "exec(\"open('{mark}', 'w')\")", "open('{mark}', 'w').write('x')",
    r"\text{{__import__('os').mkdir('{mark}')}}", "().__class__.__base__.__subclasses__()",
    "lambda: open('{mark}', 'w')", "eval(compile(\"open('{mark}','w')\", 'x', 'exec'))",
    "sympify(\"__import__('os').mkdir('{mark}')\")", "x; import os; os.mkdir('{mark}')", "{{open('{mark}','w')}} + 1",
    "1 + open('{mark}', 'w').write('1')",
]  # fmt: skip


@pytest.mark.parametrize("template", HOSTILE)
def test_b2_model_output_is_never_executed(template, tmp_path):
    """There: `parse_expr` evaluates what the model wrote. Here: neither readers nor forms do."""
    mark = tmp_path / "executed"
    hostile = template.format(mark=mark)
    for read in READERS.values():
        read(f"\\boxed{{{hostile}}} the answer is {hostile}")
    classify([hostile, "1", r"\frac{x}{x+1}", r"\sin x"])
    assert not mark.exists()
    assert not os.path.exists("executed")


@pytest.mark.parametrize("padded", ["025", "073", "045", "033", "080", "055", "023"])
def test_b3_leading_zeros_are_kept_apart(padded):
    """There: '025' → '0', as all seven zero-padded AIME24 answers, which then match nobody."""
    assert canonical_form(padded).key == padded.lstrip("0")
    assert not same_answer(padded, "0")


UNANIMOUS = [
    r"\begin{pmatrix} -1/7 \\ 4/7 \\ 9/7 \end{pmatrix}", r"(-\infty, -4) \cup (11, \infty)", r"x \in [-6,13]",
    r"4 \pm \sqrt{23}", r"\csc x", r"y = 9x - 4", r"3x - 8y + 2z + 9 = 0", r"\{3\pm\sqrt{7},-5\}",
    r"\left(\frac{2}{9},\frac{7}{4}\right]", r"\text{Rosalind}", r"22,\! 345,\! 678,\! 900", r"713_8",
]  # fmt: skip


@pytest.mark.parametrize("answer", UNANIMOUS)
def test_b4_a_unanimous_answer_is_its_own_label_and_matches_gold(answer):
    """There: 26 of 500 MATH-500 answers do not grade back against their own vote key, so unanimity earns 0."""
    credit = assign_credit(Group.from_texts([f"\\boxed{{{answer}}}"] * 4, [0.1] * 4))
    assert credit.labels.positive is not None
    assert credit.rewards.tolist() == [1.0] * 4
    assert find_class(classify([answer]), answer) == 0


@pytest.mark.parametrize("spellings", [
    [r"\dfrac12", r"\frac{1}{2}", "1/2", "0.5"], ["1,000", "1000", r"1{,}000"], ["C", r"\text{C}", "(C)"],
    [r"5\text{ cm}", "5 cm", "5"], [r"12\%", "12%", "12"],
])  # fmt: skip
def test_b5_equivalent_spellings_vote_together(spellings):
    assert len(classify(spellings).keys_K) == 1


def test_b5_anagrams_do_not():
    """There: a name becomes the product of its letters, and so collides with its anagrams."""
    assert len(classify(["Rosalind", "Rosaldin", "Dalrosin"]).keys_K) == 3


def test_b6_a_negative_label_never_pays():
    """There: an answer graded equal to a rare member of 𝒩⁻, but frequent itself, earns −(τ − p) > 0.

    Here equal answers are one class with one share: 2 × 1/2 spelled rarely, 14 × 0.5 → one class of 16 of 32.
    """
    answers = ["1/2"] * 2 + ["0.5"] * 14 + ["7"] * 15 + ["9"]
    entropies = [0.9] * 2 + [0.2] * 14 + [0.2] * 15 + [0.9]
    credit = assign_credit(Group.from_answers(answers, entropies), entropy_weight=0.0)
    assert credit.labels.negatives == {"9"}
    assert credit.rewards[0] == credit.rewards[2] == 0.0
    for answer_class, reward in zip(credit.tally.class_of_G, credit.rewards, strict=True):
        if credit.tally.keys_K[answer_class] in credit.labels.negatives:
            assert reward < 0


def test_b7_a_minority_spelling_of_the_label_earns_the_full_share():
    """There: a correct answer in a rare spelling gets its own small p (0.07 instead of 0.50)."""
    answers = [r"\frac12"] * 7 + [r"\frac{2}{4}"] + ["3"] * 8
    credit = assign_credit(Group.from_answers(answers, [0.1] * 16), min_margin=0.0, min_share=0.5)
    assert credit.tally.shares_K == (0.5, 0.5)
    answers[-1] = "0.5"
    credit = assign_credit(Group.from_answers(answers, [0.1] * 16))
    assert credit.labels.positive is None  # 9 − 7 of 16 = 0.125, not above
    credit = assign_credit(Group.from_answers(answers, [0.1] * 16), min_margin=0.1)
    assert credit.rewards[0] == credit.rewards[7] == credit.rewards[15] == pytest.approx(9 / 16)


def test_b8_labelling_works_in_any_thread():
    """There: SIGALRM, hence `ValueError: signal only works in main thread`."""
    found = []

    def work():
        group = Group.from_texts([r"\boxed{\frac62}", r"\boxed{3}", r"\boxed{\sin x}"], [0.1] * 3)
        found.append(assign_credit(group).labels.positive)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["3"]


def test_b9_a_missing_entropy_is_an_error_not_zero():
    """There: entropies that do not arrive become 0.0, H̄_j ≥ H̄ is 0 ≥ 0, and the gate is silently off."""
    with pytest.raises(ValueError, match="needs an entropy"):
        assign_credit(Group.from_answers(["1", "2"]))


def test_b10_no_answer_is_compared_with_another():
    """There: up to |𝒩⁻| comparisons a completion, twice a step, one after the other. Here: a key for each answer."""
    answers = [r"\sum_{k=1}^3 k", r"\sin x", "6", "7"] * 8
    classes = classify(answers)
    assert [classes.keys_K[j] for j in classes.class_of_G] == [classify([answer]).keys_K[0] for answer in answers]


def test_b11_several_answers_are_unordered():
    assert same_answer("1, 2", "2, 1")
    assert not same_answer("(1, 2)", "(2, 1)")


@pytest.mark.parametrize("empty", [r"\boxed{}", r"\boxed{ }", r"\boxed{\text{}}", r"\boxed{\,}"])
def test_an_empty_box_is_no_answer(empty):
    """There: "" is an ordinary answer that can win the vote."""
    credit = assign_credit(Group.from_texts([empty] * 3 + [r"\boxed{4}"] * 2, [0.1] * 5))
    assert credit.answers[:3] == (None, None, None)
    assert credit.labels.positive == "4"
