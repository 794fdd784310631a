"""The Triton kernels of an update against their plain twins, in one run: seconds and peak memory.

    python benchmarks/gpu_kernels.py

Log-probabilities with their gradients (`policy/logit_kernels.py`) at the shapes of Qwen2.5-3B and 1.5B, and a step of
AdamW with split masters (`policy/adam_kernel.py`) over 1.5e9 weights. Medians of 5; needs a GPU.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from scrl.policy import token_scores as scores
from scrl.policy.optimizer import LowMemoryAdamW
from scrl.policy.settings import OptimizerSettings

VOCABULARY = 151_936
WEIGHTS = [(VOCABULARY, 1536), *[(8960, 1536)] * 84, *[(1536, 1536)] * 56]


def measure(run: Callable[[], object], repeats: int = 5) -> str:
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, seconds = torch.cuda.memory_allocated(), []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return f"{median(seconds):.4f} s {(torch.cuda.max_memory_allocated() - before) / 2**30:.2f} GiB"


def compare_token_scores(hidden_size: int, tokens: int) -> None:
    hidden_nE = torch.randn(tokens, hidden_size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight_VE = (torch.randn(VOCABULARY, hidden_size, device="cuda") * 0.02).bfloat16().requires_grad_()
    targets_n = torch.randint(0, VOCABULARY, (tokens,), device="cuda")
    for name, kind, block in (
        ("kernel", scores.KernelBlocks, scores.FUSED_CHUNK_ELEMENTS),
        ("plain", scores.PlainBlocks, scores.CHUNK_ELEMENTS),
        ("plain, blocks as large", scores.PlainBlocks, scores.FUSED_CHUNK_ELEMENTS),
    ):
        parts = kind, hidden_nE, weight_VE, targets_n, block
        with torch.no_grad():
            alone = measure(partial(forward, *parts))
        both = measure(partial(forward_and_backward, *parts))
        print(f"{tokens} tokens, E {hidden_size}, {name}: forward {alone}, with backward {both}", flush=True)


def forward(kind: Any, hidden_nE: Tensor, weight_VE: Tensor, targets_n: Tensor, block: int) -> Tensor:
    function: Any = scores.TokenScores
    logprobs_n: Tensor = function.apply(hidden_nE, weight_VE, None, targets_n, 1.0, block, kind)[0]
    return logprobs_n


def forward_and_backward(kind: Any, hidden_nE: Tensor, weight_VE: Tensor, targets_n: Tensor, block: int) -> None:
    hidden_nE.grad = weight_VE.grad = None
    loss: Any = forward(kind, hidden_nE, weight_VE, targets_n, block).sum()
    loss.backward()


def compare_adam(state: str) -> None:
    weights = [torch.nn.Parameter((torch.randn(shape, device="cuda") * 0.02).bfloat16()) for shape in WEIGHTS]
    for name in ("kernel", "plain"):
        optimizer = LowMemoryAdamW(weights, OptimizerSettings(state=state), updates=100, is_split=True)
        if name == "plain":
            optimizer._step_by_kernel = optimizer._step_by_chunks  # type: ignore[method-assign]
        seconds = measure(partial(step, optimizer, weights))
        print(f"AdamW, averages in {state}, {name}: {seconds}", flush=True)


def step(optimizer: LowMemoryAdamW, weights: list[torch.nn.Parameter]) -> None:
    for weight in weights:
        weight.grad = torch.full_like(weight, 1e-3)
    optimizer.step()


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("error: gpu_kernels.py: there is no GPU here")
    compare_token_scores(2048, 16 * 3072)
    compare_token_scores(1536, 16 * 1024)
    compare_adam("float32")
    compare_adam("bfloat16")
