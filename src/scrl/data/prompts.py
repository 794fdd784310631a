"""Question → prompt tokens.

Each model family has a prompt style, as in the paper's appendix: its chat template, its system message, and an
instruction after the question. A base model without a template gets plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from jinja2 import TemplateError
from pydantic import Field

from scrl.answers.readers import SOUND
from scrl.child_processes import forked
from scrl.errors import ConfigError, InputError, is_panic
from scrl.records import Question, Tokens
from scrl.settings import Settings

BOXED = "Let's think step by step and output the final answer within \\boxed{}."
BOXED_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
HELPFUL_SYSTEM = "You are a helpful assistant."
NUMBER = 'Let\'s think step by step and end with a line that says "The answer is", then the number.'
NUMBER_SYSTEM = 'Please reason step by step, and end with a line that says "The answer is", then the number.'
SECONDS, SECONDS_PER_PROMPT, MEMORY, LENGTH = 2.0, 0.02, 2**29, 2**22
"""What templates and tokenizers may take: seconds in all and per prompt, bytes; characters or tokens of a prompt.

Usual ones take a millisecond per prompt.
"""
TODAY = "{% macro strftime_now(_) %}26 Jul 2024{% endmacro %}"
"""For templates that ask for it: the same at every step of a run, and what Llama's own falls back to."""
IN_WORDS = {BOXED: NUMBER, BOXED_SYSTEM: NUMBER_SYSTEM}
"""What is asked for instead if the reader looks for a number, not for a box."""


@dataclass(frozen=True, slots=True)
class PromptStyle:
    system: str = ""
    """If empty, no system message is sent, and the template may insert its own."""
    instruction: str = BOXED
    """After every question and one space; empty for none."""
    is_chat: bool = True
    thinking: bool | None = None
    """Value for the template's `enable_thinking`; None if the template has no such switch."""


STYLES: dict[str, PromptStyle] = {
    "qwen": PromptStyle(system=HELPFUL_SYSTEM),  # the paper's Qwen2.5-3B
    "qwen-math": PromptStyle(system=BOXED_SYSTEM, instruction=""),  # the paper's Qwen2.5-Math-7B
    "llama": PromptStyle(),  # not in the paper: the instruction of Qwen2.5-3B
    "qwen3": PromptStyle(thinking=False),  # not in the paper
    "qwen3-thinking": PromptStyle(thinking=True),  # the paper's Qwen3-4B
    "chat": PromptStyle(),
    "plain": PromptStyle(is_chat=False),  # a base model without a template: question, instruction, a new line
}


class PromptSettings(Settings):
    """How a question is put to the model."""

    style: Literal["auto", "qwen", "qwen-math", "llama", "qwen3", "qwen3-thinking", "chat", "plain"] = Field(
        "auto", description="The prompt style of the model's family; auto: found by the tokenizer's chat template."
    )
    asks_for: Literal["box", "number"] | None = Field(
        None, description="What the style's own words ask for: a box or a number; none: what the reader reads."
    )
    instruction: str | None = Field(None, description="After every question; none: the style's own; empty: nothing.")
    system: str | None = Field(None, description="System message, for chat; none: the style's own; empty: nothing.")
    max_tokens: int = Field(4096, ge=1, description="The most tokens a prompt may have.")
    overlong: Literal["refuse", "drop"] = Field("refuse", description="Longer prompts: refuse the run, or drop them.")


def asked_by(reader: str) -> Literal["box", "number"]:
    """What a prompt must ask for so that this reader finds the answer."""
    return "number" if reader.removeprefix(SOUND) in ("number", "last-number") else "box"


