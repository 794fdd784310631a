"""The local sampler: groups of completions from the policy's own weights, in this process.

    sampler = LocalSampler(model, tokenizer, max_rows=256)
    samples_BG = sampler.sample(prompts_B, settings, num_samples=32, seed=0, step=7)

One prefill a prompt serves its N completions; rows that have finished leave the batch; the log-probability and the
full-vocabulary entropy of every token are recorded while it is drawn, so no second pass over the completions is needed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from scrl.errors import TrainingError
from scrl.records import Floats, Sample
from scrl.sampling.decoders import Decoder, GroupDecoder, TransformersDecoder, plain_model, why_not_grouped
from scrl.sampling.draw import SamplingSettings, row_uniforms, stacked_uniforms
from scrl.sampling.eager_decode import Pages, fill_pages, left_padded
from scrl.sampling.gpu.completion_events import GrowingGroups
from scrl.sampling.gpu.fused_weights import why_not_fused
from scrl.sampling.gpu.graph_engine import GraphWriter, Task
from scrl.sampling.gpu.stop_scanner import Results
from scrl.sampling.sampler import OnGroup, Prompt
from scrl.sampling.stop_texts import StopTexts, TextWriter

REFILLS = 4
"""Where rows are filled again as they end, a call is given this many times as many completions as there are rows: at
its end there is nothing left to fill them with."""


class LocalSampler(TextWriter):
    """Draws from a model that lies in this process's memory; never sees an answer."""

    shares_weights = True
    drift = None
    """It reads the policy's own weights, and records what it draws from."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        max_rows: int,
        record: Collection[str] = (),
        on_fewer: Callable[[str], None] | None = None,
    ) -> None:
        """`max_rows` completions are written side by side; fewer when memory runs out, which `on_fewer` hears.

        `record` names what is recorded of every token besides log-probability and entropy (sampling.RECORDABLE).
        """
        super().__init__(tokenizer)
        self._model = model
        self.max_rows = max_rows
        self._record = tuple(record)
        self._on_fewer = on_fewer
        self._ends = end_tokens(model, tokenizer)
        reason = why_not_grouped(model)
        self._decoder = GroupDecoder if reason is None else TransformersDecoder
        self.note = reason and f"sampling through transformers' own cache, which is slower: {reason}"
        self._writer: GraphWriter | None = None
        if reason is None and next(model.parameters()).is_cuda:
            self._writer, self.note = fast_writer(model, self._ends, on_fewer)

    @property
    def rows_a_call(self) -> int:
        """Completions to ask for in one call."""
        return self.max_rows if self._writer is None else REFILLS * self.max_rows

    def sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        *,
        num_samples: int,
        seed: int,
        step: int | str,
        on_group: OnGroup | None = None,
    ) -> list[tuple[Sample, ...]]:
        """N completions for each prompt, numbered from `first`, as many side by side as `max_rows` and memory allow.

        `on_group` hears of each group: after its wave, or with captured steps as it grows, and when it is whole.
        """
        numbers = range(num_samples)
        while True:
            try:
                return self._sample(prompts_B, settings, numbers, (seed, step), on_group)
            except torch.OutOfMemoryError as error:
                if self.max_rows == 1:
                    words = "memory ran out with one completion at a time: shorten sampling.max_tokens"
                    raise TrainingError(words) from error
            self._take_fewer(len(prompts_B) * num_samples)

    def _take_fewer(self, rows: int) -> None:
        self.max_rows = max(1, min(self.max_rows, rows) // 2)
        if self._on_fewer is not None:
            self._on_fewer(f"memory ran out: compute.sampler_rows is now {self.max_rows}")
        self.release()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def _sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        numbers: range,
        seeds: tuple[int, int | str],
        on_group: OnGroup | None,
    ) -> list[tuple[Sample, ...]]:
        was_training = self._model.training
        self._model.eval()
        try:
            if self._writer is not None:
                samples = self._write_fast(self._writer, prompts_B, numbers, settings, seeds, on_group)
                return list(grouped([samples], len(numbers), None))
            parts = waves(prompts_B, len(numbers), self.max_rows)
            written = (self._write(part, numbers[at.start : at.stop], settings, seeds) for part, at in parts)
            return list(grouped(written, len(numbers), on_group))
        finally:
            self._model.train(was_training)

    def _write(
        self, prompts: Sequence[Prompt], numbers: range, settings: SamplingSettings, seeds: tuple[int, int | str]
    ) -> list[Sample]:
        """Completions `numbers` of each prompt, written side by side from prompt to end."""
        device = next(self._model.parameters()).device
        tokens_BP, mask_BP = left_padded([prompt.tokens_P for prompt in prompts], device)
        limits = [prompt.max_tokens or settings.max_tokens for prompt in prompts for _ in numbers]
        most = max(limits)
        uniforms = [row_uniforms(*seeds, prompt.question_id, number, most) for prompt in prompts for number in numbers]
        pages = Pages.blank(stacked_uniforms(uniforms, device), self._record, limits)
        stops = self.stop_texts(settings.stop)
        decoder: Decoder = self._decoder(self._model)
        logits_BV = decoder.start(tokens_BP, mask_BP, len(numbers), most)
        logits_RV = logits_BV.repeat_interleave(len(numbers), dim=0)
        fill_pages(pages, decoder, logits_RV, settings, torch.tensor(self._ends, device=device), stops)
        return self._read(pages, stops, {})

    def _write_fast(
        self,
        writer: GraphWriter,
        prompts_B: Sequence[Prompt],
        numbers: range,
        settings: SamplingSettings,
        seeds: tuple[int, int | str],
        on_group: OnGroup | None,
    ) -> list[Sample]:
        """All completions of all prompts; rows enter as others end, whose texts are read meanwhile for a listener."""
        tasks, stops = tasks_of(prompts_B, numbers, settings, seeds), self.stop_texts(settings.stop)
        if not tasks:
            return []
        write = partial(writer.write, tasks, settings, self._record, self.max_rows, stops)
        if on_group is None:
            return self._read(write(), stops, {})
        growing = GrowingGroups(len(prompts_B), len(numbers), on_group)
        results = write(on_ended=lambda job, tokens_T: growing.add(job, *self.texts([tokens_T], stops)))
        samples = self._read(results, stops, growing.texts)
        growing.finish([sample.text for sample in samples])
        return samples

    def release(self) -> None:
        """Give back the memory that sampling keeps between two calls."""
        if self._writer is not None:
            self._writer.release()

    def _read(self, pages: Pages | Results, stops: StopTexts | None, known: Mapping[int, str]) -> list[Sample]:
        """Completions from their pages; the texts of some rows are known."""
        lengths_R = pages.lengths_R.tolist()
        tokens, logprobs, entropies = (
            page.cpu().numpy() for page in (pages.tokens_RT, pages.logprobs_RT, pages.entropies_RT)
        )
        facts = {name: page.cpu().numpy().astype(np.float64) for name, page in pages.facts_RT.items()}
        check_numbers([logprobs])
        logprobs, entropies = logprobs.astype(np.float64), entropies.astype(np.float64)
        written = [tokens[row, :length] for row, length in enumerate(lengths_R)]
        rest = [row for row in range(len(written)) if row not in known]
        texts = dict(known) | dict(zip(rest, self.texts([written[row] for row in rest], stops), strict=True))
        return [
            Sample(
                text=texts[row],
                tokens_T=written[row].copy(),
                logprobs_T=logprobs[row, : lengths_R[row]].copy(),
                entropies_T=entropies[row, : lengths_R[row]].copy(),
                is_finished=is_finished,
                margins_T=_row(facts.get("margin"), row, lengths_R[row]),
                certainties_T=_row(facts.get("certainty"), row, lengths_R[row]),
            )
            for row, is_finished in enumerate(pages.finished_R.tolist())
        ]


def tasks_of(
    prompts_B: Sequence[Prompt], numbers: range, settings: SamplingSettings, seeds: tuple[int, int | str]
) -> list[Task]:
    """Completions `numbers` of each prompt, with their limits and their random numbers."""
    limits_B = [prompt.max_tokens or settings.max_tokens for prompt in prompts_B]
    return [
        Task(group, prompt.tokens_P, limit, row_uniforms(*seeds, prompt.question_id, number, limit))
        for group, (prompt, limit) in enumerate(zip(prompts_B, limits_B, strict=True))
        for number in numbers
    ]


def fast_writer(
    model: nn.Module, ends: Sequence[int], on_note: Callable[[str], None] | None
) -> tuple[GraphWriter | None, str | None]:
    """What writes with captured steps on a GPU, or None and a note that says why not."""
    reason = why_not_fused(model) or why_not_captured(next(model.parameters()).device)
    if reason is not None:
        return None, f"sampling token by token without captured steps, which is slower: {reason}"
    from scrl.sampling.gpu import kernels

    return GraphWriter(model, ends, kernels, on_note=on_note), None


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


def check_numbers(logprobs: Iterable[Floats]) -> None:
    """Refuse to go on where log-probabilities are no numbers."""
    if not all(np.isfinite(values).all() for values in logprobs):
        raise TrainingError(
            "the model's outputs are not numbers: its weights are broken. Start from a sound checkpoint, with a lower "
            "optimizer.learning_rate."
        )


def _row(page_RT: Floats | None, row: int, length: int) -> Floats | None:
    return None if page_RT is None else page_RT[row, :length].copy()


def grouped(written: Iterable[list[Sample]], size: int, on_group: OnGroup | None) -> Iterator[tuple[Sample, ...]]:
    """Completions as they come, in groups of `size`, each of which `on_group` hears of."""
    waiting: list[Sample] = []
    groups = 0
    for samples in written:
        waiting += samples
        while len(waiting) >= size:
            group, waiting = tuple(waiting[:size]), waiting[size:]
            if on_group is not None:
                on_group(groups, [sample.text for sample in group])
            groups += 1
            yield group


def waves(prompts: Sequence[Prompt], num_samples: int, max_rows: int) -> Iterator[tuple[Sequence[Prompt], range]]:
    """What is written side by side: several whole groups where they fit, else parts of one group."""
    whole = max_rows // num_samples
    if whole:
        for first in range(0, len(prompts), whole):
            yield prompts[first : first + whole], range(num_samples)
        return
    for prompt in prompts:
        for first in range(0, num_samples, max_rows):
            yield [prompt], range(first, min(first + max_rows, num_samples))


def end_tokens(model: nn.Module, tokenizer: Any) -> list[int]:
    """The tokens after which a completion has ended: the model's and the tokenizer's."""
    config = getattr(plain_model(model), "generation_config", None)
    named = getattr(config, "eos_token_id", None)
    ends = {named} if isinstance(named, int) else set(named or ())
    return sorted(ends | ({tokenizer.eos_token_id} - {None}))
