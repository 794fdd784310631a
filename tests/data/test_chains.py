"""Chains: the number that X stands for is the answer it is said to be, and the label is that of the last question."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.config import read_config
from scrl.data.chains import chains, joined
from scrl.errors import ConfigError, InputError
from scrl.listener import Listener
from scrl.records import Question
from scrl.training.loop import train

EGGS = Question("eggs", "Ana has 12 eggs and eats 4. How many are left?", gold="8")
FLOORS = Question("floors", "A house has 5 floors of 8 units, 8 of them empty. How many are in use?", gold="32")


def test_a_chain_by_hand():
    found = chains([EGGS, FLOORS], {"eggs": "8", "floors": "32"}, 3, seed=0)
    # of 5 and 8 the second is 8, the answer on eggs; of 12 and 4 the first is closer to 32: 12 = 32 − 20
    assert [(each.id, each.label, each.gold) for each in found] == [
        ("floors>eggs", "8", None), ("eggs>floors", "32", None),
    ]  # fmt: skip
    assert found[1].text == (
        "X is the answer to this question: Ana has 12 eggs and eats 4. How many are left?\n\n"
        "Now answer this: A house has 5 floors of X units, X of them empty. How many are in use?"
    )
    assert found[0].text.startswith("X is 20 less than the answer to this question: A house")
    assert found[0].text.endswith("Now answer this: Ana has X eggs and eats 4. How many are left?")


def test_only_labels_that_are_whole_numbers_begin_a_chain_and_any_label_ends_one():
    found = chains([EGGS, FLOORS], {"eggs": "8", "floors": "\\sqrt{2}"}, 3, seed=0)
    assert [(each.id, each.label) for each in found] == [("eggs>floors", "\\sqrt{2}")]
    assert chains([EGGS, FLOORS], {"eggs": "8"}, 3, seed=0) == []
    assert chains([EGGS, Question("none", "Why?")], {"eggs": "8", "none": "3"}, 3, seed=0)[0].id == "none>eggs"


def test_another_letter_where_the_question_has_an_x():
    assert joined("What is X if X+1=4?", "Add 3 and 9.", 3, 0).endswith("Now answer this: Add Y and 9.")


texts = st.lists(st.sampled_from(["7", "12", "100", "1.5", "2nd", "x_3", "1,200", "1/2", "apples", "of"]), max_size=6)


@given(st.lists(texts, min_size=2, max_size=6), st.data())
def test_what_stands_for_x_is_what_x_is(parts, data):
    questions = [Question(str(place), " ".join(words)) for place, words in enumerate(parts)]
    labels = {question.id: str(data.draw(st.integers(0, 300))) for question in questions}
    for chain in chains(questions, labels, 2, seed=1):
        first, last = chain.id.split(">")
        said = re.match(r"X is (?:(\d+) (more|less) than )?the answer", chain.text)
        more = int(said[1] or 0) * (1 if said[2] == "more" else -1)
        asked = chain.text.split("Now answer this: ")[1]
        words = [str(int(labels[first]) + more) if word == "X" else word for word in asked.split(" ")]
        assert first != last
        assert "X" in asked
        assert (" ".join(words), chain.label) == (questions[int(last)].text, labels[last])


@pytest.mark.parametrize(
    "settings",
    [("method=contrast-label",), ("method=contrast", "label_votes=start"), ("method=oracle", "label_votes=start")],
)
def test_chains_need_labels_and_nothing_else(settings):
    with pytest.raises(ConfigError, match="chains: "):
        read_config(None, ["model=embedded", "questions=arithmetic:easy", "chains=2", *settings])


def test_a_model_that_cannot_be_asked_chains_is_refused_before_anything_is_written(tmp_path):
    words = ["model=embedded", "questions=arithmetic:easy:train:9", "method=contrast-label", "label_votes=start"]
    config = read_config(None, [*words, "prompt.instruction=", "sampling.max_tokens=48", "steps=1", "chains=2"])
    with pytest.raises(InputError, match="embedded models read only arithmetic"):
        train(config, tmp_path / "run", Listener())
    assert not (tmp_path / "run").exists()
