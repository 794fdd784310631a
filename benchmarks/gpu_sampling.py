"""Tokens sampled per second on a GPU: ours, transformers' `generate` and vLLM, on random weights of the same shape.

    python benchmarks/gpu_sampling.py                                       # Qwen2.5-3B, 4 prompts × 64 × 128 tokens
    python benchmarks/gpu_sampling.py 4x64x128 8x64x512 16x64x2048/700      # three cases, each engine started once
    python benchmarks/gpu_sampling.py 2x32x10240 --what ours --model qwen3-4b --repeats 0
    python benchmarks/gpu_sampling.py --what ours --profile                 # microseconds of each kernel in a step
    python benchmarks/gpu_sampling.py --what ours,adapter,vllm-adapter      # with a LoRA of rank 16 on all layers

Weights are random in the shape of the named model, so nothing is downloaded. End tokens are ignored unless a case ends
in `/700`: then enough tokens end a completion for a mean length of 700. Ours records the log-probability and the
full-vocabulary entropy of every token, vLLM the log-probability, `generate` nothing. The result is the median of
`--repeats` calls; one before the first case is the start-up and not counted (`static` compiles for each case, and has
one before each). With `--repeats 0` that first call counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from scrl.sampling.decoders import left_pad
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

_LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
# kind, hidden, intermediate, layers, heads, key heads, head size, vocabulary, tied
_SHAPES: dict[str, tuple[str, int, int, int, int, int, int, int, bool]] = {
    "qwen2.5-0.5b": ("qwen2", 896, 4864, 24, 14, 2, 64, 151936, True),
    "qwen2.5-1.5b": ("qwen2", 1536, 8960, 28, 12, 2, 128, 151936, True),
    "qwen2.5-3b": ("qwen2", 2048, 11008, 36, 16, 2, 128, 151936, True),
    "qwen2.5-7b": ("qwen2", 3584, 18944, 28, 28, 4, 128, 152064, False),
    "qwen3-4b": ("qwen3", 2560, 9728, 36, 32, 8, 128, 151936, True),
    "llama-3.2-3b": ("llama", 3072, 8192, 28, 24, 8, 128, 128256, True),
}


class Case(NamedTuple):
    """Prompts × completions × tokens of a completion at most, and the tokens they have on average; 0: no ends."""

    prompts: int
    samples: int
    tokens: int
    mean_length: int = 0

    def __str__(self) -> str:
        """As on the command line."""
        ended = f"/{self.mean_length}" if self.mean_length else ""
        return f"{self.prompts}x{self.samples}x{self.tokens}{ended}"


def case_of(text: str) -> Case:
    """A case as written on the command line: 16x64x2048 or 16x64x2048/700."""
    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)(?:/(\d+))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not PROMPTSxCOMPLETIONSxTOKENS, as in 8x64x512 or 8x64x2048/700")
    return Case(*(int(number or 0) for number in found.groups()))


def config_of(name: str) -> Any:
    """The configuration of a named shape."""
    kind, hidden, intermediate, layers, heads, kv_heads, head, vocabulary, tied = _SHAPES[name]
    rope = _LLAMA3 if kind == "llama" else {"rope_type": "default", "rope_theta": 1e6}
    return AutoConfig.for_model(
        kind, hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=head, vocab_size=vocabulary, tie_word_embeddings=tied,
        rope_parameters=rope, max_position_embeddings=32768, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip


class Silent:
    """As much of a tokenizer as the sampler uses; no engine is timed decoding texts."""

    eos_token_id = None

    def batch_decode(self, rows: Sequence[Any], **_: Any) -> list[str]:
        """No texts."""
        return ["" for _ in rows]


def build(name: str) -> Any:
    """Random weights on the GPU, the same every time."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config_of(name), dtype=torch.bfloat16)
    return model.to("cuda", torch.bfloat16).eval()


def end_tokens(model: str, case: Case) -> list[int]:
    """Tokens that end a completion, spread over the vocabulary: near-uniform draws hit one in `mean_length`."""
    vocabulary = config_of(model).vocab_size
    number = round(vocabulary / case.mean_length) if case.mean_length else 0
    return [int(token) for token in np.linspace(0, vocabulary - 1, number)]


def prompts_of(case: Case, length: int) -> list[Prompt]:
    """Random prompts of one length."""
    tokens_BP = np.random.default_rng(0).integers(1, 100_000, (case.prompts, length))
    return [Prompt(f"question {number}", tokens_P) for number, tokens_P in enumerate(tokens_BP)]


Work = Callable[[int], int]
"""(number of a step) → the tokens sampled for it."""
Facts = Callable[[], dict[str, Any]]
Engine = Callable[[Case], tuple[Work, Facts]]


def with_adapter(model: Any) -> Any:
    """A LoRA on all layers, none of whose weights is 0."""
    from peft import LoraConfig, get_peft_model

    options: dict[str, Any] = {"r": RANK, "lora_alpha": 2 * RANK, "target_modules": "all-linear"}
    model = get_peft_model(model, LoraConfig(**options, task_type="CAUSAL_LM")).eval()
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)
    return model


