"""The vLLM sampler: groups of completions drawn by vLLM in this process and scored by the policy.

    sampler = VllmSampler(engine, model, tokenizer, score, max_rows=256)
    samples_BG = sampler.sample(prompts_B, settings, num_samples=32, seed=0, step=7)
    sampler.release()                                   before the weights change

vLLM returns the log-probability of a drawn token but not the entropy over the vocabulary, and its kernels round
differently from the update's. So both numbers of every token come from one scoring pass of the policy, and the ratio of
the update starts at 1. vLLM's own log-probabilities show whether it runs the same model:

    drift = mean over tokens |log π_vLLM − log π|

over all tokens drawn for a training step, in however many calls; tokens drawn for an evaluation do not count.

Completion i of a question has its own random generator, seeded by (seed, step, question) + i. Equal seeds give equal
completions as far as vLLM's kernels give equal logits: which rows share a batch can change rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from scrl.errors import ConfigError, TrainingError
from scrl.policy.model import LanguageModel
from scrl.policy.model_paths import model_folder
from scrl.policy.scoring import scorer
from scrl.policy.settings import ComputeSettings
from scrl.records import Floats, Sample, Tokens
from scrl.sampling.local import REFILLS, check_finite, end_tokens
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.stop_texts import Detokenizer, StopTexts
from scrl.sampling.vllm_engine import VllmEngine, engine_options, start_engine
from scrl.seeds import generator_for

Score = Callable[[Sequence[tuple[Tokens, Tokens]], float], list[tuple[Floats, Floats]]]
"""(prompt_P, tokens_T) of some completions and T → log π and entropy of their tokens, by the policy."""
MAX_TEMPERATURE = 2.0
"""The highest temperature that vLLM takes."""
MAX_DRIFT = 0.05
"""Nats, at T = 1. bf16 logits between 16 and 32 are 0.125 apart, so two correct ways to compute a log-probability
differ by up to 0.06 for a token and by 0.01 to 0.04 in the mean (0.016 to 0.032 measured on an H200 with a small random
model); another model, or one missing weight, by tenths and more."""
SELF_CHECK = SamplingSettings(temperature=1.0, max_tokens=32)
SELF_CHECK_COMPLETIONS = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Completion:
    """One completion of vLLM."""

    tokens_T: Tokens
    logprobs_T: Floats | None
    is_finished: bool
    num_drawn: int | None
    """Set if more tokens were drawn than are kept."""
    text: str = ""


class VllmSampler(Detokenizer):
    """Draws through vLLM from the policy's weights at the time of the call; never sees an answer."""

    shares_weights = False

    def __init__(self, engine: VllmEngine, model: nn.Module, tokenizer: Any, score: Score, *, max_rows: int) -> None:
        """`score` is the policy's scoring pass; `max_rows` is what the engine was started with."""
        super().__init__(tokenizer)
        self._engine = engine
        self._score = score
        self._end_tokens = end_tokens(model, tokenizer)
        self._is_checked = False
        self._gap_sum, self._gap_count = 0.0, 0
        self._is_released = False
        self.max_rows = max_rows
        self.note: str | None = "sampling by vLLM; its random numbers are not those of the local sampler"

    @property
    def rows_per_call(self) -> int:
        """Completions to ask for in one call."""
        return REFILLS * self.max_rows

    @property
    def drift(self) -> float | None:
        """The drift of the last step; None if top-p or top-k restrict the draw, because vLLM's numbers then differ."""
        return self._gap_sum / self._gap_count if self._gap_count else None

    def sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        *,
        num_samples: int,
        seed: int,
        step: int | str,
    ) -> list[tuple[Sample, ...]]:
        """N completions for each prompt."""
        if settings.temperature > MAX_TEMPERATURE:
            raise ConfigError(
                f"sampling.temperature: vllm takes at most {MAX_TEMPERATURE}; got {settings.temperature}. Lower it, or "
                "use compute.sampler: local."
            )
        self._engine.wake()
        if not self._is_checked:
            self._self_check(prompts_B[0], seed)
        samples_BG, gaps = self._sample(prompts_B, settings, num_samples, (seed, step))
        if isinstance(step, int):
            if self._is_released:  # not earlier: the drift of a step is read after its update
                self._gap_sum, self._gap_count, self._is_released = 0.0, 0, False
            self._gap_sum += float(gaps.sum())
            self._gap_count += len(gaps)
        return samples_BG

    def release(self) -> None:
        """Free vLLM's memory for the trainer; the next call takes it back and copies the weights again."""
        self._engine.sleep()
        self._is_released = True

    def _self_check(self, prompt: Prompt, seed: int) -> None:
        """Refuse to continue if vLLM, given the policy's weights, is not the policy."""
        _, gaps = self._sample([prompt], SELF_CHECK, SELF_CHECK_COMPLETIONS, (seed, "self-check"))
        drift = float(gaps.mean()) if len(gaps) else float("nan")
        if not drift <= MAX_DRIFT:
            raise TrainingError(
                f"compute.sampler: with the same weights vLLM's log-probabilities differ from the policy's by {drift} "
                f"nats per token on average, and at most {MAX_DRIFT} is rounding: it runs another model, or other "
                "weights. Use compute.sampler: local."
            )
        self._is_checked = True

    def _sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        num_samples: int,
        seeds: tuple[int, int | str],
    ) -> tuple[list[tuple[Sample, ...]], Floats]:
        """Draw, cut at stop texts, score; the samples, and the gaps between vLLM's log-probabilities and theirs."""
        copies = num_samples if settings.temperature == 0 else 1  # greedy completions are all the same
        size = num_samples // copies
        params_B = [
            sampling_params(settings, self._end_tokens, prompt.max_tokens, size, vllm_seed(*seeds, prompt.question_id))
            for prompt in prompts_B
        ]
        stops = self.stop_texts(settings.stop)
        completions_BG: list[list[_Completion]] = [[]] * len(prompts_B)
        for index, outputs in self._engine.finished([prompt.tokens_P for prompt in prompts_B], params_B):
            completions_G = [read_output(output, stops) for output in outputs]
            texts_G = self.texts([each.tokens_T for each in completions_G], stops)
            pairs_G = zip(completions_G, texts_G, strict=True)
            completions_BG[index] = [replace(each, text=text) for each, text in pairs_G]
        by_prompt = zip(prompts_B, completions_BG, strict=True)
        pairs = [(prompt.tokens_P, each.tokens_T) for prompt, completions_G in by_prompt for each in completions_G]
        scores = self._score(pairs, settings.temperature or 1.0)
        check_finite(logprobs_T for logprobs_T, _ in scores)
        completions = [each for completions_G in completions_BG for each in completions_G]
        samples = [
            Sample(each.text, each.tokens_T, *score, is_finished=each.is_finished, num_drawn=each.num_drawn)
            for each, score in zip(completions, scores, strict=True)
        ]
        groups = [tuple(samples[first : first + size] * copies) for first in range(0, len(samples), size)]
        return groups, logprob_gaps(completions, scores)


