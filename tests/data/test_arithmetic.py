"""Generated arithmetic: streams that never meet, steps that lead to the answer, levels that keep their limits."""

import ast
import re
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrl.data.arithmetic import (
    LEVELS,
    SOURCE,
    Expression,
    Level,
    Problem,
    _combined,
    arithmetic_questions,
    draw_problem,
    find_level,
    problem_stream,
)
from scrl.errors import ConfigError
from scrl.seeds import generator_for

STREAMS = ("pretraining", "train", "held-out")
SIGNS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


class Calculator:
    """Reads an expression by the rules of arithmetic, and notes every operation on the way."""

    def __init__(self, text):
        self.tokens = re.findall(r"\d+|[-+*()]", text)
        assert "".join(self.tokens) == text
        self.numbers, self.steps = [], []
        self.value = self.sum()
        assert not self.tokens

    def sum(self):
        return self.chain("+-", lambda: self.chain("*", self.atom))

    def chain(self, signs, read):
        """read (sign read)*, from the left."""
        value = read()
        while self.tokens and self.tokens[0] in signs:
            sign = self.tokens.pop(0)
            other = read()
            self.steps.append((value, sign, other))
            value = SIGNS[sign](value, other)
        return value

    def atom(self):
        token = self.tokens.pop(0)
        if token != "(":
            self.numbers.append(int(token))
            return int(token)
        value = self.sum()
        assert self.tokens.pop(0) == ")"
        return value


def expression(question):
    return re.fullmatch(r"Compute (.*)\.", question)[1]


def read_step(step):
    left, sign, right, value = re.fullmatch(r"(\d+)([-+*])(\d+)=(\d+)", step).groups()
    return int(left), sign, int(right), int(value)


def test_the_calculator_knows_the_rules():
    assert Calculator("47+38*6-(20-5)*2").value == 47 + 38 * 6 - (20 - 5) * 2
    assert Calculator("9-3-2").value == 4
    assert Calculator("9-(3-2)").value == 8


# Problems


@pytest.mark.parametrize("name", LEVELS)
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_the_steps_lead_from_the_question_to_the_answer_within_the_level(name, seed):
    level = LEVELS[name]
    problem = draw_problem(level, np.random.default_rng(seed))
    worked = Calculator(expression(problem.question))
    result, written = problem.expression.worked()
    steps = [read_step(step) for step in written]
    assert worked.value == result == problem.answer
    assert steps[-1][-1] == problem.answer
    assert len(steps) == len(worked.steps) == level.operations
    for left, sign, right, value in steps:
        assert SIGNS[sign](left, right) == value
        assert 0 <= value <= level.largest_result
        assert sign != "*" or min(left, right) <= level.largest_factor
    assert [step[:3] for step in steps] == worked.steps  # in the order of the rules: every number is there when needed
    assert all(2 <= number <= level.largest for number in worked.numbers)
    assert problem.solution() == "\n".join([*written, f"\\boxed{{{problem.answer}}}"])


@settings(max_examples=40)
@given(st.integers(0, 5), st.integers(2, 30), st.integers(2, 9), st.integers(20, 500), st.integers(0, 10**6))
def test_any_level_keeps_its_limits(operations, largest, largest_factor, largest_result, seed):
    level = Level(operations, max(largest, 9), largest_factor, max(largest_result, largest))
    problem = draw_problem(level, np.random.default_rng(seed))
    worked = Calculator(expression(problem.question))
    assert worked.value == problem.answer
    steps = problem.expression.worked()[1]
    assert len(steps) == operations
    assert all(0 <= read_step(step)[-1] <= level.largest_result for step in steps)


@pytest.mark.parametrize("name", LEVELS)
def test_every_kind_of_operation_comes_up(name):
    signs = {
        read_step(step)[1]
        for problem in islice(problem_stream(LEVELS[name], stream="train", seed=0), 30)
        for step in problem.expression.worked()[1]
    }
    assert signs == set("+-*")


def test_a_slip_is_carried_on_to_the_answer():
    """(47+38)*6-129 with the carry of 47+38 forgotten: 75, 450, 321."""
    sum_ = Expression("47+38", 85, 1, Expression("47", 47), "+", Expression("38", 38))
    product = Expression("(47+38)*6", 510, 2, sum_, "*", Expression("6", 6))
    problem = Problem(Expression("(47+38)*6-129", 381, 1, product, "-", Expression("129", 129)))
    forgetful = {(47, "+", 38): 75}
    slipped = problem.solution(lambda a, sign, b: forgetful.get((a, sign, b), SIGNS[sign](a, b)))
    assert slipped == "47+38=75\n75*6=450\n450-129=321\n\\boxed{321}"
    assert problem.solution() == "47+38=85\n85*6=510\n510-129=381\n\\boxed{381}"


# Streams


def some(level, stream, seed=0, number=40):
    return {question.text for question in arithmetic_questions(level, number, stream=stream, seed=seed)}


@pytest.mark.parametrize("level", LEVELS)
def test_streams_never_share_a_question_whatever_the_seeds(level):
    drawn = {stream: set().union(*(some(level, stream, seed) for seed in range(3))) for stream in STREAMS}
    for one in STREAMS:
        for other in STREAMS:
            assert one == other or not drawn[one] & drawn[other]


