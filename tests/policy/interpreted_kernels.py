"""Compare kernels with plain torch on a CPU; run with TRITON_INTERPRET=1. Every comparison prints one line."""

import itertools

import torch
from torch import nn

from scrl.policy import logit_kernels
from scrl.policy import token_scores as scores
from scrl.policy.optimizer import LowMemoryAdamW
from scrl.policy.settings import OptimizerSettings

logit_kernels.BLOCK = 64  # several blocks per row, the last of them short
scores.ROWS = 4


def problem(dtype, has_bias, n=6, E=8, V=203):  # 6 tokens: a block of 4, and one of 2
    random = torch.Generator().manual_seed(0)
    hidden_nE = torch.randn(n, E, generator=random).to(dtype).requires_grad_()
    weight_VE = torch.randn(V, E, generator=random).to(dtype).requires_grad_()
    bias_V = torch.randn(V, generator=random).to(dtype) if has_bias else None
    if has_bias:
        bias_V[[3, *range(64, 128)]] = -torch.inf  # an impossible token, and a whole block of them
        bias_V.requires_grad_()
    targets_n = torch.randint(0, 64, (n,), generator=random).masked_fill_(torch.arange(n) == 0, 202)
    return (hidden_nE, weight_VE, bias_V), targets_n.masked_fill(targets_n == 3, 4)


def compare(dtype, has_bias, chosen, temperature=0.7):
    leaves, targets_n = problem(dtype, has_bias)
    exact = [leaf if leaf is None else leaf.detach().float().requires_grad_() for leaf in leaves]
    upstream = torch.randn(2, len(targets_n), generator=torch.Generator().manual_seed(1))
    found = scores.TokenScores.apply(*leaves, targets_n, temperature, 1, scores.KernelBlocks)
    wanted = scores.token_scores(exact[0], exact[1], targets_n, bias_V=exact[2], temperature=temperature)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=3e-6, rtol=1e-5)
    for both in (found, wanted):
        sum((both[k] * upstream[k]).sum() for k in chosen).backward()
    for leaf, other in zip(leaves, exact, strict=True):
        if leaf is not None:
            distance = float((leaf.grad.float() - other.grad).norm() / other.grad.norm())
            assert leaf.grad.dtype == dtype
            assert distance < (2e-6 if dtype == torch.float32 else 0.01), distance  # the interpreter cuts bits off
    print("ok", dtype, has_bias, chosen)


def compare_steps(dtype, is_split, state):
    """Ten steps by the kernel and by chunks; they round bfloat16 averages with different random numbers."""
    settings = OptimizerSettings(learning_rate=1e-3, warmup=0.0, schedule="constant", weight_decay=0.1, state=state)
    random = torch.Generator().manual_seed(0)
    start = torch.randn(1100, generator=random).to(dtype)  # a block of 1,024, and a part of one
    optimizers = [LowMemoryAdamW([nn.Parameter(start.clone())], settings, 10, is_split=is_split) for _ in range(2)]
    for number in range(10):
        grad = torch.randn(1100, generator=random).to(dtype)
        for optimizer, way in zip(optimizers, ("_step_by_kernel", "_step_by_chunks"), strict=True):
            getattr(optimizer, way)(optimizer._weights[0], grad, torch.tensor(0.5), seed=number)
            optimizer.update += 1
    found, wanted = (optimizer._weights[0] for optimizer in optimizers)
    whole = slice(None)
    distance = (found.master(whole) - wanted.master(whole)).norm() / (wanted.master(whole) - start.float()).norm()
    assert distance < (1e-4 if state == "float32" else 0.03), distance  # 1e-3 of 1 counts in steps of 1e-7
    for name in ("means", "squares"):
        one, other = (getattr(weight, name).float() for weight in (found, wanted))
        assert float((one - other).norm() / other.norm()) < (1e-6 if state == "float32" else 0.02)
        assert abs(float((one - other).mean() / other.abs().mean())) < 2e-3
    if is_split and dtype == torch.bfloat16:
        assert found.rest.dtype == torch.int16
    before = [value.clone() for value in optimizers[0].state()["means"] + [found.master(whole)]]
    optimizers[0]._step_by_kernel(found, grad, torch.tensor(torch.nan), seed=0)  # a gradient that is not finite
    after = [*optimizers[0].state()["means"], found.master(whole)]
    assert all(map(torch.equal, before, after))
    print("ok", dtype, is_split, state)


for case in itertools.product((torch.float32, torch.bfloat16), (False, True), ("float32", "bfloat16")):
    compare_steps(*case)
for case in itertools.product((torch.float32, torch.bfloat16), (False, True), ((0,), (1,), (0, 1))):
    compare(*case)
