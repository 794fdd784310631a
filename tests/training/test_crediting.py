"""Questions that are asked twice, as they are and in other words: two groups that vote on each other."""

import numpy as np
import pytest
import torch
from line_files import read_lines, write_lines
from listeners import Listener
from runs import differences, do, go_on, metrics, no_reports, small, stop_after_a_step
from transformers import AutoTokenizer

from scrl.credit.rule import credit_rule
from scrl.data.arithmetic import LEVELS, arithmetic_questions
from scrl.errors import InputError
from scrl.policy.model_paths import model_folder
from scrl.records import REPHRASED, Group, Question, Sample, Sampled, rephrasing
from scrl.sampling.embedding import load_embedder
from scrl.training.crediting import Crediting
from scrl.training.loop import train

BOTH = ("self-harmony", "co-rewarding")
TINY = ("questions=arithmetic:easy:train:4", "steps=2", "sampling.max_tokens=40", "evaluation.is_off=true")


def sampled(question, *answers):
    tokens = np.arange(3)
    samples = (Sample(f"\\boxed{{{a}}}" if a else "?", tokens, np.zeros(3), np.ones(3), True) for a in answers)
    return Sampled(question, tokens, tuple(samples))


def credits_of(method, drawn):
    return [group.credit for group in Crediting(credit_rule(method)).credit(drawn)]


# What is asked


def test_every_question_is_asked_as_it_is_and_then_in_other_words():
    questions = [Question("a", "A?", "1", rephrased="a!"), Question("b", "B?", rephrased="b!")]
    forms = credit_rule("co-rewarding").question_forms(questions)
    both = [("a", "A?", "1"), ("a~rephrased", "a!", "1"), ("b", "B?", None), ("b~rephrased", "b!", None)]
    assert [(form.id, form.text, form.gold) for form in forms] == both
    assert credit_rule("ttrl").question_forms(questions) == questions
    with pytest.raises(InputError, match=r"question 'c' has no rephrasing.*column `rephrased`"):
        credit_rule("co-rewarding").question_forms([*questions, Question("c", "C?")])
    with pytest.raises(InputError, match="has no rephrasing"):
        rephrasing(forms[1])


@pytest.mark.parametrize("level", LEVELS)
def test_the_embedded_model_knows_every_token_of_a_rephrased_question(level):
    tokenizer = AutoTokenizer.from_pretrained(model_folder("embedded"))
    for question in arithmetic_questions(level, 64, seed=5):
        assert tokenizer.unk_token_id not in tokenizer.encode(f"{question.rephrased}\n")


# Two groups