def ours(options: argparse.Namespace, *, has_adapter: bool = False) -> Engine:
    """The local sampler."""
    model = build(options.model)
    if has_adapter:
        model = with_adapter(model)
    last: list[LocalSampler] = []

    def prepare(case: Case) -> tuple[Work, Facts]:
        for sampler in last:
            sampler.release()
        model.generation_config.eos_token_id = end_tokens(options.model, case) or None
        notes: list[str] = []
        sampler = LocalSampler(model, Silent(), max_rows=options.rows, on_note=notes.append)
        last[:] = [sampler]
        settings = SamplingSettings(temperature=options.temperature, top_p=options.top_p, max_tokens=case.tokens)
        prompts = prompts_of(case, options.prompt_tokens)

        def work(step: int) -> int:
            samples_B = sampler.sample(prompts, settings, num_samples=case.samples, seed=0, step=step)
            if options.release:
                sampler.release()
            return sum(len(sample.tokens_T) for samples in samples_B for sample in samples)

        def facts() -> dict[str, Any]:
            engine = sampler._engine
            counts = {} if engine is None else {"captures": engine.captures, "preemptions": engine.preemptions}
            return {"rows": sampler.max_rows, **counts, "notes": [note for note in (sampler.note, *notes) if note]}

        return work, facts

    return prepare


def generate(options: argparse.Namespace, cache: str) -> Engine:
    """transformers' `generate` with a dynamic or a static cache."""
    model = build(options.model)

    def prepare(case: Case) -> tuple[Work, Facts]:
        ends = end_tokens(options.model, case)
        prompts = prompts_of(case, options.prompt_tokens)
        tokens_BP, mask_BP = left_pad([prompt.tokens_P for prompt in prompts], torch.device("cuda"))

        def work(step: int) -> int:
            torch.manual_seed(step)
            tokens_RT = model.generate(
                input_ids=tokens_BP, attention_mask=mask_BP, num_return_sequences=case.samples, do_sample=True,
                temperature=options.temperature, top_k=0, top_p=options.top_p, max_new_tokens=case.tokens,
                min_new_tokens=None if ends else case.tokens, eos_token_id=ends or None, pad_token_id=0,
                **({"cache_implementation": "static"} if cache == "static" else {}),
            )[:, tokens_BP.shape[1] :]  # fmt: skip
            is_end_RT = torch.isin(tokens_RT, torch.tensor(ends, device="cuda", dtype=tokens_RT.dtype))
            return int((is_end_RT.cumsum(dim=-1) - is_end_RT.long() == 0).sum())

        return work, dict

    return prepare


def vllm(options: argparse.Namespace, *, has_adapter: bool = False) -> Engine:
    """vLLM in this process, with the log-probability of each drawn token."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    folder = tempfile.mkdtemp()
    config = config_of(options.model)
    config.architectures = [f"{config.model_type.capitalize()}ForCausalLM"]
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    max_length = options.prompt_tokens + max(case.tokens for case in options.cases) + 1
    llm = LLM(
        folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=max_length,
        max_num_seqs=options.rows, gpu_memory_utilization=0.85, enable_lora=has_adapter, max_lora_rank=RANK,
        **({"compilation_config": {"cudagraph_capture_sizes": LORA_SIZES}} if has_adapter else {}),
    )  # fmt: skip
    adapter = None
    if has_adapter:
        with torch.device("cuda"):  # a processor takes a minute for 3B random weights
            model = with_adapter(AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16))
        model.save_pretrained(f"{folder}/lora")
        del model
        adapter = LoRARequest("adapter", 1, f"{folder}/lora")

    def prepare(case: Case) -> tuple[Work, Facts]:
        ends = end_tokens(options.model, case)
        inputs = [{"prompt_token_ids": prompt.tokens_P.tolist()} for prompt in prompts_of(case, options.prompt_tokens)]
        params = SamplingParams(
            n=case.samples, temperature=options.temperature, top_p=options.top_p, max_tokens=case.tokens,
            ignore_eos=True, stop_token_ids=ends or None, logprobs=0, detokenize=False,
        )  # fmt: skip

        def work(_: int) -> int:
            outputs = llm.generate(inputs, params, use_tqdm=False, lora_request=adapter)
            return sum(len(completion.token_ids) for output in outputs for completion in output.outputs)

        return work, dict

    return prepare


MAKERS: dict[str, Callable[[argparse.Namespace], Engine]] = {
    "ours": ours,
    "adapter": lambda options: ours(options, has_adapter=True),
    "dynamic": lambda options: generate(options, "dynamic"),
    "static": lambda options: generate(options, "static"),
    "vllm": vllm,
    "vllm-adapter": lambda options: vllm(options, has_adapter=True),
}
RANK = 16
"""Of an adapter."""
LORA_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512]
"""Rows that vLLM captures graphs for with an adapter: all its own 102, each with and without, take it four minutes."""


def timed(work: Work, step: int) -> tuple[float, int]:
    """Seconds and tokens of one call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    tokens = work(step)
    torch.cuda.synchronize()
    return time.perf_counter() - start, tokens