def style_of(tokenizer: Any, settings: PromptSettings) -> str:
    """The name of the prompt style, chosen by the settings or detected from the tokenizer's chat template."""
    template = _template(tokenizer)
    if settings.system and not template:
        raise ConfigError("prompt.system: a system message needs a chat template, and the tokenizer has none")
    if settings.system and settings.style == "plain":
        raise ConfigError("prompt.system: plain text has no place for a system message; use prompt.style: chat")
    if settings.style == "auto":
        return _detect_style(template)
    if STYLES[settings.style].is_chat and not template:
        raise ConfigError(f"prompt.style: {settings.style!r} needs a chat template, and there is none; use 'plain'")
    if STYLES[settings.style].thinking is not None and "enable_thinking" not in template:
        reason = f"{settings.style!r} needs a chat template with the switch 'enable_thinking'"
        raise ConfigError(f"prompt.style: {reason}; use 'auto', which is {_detect_style(template)!r} here")
    return settings.style


def _template(tokenizer: Any) -> str:
    template = getattr(tokenizer, "chat_template", None) or ""
    return str(template.get("default", "") if isinstance(template, dict) else template)


def _detect_style(template: str) -> str:
    if not template:
        return "plain"
    if "reason step by step" in template:
        return "qwen-math"
    if "enable_thinking" in template:
        return "qwen3-thinking"
    if "<|im_start|>" in template and ("Qwen" in template or HELPFUL_SYSTEM.rstrip(".") in template):
        return "qwen"
    return "llama" if "<|start_header_id|>" in template else "chat"


def prompt_messages(question: Question, tokenizer: Any, settings: PromptSettings) -> list[dict[str, str]]:
    """The messages for the chat template; without a template, one message that is the whole prompt."""
    return styled_messages(question, STYLES[style_of(tokenizer, settings)], readable(settings, tokenizer))


def styled_messages(question: Question, style: PromptStyle, settings: PromptSettings) -> list[dict[str, str]]:
    """The same in a given style, for servers, which have the tokenizer."""
    instruction, system = settings.instruction, settings.system
    if instruction is None:
        instruction = _in_words(style.instruction, settings)
    content = f"{question.text} {instruction}" if instruction else question.text
    if system is None:
        system = question.system
    if not style.is_chat:
        if system:
            reason = "has a system message, and plain text has no place for one"
            raise InputError(f"question {question.id!r}: {reason}; leave it out with --system '' (prompt.system)")
        return [{"role": "user", "content": f"{content}\n"}]
    if system is None:
        system = _in_words(style.system, settings)
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": content}]


def _in_words(text: str, settings: PromptSettings) -> str:
    """A style's own text, as the reader needs it."""
    return IN_WORDS.get(text, text) if settings.asks_for == "number" else text


def template_switches(tokenizer: Any, settings: PromptSettings) -> dict[str, bool]:
    thinking = STYLES[style_of(tokenizer, settings)].thinking
    return {} if thinking is None else {"enable_thinking": thinking}


def plain_template(tokenizer: Any, settings: PromptSettings) -> str | None:
    """A chat template that outputs the messages unchanged, for plain text; None if the model's own is used."""
    if STYLES[style_of(tokenizer, settings)].is_chat:
        return None
    has_first = _encode("x", tokenizer, add_special_tokens=True)[:1] == [tokenizer.bos_token_id]
    first = tokenizer.bos_token if has_first else ""
    return f"{first}{{% for message in messages %}}{{{{ message.content }}}}{{% endfor %}}"


def prompt_text(question: Question, tokenizer: Any, settings: PromptSettings) -> str:
    """The text of a question's prompt, exactly as the model is given it."""
    return _prompts([question], tokenizer, settings)[0][0]


def prompt_tokens(question: Question, tokenizer: Any, settings: PromptSettings) -> Tokens:
    """The tokens of a question's prompt; refused if more than `prompt.max_tokens`."""
    return with_prompts([question], tokenizer, settings)[0][1]


def with_prompts(
    questions: Sequence[Question], tokenizer: Any, settings: PromptSettings
) -> list[tuple[Question, Tokens]]:
    """Each question with the tokens of its prompt; refused if more than `prompt.max_tokens`."""
    tokens_Q = [tokens for _, tokens in _prompts(questions, tokenizer, settings)]
    for question, tokens in zip(questions, tokens_Q, strict=True):
        if len(tokens) > settings.max_tokens:
            most = f"prompt.max_tokens ({settings.max_tokens})"
            raise InputError(f"question {question.id!r}: its prompt has {len(tokens)} tokens, more than {most}")
    return list(zip(questions, tokens_Q, strict=True))


