"""The vLLM sampler: groups of completions by vLLM in this process, what was drawn scored by the policy itself.

    sampler = VllmSampler(engine, model, tokenizer, score, max_rows=256)
    samples_BG = sampler.sample(prompts_B, settings, num_samples=32, seed=0, step=7)
    sampler.release()                                   before the weights change

vLLM tells the log-probability of a drawn token, but no entropy over the vocabulary, and its kernels round otherwise
than the update's. So both numbers of every token come from one scoring pass of the policy, and the ratio of the update
starts at 1; vLLM's own log-probabilities serve to see whether the two are the same model:

    drift = mean over tokens |log π_vLLM − log π|

over all that was drawn for a step of training, in however many calls; what is drawn to measure does not count.

Completion i of a question is drawn with a random generator of its own, seeded by (seed, step, question) + i. Equal
seeds give equal completions as far as vLLM's kernels give equal logits: which rows share a batch can change rounding.
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
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.local import REFILLS, check_numbers, end_tokens
from scrl.sampling.sampler import OnGroup, Prompt
from scrl.sampling.stop_texts import StopTexts, TextWriter
from scrl.sampling.vllm_engine import VllmEngine, engine_options, start_engine
from scrl.seeds import generator_for

Score = Callable[[Sequence[tuple[Tokens, Tokens]], float], list[tuple[Floats, Floats]]]
"""(prompt_P, tokens_T) of some completions and T → log π and entropy of their tokens, by the policy."""
HOTTEST = 2.0
"""vLLM takes no higher temperature."""
LARGEST_DRIFT = 0.05
"""Nats, at T = 1. bf16 logits between 16 and 32 lie 0.125 apart, so that two sound ways to compute one log-probability
differ by up to 0.06 for a token and by 0.01 to 0.04 in the mean (0.016 to 0.032 measured on an H200 with a small random
model); another model, or one weight left out, by tenths and more."""
CHECKED = SamplingSettings(temperature=1.0, max_tokens=32)
CHECKED_COMPLETIONS = 4
"""What the self-check draws."""


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """One completion as vLLM tells it."""

    tokens_T: Tokens
    logprobs_T: Floats | None
    is_finished: bool
    num_drawn: int | None
    """Where more was drawn than is kept."""
    text: str = ""


class VllmSampler(TextWriter):
    """Draws through vLLM from the weights that the policy has when it is asked; never sees an answer."""

    shares_weights = False

    def __init__(
        self,
        engine: VllmEngine,
        model: nn.Module,
        tokenizer: Any,
        score: Score,
        *,
        max_rows: int,
    ) -> None:
        """`score` is the policy's own pass over what was drawn; `max_rows` what the engine was started with."""
        super().__init__(tokenizer)
        self._engine = engine
        self._score = score
        self._ends = end_tokens(model, tokenizer)
        self._is_checked = False
        self._gap_sum, self._gap_count = 0.0, 0
        self._is_released = False
        self.max_rows = max_rows
        self.note: str | None = "sampling by vLLM; its random numbers are not those of the local sampler"

    @property
    def rows_a_call(self) -> int:
        """Completions to ask for in one call."""
        return REFILLS * self.max_rows

    @property
    def drift(self) -> float | None:
        """Of the last step; None where what was drawn is restricted, and vLLM's numbers are of something else."""
        return self._gap_sum / self._gap_count if self._gap_count else None

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
        """N completions for each prompt; `on_group` hears of each group before it is scored."""
        if settings.temperature > HOTTEST:
            raise ConfigError(
                f"sampling.temperature: vllm takes at most {HOTTEST}; got {settings.temperature}. Lower it, or use "
                "compute.sampler: local."
            )
        self._engine.wake()
        if not self._is_checked:
            self._check(prompts_B[0], seed)
        samples_BG, gaps_n = self._sample(prompts_B, settings, range(num_samples), (seed, step), on_group)
        if isinstance(step, int):
            self._count(gaps_n)
        return samples_BG

    def _count(self, gaps_n: Floats) -> None:
        """Add to what was drawn since the weights changed; `drift` is still asked for when they just have."""
        if self._is_released:
            self._gap_sum, self._gap_count, self._is_released = 0.0, 0, False
        self._gap_sum += float(gaps_n.sum())
        self._gap_count += len(gaps_n)

    def release(self) -> None:
        """Give vLLM's memory to the trainer; the next call takes it back and copies the weights anew."""
        self._engine.sleep()
        self._is_released = True

    def _check(self, prompt: Prompt, seed: int) -> None:
        """Refuse to go on where vLLM, given the policy's weights, is not the policy."""
        _, gaps_n = self._sample([prompt], CHECKED, range(CHECKED_COMPLETIONS), (seed, "self-check"))
        drift = float(gaps_n.mean()) if len(gaps_n) else float("nan")
        if not drift <= LARGEST_DRIFT:
            raise TrainingError(
                f"compute.sampler: with the same weights vLLM's log-probabilities differ from the policy's by {drift} "
                f"nats a token in the mean, and at most {LARGEST_DRIFT} is rounding: it runs another model, or other "
                "weights. Use compute.sampler: local."
            )
        self._is_checked = True

    def _sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        numbers: range,
        seeds: tuple[int, int | str],
        on_group: OnGroup | None = None,
    ) -> tuple[list[tuple[Sample, ...]], Floats]:
        """Draw, cut at stop texts, score; the completions, and how far vLLM's numbers are from the policy's."""
        copies = len(numbers) if settings.temperature == 0 else 1  # the likeliest tokens are the same every time
        size = len(numbers) // copies
        params_B = [
            sampling_params(
                settings,
                self._ends,
                prompt.max_tokens,
                size,
                vllm_seed(*seeds, prompt.question_id) + numbers.start,
            )
            for prompt in prompts_B
        ]
        stops = self.stop_texts(settings.stop)
        drawn_B: list[list[_Drawn]] = [[]] * len(prompts_B)
        for place, outputs in self._engine.finished([prompt.tokens_P for prompt in prompts_B], params_B):
            drawn_B[place] = self._read(outputs, stops)
            if on_group is not None:
                on_group(place, [drawn.text for drawn in drawn_B[place]] * copies)
        by_prompt = zip(prompts_B, drawn_B, strict=True)
        pairs = [(prompt.tokens_P, drawn.tokens_T) for prompt, drawn_G in by_prompt for drawn in drawn_G]
        scores = self._score(pairs, settings.temperature or 1.0)
        flat = [drawn for drawn_G in drawn_B for drawn in drawn_G]
        samples = _samples(flat, scores)
        groups = [samples[first : first + size] * copies for first in range(0, len(samples), size)]
        return [tuple(group) for group in groups], gaps(flat, scores)

    def _read(self, outputs: Sequence[Any], stops: StopTexts | None) -> list[_Drawn]:
        """A prompt's completions, with their texts."""
        drawn = [read_output(output, stops) for output in outputs]
        texts = self.texts([each.tokens_T for each in drawn], stops)
        return [replace(each, text=text) for each, text in zip(drawn, texts, strict=True)]


