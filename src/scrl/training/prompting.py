"""Which questions a model can be asked, found out before anything else is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scrl.data.prompts import checked_prompts, no_room, prompt_text, prompt_tokens
from scrl.errors import InputError
from scrl.records import Question
from scrl.training.config import RunConfig
from scrl.training.crediting import asked


def usable_questions(
    config: RunConfig, tokenizer: Any, shape: Any, questions: Sequence[Question]
) -> tuple[list[Question], list[str]]:
    """The questions whose prompts are not too long, and notes about the others; every prompt left can be used.

    `shape` is the model's configuration.
    """
    kept, notes = checked_prompts(questions, tokenizer, config.prompt)
    forms = asked(config.rule(), kept)
    _check_lengths(config, tokenizer, shape, forms)
    _check_first(config, tokenizer, forms[0])
    return kept, notes


def _check_lengths(config: RunConfig, tokenizer: Any, shape: Any, questions: Sequence[Question]) -> None:
    """Prompt and completion must fit into what the model can read."""
    lengths = {question.id: len(prompt_tokens(question, tokenizer, config.prompt)) for question in questions}
    name, longest = max(lengths.items(), key=lambda pair: pair[1])
    problem = no_room(longest, config.sampling.max_tokens, shape)
    if problem is not None:
        raise InputError(f"sampling.max_tokens: question {name!r} has the longest prompt, {longest} tokens; {problem}")


def _check_first(config: RunConfig, tokenizer: Any, first: Question) -> None:
    """A prompt of words that the tokenizer does not know is no prompt."""
    if tokenizer.unk_token_id is None:
        return
    unknown = sum(token == tokenizer.unk_token_id for token in prompt_tokens(first, tokenizer, config.prompt))
    if unknown:
        text = prompt_text(first, tokenizer, config.prompt)
        raise InputError(
            f"prompt: the tokenizer does not know {unknown} tokens of the first prompt, {text[:200]!r}. The "
            "embedded model reads only its own arithmetic (questions: arithmetic:medium, prompt.instruction: '')."
        )
