"""A question as the model is given it."""

import numpy as np
import pytest

from scrl.data.prompts import BOXED, PromptSettings, prompt_text, prompt_tokens
from scrl.errors import ConfigError, InputError
from scrl.records import Question

QUESTION = Question("q1", "What is 2 + 2?")


class Letters:
    """A tokenizer of letters, with a beginning-of-text token 1 where it is asked for special tokens."""

    def __init__(self, chat_template=None):
        self.chat_template = chat_template

    def encode(self, text, *, add_special_tokens):
        return [1] * add_special_tokens + [ord(letter) for letter in text]

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt):
        assert not tokenize
        said = "".join(f"<{message['role']}>{message['content']}</>" for message in messages)
        return f"\x01{said}" + ("<assistant>" if add_generation_prompt else "")


BASE, CHAT = Letters(), Letters("a template")


def text(tokenizer, **settings):
    return prompt_text(QUESTION, tokenizer, PromptSettings(**settings))


def test_a_base_model_gets_the_question_the_instruction_and_a_new_line():
    assert text(BASE) == f"What is 2 + 2?\n\n{BOXED}\n"
    assert text(BASE, instruction="") == "What is 2 + 2?\n"
    assert text(BASE, instruction="Be brief.") == "What is 2 + 2?\n\nBe brief.\n"


def test_a_chat_model_is_spoken_to_through_its_template():
    assert text(CHAT, instruction="") == "\x01<user>What is 2 + 2?</><assistant>"
    assert text(CHAT, instruction="Be brief.") == "\x01<user>What is 2 + 2?\n\nBe brief.</><assistant>"
    assert text(CHAT, style="chat", instruction="") == text(CHAT, instruction="")


def test_a_system_message_comes_first():
    assert text(CHAT, instruction="", system="You count.") == (
        "\x01<system>You count.</><user>What is 2 + 2?</><assistant>"
    )


def test_a_chat_model_can_be_given_plain_text():
    assert text(CHAT, style="plain", instruction="") == "What is 2 + 2?\n"


def test_what_needs_a_template_is_refused_where_there_is_none():
    with pytest.raises(
        ConfigError, match=r"prompt\.style: 'chat' was asked for, but the tokenizer has no chat template"
    ):
        text(BASE, style="chat")
    with pytest.raises(ConfigError, match=r"prompt\.system: a system message needs a chat template"):
        text(BASE, system="You count.")


def test_a_system_message_that_plain_text_would_drop_is_refused():
    with pytest.raises(ConfigError, match=r"prompt\.system: plain text has no place for a system message"):
        text(CHAT, style="plain", system="You count.")


def test_special_tokens_are_added_to_plain_text_and_not_a_second_time_to_a_template():
    plain = prompt_tokens(QUESTION, BASE, PromptSettings(instruction=""))
    assert plain.dtype == np.int64
    assert plain.tolist() == [1, *map(ord, "What is 2 + 2?\n")]
    chat = prompt_tokens(QUESTION, CHAT, PromptSettings(instruction=""))
    assert chat.tolist().count(1) == 1


def test_a_prompt_that_is_too_long_or_empty_is_refused():
    settings = PromptSettings(instruction="", max_tokens=16)
    assert len(prompt_tokens(QUESTION, BASE, settings)) == 16  # 15 letters and the first token
    reason = (
        r"question 'q1': its prompt has 16 tokens, more than prompt\.max_tokens \(15\)\. Shorten it, or allow more\."
    )
    with pytest.raises(InputError, match=reason):
        prompt_tokens(QUESTION, BASE, settings.model_copy(update={"max_tokens": 15}))

    class Mute(Letters):
        def encode(self, text, *, add_special_tokens):
            return []

    with pytest.raises(InputError, match="question 'q1': its prompt has no tokens"):
        prompt_tokens(QUESTION, Mute(), PromptSettings())


def test_the_embedded_models_prompt_is_what_it_was_trained_on():
    from transformers import AutoTokenizer

    from scrl.policy.model import model_folder

    tokenizer = AutoTokenizer.from_pretrained(model_folder("embedded"))
    question = Question("q", "Compute 12+3.")
    settings = PromptSettings(instruction="")
    assert prompt_text(question, tokenizer, settings) == "Compute 12+3.\n"
    tokens = prompt_tokens(question, tokenizer, settings)
    assert tokenizer.convert_ids_to_tokens(tokens.tolist()) == ["Compute ", "1", "2", "+", "3", ".", "\n"]
    assert tokenizer.unk_token_id not in tokens
