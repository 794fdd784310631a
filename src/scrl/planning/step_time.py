"""How long a step of a run takes, by phase: its time at the hardware's roofs, divided by how near to them it comes.

Roofs are the makers' numbers (GPUS), how near is MEASURED or ASSUMED; W, A, n, s, t as in `memory`; bandwidth is that
of a GPU's memory, peak its FLOP/s, link the bandwidth to other GPUs.

    one token of R rows    (max(2 W / t / bandwidth, 2 W R / t / peak) + R c k / t / bandwidth) / decode
                           + 2 layers (latency + message / link)
    rollout                the sum of that over its tokens, with as many rows as are left then (`occupancy`)
    update                 max(6 W tokens / (n peak mfu), traffic / link); 8 where activations are computed twice
    scoring                max(2 W tokens / (n peak mfu), traffic / link)
    sync                   2 W / link + 2 W / t / bandwidth, where vLLM samples

c is what a row has already, prompt and tokens written, and k a token's bytes in the KV cache. The last term of a token
is the two sums per layer over the t GPUs of a sampler. FSDP2's traffic is (n − 1) / n times 2 W for the forward pass,
2 W for the backward pass and 4 A for the gradients, in every micro-batch; DDP's is 2 · 4 A (n − 1) / n per update. Left
out: prefill, attention's own FLOPs, the optimizer, grading.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from scrl.errors import ConfigError, did_you_mean
from scrl.planning.memory import FULL, GIB, HALF, EngineName, Fit, Layout, trained_weights
from scrl.planning.shapes import ModelShape

TERA, GIGA = 1e12, 1e9


class Gpu(NamedTuple):
    """One kind of GPU."""

    memory: float
    """GiB that a program can have, rounded down."""
    bandwidth: float
    """Bytes per second, of its memory."""
    peak: float
    """FLOP/s in bfloat16, dense."""
    link: float
    """Bytes per second and direction to the other GPUs of its machine (NVLink)."""


GPUS = {
    "H200": Gpu(139, 4.8 * TERA, 989 * TERA, 450 * GIGA),
    "H100": Gpu(79, 3.35 * TERA, 989 * TERA, 450 * GIGA),
    "A100": Gpu(79, 2.039 * TERA, 312 * TERA, 300 * GIGA),
    "A100-40": Gpu(39, 1.555 * TERA, 312 * TERA, 300 * GIGA),
}
"""Newest first, from NVIDIA's data sheets of the SXM modules: H200 (141 GB), H100 (80 GB), A100 (80 GB and 40 GB)."""
NETWORK = 50 * GIGA
"""Bytes per second and direction of each GPU to other machines: one 400 Gbit/s adapter per GPU. Assumed."""
LATENCY = 10e-6
"""Seconds of a sum over the GPUs of a sampler, however small. Assumed."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines of a run: `nodes` with `gpus` GPUs each, which have `memory` bytes each."""

    kind: str
    gpus: int
    nodes: int
    memory: float
    is_kind_assumed: bool = False

    @property
    def total(self) -> int:
        """n."""
        return self.gpus * self.nodes

    @property
    def gpu(self) -> Gpu:
        return GPUS[self.kind]

    @property
    def link(self) -> float:
        """The slowest link of a ring over all GPUs: the network, where there are several machines."""
        return self.gpu.link if self.nodes == 1 else NETWORK


def make_cluster(kind: str | None, *, gpus: int, nodes: int, memory_gib: float | None) -> Cluster:
    """Machines with this many GPUs of a kind: by default the newest, of those with about that much memory."""
    if memory_gib is not None and not 0 < memory_gib < 1e6:
        raise ConfigError(f"--gpu-memory: is GiB of one GPU, and more than 0; got {memory_gib:g}")
    nearest = min(GPUS, key=lambda each: 0 if memory_gib is None else abs(GPUS[each].memory - memory_gib))
    name = nearest if kind is None else kind.upper()
    if name not in GPUS:
        raise ConfigError(
            f"--kind: there are no numbers for {name!r}.{did_you_mean(name, GPUS)} "
            "For another GPU leave it out, and give the memory in GiB, such as --gpu-memory 24."
        )
    memory = GPUS[name].memory if memory_gib is None else memory_gib
    return Cluster(name, gpus, nodes, GIB * memory, is_kind_assumed=kind is None)


