"""A question as the model is given it."""

from dataclasses import replace

import numpy as np
import pytest
from transformers import Gemma3Config, Gemma3TextConfig

from scrl.config import read_config
from scrl.data.prompts import (
    STYLES,
    PromptSettings,
    check_known,
    filter_overlong,
    instruction_notes,
    no_room,
    prompt_messages,
    prompt_text,
    prompt_tokens,
    style_of,
)
from scrl.errors import ConfigError, InputError
from scrl.policy.model import load_tokenizer
from scrl.records import Question

QUESTION = Question("q1", "What is 2 + 2?")
STEPS = "Let's think step by step and output the final answer within \\boxed{}."


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
    assert text(BASE) == "What is 2 + 2? Let's think step by step and output the final answer within \\boxed{}.\n"
    assert text(BASE, instruction="") == "What is 2 + 2?\n"
    assert text(BASE, instruction="Be brief.") == "What is 2 + 2? Be brief.\n"


@pytest.mark.parametrize(("settings", "expected"), [
    ({"instruction": ""}, "\x01<user>What is 2 + 2?</><assistant>"),
    ({"instruction": "", "style": "chat"}, "\x01<user>What is 2 + 2?</><assistant>"),
    ({"instruction": "Be brief."}, "\x01<user>What is 2 + 2? Be brief.</><assistant>"),
    ({"instruction": "", "system": "Count."}, "\x01<system>Count.</><user>What is 2 + 2?</><assistant>"),
    ({"instruction": "", "style": "plain"}, "What is 2 + 2?\n"),
])  # fmt: skip
def test_a_chat_model_gets_messages_through_its_template_unless_plain(settings, expected):
    assert text(CHAT, **settings) == expected


def test_a_question_may_have_a_system_message_of_its_own():
    question = replace(QUESTION, system="Add.")
    asked = "\x01<system>Add.</><user>What is 2 + 2?</><assistant>"
    assert prompt_text(question, CHAT, PromptSettings(instruction="")) == asked
    for system in ("Count.", ""):  # what is set for all wins
        settings = PromptSettings(instruction="", system=system)
        assert prompt_text(question, CHAT, settings) == prompt_text(QUESTION, CHAT, settings)
    with pytest.raises(InputError, match=r"'q1'.*--system"):
        prompt_text(question, BASE, PromptSettings())
    assert prompt_text(question, BASE, PromptSettings(instruction="", system="")) == "What is 2 + 2?\n"


def test_special_tokens_are_added_to_plain_text_and_not_a_second_time_to_a_template():
    plain = prompt_tokens(QUESTION, BASE, PromptSettings(instruction=""))
    assert plain.dtype == np.int64
    assert plain.tolist() == [1, *map(ord, "What is 2 + 2?\n")]
    chat = prompt_tokens(QUESTION, CHAT, PromptSettings(instruction=""))
    assert chat.tolist().count(1) == 1


def test_a_prompt_that_is_too_long_or_empty_is_refused():
    settings = PromptSettings(instruction="", max_tokens=16)
    assert len(prompt_tokens(QUESTION, BASE, settings)) == 16  # 15 letters and the first token
    with pytest.raises(InputError, match=r"'q1'.*prompt\.max_tokens"):
        prompt_tokens(QUESTION, BASE, settings.model_copy(update={"max_tokens": 15}))

    class Mute(Letters):
        def encode(self, text, *, add_special_tokens):
            return []

    with pytest.raises(InputError, match="'q1'"):
        prompt_tokens(QUESTION, Mute(), PromptSettings())


def test_the_embedded_models_prompt_is_what_it_was_trained_on():
    from transformers import AutoTokenizer

    from scrl.policy.model_paths import model_folder

    tokenizer = AutoTokenizer.from_pretrained(model_folder("embedded"))
    question = Question("q", "Compute 12+3.")
    settings = PromptSettings(instruction="")
    assert prompt_text(question, tokenizer, settings) == "Compute 12+3.\n"
    tokens = prompt_tokens(question, tokenizer, settings)
    assert tokenizer.convert_ids_to_tokens(tokens.tolist()) == ["Compute ", "1", "2", "+", "3", ".", "\n"]
    assert tokenizer.unk_token_id not in tokens


