"""Tokens sampled per second, against transformers' `generate` on the same prompts, in the same run.

    python benchmarks/sampling.py [--questions 8] [--completions 32] [--repeats 7]

The embedded model at temperature 1, at most 72 tokens per completion, all completions in parallel. Ours also records
the log-probability and the full-vocabulary entropy of every token; `generate` only draws tokens. The two alternate and
the best repeat of each counts. Tokens count up to and including a completion's end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from scrl.data.arithmetic import arithmetic_questions
from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.policy.model import LanguageModel, load_model
from scrl.policy.model_paths import EMBEDDED
from scrl.policy.settings import ComputeSettings
from scrl.sampling.decoders import left_pad
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

SETTINGS = SamplingSettings(temperature=1.0, max_tokens=72)


def sampler_tokens(sampler: LocalSampler, prompts: list[Prompt], completions: int, step: int) -> int:
    """The number of tokens of one call of ours."""
    samples_B = sampler.sample(prompts, SETTINGS, num_samples=completions, seed=0, step=step)
    return sum(len(sample.tokens_T) for samples in samples_B for sample in samples)


def generate_tokens(language_model: LanguageModel, prompts: list[Prompt], completions: int, step: int) -> int:
    """The number of tokens of one call of transformers."""
    tokens_BP, mask_BP = left_pad([prompt.tokens_P for prompt in prompts], language_model.device)
    torch.manual_seed(step)
    tokens_RT = language_model.model.generate(
        input_ids=tokens_BP,
        attention_mask=mask_BP,
        num_return_sequences=completions,
        do_sample=True,
        temperature=SETTINGS.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=SETTINGS.max_tokens,
        use_cache=True,
        pad_token_id=language_model.tokenizer.pad_token_id,
    )[:, tokens_BP.shape[1] :]
    is_end_RT = tokens_RT == language_model.tokenizer.eos_token_id
    return int((is_end_RT.cumsum(dim=-1) - is_end_RT.long() == 0).sum())


def speed(work: Callable[[int], int], step: int) -> float:
    """Tokens per second of one repeat."""
    start = time.perf_counter()
    tokens = work(step)
    return tokens / (time.perf_counter() - start)


def main() -> None:
    """One line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--completions", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    compute = ComputeSettings(device="cpu")
    language_model = load_model(EMBEDDED, compute)
    language_model.model.eval()
    questions = arithmetic_questions("medium", options.questions)
    style = PromptSettings(instruction="")
    prompts = [Prompt(q.id, prompt_tokens(q, language_model.tokenizer, style)) for q in questions]
    sampler = LocalSampler(language_model.model, language_model.tokenizer, max_rows=compute.sampler_rows)
    assert sampler.note is None
    works: tuple[Callable[[int], int], ...] = (
        lambda step: sampler_tokens(sampler, prompts, options.completions, step),
        lambda step: generate_tokens(language_model, prompts, options.completions, step),
    )
    rounds = [[speed(work, step) for work in works] for step in range(1 + options.repeats)][1:]
    ours, theirs = map(max, zip(*rounds, strict=True))
    print(
        f"sampling   {options.questions} questions x {options.completions} completions, at most "
        f"{SETTINGS.max_tokens} tokens, {torch.get_num_threads()} threads: ours {ours:,.0f} tokens/s with "
        f"log-probabilities and entropies, generate {theirs:,.0f} tokens/s without, ratio {ours / theirs:.1f}x "
        f"(best of {options.repeats})"
    )


if __name__ == "__main__":
    main()
