"""Peak memory and speed of an update on a GPU, against full logits, Liger's GRPO loss and TRL's log-probabilities.

    python benchmarks/gpu_update.py [--shape 3b] [--rows 16] [--tokens 3072] [--spread] [--ways ours,naive,liger,trl]
    python benchmarks/gpu_update.py --shape 7b --fit [--state bfloat16] [--rows 16]

Random weights in the named shape, bf16, random tokens, prompts of 64. The first form measures the gradient of the GRPO
loss over all completions: forward and backward with activation checkpointing (not with `--keep`), the same model and
the same rows in every way; a warm-up, then the median of 3 runs, which alternate between the ways. Peak memory is the
most that torch has allocated at once: weights, gradients, activations. Where memory runs out, the completions per pass
are halved, and the table says so.

    ours         rows packed where that pays, `token_scores`, Liger's layers
    ours-packed  packed rows, `token_scores`, Liger's layers
    ours-padded  padded rows (SDPA), `token_scores`, Liger's layers
    ours-plain   as ours, with transformers' layers
    naive        padded rows, all logits at once, `log_softmax` in fp32, entropies measured without a gradient
    liger        padded rows, liger_kernel.chunked_loss.LigerFusedLinearGRPOLoss, which gives no entropies
    trl          padded rows, the log-probabilities and entropies of TRL 1.16's GRPO trainer (trl.kernels)

The last three have transformers' layers; with `--fused` Liger's, as TRL users have them.
`--spread` draws lengths between an eighth and all of --tokens: there padding counts. tok/s are completion tokens.
`--fit` takes one whole step, optimizer included, with split masters, and says what memory it needed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config

from scrl.policy import fused_layers, packing
from scrl.policy.batching import Batch, TrainingRow
from scrl.policy.fused_layers import fuse_layers
from scrl.policy.model import LanguageModel
from scrl.policy.policy import Policy, Sums
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.policy.token_scores import token_scores
from scrl.records import Credit, Labels, Question, Sample, Sampled, Tally

SHAPES: dict[str, dict[str, Any]] = {  # of Qwen2.5
    name: dict(
        zip(
            ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
             "vocab_size", "tie_word_embeddings"),
            numbers,
            strict=True,
        )
    )
    for name, numbers in {
        "tiny": (64, 128, 2, 4, 2, 512, True),
        "0.5b": (896, 4864, 24, 14, 2, 151_936, True),
        "1.5b": (1536, 8960, 28, 12, 2, 151_936, True),
        "3b": (2048, 11008, 36, 16, 2, 151_936, True),
        "7b": (3584, 18944, 28, 28, 4, 152_064, False),
    }.items()
}  # fmt: skip
PROMPT = 64
GB = 1e9


def random_model(shape: str, device: torch.device) -> LanguageModel:
    """Random weights on `device`."""
    config = Qwen2Config(**SHAPES[shape], max_position_embeddings=32_768)
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    return LanguageModel(shape, model, None, device, has_adapter=False)


def random_group(options: argparse.Namespace) -> tuple[Sampled, Credit]:
    """Completions of random tokens, with advantages of both signs."""
    rng = np.random.default_rng(0)
    words, rows = SHAPES[options.shape]["vocab_size"], options.rows
    shortest = options.tokens // 8 if options.spread else options.tokens
    lengths = [options.tokens, *rng.integers(shortest, options.tokens + 1, rows - 1)]
    samples = tuple(
        Sample("", rng.integers(0, words, length), np.full(length, -np.log(words)), np.zeros(length), True)
        for length in lengths
    )
    sampled = Sampled(Question("q", "q"), rng.integers(0, words, PROMPT), samples, 0)
    advantages = rng.standard_normal(rows)
    tally = Tally((), (), (-1,) * rows, None, None, None)
    return sampled, Credit((None,) * rows, tally, Labels(), advantages, advantages, tuple(range(rows)), False)


# The ways


def all_logits(
    hidden_nE: Tensor,
    weight_VE: Tensor,
    targets_n: Tensor,
    *,
    bias_V: Tensor | None,
    temperature: float,
    chunk_elements: int | None = None,  # noqa: ARG001 - as the update calls it
) -> tuple[Tensor, Tensor]:
    """The usual way."""
    logits_nV = torch.nn.functional.linear(hidden_nE, weight_VE, bias_V).float() / temperature
    logprobs_nV = torch.log_softmax(logits_nV, dim=-1)
    with torch.no_grad():
        entropies_n = torch.special.entr(logprobs_nV.exp()).sum(dim=-1)
    return logprobs_nV.gather(-1, targets_n[:, None]).squeeze(-1), entropies_n


def trl_scores(
    hidden_nE: Tensor,
    weight_VE: Tensor,
    targets_n: Tensor,
    *,
    bias_V: Tensor | None,
    temperature: float,
    chunk_elements: int | None = None,  # noqa: ARG001 - as the update calls it
) -> tuple[Tensor, Tensor]:
    """As TRL's GRPO trainer calls them."""
    from trl.kernels import ChunkedLogProbFunction  # type: ignore[import-not-found, unused-ignore]
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE  # type: ignore[import-not-found, unused-ignore]

    found = ChunkedLogProbFunction.apply(
        hidden_nE, weight_VE, bias_V, targets_n, temperature, _CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, ("entropy",)
    )
    return found[0], found[1]