def refuse_more(record: Collection[str]) -> None:
    """Refuse methods that need more of every token than the scoring pass returns."""
    if record:
        raise ConfigError(
            f"compute.sampler: the method needs to know more of every token ({', '.join(record)}) than the policy "
            "tells after vllm has drawn it; use local"
        )


def vllm_seed(seed: int, step: int | str, question_id: str) -> int:
    """The seed of a question's first completion; vLLM adds 1 for each further one."""
    return int(generator_for(seed, "vllm", step, question_id).integers(2**62))


def sampling_params(settings: SamplingSettings, stop_tokens: list[int], limit: int | None, size: int, seed: int) -> Any:
    """vLLM's SamplingParams; without stop texts, because without a tokenizer vLLM cannot look for any."""
    from vllm import SamplingParams

    return SamplingParams(
        n=size,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_tokens=limit or settings.max_tokens,
        stop_token_ids=stop_tokens,
        seed=seed,
        logprobs=None if settings.is_restricted else 0,  # only the drawn token's
        flat_logprobs=True,
        detokenize=False,
    )


def read_output(output: Any, stops: StopTexts | None) -> _Completion:
    """One vllm.CompletionOutput, cut after its first stop text."""
    if output.finish_reason not in ("stop", "length"):
        raise TrainingError(f"vLLM ended a completion early ({output.finish_reason}); use compute.sampler: local")
    tokens_T = np.asarray(output.token_ids, dtype=np.int64)
    logprobs_T = None if output.logprobs is None else np.asarray(output.logprobs.logprobs, dtype=np.float64)
    end = stops.first_end(torch.from_numpy(tokens_T)) if stops is not None else None
    is_finished = output.finish_reason == "stop" or end is not None
    num_drawn = None if end is None else len(tokens_T)
    return _Completion(tokens_T[:end], None if logprobs_T is None else logprobs_T[:end], is_finished, num_drawn)


def logprob_gaps(completions: Sequence[_Completion], scores: Sequence[tuple[Floats, Floats]]) -> Floats:
    """|log π_vLLM − log π| of all tokens for which vLLM returned a log-probability."""
    gaps = [
        np.abs(completion.logprobs_T - logprobs_T)
        for completion, (logprobs_T, _) in zip(completions, scores, strict=True)
        if completion.logprobs_T is not None
    ]
    return np.concatenate(gaps) if gaps else np.zeros(0)


def open_vllm(
    language_model: LanguageModel, compute: ComputeSettings, max_length: int, seed: int, trust_remote_code: bool
) -> VllmSampler:
    """Start a vLLM engine; returns a sampler on it."""
    model = language_model.model
    options = engine_options(
        model_folder(language_model.name),
        next(model.parameters()).dtype,
        rows=compute.sampler_rows,
        cache_bytes=int(compute.vllm_memory * torch.cuda.get_device_properties(language_model.device).total_memory),
        max_length=min(max_length, max_positions(model)),
        seed=seed,
        trust_remote_code=trust_remote_code,
    )
    engine = start_engine(model, options)
    return VllmSampler(engine, model, language_model.tokenizer, scorer(model), max_rows=compute.sampler_rows)


def max_positions(model: Any) -> int:
    """The longest sequence the model can attend to."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31)
