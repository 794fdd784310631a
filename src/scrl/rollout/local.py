"""The local sampler: groups of completions from the policy's own weights, in this process.

    sampler = LocalSampler(model, tokenizer, max_rows=256)
    samples_BG = sampler.sample(prompts_B, settings, num_samples=32, seed=0, step=7)

One prefill a prompt serves its N completions; rows that have finished leave the batch; the log-probability and the
full-vocabulary entropy of every token are recorded while it is drawn, so no second pass over the completions is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scrl.errors import TrainingError
from scrl.records import Floats, Sample, Tokens
from scrl.rollout.decoders import Decoder, GroupDecoder, TransformersDecoder, plain_model, why_not_grouped
from scrl.rollout.sampling import SamplingSettings, draw, row_uniforms, stacked_uniforms
from scrl.rollout.stopping import StopTexts

CLOSE_RANKS_BELOW = 0.75
"""Finished rows are thrown out of the cache once fewer than this share of its rows is still writing."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a group's completions start from."""

    question_id: str
    """Random numbers hang on it."""
    tokens_P: Tokens
    max_tokens: int | None = None
    """Fewer tokens than the settings allow, where a beginning is already written."""

    def continued(self, prefix_T: Tokens) -> Prompt:
        """The same question, with the beginning of a completion already written."""
        return replace(self, tokens_P=np.concatenate((self.tokens_P, prefix_T)))


