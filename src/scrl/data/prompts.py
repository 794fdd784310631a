"""Question → the tokens a model is given.

Every family of models is spoken to in its own style, as in the paper's appendix: through its chat template, with its
own system message, and with an instruction behind the question. A base model without a template gets plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jinja2 import TemplateError
from pydantic import Field

from scrl.errors import ConfigError, InputError
from scrl.records import Question, Tokens
from scrl.settings import Settings

BOXED = "Let's think step by step and output the final answer within \\boxed{}."
"""Behind the question, after one space."""
BOXED_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
HELPFUL_SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """How one family of models is spoken to."""

    origin: str
    """Where it comes from."""
    system: str = ""
    """System message; empty for none of ours: the template may still put in its own."""
    instruction: str = BOXED
    """Behind every question, after one space; empty for none."""
    is_chat: bool = True
    """Whether it needs a chat template."""
    thinking: bool | None = None
    """What the template's `enable_thinking` is set to; None: the template has no such switch."""


STYLES: dict[str, PromptStyle] = {
    "qwen": PromptStyle("the paper's appendix, Qwen2.5-3B", system=HELPFUL_SYSTEM),
    "qwen-math": PromptStyle("the paper's appendix, Qwen2.5-Math-7B", system=BOXED_SYSTEM, instruction=""),
    "llama": PromptStyle("not in the paper: Llama's own template, the instruction of Qwen2.5-3B"),
    "qwen3": PromptStyle("not in the paper: Qwen3's own template without thinking", thinking=False),
    "qwen3-thinking": PromptStyle("the paper's Qwen3-4B: its own template, thinking mode enabled", thinking=True),
    "chat": PromptStyle("any other chat template"),
    "plain": PromptStyle("a base model without a template: the question, the instruction, a new line", is_chat=False),
}


class PromptSettings(Settings):
    """How a question is put to the model."""

    style: Literal["auto", "qwen", "qwen-math", "llama", "qwen3", "qwen3-thinking", "chat", "plain"] = Field(
        "auto",
        description="How the model's family is spoken to; auto: found from the tokenizer's chat template.",
    )
    instruction: str | None = Field(
        None, description="Behind every question, after one space; none: the style's own; empty: no instruction."
    )
    system: str | None = Field(
        None, description="System message, for chat; none: the style's own; empty: no system message."
    )
    max_tokens: int = Field(4096, ge=1, description="The most tokens a prompt may have.")
    overlong: Literal["refuse", "drop"] = Field(
        "refuse", description="What happens to questions with longer prompts: the run is refused, or they are left out."
    )


def style_of(tokenizer: Any, settings: PromptSettings) -> str:
    """The name of the style that the settings and the tokenizer's chat template come to."""
    template = _template_of(tokenizer)
    if settings.system and not template:
        raise ConfigError("prompt.system: a system message needs a chat template, and the tokenizer has none")
    if settings.system and settings.style == "plain":
        raise ConfigError("prompt.system: plain text has no place for a system message; use prompt.style: chat")
    if settings.style == "auto":
        return _style_of_template(template)
    if STYLES[settings.style].is_chat and not template:
        raise ConfigError(
            f"prompt.style: {settings.style!r} was asked for, but the tokenizer has no chat template; use 'plain'"
        )
    if STYLES[settings.style].thinking is not None and "enable_thinking" not in template:
        raise ConfigError(
            f"prompt.style: {settings.style!r} was asked for, but the tokenizer's chat template has no switch "
            f"'enable_thinking'; use 'auto', which is {_style_of_template(template)!r} here"
        )
    return settings.style


def _style_of_template(template: str) -> str:
    if not template:
        return "plain"
    if "reason step by step" in template:
        return "qwen-math"
    if "enable_thinking" in template:
        return "qwen3-thinking"
    if "<|im_start|>" in template and ("Qwen" in template or HELPFUL_SYSTEM.rstrip(".") in template):
        return "qwen"
    return "llama" if "<|start_header_id|>" in template else "chat"


def _template_of(tokenizer: Any) -> str:
    """The text of the chat template; of several, the one that is used by default."""
    template = getattr(tokenizer, "chat_template", None) or ""
    return str(template.get("default", "")) if isinstance(template, dict) else str(template)