def measure(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One engine: start-up, then the median of some calls, case by case."""
    torch.cuda.empty_cache()
    start = time.perf_counter()
    try:
        engine = MAKERS[name](options)
    except ImportError as error:
        yield {"engine": name, "skipped": str(error)}
        return
    built = time.perf_counter() - start
    for number, case in enumerate(options.cases):
        torch.cuda.reset_peak_memory_stats()
        work, facts = engine(case)
        first = [timed(work, 0)] if not number or name == "static" or not options.repeats else []
        runs = [timed(work, step) for step in range(1, 1 + options.repeats)] or first
        speeds = [tokens / seconds for seconds, tokens in runs]
        if options.profile and name in ("ours", "adapter"):
            print_profile(work)
        start_up = first[0][0] - statistics.median(seconds for seconds, _ in runs) if first else 0.0
        yield {
            "engine": name,
            "case": str(case),
            "tokens_per_second": statistics.median(speeds),
            "all": [round(speed) for speed in speeds],
            "limit": limit(options, case),
            "tokens": runs[0][1],
            "seconds_start_up": start_up + (0.0 if number else built),
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
            **facts(),
        }


def print_profile(work: Work) -> None:
    """Microseconds and calls of every kernel per step, the slowest first; a step is one call of the drawing kernel."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        seconds, _ = timed(work, 1000)
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in profiler.events() or ():
        if event.device_type.name == "CUDA":
            spent[event.name][0] += event.time_range.elapsed_us()
            spent[event.name][1] += 1
    steps = max((count for name, (_, count) in spent.items() if name.startswith("_draw_tokens")), default=1.0)
    print(f"{'µs/step':>10} {'calls':>7}  kernel ({steps:.0f} steps)")
    for name, (microseconds, count) in sorted(spent.items(), key=lambda item: -item[1][0])[:30]:
        print(f"{microseconds / steps:10.1f} {count / steps:7.1f}  {name[:110]}")
    busy = sum(total for total, _ in spent.values())
    print(f"{busy / steps:10.1f} {'':7}  all; {1e6 * seconds / steps:.1f} by the clock")


def mean_length(case: Case) -> float:
    """The length of a row's completion, on average over steps: half of the most, or with ends at a rate of 1 / m

        ∫ t e^(−t/m) dt / ∫ e^(−t/m) dt from 0 to T  =  m (1 − x / (e^x − 1)), x = T / m,

    because a row that ends is replaced by another, so long rows are present for more steps than short ones.
    """
    if not case.mean_length:
        return case.tokens / 2
    x = case.tokens / case.mean_length
    return float(case.mean_length * (1 - x / math.expm1(x)))


def limit(options: argparse.Namespace, case: Case) -> float:
    """Tokens per second by arithmetic: the larger of reading weights and multiplying, plus reading the cache."""
    _, hidden, intermediate, layers, heads, kv_heads, head, vocabulary, _ = _SHAPES[options.model]
    weights = layers * (hidden * head * 2 * (heads + kv_heads) + 3 * hidden * intermediate) + vocabulary * hidden
    rows = min(options.rows, case.prompts * case.samples)
    cached = 2 * layers * kv_heads * head * 2 * (rows * mean_length(case) + case.prompts * options.prompt_tokens)
    seconds = max(2 * weights / 4.3e12, 2 * weights * rows / 700e12) + cached / 4.3e12
    return float(rows / seconds)


def arguments() -> argparse.Namespace:
    """What to run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", type=case_of, help="PROMPTSxCOMPLETIONSxTOKENS[/MEAN_LENGTH]")
    parser.add_argument("--what", default="ours,dynamic,static,vllm", help="engines, separated by commas")
    parser.add_argument("--model", default="qwen2.5-3b", choices=sorted(_SHAPES))
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--rows", type=int, default=512, help="completions in parallel")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--release", action="store_true", help="free our memory after every call, as training may")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each result")
    options = parser.parse_args()
    options.cases = options.cases or [Case(4, 64, 128)]
    return options


def main() -> None:
    """One line per engine and case."""
    options = arguments()
    if not torch.cuda.is_available():
        sys.exit("gpu sampling: there is no GPU here")
    if not options.json:
        print(f"{options.model}, prompts of {options.prompt_tokens} tokens", flush=True)
    for name in options.what.split(","):
        for result in measure(name, options):
            print(json.dumps(result) if options.json else line(result), flush=True)


def line(result: dict[str, Any]) -> str:
    """A result as text."""
    if "skipped" in result:
        return f"{result['engine']:>12}  skipped: {result['skipped']}"
    speed = result["tokens_per_second"]
    return (
        f"{result['engine']:>12}  {result['case']:<16}  {speed:10,.0f} tokens/s  {speed / result['limit']:5.1%} of the "
        f"limit  start-up {result['seconds_start_up']:6.1f} s  peak {result['peak_gib']:6.1f} GiB  {result['all']}"
    )


if __name__ == "__main__":
    main()
