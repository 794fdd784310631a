"""Peak memory and time of log-probabilities and entropies in chunks, against all logits at once.

    python benchmarks/token_scores.py [--tokens 2048] [--vocabulary 50000] [--hidden 256]

Forward and backward from hidden states to their gradient and the head's, float32 on the CPU. The alternative is the
usual code: logits, `log_softmax`, gather, Σ −p log p, and autograd. Each runs in a separate process; its memory is the
peak of resident memory minus the peak before the computation, when inputs, gradients and libraries are already loaded.
The two alternate; the median memory and the best time of each count. Both must give the same gradients.

Two lines: with entropies that are only measured, as in the losses' defaults, and with an entropy bonus in the loss.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the parent stays small: a child's peak may start at its parent's size
    from torch import Tensor

TEMPERATURE = 0.7


def all_at_once(
    hidden_nE: Tensor, weight_VE: Tensor, targets_n: Tensor, *, temperature: float, has_bonus: bool
) -> tuple[Tensor, Tensor]:
    """(log π(target), H) of each token, the usual way; nothing is kept for H's gradient where it is not needed."""
    import torch

    logprobs_nV = torch.log_softmax(hidden_nE @ weight_VE.T / temperature, dim=-1)
    with torch.set_grad_enabled(has_bonus):
        entropies_n = torch.special.entr(logprobs_nV.exp()).sum(dim=-1)
    return logprobs_nV.gather(-1, targets_n[:, None]).squeeze(-1), entropies_n


def peak() -> float:
    """Highest resident memory of this process so far, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(way: str, tokens: int, vocabulary: int, hidden: int, has_bonus: bool) -> dict[str, float]:
    """Run one way in this process; its memory, its time, and a checksum of its gradients."""
    import torch

    from scrl.policy.token_scores import token_scores

    score: Any = token_scores if way == "chunks" else partial(all_at_once, has_bonus=has_bonus)
    torch.manual_seed(0)
    hidden_nE = torch.randn(tokens, hidden, requires_grad=True)
    weight_VE = (torch.randn(vocabulary, hidden) / hidden**0.5).requires_grad_()
    targets_n = torch.randint(vocabulary, (tokens,))
    advantages_n = torch.randn(tokens)

    def work(number: int) -> None:
        logprobs_n, entropies_n = score(hidden_nE[:number], weight_VE, targets_n[:number], temperature=TEMPERATURE)
        loss = (advantages_n[:number] * logprobs_n).sum()
        (loss + 0.01 * entropies_n.sum() if has_bonus else loss).backward()

    work(1)  # allocates gradients and starts threads
    before = peak()
    seconds = []
    for _ in range(2):
        for leaf in (hidden_nE, weight_VE):
            assert leaf.grad is not None
            leaf.grad.zero_()
        start = time.perf_counter()
        work(tokens)
        seconds.append(time.perf_counter() - start)
    checksum = 0.0
    for leaf in (hidden_nE, weight_VE):
        assert leaf.grad is not None
        checksum += float((leaf.grad * torch.linspace(-1, 1, hidden)).sum())
    return {"memory": peak() - before, "seconds": min(seconds), "checksum": checksum}


def in_a_process(way: str, shape: tuple[int, int, int], has_bonus: bool) -> dict[str, float]:
    """Run one way in a separate process."""
    command = [sys.executable, __file__, "--child", json.dumps([way, *shape, has_bonus])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(shape: tuple[int, int, int], has_bonus: bool, rounds: int) -> dict[str, tuple[float, float]]:
    """Median memory and best time of both ways, which alternate."""
    found: dict[str, list[dict[str, float]]] = {"chunks": [], "full": []}
    for _ in range(rounds):
        for way, runs in found.items():
            runs.append(in_a_process(way, shape, has_bonus))
    ours, theirs = (runs[0]["checksum"] for runs in found.values())
    assert abs(ours - theirs) <= 1e-3 * abs(theirs), found
    return {way: (median(r["memory"] for r in runs), min(r["seconds"] for r in runs)) for way, runs in found.items()}


def main() -> None:
    """One line for each loss."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=2_048)
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(*json.loads(options.child))))
        return
    shape = (options.tokens, options.vocabulary, options.hidden)
    for has_bonus, words in ((False, "entropies measured"), (True, "entropy bonus")):
        (memory, seconds), (full_memory, full_seconds) = compare(shape, has_bonus, options.rounds).values()
        print(
            f"token scores, {options.tokens:,} tokens x {options.vocabulary:,} words x {options.hidden}, {words}: "
            f"chunks {memory:,.0f} MB and {seconds:.2f} s, all at once {full_memory:,.0f} MB and {full_seconds:.2f} s, "
            f"ratios {full_memory / memory:.1f}x of memory, {full_seconds / seconds:.2f}x of time"
        )


if __name__ == "__main__":
    main()