class LigerPolicy(Policy):
    """A policy with Liger's loss in place of ours; it computes its gradient in the forward pass."""

    num_rows = 1

    def _batch_loss(self, batch: Any) -> tuple[Tensor, Any]:
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss  # type: ignore[import-not-found, unused-ignore]

        body, head = self._scorer.body_and_head  # type: ignore[misc]
        hidden_RLE = body(input_ids=batch.tokens_RL, use_cache=False).last_hidden_state
        mask_RT, columns_T = batch.mask_RT, torch.arange(PROMPT, batch.tokens_RL.shape[1], device=head.weight.device)
        loss_function = LigerFusedLinearGRPOLoss(
            beta=0.0, compiled=False, use_ref_model=False, loss_type="grpo", temperature=self._temperature
        )
        loss, _ = loss_function(
            hidden_RLE[:, columns_T - 1], head.weight, batch.tokens_RL[:, columns_T], mask_RT,
            batch.positive_part_R + batch.negative_part_R, old_per_token_logps=batch.old_logprobs_RT,
        )  # fmt: skip
        loss = loss * len(mask_RT) / self.num_rows  # from a mean over the rows of a pass to one over all
        return loss, Sums(loss=loss.detach(), clipped=0, tokens=len(batch.targets_n), kl=0)


SCORES: dict[str, Any] = {
    "ours": token_scores, "ours-packed": token_scores, "ours-padded": token_scores, "ours-plain": token_scores,
    "naive": all_logits, "liger": token_scores, "trl": trl_scores,
}  # fmt: skip
PACKED = ("ours", "ours-packed", "ours-plain")
"""Where that pays; ours-packed: always."""
NEEDS = {"liger": "liger_kernel", "trl": "trl"}
FUSED = ("ours", "ours-packed", "ours-padded")
"""Have Liger's layers; the others but ours-plain with --fused."""
Forwards = dict[Any, Any]
"""What modules do instead of their class's forward."""


def take_forwards(model: Any) -> Forwards:
    """Restore all modules to their classes' own forwards."""
    return {module: vars(module).pop("forward") for module in model.modules() if "forward" in vars(module)}


@contextmanager
def with_layers(model: Any, forwards: Forwards) -> Iterator[None]:
    """The model with these layers and no others."""
    for module, forward in forwards.items():
        module.forward = forward
    try:
        yield
    finally:
        take_forwards(model)


class NoOptimizer:
    """Gradients stay where autograd leaves them."""

    def __init__(self, weights: Iterable[Tensor], *_: Any, **__: Any) -> None:
        self._weights = list(weights)

    def expect(self, micro_batches: int) -> None:
        """Nothing changes."""

    def collect(self) -> None:
        """Nothing to do."""

    def clear(self) -> None:
        """Forget all gradients."""
        for weight in self._weights:
            weight.grad = None


def open_policy(way: str, language_model: LanguageModel, options: argparse.Namespace, is_fused: bool = False) -> Policy:
    """A policy that computes updates in this way; `is_fused`: with Liger's layers from now on."""
    compute = ComputeSettings(
        device=str(language_model.device), dtype="bfloat16", gradient_checkpointing=not options.keep,
        micro_batch=options.micro_batch or options.rows,
    )  # fmt: skip
    optimizer = OptimizerSettings(state=options.state, schedule="constant", warmup=0, learning_rate=1e-5)
    kind = LigerPolicy if way == "liger" else Policy
    device, fused = language_model.device, fused_layers.DEVICES if is_fused else ()
    packed = (device.type,) if way in PACKED else ()
    with patch.object(fused_layers, "DEVICES", fused), patch.object(packing, "DEVICES", packed):
        policy = kind(
            language_model, LossSettings(), optimizer, compute, updates=1, temperature=1.0, max_tokens=options.tokens
        )
    if way == "ours-packed":
        policy._batch = lambda rows: Batch.of(rows, device, True)  # type: ignore[method-assign]
    if isinstance(policy, LigerPolicy):
        policy.num_rows = options.rows
    return policy


def measured(work: Callable[[], Any], device: torch.device) -> tuple[float, float]:
    """(seconds, peak memory in GB) of one call."""
    is_cuda = device.type == "cuda"
    if is_cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    work()
    if is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start, torch.cuda.max_memory_allocated() / GB if is_cuda else 0.0


def gradient_of(way: str, policy: Policy, rows: Sequence[TrainingRow]) -> None:
    """Leave the gradient in the weights."""
    with patch("scrl.policy.token_scores.token_scores", SCORES[way]):
        policy._retry(lambda: policy.gradient(rows), [rows], keeps_activations=True)