# The styles of the paper, rendered by templates that are written like those of the models

CHATML = """\
{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nSYSTEM<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TEMPLATES = {
    "qwen": CHATML.replace("SYSTEM", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
    "qwen-math": CHATML.replace("SYSTEM", "Please reason step by step, and put your final answer within \\\\boxed{}."),
    "llama": """\
{{- bos_token }}{% for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}""",
    "qwen3-thinking": """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}""",
    "chat": "{% for message in messages %}[{{ message.role }}] {{ message.content }} {% endfor %}[reply]",
    "plain": None,
}
QWEN_USER = f"<|im_start|>user\nWhat is 2 + 2? {STEPS}<|im_end|>\n<|im_start|>assistant\n"
RENDERED = {
    "qwen": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + QWEN_USER,
    "qwen-math": (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    ),
    "llama": (
        f"<s><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2? {STEPS}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "qwen3-thinking": QWEN_USER,
    "chat": f"[user] What is 2 + 2? {STEPS} [reply]",
    "plain": f"What is 2 + 2? {STEPS}\n",
}


@pytest.fixture(scope="module")
def tokenizer_for():
    """A tokenizer of bytes with one of the templates above."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    def build(template):
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        bytes_alone = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
        bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_alone, bos_token="<s>")
        tokenizer.chat_template = template
        return tokenizer

    return build


@pytest.mark.parametrize("style", RENDERED)
def test_the_style_is_found_from_the_template_and_rendered_as_in_the_paper(tokenizer_for, style):
    tokenizer = tokenizer_for(TEMPLATES[style])
    assert style_of(tokenizer, PromptSettings()) == style
    assert style_of(tokenizer, PromptSettings(style=style)) == style
    assert prompt_text(QUESTION, tokenizer, PromptSettings()) == RENDERED[style]
    assert prompt_text(QUESTION, tokenizer, PromptSettings(style=style)) == RENDERED[style]
    assert len(prompt_tokens(QUESTION, tokenizer, PromptSettings())) == len(RENDERED[style]) - 2 * (style == "llama")
    # every letter is a token, and the beginning of text <s> is one


def test_thinking_can_be_switched_off(tokenizer_for):
    tokenizer = tokenizer_for(TEMPLATES["qwen3-thinking"])
    settings = PromptSettings(style="qwen3")
    assert style_of(tokenizer, settings) == "qwen3"
    assert prompt_text(QUESTION, tokenizer, settings) == QWEN_USER + "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(("template", "settings", "named"), [
    *((None, {"style": style}, r"prompt\.style") for style in STYLES if style != "plain"),
    (None, {"system": "Count."}, r"prompt\.system"),
    ("x", {"system": "Count.", "style": "plain"}, r"prompt\.system"),
    (TEMPLATES["qwen"], {"style": "qwen3-thinking"}, "'enable_thinking'"),
])  # fmt: skip
def test_what_the_template_cannot_do_is_refused(template, settings, named):
    with pytest.raises(ConfigError, match=named):
        text(Letters(template), **settings)


# Prompts that are too long, all of them at once

MANY = [Question(f"q{length}", "x" * length) for length in range(1, 8)]


@pytest.mark.parametrize("is_nested", [False, True], ids=["plain", "with a part for text"])
def test_prompt_and_completion_must_fit_into_what_a_model_can_read(is_nested):
    part = Gemma3TextConfig(max_position_embeddings=64)
    shape = Gemma3Config(text_config=part.to_dict()) if is_nested else part
    assert no_room(14, 50, shape) is None
    assert "49" in no_room(15, 50, shape)