def test_each_group_is_credited_with_its_own_partner():
    one, two = Question("a", "A?", rephrased="a!"), Question("b", "B?", rephrased="b!")
    drawn = [sampled(one, "1", "1", "2"), sampled(rephrasing(one), "2", "2", "1")]
    drawn += [sampled(two, "5", "5", None), sampled(rephrasing(two), "5", "6", "6")]
    found = credits_of("co-rewarding", drawn)
    assert [credit.labels.positive for credit in found] == ["2", "1", None, "5"]  # nobody says 6 of the second as it is
    assert [credit.rewards.tolist() for credit in found] == [[0, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    found = credits_of("self-harmony", drawn)
    assert [credit.labels.positive for credit in found] == ["1", "1", "5", "5"]
    assert [credit.rewards.max() < 1 for credit in found] == [False, True, False, True]  # the penalty


# Runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of each method, the first one with its report."""
    folder = tmp_path_factory.mktemp("both")
    do(folder / "self-harmony", "method=self-harmony", *TINY)
    with no_reports():
        do(folder / "co-rewarding", "method=co-rewarding", *TINY)
    return folder


@pytest.mark.parametrize("method", BOTH)
def test_both_groups_of_a_question_are_trained_and_logged(whole, method):
    rollouts = read_lines(whole / method / "rollouts.jsonl")
    groups = {}
    for line in rollouts:
        groups.setdefault((line["step"], line["question_id"]), []).append(line)
    assert len(groups) == 2 * 2 * 2  # steps × questions × forms
    for (step, name), group in groups.items():
        assert len(group) == 8
        assert sum(line["advantage"] is not None for line in group) == 4
        other = name.removesuffix(REPHRASED) if name.endswith(REPHRASED) else name + REPHRASED
        assert groups[step, other][0]["gold"] == group[0]["gold"]
        assert groups[step, other][0]["question"] != group[0]["question"]


def test_the_report_of_such_a_run_can_be_drawn(whole):
    assert REPHRASED in (whole / "self-harmony" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", BOTH)
def test_metrics_are_over_both_groups(whole, method):
    for metric in metrics(whole / method):
        step = [line for line in read_lines(whole / method / "rollouts.jsonl") if line["step"] == metric["step"]]
        assert metric["pass@1"] == pytest.approx(np.mean([line["correct"] for line in step]))
        assert metric["reward_mean"] == pytest.approx(np.mean([line["reward"] for line in step]))
        positives = {line["question_id"]: line["correct"] for line in step if line["label"] == "positive"}
        assert metric["positive_share"] == len(positives) / 4
        if positives:
            assert metric["positive_accuracy"] == pytest.approx(np.mean(list(positives.values())))
        assert metric["tokens"] == sum(line["num_tokens"] for line in step)


def test_the_learning_rate_falls_over_the_updates_of_both_groups(whole, tmp_path, no_report):
    """Four updates a step where the same questions make two, on one cosine."""
    do(tmp_path / "ttrl", "method=ttrl", *TINY)
    runs = (whole / "self-harmony", whole / "co-rewarding", tmp_path / "ttrl")
    one, two, ttrl = ([step["learning_rate"] for step in metrics(run)] for run in runs)
    assert one == two != ttrl


def test_a_run_that_was_stopped_goes_on_exactly(whole, tmp_path, no_report):
    stop_after_a_step(tmp_path / "run", "method=self-harmony", *TINY)
    go_on(tmp_path / "run")
    assert differences(tmp_path / "run", whole / "self-harmony") == []


def test_evaluations_ask_every_question_once_as_it_is(tmp_path, no_report):
    measured = (*TINY[:3], "steps=1", "evaluation.completions=2")
    for method in ("self-harmony", "ttrl"):
        do(tmp_path / method, f"method={method}", *measured)
    both, one = (read_lines(tmp_path / method / "evaluations.jsonl") for method in ("self-harmony", "ttrl"))
    assert both[0] == one[0]  # the start model
    assert both[1]["questions"] == one[1]["questions"] == 4


@pytest.fixture
def questions(tmp_path):
    """Of one's own: all with a rephrasing under a name of its own, and one without."""

    def write(name, rephrasings):
        pairs = zip(arithmetic_questions("easy", 2), rephrasings, strict=True)
        rows = [{"question": drawn.text, "answer": drawn.gold, "other words": other} for drawn, other in pairs]
        return f"questions={write_lines(tmp_path / name, rows)}"

    return write


def test_rephrasings_of_ones_own_are_read_from_a_column(questions, tmp_path, no_report):
    texts = [question.rephrased for question in arithmetic_questions("easy", 2)]
    source = questions("all.jsonl", texts)
    settings = (*TINY[1:], "steps=1", "method=co-rewarding", "rephrased_column=other words")
    do(tmp_path / "run", source, *settings)
    found = {line["question"] for line in read_lines(tmp_path / "run" / "rollouts.jsonl") if "~" in line["question_id"]}
    assert found == set(texts)


def test_a_question_whose_rephrasing_is_too_long_is_left_out(questions, tmp_path, no_report):
    long = f"Compute {'1+' * 30}1."
    source = questions("all.jsonl", [long, "Compute 1+1."])
    settings = (*TINY[1:], "steps=1", "questions_per_step=1", "method=co-rewarding", "rephrased_column=other words")
    limits = ("prompt.max_tokens=40", "prompt.overlong=drop")
    do(tmp_path / "run", source, *settings, *limits)
    assert {line["question_id"] for line in read_lines(tmp_path / "run" / "rollouts.jsonl")} == {
        "all-1",
        "all-1~rephrased",
    }
    with pytest.raises(InputError, match=r"1 of 2 prompts have more than 40 tokens, the longest .*: all-0"):
        train(small(source, *settings, limits[0]), tmp_path / "other", Listener())


def test_questions_held_out_need_no_rephrasing(questions, tmp_path, no_report):
    source = questions("all.jsonl", ["Compute 1+1.", "Compute 1+2."])
    (tmp_path / "held-out.jsonl").write_text('{"question": "Compute 2+2.", "answer": "4"}\n')
    settings = (*TINY[1:], "steps=1", "method=co-rewarding", "rephrased_column=other words", "evaluation.is_off=false")
    do(tmp_path / "run", source, *settings, f"evaluation.held_out={tmp_path / 'held-out.jsonl'}")
    rows = read_lines(tmp_path / "run" / "evaluations.jsonl")
    assert {row["questions"] for row in rows if row["benchmark"] == "held-out"} == {1}


@pytest.mark.parametrize("column", ["rephrased_column=other words", "seed=0"])
def test_a_question_without_a_rephrasing_is_refused_before_anything_is_written(questions, tmp_path, column):
    source = questions("some.jsonl", ["Compute 1+1.", None])
    with pytest.raises(InputError, match=r"question 'some-[01]' has no rephrasing"):
        train(small(source, *TINY[1:], "method=self-harmony", column), tmp_path / "run", Listener())
    assert not (tmp_path / "run").exists()


def test_completions_are_compared_by_a_model_that_a_run_loads(tmp_path, no_report):
    """The embedded model itself, read as a model that embeds."""
    name = str(model_folder("embedded"))
    do(tmp_path / "run", *TINY, "steps=1", "completions=12", "method=evol-rl", f"credit.embedding={name}")
    rule = credit_rule("evol-rl", embedding=name)
    embed = load_embedder(rule.settings, torch.device("cpu"))
    found = read_lines(tmp_path / "run" / "rollouts.jsonl")
    for group in (found[:12], found[12:]):
        texts = Group.from_texts([line["completion"] for line in group])
        assert [line["reward"] for line in group] == pytest.approx(rule.credit(texts, embed=embed).rewards)
