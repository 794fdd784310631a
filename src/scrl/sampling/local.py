"""The local sampler: groups of completions from the policy's own weights, in this process; or a user's own instead.

    sampler = open_sampler(language_model, compute)
    samples_BG = sampler.sample(prompts_B, settings, num_samples=32, seed=0, step=7)

Each prompt is prefilled once for its N completions; rows that have ended leave the batch; the log-probability and the
full-vocabulary entropy of every token are recorded while it is drawn, so that no second pass is needed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from scrl.errors import ConfigError, TrainingError
from scrl.policy.model import LanguageModel, in_eval_mode, plain_model
from scrl.policy.settings import ComputeSettings
from scrl.records import Sample
from scrl.sampling.decoders import (
    DecodedRows,
    Decoder,
    GroupDecoder,
    TransformersDecoder,
    decode_eagerly,
    left_pad,
    why_not_grouped,
)
from scrl.sampling.draw import row_uniforms
from scrl.sampling.gpu.fused_weights import why_not_fused
from scrl.sampling.gpu.graph_engine import GraphEngine, Request
from scrl.sampling.sampler import MEMBERS, Prompt, Sampler
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.stop_texts import Detokenizer, StopTexts
from scrl.user_code import import_user_module

REFILLS = 4
"""If waiting completions replace those that end, a call is given this many times as many completions as there are
rows: near its end there are none left to fill free rows with."""


class LocalSampler(Detokenizer):
    """Draws from a model in this process's memory; never sees an answer."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        max_rows: int,
        record: Collection[str] = (),
        on_note: Callable[[str], None] | None = None,
        on_token: Callable[[int, int], None] | None = None,
    ) -> None:
        """`max_rows` completions are decoded in parallel; fewer when memory runs out.

        `on_note` is told that, and anything else that makes sampling slower.

        `on_token` is called after every token, except on a GPU, where captured steps draw hundreds per second.
        `record` names what is recorded of every token besides log-probability and entropy: margin.
        """
        super().__init__(tokenizer)
        self._model = model
        self._modules = list(model.modules())  # thousands with an adapter: to find them takes a while
        self.max_rows = max_rows
        self._record = tuple(record)
        self._on_note, self._on_token = on_note, on_token
        self._end_tokens = end_tokens(model, tokenizer)
        reason = why_not_grouped(model)
        self._decoder = GroupDecoder if reason is None else TransformersDecoder
        self.note = reason and f"sampling through transformers' own cache, which is slower: {reason}"
        self._engine: GraphEngine | None = None
        if reason is None and next(model.parameters()).is_cuda:
            self._engine, self.note = open_engine(model, self._end_tokens, on_note)

    @property
    def rows_per_call(self) -> int:
        """Completions to ask for in one call."""
        return self.max_rows if self._engine is None else REFILLS * self.max_rows

    def sample(
        self, prompts_B: Sequence[Prompt], settings: SamplingSettings, *, num_samples: int, seed: int, step: int | str
    ) -> list[tuple[Sample, ...]]:
        """N completions for each prompt, as many in parallel as `max_rows` and memory allow."""
        while True:
            try:
                with in_eval_mode(self._modules), torch.inference_mode():
                    return self._sample(prompts_B, num_samples, settings, (seed, step))
            except torch.OutOfMemoryError as error:
                if self.max_rows == 1:
                    words = "memory ran out with one completion at a time: shorten sampling.max_tokens"
                    raise TrainingError(words) from error
            self.max_rows = max(1, min(self.max_rows, len(prompts_B) * num_samples) // 2)
            if self._on_note is not None:
                self._on_note(f"memory ran out: compute.sampler_rows is now {self.max_rows}")
            self.release()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _sample(
        self, prompts_B: Sequence[Prompt], num_samples: int, settings: SamplingSettings, seeds: tuple[int, int | str]
    ) -> list[tuple[Sample, ...]]:
        if self._engine is None:
            batches = row_batches(prompts_B, num_samples, self.max_rows)
            samples = [each for batch in batches for each in self._decode_batch(*batch, settings, seeds)]
        elif requests := requests_for(prompts_B, num_samples, settings, seeds):
            stops = self.stop_texts(settings.stop)
            rows = self._engine.generate(requests, settings, self._record, self.max_rows, stops)
            samples = self._to_samples(rows, stops)
        else:
            samples = []
        return [tuple(samples[first : first + num_samples]) for first in range(0, len(samples), num_samples)]

    def _decode_batch(
        self, prompts: Sequence[Prompt], numbers: range, settings: SamplingSettings, seeds: tuple[int, int | str]
    ) -> list[Sample]:
        """Completions `numbers` of each prompt, decoded eagerly in parallel."""
        device = next(self._model.parameters()).device
        tokens_BP, mask_BP = left_pad([prompt.tokens_P for prompt in prompts], device)
        limits = [prompt.max_tokens or settings.max_tokens for prompt in prompts for _ in numbers]
        most = max(limits)
        uniforms = [row_uniforms(*seeds, prompt.question_id, number, most) for prompt in prompts for number in numbers]
        real = torch.float32 if device.type == "mps" else torch.float64
        uniforms_RT = torch.from_numpy(np.stack(uniforms)).to(device, real)
        stops = self.stop_texts(settings.stop)
        decoder: Decoder = self._decoder(self._model)
        logits_BV = decoder.start(tokens_BP, mask_BP, len(numbers), most)
        logits_RV = logits_BV.repeat_interleave(len(numbers), dim=0)
        ends = torch.tensor(self._end_tokens, device=device)
        rows = decode_eagerly(
            decoder, logits_RV, uniforms_RT, settings, ends, stops, self._record, limits, self._on_token
        )
        return self._to_samples(rows, stops)

    def release(self) -> None:
        """Free the memory that is kept between calls."""
        if self._engine is not None:
            self._engine.release()

    def _to_samples(self, rows: DecodedRows, stops: StopTexts | None) -> list[Sample]:
        numbers = {"logprobs_T": rows.logprobs_RT, "entropies_T": rows.entropies_RT}
        numbers |= {f"{fact}s_T": values_RT for fact, values_RT in rows.facts_RT.items()}
        arrays = {name: values_RT.cpu().numpy().astype(np.float64) for name, values_RT in numbers.items()}
        if not np.isfinite(arrays["logprobs_T"]).all():
            reason = "the model's outputs are not numbers: its weights are broken"
            raise TrainingError(f"{reason}. Start from a sound checkpoint, with a lower optimizer.learning_rate.")
        lengths_R, tokens_RT = rows.lengths_R.tolist(), rows.tokens_RT.cpu().numpy()
        tokens = [tokens_RT[row, :length].copy() for row, length in enumerate(lengths_R)]
        texts = self.texts(tokens, stops)
        samples = []
        for row, is_finished in enumerate(rows.finished_R.tolist()):
            values: dict[str, Any] = {name: array[row, : lengths_R[row]].copy() for name, array in arrays.items()}
            samples.append(Sample(texts[row], tokens[row], is_finished=is_finished, **values))
        return samples


def row_batches(prompts: Sequence[Prompt], num_samples: int, max_rows: int) -> Iterator[tuple[Sequence[Prompt], range]]:
    """What is decoded together: several whole groups if they fit, else parts of one group."""
    whole_groups = max_rows // num_samples
    if whole_groups:
        for first in range(0, len(prompts), whole_groups):
            yield prompts[first : first + whole_groups], range(num_samples)
        return
    for prompt in prompts:
        for first in range(0, num_samples, max_rows):
            yield [prompt], range(first, min(first + max_rows, num_samples))


def requests_for(
    prompts_B: Sequence[Prompt], num_samples: int, settings: SamplingSettings, seeds: tuple[int, int | str]
) -> list[Request]:
    """`num_samples` completions of each prompt, with their limits and their random numbers."""
    limits_B = [prompt.max_tokens or settings.max_tokens for prompt in prompts_B]
    return [
        Request(group, prompt.tokens_P, limit, row_uniforms(*seeds, prompt.question_id, number, limit))
        for group, (prompt, limit) in enumerate(zip(prompts_B, limits_B, strict=True))
        for number in range(num_samples)
    ]


def open_engine(
    model: nn.Module, ends: Sequence[int], on_note: Callable[[str], None] | None
) -> tuple[GraphEngine | None, str | None]:
    """The engine with captured steps, or None and a note that says why not."""
    reason = why_not_fused(model) or why_not_captured(next(model.parameters()).device)
    if reason is not None:
        return None, f"sampling token by token without captured steps, which is slower: {reason}"
    from scrl.sampling.gpu import kernels

    return GraphEngine(model, ends, kernels, on_note=on_note), None


def why_not_captured(device: torch.device) -> str | None:
    """Why the kernels cannot run on a device, or None."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if torch.version.hip is not None:
        return "the kernels were written for NVIDIA's GPUs"
    product: Any = torch.ops.aten.mm
    if "dtype_out" not in product.overloads():
        return "torch is older than 2.8"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU is older than NVIDIA's Ampere"
    return None


def end_tokens(model: nn.Module, tokenizer: Any) -> list[int]:
    """The tokens that end a completion: the model's and the tokenizer's."""
    config = getattr(plain_model(model), "generation_config", None)
    eos = getattr(config, "eos_token_id", None)
    ends = {eos} if isinstance(eos, int) else set(eos or ())
    return sorted(ends | ({tokenizer.eos_token_id} - {None}))


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
    is_ours, model, tokenizer = compute.sampler == "local", language_model.model, language_model.tokenizer
    make: Any = partial(LocalSampler, on_token=on_token) if is_ours else own_sampler(compute.sampler)
    sampler: Sampler = make(model, tokenizer, max_rows=compute.sampler_rows, record=record, on_note=on_note)
    lacking = [name for name in MEMBERS if not hasattr(sampler, name)]
    if lacking:
        reason = f"what {compute.sampler!r} makes has no {', '.join(lacking)}"
        raise ConfigError(f"compute.sampler: {reason}; scrl.sampling.sampler.Sampler says what it needs")
    return sampler


def own_sampler(path: str) -> Any:
    """A user's sampler by its import path, `module:NAME`."""
    module, name = import_user_module(path, "compute.sampler")
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"compute.sampler: {module.__name__!r} has no {name!r} that can be called")
    return found


def check_sampler(compute: ComputeSettings) -> None:
    """Refuse a sampler that cannot run here, before a model is loaded."""
    if compute.sampler != "local":
        own_sampler(compute.sampler)