def test_prompts_that_are_too_long_are_reported_together():
    settings = PromptSettings(instruction="", max_tokens=5)
    with pytest.raises(InputError, match=r"prompt\.max_tokens: 4 of 7 prompts .*q4, q5, q6, …"):
        filter_overlong(MANY, BASE, settings)
    dropping = settings.model_copy(update={"overlong": "drop"})
    assert filter_overlong(MANY, BASE, dropping)[0] == MANY[:3]
    assert filter_overlong(MANY, BASE, settings.model_copy(update={"max_tokens": 9})) == (MANY, [])
    with pytest.raises(InputError, match=r"7 of 7 prompts .*q1, q2, q3"):  # none would be left
        filter_overlong(MANY, BASE, dropping.model_copy(update={"max_tokens": 2}))


# What the tokenizer does not know

SUM = Question("sum", "Compute 1+1.")


class WithUnknown(Letters):
    """Knows no letter but digits, signs and white space; 0 stands for the others."""

    unk_token_id, bos_token_id, eos_token_id = 0, 1, 2

    def encode(self, text, *, add_special_tokens):
        known = [ord(letter) if letter in "0123456789+ \n" else 0 for letter in text]
        return [1] * add_special_tokens + known


def check(tokenizer, *questions, **settings):
    prompt = PromptSettings(**settings)
    check_known(questions, [prompt_tokens(each, tokenizer, prompt) for each in questions], tokenizer, prompt)


def test_the_styles_own_instruction_is_left_out_where_the_tokenizer_cannot_read_it():
    embedded = load_tokenizer("embedded", trust_remote_code=False)
    for tokenizer, asks_for in ((embedded, None), (WithUnknown(), "box"), (WithUnknown(), "number")):
        settings = PromptSettings(asks_for=asks_for)
        assert prompt_text(SUM, tokenizer, settings) == "Compute 1+1.\n"
        assert prompt_messages(SUM, tokenizer, settings)[0]["content"].strip() == "Compute 1+1."
        assert len(instruction_notes(settings, tokenizer)) == 1
    check(embedded, SUM)
    for settings in (PromptSettings(instruction=""), PromptSettings(instruction="Go!")):  # as they were given
        assert not instruction_notes(settings, embedded)
    assert not instruction_notes(PromptSettings(), BASE)


def test_prompts_that_the_tokenizer_does_not_know_are_refused_with_the_way_out():
    number, words = Question("n", "1+1"), Question("w", "one")
    check(WithUnknown(), number)
    check(BASE, number, words)  # knows everything
    with pytest.raises(InputError, match=r"1 of 2 prompts.*'w'"):
        check(WithUnknown(), number, words)
    with pytest.raises(InputError, match="--instruction"):
        check(WithUnknown(), number, instruction="Go!")


def test_a_first_token_that_is_also_called_unknown_is_none():
    tokenizer = WithUnknown()
    tokenizer.unk_token_id = 1  # as byte-level tokenizers have it
    check(tokenizer, QUESTION)
    assert STEPS in prompt_text(QUESTION, tokenizer, PromptSettings())


def test_a_reader_of_numbers_is_not_asked_for_a_box():
    numbers = read_config(None, ["model=embedded", "questions=mine.txt", "reader=last-number"]).prompt
    boxed = read_config(None, ["model=embedded", "questions=mine.txt"]).prompt
    assert (numbers.asks_for, boxed.asks_for) == ("number", "box")
    asked = 'Let\'s think step by step and end with a line that says "The answer is", then the number.'
    assert prompt_text(QUESTION, BASE, numbers) == f"What is 2 + 2? {asked}\n"
    assert prompt_text(QUESTION, BASE, boxed) == f"What is 2 + 2? {STEPS}\n"
    assert "boxed" not in text(CHAT, style="qwen-math", asks_for="number")
    assert text(BASE, asks_for="number", instruction="In a word:") == "What is 2 + 2? In a word:\n"


def test_no_prompt_tells_the_time():
    tokenizer = load_tokenizer("embedded")
    tokenizer.chat_template = "{% if strftime_now is defined %}{{ strftime_now('%H:%M') }}{% endif %}"
    assert prompt_text(SUM, tokenizer, PromptSettings()) == "26 Jul 2024"
