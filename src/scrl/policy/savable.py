"""Models that transformers can read, but would refuse to write."""

from __future__ import annotations

from typing import Any

from scrl.errors import InputError


def make_savable(generation: Any) -> None:
    """Set `do_sample`: without it transformers reads settings for sampling, but refuses to write them.

    It refuses to sample at temperature 0, too; top_k 1, which gives the same, it accepts.
    """
    if _why_not_savable(generation) and not generation.do_sample:
        generation.do_sample = True
        if generation.temperature == 0:
            generation.temperature, generation.top_k = None, 1


def check_savable(name: str, model: Any) -> None:
    """Refuse, before anything is trained, a model that transformers would refuse to save."""
    if model.can_generate() and (reason := _why_not_savable(model.generation_config)):
        raise InputError(
            f"model: {name}: its generation_config.json can be read, but not be saved with a "
            f"checkpoint: {reason}. Correct that file."
        )


def _why_not_savable(generation: Any) -> str | None:
    try:
        generation.validate(strict=True)
    except ValueError as error:
        return " ".join(str(error).split())[:300]
    return None