@given(st.sampled_from(sorted(LEVELS)), st.integers(0, 10**6))
def test_a_question_belongs_to_one_stream_however_it_was_drawn(level, seed):
    problem = draw_problem(LEVELS[level], np.random.default_rng(seed))
    assert problem.stream in STREAMS
    assert problem.stream == Problem(Expression(problem.expression.text, -1)).stream  # the question alone decides


def test_most_questions_are_for_pretraining_and_as_many_for_training_as_held_out():
    rng = generator_for(0, "streams")
    streams = [draw_problem(LEVELS["hard"], rng).stream for _ in range(6000)]
    # 4, 4 and 248 of 256: 93.75 ± 9.6 each of 6,000
    assert 55 < streams.count("train") < 133
    assert 55 < streams.count("held-out") < 133


def test_the_same_seed_gives_the_same_questions_and_another_seed_others():
    assert arithmetic_questions("medium", 20, seed=4) == arithmetic_questions("medium", 20, seed=4)
    assert some("medium", "train", 4) != some("medium", "train", 5)


def test_more_questions_begin_with_the_fewer():
    assert arithmetic_questions("hard", 30)[:12] == arithmetic_questions("hard", 12)


def test_questions_come_once_with_their_own_names_and_their_answers():
    questions = arithmetic_questions("easy", 60, stream="held-out", seed=2)
    assert len({question.text for question in questions}) == len({question.id for question in questions}) == 60
    assert questions[0].id == "easy-held-out-2-0"
    assert all(question.gold == str(Calculator(expression(question.text)).value) for question in questions)
    assert arithmetic_questions("easy", 0) == ()


def test_the_first_questions_stay_what_they_are():
    """Golden, so that no change of the generator goes unseen: the embedded model was made from these streams."""
    questions = arithmetic_questions("easy", 2) + arithmetic_questions("hard", 1, stream="held-out", seed=3)
    assert [(question.text, question.gold) for question in questions] == [
        ("Compute 89+(77-36).", "130"),
        ("Compute (36+2)*3.", "114"),
        ("Compute 96+35-37+(8-2).", "100"),
    ]


# Levels


@pytest.mark.parametrize(("name", "hint"), [("hrad", "'hard'"), ("mediun", "'medium'"), ("esay", "'easy'")])
def test_an_unknown_level_names_the_likeliest_one(name, hint):
    with pytest.raises(ConfigError, match=rf"{SOURCE}:{name}: there is no such level\. Did you mean {hint}\?"):
        find_level(name)


def test_a_level_nothing_is_like_lists_them_all():
    with pytest.raises(ConfigError, match=r"no such level\. Known: easy, hard, medium\."):
        arithmetic_questions("zzz", 1)


# In other words


def evaluated(text):
    """The value of an expression of ours by Python's own grammar, and its signs, read from its syntax tree."""
    operations = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__}
    signs = []

    def value(node):
        if isinstance(node, ast.Constant):
            return node.value
        signs.append(type(node.op))
        return operations[type(node.op)](value(node.left), value(node.right))

    return value(ast.parse(text, mode="eval").body), Counter(signs)


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_a_rephrased_question_asks_for_the_same_in_other_words(level, seed):
    for question in arithmetic_questions(level, 3, seed=seed):
        assert question.rephrased != question.text
        value, signs = evaluated(expression(question.rephrased))
        assert (str(value), signs) == (question.gold, evaluated(expression(question.text))[1])


@settings(max_examples=60)
@given(operations=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_any_problem_can_be_rephrased(operations, seed):
    problem = draw_problem(Level(operations), np.random.default_rng(seed))
    assert problem.rephrased != problem.question
    assert evaluated(expression(problem.rephrased))[0] == problem.answer
    numbers = [Counter(re.findall(r"\d+", text)) for text in (problem.question, problem.rephrased)]
    assert numbers[0] == numbers[1]


def test_some_questions_in_other_words():
    def rephrased(left, sign, right):
        return Problem(_combined(left, sign, right, LEVELS["hard"])).rephrased

    one, two, three = (Expression(str(n), n) for n in (60, 20, 3))
    difference = _combined(one, "-", two, LEVELS["hard"])
    assert rephrased(one, "+", two) == "Compute 20+60."
    assert rephrased(difference, "*", three) == "Compute 3*(60-20)."
    assert rephrased(three, "+", difference) == "Compute 60-20+3."
    assert rephrased(difference, "-", three) == "Compute (60-20)-3."  # nothing can change places
    assert rephrased(one, "-", two) == "Compute (60)-20."
    assert rephrased(one, "-", _combined(two, "-", three, LEVELS["hard"])) == "Compute (60)-(20-3)."


def test_the_embedded_model_has_met_all_characters_of_it():
    seen = {letter for level in LEVELS for text in some(level, "pretraining", number=60) for letter in text}
    for level in LEVELS:
        assert all(set(question.rephrased) <= seen for question in arithmetic_questions(level, 60, seed=9))