class LocalSampler:
    """Draws from a model that lies in this process's memory; never sees an answer."""

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
        self._model = model
        self._tokenizer = tokenizer
        self.max_rows = max_rows
        self._record = tuple(record)
        self._on_fewer = on_fewer
        self._ends = end_tokens(model, tokenizer)
        reason = why_not_grouped(model)
        self._decoder = GroupDecoder if reason is None else TransformersDecoder
        self._stops: dict[tuple[str, ...], StopTexts] = {}
        self.note = reason and f"sampling through transformers' own cache, which is slower: {reason}"

    def sample(
        self, prompts_B: Sequence[Prompt], settings: SamplingSettings, *, num_samples: int, seed: int, step: int | str
    ) -> list[tuple[Sample, ...]]:
        """N completions for each prompt, as many side by side as `max_rows` and the memory allow."""
        while True:
            try:
                return self._sample(prompts_B, settings, num_samples, (seed, step))
            except torch.OutOfMemoryError as error:
                if self.max_rows == 1:
                    words = "memory ran out with one completion at a time: shorten sampling.max_tokens"
                    raise TrainingError(words) from error
            self._take_fewer(len(prompts_B) * num_samples)

    def _take_fewer(self, rows: int) -> None:
        self.max_rows = max(1, min(self.max_rows, rows) // 2)
        if self._on_fewer is not None:
            self._on_fewer(f"memory ran out: compute.sampler_rows is now {self.max_rows}")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @torch.inference_mode()
    def _sample(
        self, prompts_B: Sequence[Prompt], settings: SamplingSettings, num_samples: int, seeds: tuple[int, int | str]
    ) -> list[tuple[Sample, ...]]:
        was_training = self._model.training
        self._model.eval()
        try:
            samples: list[Sample] = []
            for prompts, numbers in waves(prompts_B, num_samples, self.max_rows):
                samples += self._write(prompts, numbers, settings, seeds)
        finally:
            self._model.train(was_training)
        return [tuple(samples[first : first + num_samples]) for first in range(0, len(samples), num_samples)]

    def _write(
        self, prompts: Sequence[Prompt], numbers: range, settings: SamplingSettings, seeds: tuple[int, int | str]
    ) -> list[Sample]:
        """Completions `numbers` of each prompt, written side by side from prompt to end."""
        device = next(self._model.parameters()).device
        tokens_BP, mask_BP = left_padded([prompt.tokens_P for prompt in prompts], device)
        limits = [prompt.max_tokens or settings.max_tokens for prompt in prompts for _ in numbers]
        most = max(limits)
        uniforms = [row_uniforms(*seeds, prompt.question_id, number, most) for prompt in prompts for number in numbers]
        pages = _Pages.blank(stacked_uniforms(uniforms, device), self._record, limits)
        stops = self.stop_texts(settings.stop)
        decoder: Decoder = self._decoder(self._model)
        logits_BV = decoder.start(tokens_BP, mask_BP, len(numbers), most)
        logits_RV = logits_BV.repeat_interleave(len(numbers), dim=0)
        fill_pages(pages, decoder, logits_RV, settings, torch.tensor(self._ends, device=device), stops)
        return self._read(pages, stops)

    def texts(self, written: Sequence[Tokens], stops: StopTexts | None) -> list[str]:
        """Tokens as text, up to a text that ends a completion."""
        found = self._tokenizer.batch_decode(written, skip_special_tokens=True)
        return [stops.cut(text) if stops else text for text in found]

    def stop_texts(self, texts: tuple[str, ...]) -> StopTexts | None:
        """What recognises the texts that end a completion; None where there are none."""
        if not texts:
            return None
        if texts not in self._stops:
            self._stops[texts] = StopTexts(texts, self._tokenizer)
        return self._stops[texts]

    def _read(self, pages: _Pages, stops: StopTexts | None) -> list[Sample]:
        lengths_R = pages.lengths_R.tolist()
        tokens, logprobs, entropies = (
            page.cpu().numpy() for page in (pages.tokens_RT, pages.logprobs_RT, pages.entropies_RT)
        )
        facts = {name: page.cpu().numpy().astype(np.float64) for name, page in pages.facts_RT.items()}
        if not np.isfinite(logprobs).all():
            raise TrainingError(
                "the model's outputs are not numbers: its weights are broken. Start from a sound checkpoint, with a "
                "lower optimizer.learning_rate."
            )
        logprobs, entropies = logprobs.astype(np.float64), entropies.astype(np.float64)
        written = [tokens[row, :length] for row, length in enumerate(lengths_R)]
        texts = self.texts(written, stops)
        return [
            Sample(
                text=text,
                tokens_T=written[row].copy(),
                logprobs_T=logprobs[row, : lengths_R[row]].copy(),
                entropies_T=entropies[row, : lengths_R[row]].copy(),
                is_finished=is_finished,
                margins_T=_row(facts.get("margin"), row, lengths_R[row]),
                certainties_T=_row(facts.get("certainty"), row, lengths_R[row]),
            )
            for row, (text, is_finished) in enumerate(zip(texts, pages.finished_R.tolist(), strict=True))
        ]


def _row(page_RT: Floats | None, row: int, length: int) -> Floats | None:
    return None if page_RT is None else page_RT[row, :length].copy()


@dataclass(slots=True, eq=False)
class _Pages:
    """What R rows have written so far."""

    tokens_RT: Tensor
    logprobs_RT: Tensor
    entropies_RT: Tensor
    uniforms_RT: Tensor
    facts_RT: dict[str, Tensor]
    lengths_R: Tensor
    """How many tokens a row has, or may have while it is still writing."""
    finished_R: Tensor
    limits: frozenset[int]
    """How many tokens rows may have: when one has so many, even if it has ended before, it is not run any further."""

    @classmethod
    def blank(cls, uniforms_RT: Tensor, record: Sequence[str] = (), limits: Sequence[int] = ()) -> _Pages:
        rows, max_tokens = uniforms_RT.shape
        device = uniforms_RT.device
        limits = limits or [max_tokens] * rows
        return cls(
            tokens_RT=torch.zeros(rows, max_tokens, dtype=torch.int64, device=device),
            logprobs_RT=torch.zeros(rows, max_tokens, device=device),
            entropies_RT=torch.zeros(rows, max_tokens, device=device),
            uniforms_RT=uniforms_RT,
            facts_RT={name: torch.zeros(rows, max_tokens, device=device) for name in record},
            lengths_R=torch.tensor(limits, device=device),
            finished_R=torch.zeros(rows, dtype=torch.bool, device=device),
            limits=frozenset(limits),
        )


def fill_pages(
    pages: _Pages,
    decoder: Decoder,
    logits_RV: Tensor,
    settings: SamplingSettings,
    ends: Tensor,
    stops: StopTexts | None,
) -> None:
    """The decoding loop: draw, write down, let go of what has finished, go on."""
    rows = torch.arange(len(logits_RV), device=logits_RV.device)
    for place in range(settings.max_tokens):
        drawn = draw(logits_RV, pages.uniforms_RT[rows, place], settings, pages.facts_RT)
        pages.tokens_RT[rows, place] = drawn.tokens_R
        pages.logprobs_RT[rows, place] = drawn.logprobs_R
        pages.entropies_RT[rows, place] = drawn.entropies_R
        for name, values_R in drawn.facts_R.items():
            pages.facts_RT[name][rows, place] = values_R
        ended_R = torch.isin(drawn.tokens_R, ends)
        if stops is not None:
            ended_R |= stops.reached(pages.tokens_RT[rows, : place + 1], drawn.tokens_R)
        just_R = rows[ended_R & ~pages.finished_R[rows] & (pages.lengths_R[rows] > place)]
        pages.finished_R[just_R] = True
        pages.lengths_R[just_R] = place + 1
        writing_R = ~pages.finished_R[rows] & (pages.lengths_R[rows] > place + 1)
        num_writing = int(writing_R.sum())
        if num_writing == 0:
            return
        if num_writing < CLOSE_RANKS_BELOW * len(rows) or (place + 1 in pages.limits and num_writing < len(rows)):
            stay = writing_R.nonzero().squeeze(-1)
            decoder.keep(stay)
            rows, drawn = rows[stay], drawn._replace(tokens_R=drawn.tokens_R[stay])
        if place + 1 < settings.max_tokens:
            logits_RV = decoder.step(drawn.tokens_R)


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


def left_padded(prompts: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [B, P] that end in the last column, and the mask of what is no padding."""
    longest = max(map(len, prompts))
    tokens_BP = np.zeros((len(prompts), longest), dtype=np.int64)
    mask_BP = np.zeros_like(tokens_BP)
    for row, prompt in enumerate(prompts):
        tokens_BP[row, longest - len(prompt) :] = prompt
        mask_BP[row, longest - len(prompt) :] = 1
    return torch.from_numpy(tokens_BP).to(device), torch.from_numpy(mask_BP).to(device)


def end_tokens(model: nn.Module, tokenizer: Any) -> list[int]:
    """The tokens after which a completion has ended: the model's and the tokenizer's."""
    config = getattr(plain_model(model), "generation_config", None)
    named = getattr(config, "eos_token_id", None)
    ends = {named} if isinstance(named, int) else set(named or ())
    return sorted(ends | ({tokenizer.eos_token_id} - {None}))
