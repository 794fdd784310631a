"""Question → the tokens a model is given.

A model with a chat template is spoken to through it; a base model gets the question as plain text. The instruction is
appended to the question, as in the paper.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jinja2 import TemplateError
from pydantic import BaseModel, ConfigDict, Field

from scrl.errors import ConfigError, InputError
from scrl.records import Question, Tokens

BOXED = "Please reason step by step, and put your final answer within \\boxed{}."


class PromptSettings(BaseModel):
    """How a question is put to the model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    style: Literal["auto", "chat", "plain"] = Field(
        "auto",
        description="chat: by the tokenizer's chat template; plain: as text; auto: chat where there is one.",
    )
    instruction: str = Field(BOXED, description="Appended to every question; empty for none.")
    system: str | None = Field(None, description="System message, for chat.")
    max_tokens: int = Field(4096, ge=1, description="A longer prompt is refused.")


def prompt_tokens(question: Question, tokenizer: Any, settings: PromptSettings) -> Tokens:
    """The tokens of a question's prompt."""
    text = prompt_text(question, tokenizer, settings)
    tokens = tokenizer.encode(text, add_special_tokens=not _is_chat(tokenizer, settings))
    if not tokens:
        raise InputError(f"question {question.id!r}: its prompt has no tokens")
    if len(tokens) > settings.max_tokens:
        raise InputError(
            f"question {question.id!r}: its prompt has {len(tokens)} tokens, more than prompt.max_tokens "
            f"({settings.max_tokens}). Shorten it, or allow more."
        )
    return np.asarray(tokens, dtype=np.int64)


def prompt_text(question: Question, tokenizer: Any, settings: PromptSettings) -> str:
    """The text of a question's prompt, exactly as the model is given it."""
    asked = f"{question.text}\n\n{settings.instruction}" if settings.instruction else question.text
    if not _is_chat(tokenizer, settings):
        return f"{asked}\n"
    messages = [{"role": "user", "content": asked}]
    if settings.system is not None:
        messages.insert(0, {"role": "system", "content": settings.system})
    try:
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise ConfigError(f"prompt: the chat template refuses this question or prompt.system: {error}") from error
    return rendered


def _is_chat(tokenizer: Any, settings: PromptSettings) -> bool:
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if settings.style == "chat" and not has_template:
        raise ConfigError("prompt.style: 'chat' was asked for, but the tokenizer has no chat template; use 'plain'")
    if settings.system is not None and not has_template:
        raise ConfigError("prompt.system: a system message needs a chat template, and the tokenizer has none")
    if settings.system is not None and settings.style == "plain":
        raise ConfigError("prompt.system: plain text has no place for a system message; use prompt.style: chat")
    return has_template and settings.style != "plain"
