"""How long a step of a run takes, by phase: roofs of the hardware, divided by how near to them one comes.

Roofs are the makers' numbers (GPUS), how near is MEASURED or ASSUMED; W, n, s, t as in `capacity`, B the bandwidth of
memory, F the peak in FLOP/s, X the bandwidth to other GPUs.

    one token of R rows    (max(2 W / t / B, 2 W R / t / F) + R c k / t / B) / decode + 2 L (latency + message / X)
    rollout                the sum of that over its tokens, with as many rows as are left then (`occupancy`)
    update                 max(6 W tokens / (n F mfu), traffic / X), 8 instead of 6 where activations are computed twice
    scoring                max(2 W tokens / (n F mfu), traffic / X)
    sync                   2 W / X + 2 W / t / B, where vLLM samples

c is what a row has already, prompt and tokens written, and k a token's bytes in the KV cache. The last term of a token
is the two sums a layer over the t GPUs of a sampler. FSDP2's traffic is (n − 1) / n times 2 W for the forward pass, 2 W
for the backward pass and 4 A for the gradients, in every micro-batch; DDP's is 2 · 4 A (n − 1) / n an update. Left out:
prefill, attention's own FLOPs, the optimizer, grading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrl.errors import ConfigError, did_you_mean
from scrl.planning.capacity import FULL, GIB, HALF, EngineName, Fit, Layout, Work, trained_weights
from scrl.planning.occupancy import Occupancy, occupancy
from scrl.planning.shapes import ModelShape

TERA, GIGA = 1e12, 1e9


class Gpu(NamedTuple):
    """One kind of GPU."""

    memory: float
    """GiB that a program can have, rounded down."""
    bandwidth: float
    """B: bytes a second, of its memory."""
    peak: float
    """F: FLOP/s in bfloat16, dense."""
    link: float
    """Bytes a second and direction to the other GPUs of its machine (NVLink)."""


GPUS = {
    "H200": Gpu(139, 4.8 * TERA, 989 * TERA, 450 * GIGA),
    "H100": Gpu(79, 3.35 * TERA, 989 * TERA, 450 * GIGA),
    "A100": Gpu(79, 2.039 * TERA, 312 * TERA, 300 * GIGA),
    "A100-40": Gpu(39, 1.555 * TERA, 312 * TERA, 300 * GIGA),
}
"""Newest first, from NVIDIA's data sheets of the SXM modules: H200 (141 GB), H100 (80 GB), A100 (80 GB and 40 GB)."""
NETWORK = 50 * GIGA
"""Bytes a second and direction of each GPU to other machines: one 400 Gbit/s adapter a GPU. Assumed."""
LATENCY = 10e-6
"""Seconds of a sum over the GPUs of a sampler, however small. Assumed."""

Who = EngineName | Literal["vllm"]
"""An engine; or vLLM, as the sampler of the embedded engine."""
What = Literal["decode", "mfu"]
WHATS: tuple[What, ...] = ("decode", "mfu")
"""Writing tokens, and all passes over whole completions."""


class Efficiency(NamedTuple):
    """What share of a roof is reached."""

    share: float
    measured_on: str | None = None
    """None: assumed."""


ASSUMED = Efficiency(0.35)
MEASURED: dict[tuple[Who, str, What], Efficiency] = {
    # 128 × (max(2 W / B, 2 W 256 / F) + 256 · 128 · k / B) = 0.237 s, and 0.548 s measured
    ("embedded", "H200", "decode"): Efficiency(0.43, "Qwen2.5-3B's shape, 256 completions of 128 tokens"),
    # the same, and 0.961 s measured
    ("vllm", "H200", "decode"): Efficiency(0.25, "Qwen2.5-3B's shape, 256 completions of 128 tokens"),
    # 8 W 50,176 / F = 1.252 s, and 2.71 s measured
    ("embedded", "H200", "mfu"): Efficiency(0.46, "Qwen2.5-3B's shape, 16 completions of 3,072 tokens"),
}
"""By who does it, kind of GPU, and what: only what a run of this package showed, with that run (benchmarks/RESULTS.md).

A share is the seconds that the equations give with an efficiency of 1, over the seconds of the run.
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines of a run."""

    kind: str
    gpus: int
    """A machine."""
    nodes: int
    memory: float
    """Bytes of each GPU."""
    is_kind_assumed: bool = False

    @property
    def total(self) -> int:
        """n."""
        return self.gpus * self.nodes

    @property
    def gpu(self) -> Gpu:
        """What each GPU can do."""
        return GPUS[self.kind]

    @property
    def link(self) -> float:
        """X: where a ring passes through other machines, those are what it waits for."""
        return self.gpu.link if self.nodes == 1 else NETWORK