_made: WeakKeyDictionary[Any, dict[Any, tuple[str, Tokens]]] = WeakKeyDictionary()


def _prompts(questions: Sequence[Question], tokenizer: Any, settings: PromptSettings) -> list[tuple[str, Tokens]]:
    """Text and tokens of each prompt, made once, in another process: template and tokenizer may come from anybody."""
    made, template = _made.setdefault(tokenizer, {}), str(getattr(tokenizer, "chat_template", None))
    keys_Q = [(question.id, question.text, question.system, settings, template) for question in questions]
    new = {key: question for key, question in zip(keys_Q, questions, strict=True) if key not in made}
    if new:
        seconds = SECONDS + SECONDS_PER_PROMPT * len(new)
        try:
            prompts = forked(lambda: [_prompt(each, tokenizer, settings) for each in new.values()], seconds, MEMORY)
        except (TimeoutError, MemoryError) as error:
            raise _unusable("chat template or tokenizer", error) from error
        made |= zip(new, prompts, strict=True)
    return [made[key] for key in keys_Q]


def _prompt(question: Question, tokenizer: Any, settings: PromptSettings) -> tuple[str, Tokens]:
    is_chat = STYLES[style_of(tokenizer, settings)].is_chat
    switches: dict[str, Any] = template_switches(tokenizer, settings)
    messages = prompt_messages(question, tokenizer, settings)
    text = messages[0]["content"]
    if is_chat:
        if "strftime_now" in (template := _template(tokenizer)):
            switches |= {"chat_template": TODAY + template}
        try:
            text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **switches))
            if len(text) > LENGTH:
                raise ValueError(f"it makes {len(text):,} characters of question {question.id!r}")
        except TemplateError as error:
            raise ConfigError(f"prompt: the chat template refuses this question or prompt.system: {error}") from error
        except Exception as error:  # a template is a program by the model's authors, and can fail in any way
            raise _unusable("chat template", error) from error
    tokens = np.asarray(_encode(text, tokenizer, add_special_tokens=not is_chat), dtype=np.int64)
    if not len(tokens):
        raise InputError(f"question {question.id!r}: its prompt has no tokens")
    return text, tokens


def _encode(text: str, tokenizer: Any, *, add_special_tokens: bool) -> list[int]:
    """The tokens of a text, computed in another process."""

    def encode() -> list[int]:
        tokens: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if len(tokens) > LENGTH:
            raise ValueError(f"it makes {len(tokens):,} tokens of {len(text):,} characters")
        return tokens

    try:
        return forked(encode, SECONDS, MEMORY)
    except BaseException as error:
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        raise _unusable("tokenizer", error) from error


def _unusable(what: str, error: BaseException) -> ConfigError:
    style = ", or use prompt.style: plain" if "template" in what else ""
    reason = str(error) or type(error).__name__
    return ConfigError(f"prompt: the model's {what} cannot be used: {reason}; correct it in the model's folder{style}")


def filter_overlong(
    questions: Sequence[Question], tokenizer: Any, settings: PromptSettings
) -> tuple[list[Question], list[str]]:
    """The questions whose prompts fit, and a note on the others, which are refused or left out."""
    lengths_Q = [len(tokens) for _, tokens in _prompts(questions, tokenizer, settings)]
    kept = [each for each, length in zip(questions, lengths_Q, strict=True) if length <= settings.max_tokens]
    overlong = [each.id for each, length in zip(questions, lengths_Q, strict=True) if length > settings.max_tokens]
    if not overlong:
        return kept, []
    which = f"{', '.join(overlong[:3])}{', …' if len(overlong) > 3 else ''}; the longest has {max(lengths_Q)}"
    report = f"{len(overlong)} of {len(questions)} prompts have more than {settings.max_tokens} tokens: {which}"
    if settings.overlong == "refuse" or not kept:
        fix = "Allow more, or leave those questions out with prompt.overlong: drop." if kept else "Allow more."
        raise InputError(f"prompt.max_tokens: {report}. {fix}")
    return kept, [f"{report}; they are left out (prompt.overlong: drop)."]