class Efficiency(NamedTuple):
    """What share of a roof is reached, and the run that showed it; None: assumed."""

    share: float
    measured_on: str | None = None


What = Literal["decode", "mfu"]
"""Writing tokens, and all passes over whole completions."""
WHATS: tuple[What, ...] = get_args(What)
ASSUMED = Efficiency(0.35)
MEASURED: dict[tuple[EngineName | Literal["vllm"], str, What], Efficiency] = {
    # 128 × (max(2 W / bandwidth, 2 W 256 / peak) + 256 · 128 · k / bandwidth) = 0.237 s, and 0.548 s measured
    ("embedded", "H200", "decode"): Efficiency(0.43, "Qwen2.5-3B's shape, 256 completions of 128 tokens"),
    # the same, and 0.961 s measured
    ("vllm", "H200", "decode"): Efficiency(0.25, "Qwen2.5-3B's shape, 256 completions of 128 tokens"),
    # 8 W 50,176 / peak = 1.252 s, and 2.71 s measured
    ("embedded", "H200", "mfu"): Efficiency(0.46, "Qwen2.5-3B's shape, 16 completions of 3,072 tokens"),
}
"""By engine, or vLLM as the embedded engine's sampler; kind of GPU; and what: only what a run of this package showed,
with that run (benchmarks/RESULTS.md).

A share is the seconds that the equations give with an efficiency of 1, over the seconds of the run.
"""


def efficiency(fit: Fit, kind: str, what: What) -> Efficiency:
    engine = fit.layout.engine
    by_vllm = what == "decode" and engine == "embedded" and fit.layout.has_vllm(fit.work)
    return MEASURED.get(("vllm" if by_vllm else engine, kind, what), ASSUMED)


class Phase(NamedTuple):
    """A part of a step, and what it waits for."""

    name: str
    seconds: float
    limit: str


def phases(shape: ModelShape, fit: Fit, cluster: Cluster) -> tuple[Phase, ...]:
    return tuple(phase(shape, fit, cluster) for phase in (rollout, scoring, update, sync))


def step_seconds(shape: ModelShape, fit: Fit, cluster: Cluster) -> float:
    return sum(phase.seconds for phase in phases(shape, fit, cluster))