def norm_of_gradient(language_model: LanguageModel) -> float:
    """Shows that all ways compute the same."""
    grads = [weight.grad for weight in language_model.model.parameters() if weight.grad is not None]
    return float(torch.stack([torch.linalg.vector_norm(grad, dtype=torch.float32) for grad in grads]).norm())


def compare(options: argparse.Namespace) -> None:
    """The table of ways."""
    device = torch.device(options.device)
    language_model = random_model(options.shape, device)
    sampled, credit = random_group(options)
    tokens = sum(len(sample.tokens_T) for sample in sampled.samples_G)
    ways = [way for way in options.ways.split(",") if way not in NEEDS or find_spec(NEEDS[way])]
    for way in set(options.ways.split(",")) - set(ways):
        print(f"{way}: left out, because {NEEDS[way]} is not installed")
    if note := fuse_layers(language_model.model):
        print(note)
    fused = take_forwards(language_model.model)
    is_fused = {way: fused and (way in FUSED or (options.fused and way != "ours-plain")) for way in ways}
    with patch("scrl.policy.policy.open_optimizer", NoOptimizer):
        policies = {way: open_policy(way, language_model, options) for way in ways}
    rows = next(iter(policies.values())).rows([(sampled, credit)])
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    norms: dict[str, float] = {}
    for run in range(1 + options.runs):
        for way, policy in policies.items():
            policy._set_mode()
            with with_layers(language_model.model, fused if is_fused[way] else {}):
                result = measured(lambda way=way, policy=policy: gradient_of(way, policy, rows), device)  # type: ignore[misc]
            norms[way] = norm_of_gradient(language_model)
            policy.optimizer.clear()
            gc.collect()
            if run:
                found[way].append(result)
    weights = language_model.model.num_parameters()
    print(
        f"gradient of {options.rows} completions, {tokens:,} tokens, {options.shape} shape, {options.runs} runs, "
        f"{device_name(device)}; {weights / 1e9:.2f}e9 weights are {2 * weights / GB:.1f} GB, their gradients too"
    )
    print(
        f"{'way':<12}{'layers':<7}{'tok/s':>8}{'seconds':>9}{'peak GB':>9}{'per pass':>9}{'|gradient|':>12}"
        "   all seconds"
    )
    for way, results in found.items():
        seconds, peaks = zip(*results, strict=True)
        layers = "Liger" if is_fused[way] else "plain"
        print(
            f"{way:<12}{layers:<7}{tokens / median(seconds):>8,.0f}{median(seconds):>9.2f}{max(peaks):>9.1f}"
            f"{policies[way].micro_batch:>9}{norms[way]:>12.5f}   {' '.join(f'{s:.2f}' for s in seconds)}"
        )


def fit(options: argparse.Namespace) -> None:
    """One whole step: score again, gradient, optimizer."""
    device = torch.device(options.device)
    language_model = random_model(options.shape, device)
    policy = open_policy("ours", language_model, options, is_fused=True)
    sampled, credit = random_group(options)
    tokens = sum(len(sample.tokens_T) for sample in sampled.samples_G)
    held = torch.cuda.memory_allocated() / GB if device.type == "cuda" else 0.0
    seen = language_model.model.model.layers[0].self_attn.q_proj.weight
    before = seen.detach().clone()
    first, second = (measured(lambda: print(policy.update([sampled], [credit])), device) for _ in range(2))
    seconds, peak = second[0], max(first[1], second[1])
    moved = float((seen.detach() != before).float().mean())
    weights = language_model.model.num_parameters() / 1e9
    print(
        f"one step, {options.shape} shape, {weights:.2f}e9 weights, {options.rows} completions of {options.tokens} "
        f"tokens ({tokens:,}), averages in {options.state}, {policy.micro_batch} per pass, "
        f"{device_name(device)}: {held:.1f} GB held between steps, peak {peak:.1f} GB, {seconds:.2f} s, "
        f"{tokens / seconds:,.0f} tok/s; of the first layer's query weights {moved:.1%} show a change"
    )


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, memory not measured"


def main() -> int:
    """A table, or a line with --fit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=3_072)
    parser.add_argument("--spread", action="store_true", help="lengths from an eighth of --tokens to all of them")
    parser.add_argument("--keep", action="store_true", help="keep activations instead of computing them twice")
    parser.add_argument("--fused", action="store_true", help="Liger's layers for ways that are not ours")
    parser.add_argument("--micro-batch", type=int, help="completions per pass; default: all")
    parser.add_argument("--ways", default="ours,naive,liger,trl")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fit", action="store_true", help="one whole optimizer step instead of the table")
    parser.add_argument("--state", choices=["float32", "bfloat16"], default="float32", help="of AdamW's averages")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    unknown = set(options.ways.split(",")) - set(SCORES)
    if unknown:
        parser.error(f"--ways: {', '.join(unknown)}: there are {', '.join(SCORES)}")
    if options.fused and find_spec("liger_kernel") is None:
        parser.error("--fused: needs liger_kernel, which is not installed")
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu update: skipped, because there is no GPU; --device cpu --shape tiny --tokens 64 tries the code")
        return 0
    (fit if options.fit else compare)(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
