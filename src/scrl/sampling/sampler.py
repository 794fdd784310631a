"""What a sampler is, and how to open the one that `compute.sampler` names.

A user's own sampler is `module:NAME`, where NAME(model, tokenizer, *, max_rows, record, on_fewer) returns a `Sampler`;
`stop_texts.Detokenizer` is a base class with `texts` and `stop_texts`. No sampler is imported before it is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from scrl.errors import ConfigError
from scrl.policy.model import LanguageModel, pick_device
from scrl.policy.settings import ComputeSettings
from scrl.records import Sample, Tokens
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.stop_texts import StopTexts
from scrl.user_code import import_user_module


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What the completions of a group start from."""

    question_id: str
    """Random numbers depend on it."""
    tokens_P: Tokens
    max_tokens: int | None = None
    """The most new tokens; None: as many as the settings allow."""

    def continued(self, prefix_T: Tokens) -> Prompt:
        """The same question, with the beginning of a completion appended."""
        return replace(self, tokens_P=np.concatenate((self.tokens_P, prefix_T)))


class Sampler(Protocol):
    """Draws groups of completions from the policy as it is at the time of the call; never sees an answer."""

    note: str | None
    """What a user should know about it."""
    max_rows: int
    """Completions decoded in parallel."""
    shares_weights: bool
    """Whether it reads the weights that are trained; one with a copy must be released before an update."""

    @property
    def rows_per_call(self) -> int:
        """Completions to ask for in one call: more than `max_rows` if rows that end are replaced by others."""

    @property
    def drift(self) -> float | None:
        """Mean |Δ log π| between sampler and policy over the tokens of a step; None: the same numbers, or unknown."""

    def sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        *,
        num_samples: int,
        seed: int,
        step: int | str,
    ) -> list[tuple[Sample, ...]]:
        """N completions of each prompt; completion i of a prompt does not depend on the others."""

    def release(self) -> None:
        """Free memory; the next call of `sample` reads the weights as they are then."""

    def texts(self, rows: Sequence[Tokens], stops: StopTexts | None) -> list[str]:
        """The texts of these rows of tokens, cut after the first stop text."""

    def stop_texts(self, texts: tuple[str, ...]) -> StopTexts | None:
        """What recognises these stop texts; None if there are none."""


def check_sampler(compute: ComputeSettings) -> None:
    """Refuse a sampler that cannot run here, before a model is loaded."""
    if compute.sampler == "vllm":
        from scrl.sampling.vllm_engine import require_vllm

        require_vllm(pick_device(compute.device))
    elif compute.sampler != "local":
        _own_sampler(compute.sampler)


def open_sampler(
    language_model: LanguageModel,
    compute: ComputeSettings,
    *,
    max_length: int,
    seed: int,
    record: Collection[str] = (),
    trust_remote_code: bool = False,
    on_fewer: Callable[[str], None] | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> Sampler:
    """The sampler that `compute.sampler` names, on a loaded model.

    `max_length` bounds the tokens of a prompt and its completion together. `record` names what is recorded of every
    token besides log-probability and entropy. `on_fewer` is told when memory runs out and rows are halved, `on_token`
    by the local sampler how many tokens each completion has so far, and the most it may have.
    """
    if compute.sampler == "vllm":
        from scrl.sampling.vllm import open_vllm, refuse_more

        refuse_more(record)
        return open_vllm(language_model, compute, max_length, seed, trust_remote_code)
    if compute.sampler == "local":
        from scrl.sampling.local import LocalSampler

        make: Any = partial(LocalSampler, on_token=on_token)
    else:
        make = _own_sampler(compute.sampler)
    model, tokenizer = language_model.model, language_model.tokenizer
    sampler: Sampler = make(model, tokenizer, max_rows=compute.sampler_rows, record=record, on_fewer=on_fewer)
    lacking = [name for name in MEMBERS if not hasattr(sampler, name)]
    if lacking:
        raise ConfigError(
            f"compute.sampler: what {compute.sampler!r} makes has no {', '.join(lacking)}. Subclass "
            "scrl.sampling.local.LocalSampler, or give it all members of scrl.sampling.sampler.Sampler."
        )
    return sampler


MEMBERS = (
    "note", "max_rows", "shares_weights", "rows_per_call", "drift", "sample", "release", "texts", "stop_texts",
)  # fmt: skip
"""The members of a Sampler."""


def _own_sampler(path: str) -> Any:
    """A user's sampler by its import path, `module:NAME`."""
    module, name = import_user_module(path, "compute.sampler")
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"compute.sampler: {module.__name__!r} has no {name!r} that can be called")
    return found