def rollout(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """All completions of a step, in S stretches; the weights are read while the GPU computes with them."""
    work, t, gpu = fit.work, fit.layout.tensor, cluster.gpu
    tokens_S, rows_S, lengths_S = occupancy(fit.layout.rows(work), fit.rows, work.length, work.max_tokens)
    share = efficiency(fit, cluster.kind, "decode").share
    cache_S = rows_S * (work.prompt + lengths_S) * shape.cache_bytes(HALF)
    message_S = 2 * (t - 1) / t * rows_S * shape.hidden * HALF
    read = HALF * shape.num_weights / t / gpu.bandwidth / share
    compute_S = 2 * shape.num_weights * rows_S / t / gpu.peak / share
    token_seconds = {
        "reading the weights": np.where(compute_S > read, 0, read),
        "FLOPs": np.where(compute_S > read, compute_S, 0),
        "reading the KV cache": cache_S / t / gpu.bandwidth / share,
        "messages between the sampler's GPUs": (t > 1) * 2 * shape.layers * (LATENCY + message_S / gpu.link),
    }
    waits = {name: float(seconds_S @ tokens_S) for name, seconds_S in token_seconds.items()}
    return Phase("rollout", sum(waits.values()), max(waits, key=lambda name: waits[name]))


def occupancy(completions: float, at_once: float, mean: float, longest: float) -> tuple[NDArray[np.float64], ...]:
    """A rollout in S stretches: (tokens that each row writes, rows in use, tokens that a row already has).

    Completions are taken to end at every token with one probability, and at T = `longest` at the latest:

        S(t) = e^(−λ t), t < T          the share that is longer than t
        (1 − e^(−λ T)) / λ              their mean length, from which λ follows

    All R = `at_once` rows are in use as long as any of the n = `completions` waits, for (n − R) / R mean lengths; then
    R S(t) rows are left after t tokens; with the chance 1 − (1 − S)^R there is any, and a token to write. Summed over
    tokens, rows are n mean lengths: what n completions have.
    """
    stretches = 256  # once none is waiting
    rate, tokens = ending_rate(mean, longest), longest / stretches
    lengths_S = tokens * (np.arange(stretches) + 0.5)
    left_S = np.exp(-rate * lengths_S)
    left_S *= mean / (left_S.sum() * tokens)  # a midpoint sum is a little off
    any_S = -np.expm1(at_once * np.log1p(-np.clip(left_S, 1e-30, 1 - 1e-12)))
    return (
        np.append((completions / at_once - 1) * mean, tokens * any_S),
        np.append(at_once, at_once * left_S / any_S),
        np.append((left_S * lengths_S).sum() / left_S.sum(), lengths_S),
    )


def ending_rate(mean: float, longest: float) -> float:
    """λ by bisection between 0, where all are of the longest length, and 1 / mean, where none is cut off."""
    low, high = 0.0, 1 / mean
    for _ in range(60):
        rate = (low + high) / 2
        is_too_low = -math.expm1(-rate * longest) > mean * rate
        low, high = (rate, high) if is_too_low else (low, rate)
    return low


def scoring(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """Passes without gradients: π_old, entropies, the start model.

    What vLLM sampled is scored; what is trained once more, by TRL in all updates, by the embedded engine in all but the
    first of a step; and once by the start model.
    """
    layout, work = fit.layout, fit.work
    again = {"verl": 0, "trl": 1, "embedded": (work.updates - 1) / work.updates}[layout.engine]
    drawn, trained = work.sampled_rows * layout.has_vllm(work), work.trained_rows * (again + work.has_reference)
    micro_batches = (drawn + trained) / (layout.gpus * layout.score_rows(work))
    tokens = drawn * (work.prompt + work.length) + trained / work.trained_rows * layout.computed_tokens(work)
    flops = 2 * shape.num_weights * tokens
    return _pass("scoring", flops, _gathered_weights(shape, layout) * HALF * micro_batches, fit, cluster)


def update(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """All optimizer steps of a step."""
    layout, work = fit.layout, fit.work
    passes = (6 if work.adapter_rank is None else 4) + 2 * work.is_checkpointed  # frozen weights need no gradient
    gradients = FULL * trained_weights(shape, work) * (layout.gpus - 1) / layout.gpus
    if layout.sharding == "DDP":
        traffic = 2 * gradients * work.updates
    else:
        micro_batches = work.updates * -(-layout.update_rows(work) // layout.micro_rows(work))
        traffic = (_gathered_weights(shape, layout) * (HALF + HALF) + gradients) * micro_batches
    return _pass("update", passes * shape.num_weights * layout.computed_tokens(work), traffic, fit, cluster)


def sync(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """Copying the trained weights to the sampler."""
    if not fit.layout.has_vllm(fit.work):
        return Phase("sync", 0.0, "nothing: the sampler reads the weights that are trained")
    gather = _gathered_weights(shape, fit.layout) * HALF / cluster.link
    write = HALF * shape.num_weights / fit.layout.tensor / cluster.gpu.bandwidth
    return Phase("sync", gather + write, "copying weights")


def _gathered_weights(shape: ModelShape, layout: Layout) -> float:
    """Weights that a GPU has to receive to have all: W (s − 1) / s."""
    return shape.num_weights * (layout.shards - 1) / layout.shards


def _pass(name: str, flops: float, traffic: float, fit: Fit, cluster: Cluster) -> Phase:
    """FLOPs of all GPUs and bytes to each: traffic is hidden by FLOPs, or the other way round."""
    flop_seconds = flops / (fit.layout.gpus * cluster.gpu.peak * efficiency(fit, cluster.kind, "mfu").share)
    traffic_seconds = traffic / cluster.link
    if flop_seconds >= traffic_seconds:
        return Phase(name, flop_seconds, "FLOPs")
    where = "machines" if cluster.nodes > 1 else "GPUs"
    return Phase(name, traffic_seconds, f"{fit.layout.sharding}'s traffic between {where}")
