"""The sampler that `compute.sampler` names; none is imported before it is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from scrl.errors import ConfigError
from scrl.policy.model import LanguageModel
from scrl.policy.settings import ComputeSettings
from scrl.sampling.sampler import MEMBERS, Sampler
from scrl.user_code import import_user_module


def check_sampler(compute: ComputeSettings) -> None:
    """Refuse a sampler that cannot run here, before a model is loaded."""
    if compute.sampler != "local":
        _own_sampler(compute.sampler)


def open_sampler(
    language_model: LanguageModel,
    compute: ComputeSettings,
    *,
    record: Collection[str] = (),
    on_note: Callable[[str], None] | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> Sampler:
    """The sampler that `compute.sampler` names, on a loaded model.

    `record` names what is recorded of every token besides log-probability and entropy. `on_note` is told what makes
    sampling slower, `on_token` by the local sampler how many tokens each completion has so far, of how many.
    """
    if compute.sampler == "local":
        from scrl.sampling.local import LocalSampler

        make: Any = partial(LocalSampler, on_token=on_token)
    else:
        make = _own_sampler(compute.sampler)
    model, tokenizer = language_model.model, language_model.tokenizer
    sampler: Sampler = make(model, tokenizer, max_rows=compute.sampler_rows, record=record, on_note=on_note)
    lacking = [name for name in MEMBERS if not hasattr(sampler, name)]
    if lacking:
        raise ConfigError(
            f"compute.sampler: what {compute.sampler!r} makes has no {', '.join(lacking)}. Subclass "
            "scrl.sampling.local.LocalSampler, or give it all members of scrl.sampling.sampler.Sampler."
        )
    return sampler


def _own_sampler(path: str) -> Any:
    """A user's sampler by its import path, `module:NAME`."""
    module, name = import_user_module(path, "compute.sampler")
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"compute.sampler: {module.__name__!r} has no {name!r} that can be called")
    return found