def make_cluster(kind: str | None, *, gpus: int, nodes: int, memory_gib: float | None) -> Cluster:
    """Machines with so many GPUs of a kind; what is not given of kind and memory follows from the other."""
    if memory_gib is not None and not 0 < memory_gib < 1e6:
        raise ConfigError(f"--gpu-memory: is GiB of one GPU, and more than 0; got {memory_gib:g}")
    found = assumed_kind(memory_gib) if kind is None else kind.upper()
    if found not in GPUS:
        raise ConfigError(f"--kind: there are no numbers for {found!r}.{did_you_mean(found, GPUS)}")
    memory = GPUS[found].memory if memory_gib is None else memory_gib
    return Cluster(found, gpus, nodes, GIB * memory, is_kind_assumed=kind is None)


def assumed_kind(memory_gib: float | None) -> str:
    """The newest of the kinds with about that much memory; of all kinds, where nothing is known."""
    if memory_gib is None:
        return next(iter(GPUS))
    return min(GPUS, key=lambda kind: abs(GPUS[kind].memory - memory_gib))


def efficiency(fit: Fit, kind: str, what: What) -> Efficiency:
    """Measured, or else assumed."""
    engine = fit.layout.engine
    by_vllm = what == "decode" and engine == "embedded" and fit.layout.has_vllm(fit.work)
    return MEASURED.get(("vllm" if by_vllm else engine, kind, what), ASSUMED)


def basis(fit: Fit, kind: str) -> str:
    """What stands behind the seconds and hours of an engine, in a word."""
    measured = [efficiency(fit, kind, what).measured_on for what in WHATS]
    return "measured" if all(measured) else "half assumed" if any(measured) else "assumed"


def provenance(fit: Fit, kind: str) -> str:
    """The same with the runs that were measured."""
    found = {what: efficiency(fit, kind, what) for what in WHATS}
    words = [f"{what} {each.share:.2f}, {each.measured_on or 'assumed'}" for what, each in found.items()]
    known = basis(fit, kind)
    return f"estimated ({known} efficiencies{'' if known == 'assumed' else ': ' + '; '.join(words)})"


class Phase(NamedTuple):
    """A part of a step."""

    name: str
    seconds: float
    limit: str
    """What it waits for."""


def phases(shape: ModelShape, fit: Fit, cluster: Cluster) -> tuple[Phase, ...]:
    """The seconds of a step."""
    return (rollout(shape, fit, cluster), scoring(shape, fit, cluster), update(shape, fit, cluster),
            sync(shape, fit, cluster))  # fmt: skip


def step_seconds(shape: ModelShape, fit: Fit, cluster: Cluster) -> float:
    """Of all phases."""
    return sum(phase.seconds for phase in phases(shape, fit, cluster))