def _samples(drawn: Sequence[_Drawn], scores: Sequence[tuple[Floats, Floats]]) -> list[Sample]:
    check_numbers(logprobs_T for logprobs_T, _ in scores)
    return [
        Sample(each.text, each.tokens_T, *score, is_finished=each.is_finished, num_drawn=each.num_drawn)
        for each, score in zip(drawn, scores, strict=True)
    ]


def refuse_more(record: Collection[str]) -> None:
    """Refuse to record of every token what the scoring pass does not tell."""
    if record:
        raise ConfigError(
            f"compute.sampler: the method needs to know more of every token ({', '.join(record)}) than the policy "
            "tells after vllm has drawn it; use local"
        )


def vllm_seed(seed: int, step: int | str, question_id: str) -> int:
    """Of a question's first completion; vLLM adds 1 for each further one."""
    return int(generator_for(seed, "vllm", step, question_id).integers(2**62))


def sampling_params(settings: SamplingSettings, ends: list[int], most: int | None, number: int, seed: int) -> Any:
    """Our settings in vLLM's words. Stop texts are not among them: without a tokenizer vLLM cannot look for any."""
    from vllm import SamplingParams

    return SamplingParams(
        n=number,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_tokens=most or settings.max_tokens,
        stop_token_ids=ends,
        seed=seed,
        logprobs=None if settings.is_restricted else 0,  # the drawn token's alone
        flat_logprobs=True,
        detokenize=False,
    )


def read_output(output: Any, stops: StopTexts | None) -> _Drawn:
    """One vllm.CompletionOutput; what was drawn after a stop text is let go of."""
    if output.finish_reason not in ("stop", "length"):
        raise TrainingError(f"vLLM ended a completion early ({output.finish_reason}); use compute.sampler: local")
    tokens_T = np.asarray(output.token_ids, dtype=np.int64)
    logprobs_T = None if output.logprobs is None else np.asarray(output.logprobs.logprobs, dtype=np.float64)
    end = stops.first_end(torch.from_numpy(tokens_T)) if stops is not None else None
    is_finished = output.finish_reason == "stop" or end is not None
    num_drawn = None if end is None else len(tokens_T)
    return _Drawn(tokens_T[:end], None if logprobs_T is None else logprobs_T[:end], is_finished, num_drawn)


def gaps(drawn: Sequence[_Drawn], scores: Sequence[tuple[Floats, Floats]]) -> Floats:
    """|log π_vLLM − log π| of all tokens; of none where vLLM was not asked."""
    found = [
        np.abs(each.logprobs_T - logprobs_T)
        for each, (logprobs_T, _) in zip(drawn, scores, strict=True)
        if each.logprobs_T is not None
    ]
    return np.concatenate(found) if found else np.zeros(0)


def open_vllm(
    language_model: LanguageModel,
    compute: ComputeSettings,
    *,
    max_length: int,
    seed: int,
    record: Collection[str],
    trust_remote_code: bool,
) -> VllmSampler:
    """A sampler on a vLLM engine of its own, started here."""
    refuse_more(record)
    model = language_model.model
    options = engine_options(
        model_folder(language_model.name),
        next(model.parameters()).dtype,
        rows=compute.sampler_rows,
        cache_bytes=int(compute.vllm_memory * torch.cuda.get_device_properties(language_model.device).total_memory),
        max_length=min(max_length, positions(model)),
        seed=seed,
        trust_remote_code=trust_remote_code,
    )
    engine = start_engine(model, options)
    return VllmSampler(engine, model, language_model.tokenizer, scorer(model), max_rows=compute.sampler_rows)


def positions(model: Any) -> int:
    """How many tokens the model can look back over."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31)