def checked_prompts(
    questions: Sequence[Question], tokenizer: Any, settings: PromptSettings
) -> tuple[list[Question], list[str]]:
    """The questions whose prompts fit, and notes on the others, which are refused or left out by `prompt.overlong`."""
    lengths_Q = [len(_encoded(question, tokenizer, settings)) for question in questions]
    pairs = list(zip(questions, lengths_Q, strict=True))
    too_long = [question.id for question, length in pairs if length > settings.max_tokens]
    if not too_long:
        return list(questions), []
    report = (
        f"{len(too_long)} of {len(questions)} prompts have more than {settings.max_tokens} tokens, the longest "
        f"{max(lengths_Q)}: {', '.join(too_long[:3])}{', …' if len(too_long) > 3 else ''}"
    )
    kept = [question for question, length in pairs if length <= settings.max_tokens]
    if settings.overlong == "refuse" or not kept:
        fix = "Allow more, or leave those questions out with prompt.overlong: drop." if kept else "Allow more."
        raise InputError(f"prompt.max_tokens: {report}. {fix}")
    return kept, [f"{report}; they are left out (prompt.overlong: drop)."]


def no_room(longest: int, max_tokens: int, shape: Any) -> str | None:
    """Why a model of this configuration cannot read its longest prompt and write so many tokens; None where it can."""
    limit = getattr(shape.get_text_config(), "max_position_embeddings", None)
    if limit is None or longest + max_tokens <= limit:
        return None
    fix = f"Lower it to {limit - longest}" if longest < limit else "Leave that question out"
    return f"with {max_tokens} more that is beyond the {limit} tokens the model can read. {fix}."


def prompt_tokens(question: Question, tokenizer: Any, settings: PromptSettings) -> Tokens:
    """The tokens of a question's prompt; one that is too long is refused."""
    tokens = _encoded(question, tokenizer, settings)
    if len(tokens) > settings.max_tokens:
        raise InputError(
            f"question {question.id!r}: its prompt has {len(tokens)} tokens, more than prompt.max_tokens "
            f"({settings.max_tokens}). Shorten it, or allow more."
        )
    return np.asarray(tokens, dtype=np.int64)


def _encoded(question: Question, tokenizer: Any, settings: PromptSettings) -> list[int]:
    text = prompt_text(question, tokenizer, settings)
    is_chat = STYLES[style_of(tokenizer, settings)].is_chat
    tokens: list[int] = tokenizer.encode(text, add_special_tokens=not is_chat)
    if not tokens:
        raise InputError(f"question {question.id!r}: its prompt has no tokens")
    return tokens


def prompt_text(question: Question, tokenizer: Any, settings: PromptSettings) -> str:
    """The text of a question's prompt, exactly as the model is given it."""
    messages, switches = prompt_messages(question, tokenizer, settings), template_switches(tokenizer, settings)
    if not STYLES[style_of(tokenizer, settings)].is_chat:
        return messages[0]["content"]
    try:
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **switches)
    except TemplateError as error:
        raise ConfigError(f"prompt: the chat template refuses this question or prompt.system: {error}") from error
    return rendered


def prompt_messages(question: Question, tokenizer: Any, settings: PromptSettings) -> list[dict[str, str]]:
    """What a chat template is given; where there is none, one message that is the prompt."""
    style = STYLES[style_of(tokenizer, settings)]
    instruction = style.instruction if settings.instruction is None else settings.instruction
    asked = f"{question.text} {instruction}" if instruction else question.text
    if not style.is_chat:
        return [{"role": "user", "content": f"{asked}\n"}]
    system = style.system if settings.system is None else settings.system
    first = [{"role": "system", "content": system}] if system else []
    return [*first, {"role": "user", "content": asked}]


def template_switches(tokenizer: Any, settings: PromptSettings) -> dict[str, bool]:
    """What a chat template is told besides the messages."""
    thinking = STYLES[style_of(tokenizer, settings)].thinking
    return {} if thinking is None else {"enable_thinking": thinking}


def plain_template(tokenizer: Any, settings: PromptSettings) -> str | None:
    """A chat template that puts the messages as they are, for those who need one; None where the model has its own."""
    if STYLES[style_of(tokenizer, settings)].is_chat:
        return None
    first = tokenizer.bos_token if tokenizer.encode("x")[:1] == [tokenizer.bos_token_id] else ""
    return f"{first}{{% for message in messages %}}{{{{ message.content }}}}{{% endfor %}}"