# What the tokenizer does not know


def readable(settings: PromptSettings, tokenizer: Any) -> PromptSettings:
    """The settings, without the style's own instruction if the tokenizer does not know its words.

    The embedded models read nothing but arithmetic. An instruction that was given is kept.
    """
    own = _in_words(STYLES[style_of(tokenizer, settings)].instruction, settings)
    if settings.instruction is not None or _knows(tokenizer, own):
        return settings
    return settings.model_copy(update={"instruction": ""})


def instruction_notes(settings: PromptSettings, tokenizer: Any) -> list[str]:
    if readable(settings, tokenizer) == settings:
        return []
    return ["questions are asked without an instruction: the tokenizer does not know the words of the usual one"]


def check_known(
    questions: Sequence[Question], prompts_Q: Sequence[Tokens], tokenizer: Any, settings: PromptSettings
) -> None:
    """Refuse prompts with tokens that the tokenizer does not know: they would ask nothing."""
    token = _unknown_token(tokenizer)
    unknown = [question for question, tokens_P in zip(questions, prompts_Q, strict=True) if token in tokens_P.tolist()]
    if not unknown:
        return
    text = prompt_text(unknown[0], tokenizer, settings)
    fix = "Leave the instruction out (--instruction '', prompt.instruction)."
    if _knows(tokenizer, settings.instruction or ""):
        fix = "The embedded models read only arithmetic like 'Compute 12+7-5.', without spaces; ask another model."
    which = f"{len(unknown)} of {len(questions)} prompts, first that of question {unknown[0].id!r}, {text[:200]!r}"
    raise InputError(f"prompt: the tokenizer does not know some tokens of {which}. {fix}")


@lru_cache(maxsize=8)
def _knows(tokenizer: Any, text: str) -> bool:
    """Whether it has a token for every part of a text."""
    token = _unknown_token(tokenizer)
    return token is None or token not in _encode(text, tokenizer, add_special_tokens=False)


def _unknown_token(tokenizer: Any) -> int | None:
    """The token for what a tokenizer does not know; None if it knows every text, byte by byte.

    Such tokenizers often name their first or last token here, which is in every prompt of some chat templates.
    """
    token: int | None = getattr(tokenizer, "unk_token_id", None)
    return None if token is None or token in (tokenizer.bos_token_id, tokenizer.eos_token_id) else token


def no_room(longest: int, max_tokens: int, model_config: Any) -> str | None:
    """Why a prompt of `longest` tokens and `max_tokens` more do not fit the model's context; None if they do."""
    limit = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    if limit is None or longest + max_tokens <= limit:
        return None
    fix = f"Take --max-tokens {limit - longest}" if longest < limit else "Leave that question out"
    return f"with {max_tokens} more that is beyond the {limit} tokens the model can read. {fix}."


def usable_questions(
    questions: Sequence[Question], tokenizer: Any, settings: PromptSettings, model_config: Any, max_tokens: int
) -> tuple[list[Question], list[str]]:
    """The questions whose prompts are not too long, and notes on how they are asked; every prompt left can be used.

    The model knows their tokens, and has room for a completion of `max_tokens`.
    """
    kept, notes = filter_overlong(questions, tokenizer, settings)
    prompts = [tokens for _, tokens in with_prompts(kept, tokenizer, settings)]
    largest, size = max(int(tokens_P.max()) for tokens_P in prompts), model_config.get_text_config().vocab_size
    if largest >= size:
        raise InputError(f"model: its tokenizer gives token {largest}, and it has {size}; give its own tokenizer")
    check_known(kept, prompts, tokenizer, settings)
    longest, question = max(zip(map(len, prompts), kept, strict=True), key=lambda pair: pair[0])
    if problem := no_room(longest, max_tokens, model_config):
        where = f"question {question.id!r} has the longest prompt, {longest} tokens"
        raise InputError(f"sampling.max_tokens: {where}; {problem}")
    return kept, [*instruction_notes(settings, tokenizer), *notes]
