"""Which questions a step sees."""

import pytest

from scrl.errors import ConfigError
from scrl.records import Question
from scrl.training.stream import QuestionStream

SEVEN = [Question(f"q{number}", "?") for number in range(7)]


def ids(stream, *steps):
    return [question.id for step in steps for question in stream.batch(step)]


def test_every_epoch_visits_each_question_once_in_an_order_of_its_own():
    stream = QuestionStream(SEVEN, 3, seed=0)
    assert stream.steps_per_epoch == 3  # 3 + 3 + 1
    assert [len(stream.batch(step)) for step in range(6)] == [3, 3, 1, 3, 3, 1]
    first, second = ids(stream, 0, 1, 2), ids(stream, 3, 4, 5)
    assert sorted(first) == sorted(second) == [question.id for question in SEVEN]
    assert first != second


def test_the_last_smaller_batch_can_be_left_out():
    stream = QuestionStream(SEVEN, 3, seed=0, drop_last=True)
    assert stream.steps_per_epoch == 2
    assert [len(stream.batch(step)) for step in range(4)] == [3, 3, 3, 3]
    assert len(set(ids(stream, 0, 1))) == len(set(ids(stream, 2, 3))) == 6


def test_a_batch_depends_on_the_seed_and_the_step_alone():
    stream = QuestionStream(SEVEN, 3, seed=0)
    later = ids(stream, 5)
    assert ids(QuestionStream(SEVEN, 3, seed=0), 5) == later
    assert ids(QuestionStream(SEVEN, 3, seed=1), 0, 1, 2) != ids(stream, 0, 1, 2)


def test_updates_are_counted_with_the_smaller_batches():
    stream = QuestionStream(SEVEN, 3, seed=0)
    assert stream.updates(6, 1) == 14  # every question twice
    assert stream.updates(4, 2) == 2 + 2 + 1 + 2  # 3 questions: 2 updates of 2 and 1; 1 question: 1
    assert QuestionStream(SEVEN, 3, seed=0, drop_last=True).updates(6, 1) == 18


def test_fewer_questions_than_a_batch_are_one_batch_unless_it_is_dropped():
    assert len(QuestionStream(SEVEN, 8, seed=0).batch(3)) == 7
    with pytest.raises(ConfigError, match=r"questions_per_step: there are 7 questions"):
        QuestionStream(SEVEN, 8, seed=0, drop_last=True)


def test_steps_of_one_size_ask_different_questions_and_those_with_a_label_first():
    stream = QuestionStream(SEVEN, 3, seed=0).only(["q1", "q2", "q4", "q6"])
    assert [len(stream.batch(step)) for step in range(4)] == [2, 2, 2, 2]
    for step in range(4):
        asked = [question.id for question in stream.filled(step, 3, SEVEN)]
        assert asked[:2] == ids(stream, step)
        assert len(set(asked)) == 3
        assert set(asked) <= {"q1", "q2", "q4", "q6"}
    asked = [question.id for question in stream.filled(1, 6, SEVEN)]
    assert (set(asked[:4]), asked[4:]) == ({"q1", "q2", "q4", "q6"}, ["q0", "q3"])


def test_updates_of_nearly_equal_batches():
    stream = QuestionStream(SEVEN, 3, seed=0).only([f"q{number}" for number in range(5)])  # 3 + 2
    assert stream.updates(3, 1) == 3 + 2 + 3
    assert stream.updates(2, 2) == 2 + 1


def test_where_a_pass_brings_labels_its_first_epoch_visits_each_of_its_questions_once():
    """Of 40 questions 12 have a label in the first pass, of 5 steps, and 28 from step 5 on, 4 batches of 7."""
    forty = [Question(f"q{number}", "?") for number in range(40)]
    stream = QuestionStream(forty, 8, seed=0).only([f"q{number}" for number in range(28)], first_step=5)
    for first in (5, 9):
        seen = [name for step in range(first, first + 4) for name in ids(stream, step)]
        assert sorted(seen) == sorted(f"q{number}" for number in range(28))
    assert (stream.updates(5, 1), stream.updates(7, 1)) == (0, 14)