def rollout(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """All completions of a step."""
    work = fit.work
    when = occupancy(fit.layout.rows(work), fit.rows, work.length, work.max_tokens)
    waits = {
        name: float(seconds_S @ when.tokens_S) for name, seconds_S in token_seconds(shape, fit, cluster, when).items()
    }
    return Phase("rollout", sum(waits.values()), max(waits, key=lambda name: waits[name]))


def token_seconds(shape: ModelShape, fit: Fit, cluster: Cluster, when: Occupancy) -> dict[str, NDArray[np.float64]]:
    """What the next token of all rows of a sampler waits for; the weights are read while they are computed with."""
    t, gpu = fit.layout.tensor, cluster.gpu
    reached = efficiency(fit, cluster.kind, "decode").share
    cached_S = when.rows_S * (fit.work.prompt + when.written_S)
    message_S = 2 * (t - 1) / t * when.rows_S * shape.hidden * HALF
    read = HALF * shape.num_weights / t / gpu.bandwidth / reached
    computed_S = 2 * shape.num_weights * when.rows_S / t / gpu.peak / reached
    return {
        "reading the weights": np.where(computed_S > read, 0, read),
        "FLOPs": np.where(computed_S > read, computed_S, 0),
        "reading the KV cache": cached_S * shape.cache_bytes(HALF) / t / gpu.bandwidth / reached,
        "messages between the sampler's GPUs": (t > 1) * 2 * shape.layers * (LATENCY + message_S / gpu.link),
    }


def scoring(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """Passes over completions that only look: π_old, entropies, the start model."""
    layout, work = fit.layout, fit.work
    scored = scored_completions(layout, work)
    micro_batches = scored / (layout.gpus * layout.score_rows(work))
    computed = 2 * shape.num_weights * scored * (work.prompt + work.length) / _speed(fit, cluster)
    return _slower("scoring", computed, _gathered(shape, layout) * HALF * micro_batches, layout, cluster)


def scored_completions(layout: Layout, work: Work) -> float:
    """By the policy: verl all; TRL all, then the trained; ours, with vLLM, all, and the trained but the first update's.

    By the start model the trained.
    """
    after_first = work.trained * (work.updates - 1) / work.updates
    trained = {"verl": 0.0, "trl": work.trained, "embedded": after_first}[layout.engine]
    return work.sampled * layout.has_vllm(work) + trained + work.has_reference * work.trained


def update(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """All optimizer steps of a step."""
    layout, work = fit.layout, fit.work
    passes = (6 if work.adapter_rank is None else 4) + 2 * work.is_checkpointed  # frozen weights need no gradient
    computed = passes * shape.num_weights * work.tokens_trained / _speed(fit, cluster)
    gradients = FULL * trained_weights(shape, work) * (layout.gpus - 1) / layout.gpus
    if layout.sharding == "DDP":
        traffic = 2 * gradients * work.updates
    else:
        rows = -(-work.trained // (work.updates * layout.gpus))
        micro_batches = work.updates * -(-rows // layout.micro_rows(work))
        traffic = (_gathered(shape, layout) * (HALF + HALF) + gradients) * micro_batches
    return _slower("update", computed, traffic, layout, cluster)


def sync(shape: ModelShape, fit: Fit, cluster: Cluster) -> Phase:
    """From the trained weights to the sampler's."""
    layout = fit.layout
    if not layout.has_vllm(fit.work):
        return Phase("sync", 0.0, "nothing: the sampler reads the weights that are trained")
    moved = _gathered(shape, layout) * HALF / cluster.link
    written = HALF * shape.num_weights / layout.tensor / cluster.gpu.bandwidth
    return Phase("sync", moved + written, "copying weights")


def _speed(fit: Fit, cluster: Cluster) -> float:
    """FLOP/s of all GPUs."""
    return fit.layout.gpus * cluster.gpu.peak * efficiency(fit, cluster.kind, "mfu").share


def _gathered(shape: ModelShape, layout: Layout) -> float:
    """Weights that a GPU has to be sent to have all: W (s − 1) / s."""
    return shape.num_weights * (layout.shards - 1) / layout.shards


def _slower(name: str, computed: float, traffic: float, layout: Layout, cluster: Cluster) -> Phase:
    """Sending hides behind computing, or the other way round."""
    sent = traffic / cluster.link
    where = "machines" if cluster.nodes > 1 else "GPUs"
    limit = "FLOPs" if computed >= sent else f"{layout.sharding}'s traffic between {where}"
    return Phase(name, max(computed, sent), limit)
