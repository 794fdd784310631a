"""What a step of a run takes of each GPU's memory, part by part, with each engine: arithmetic on a model's shape.

W weights of which A are trained (all, or an adapter's), n GPUs, s shards (n with FSDP2, else 1), t GPUs that share a
sampler. Bytes of a GPU:

                    embedded    TRL, DDP    TRL, FSDP2    verl, FSDP2
    working weights 2 W         2 W         layers gathered for a moment: 2 (outer + 3 layer)
    masters         4 A         4 W         4 W / s       4 W / s           where all are trained
    gradients       4 A + 2 A   4 A + 4 A   4 A / s       4 A / s
    optimizer       8 A         8 A         8 A / s       8 A / s
    start model     2 W         4 W         4 W / s       4 W / s           with KL and without an adapter
    sampler         –           2 W / t     2 W / t       2 W / t           verl lets go of it while it trains

The embedded engine samples with the weights it trains. TRL and verl keep float32 weights and compute in bfloat16; DDP
holds gradients a second time in its buckets. What is smaller (norms' statistics, token ids, masks) is in OVERHEAD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from scrl.policy.token_scores import CHUNK_ELEMENTS
from scrl.training.shapes import ModelShape

GIB = 2**30
HALF, FULL = 2, 4
"""Bytes of a number: bfloat16 and float32."""
ADAM = 8
"""Bytes of AdamW's two averages."""
CHUNK_COPIES = 3
"""Logits, log-probabilities and their gradient, of one chunk in float32: the embedded engine never holds more."""
LOGIT_BYTES = 8
"""Of each logit with TRL and verl, which hold those of a micro-batch whole: four copies in bfloat16. Assumed."""
OVERHEAD = {"embedded": 2 * GIB, "trl": 6 * GIB, "verl": 6 * GIB}
"""CUDA's context, workspaces, fragments; with vLLM its graphs and NCCL's buffers too. Assumed."""

EngineName = Literal["embedded", "trl", "verl"]
Sharding = Literal["none", "DDP", "FSDP2"]


@dataclass(frozen=True, slots=True)
class Work:
    """One step of a run, in completions and tokens."""

    questions: int
    """Groups of completions, in fact: a method may ask a question twice."""
    sampled: int
    """Completions."""
    trained: int
    """Completions."""
    updates: int
    prompt: int
    """Tokens of a prompt."""
    length: float
    """Mean tokens of a completion."""
    max_tokens: int
    micro_batch: int
    sampler_rows: int
    is_checkpointed: bool = False
    has_reference: bool = False
    """Whether a KL to the start model is in the loss."""
    adapter_rank: int | None = None

    @property
    def tokens_sampled(self) -> float:
        """By all completions."""
        return self.sampled * self.length

    @property
    def tokens_trained(self) -> float:
        """That pass through the model in an update: prompts too."""
        return self.trained * (self.prompt + self.length)


@dataclass(frozen=True, slots=True)
class Layout:
    """Who trains, and how the work is spread."""

    engine: EngineName
    sharding: Sharding
    gpus: int
    """In all."""
    tensor: int = 1
    """t: GPUs that share one sampler."""

    @property
    def shards(self) -> int:
        """s: into how many parts weights, gradients and optimizer are cut."""
        return self.gpus if self.sharding == "FSDP2" else 1

    def rows(self, work: Work) -> int:
        """Completions that a sampler has to write in a step."""
        return -(-work.sampled * self.tensor // self.gpus)

    def most_rows(self, work: Work) -> int:
        """Those of them that it may write side by side; verl leaves that to vLLM."""
        return self.rows(work) if self.engine == "verl" else min(self.rows(work), work.sampler_rows)

    def micro_rows(self, work: Work) -> int:
        """Completions of a forward and backward pass on one GPU."""
        return min(work.micro_batch, -(-work.trained // (work.updates * self.gpus)))

    def score_rows(self, work: Work) -> int:
        """Completions of a pass that only looks; with verl as many as the micro-batch allows, for it looks at all."""
        return self.micro_rows(work) if self.engine != "verl" else min(work.micro_batch, -(-work.sampled // self.gpus))


@dataclass(frozen=True, slots=True)
class Part:
    """Memory of one GPU for one purpose."""

    name: str
    bytes: float
    in_sampling: bool = True
    in_training: bool = True


def parts(shape: ModelShape, work: Work, layout: Layout, rows: int) -> tuple[Part, ...]:
    """The memory of a GPU while `rows` completions are written side by side."""
    found = (*_weights(shape, work, layout), *_training(shape, work, layout), *_sampling(shape, work, layout, rows))
    overhead = Part("context, workspaces, fragments", OVERHEAD[layout.engine])
    return (*(part for part in found if part.bytes), overhead)


def needed(found: tuple[Part, ...]) -> tuple[float, float]:
    """Bytes while sampling, and while training."""
    return sum(part.bytes for part in found if part.in_sampling), sum(part.bytes for part in found if part.in_training)


def trained_weights(shape: ModelShape, work: Work) -> int:
    """A."""
    return shape.num_weights if work.adapter_rank is None else shape.adapter_weights(work.adapter_rank)


def _weights(shape: ModelShape, work: Work, layout: Layout) -> tuple[Part, ...]:
    """What lies there from the first step to the last, and gradients, which come and go."""
    trained, is_ours, s = trained_weights(shape, work), layout.engine == "embedded", layout.shards
    masters = trained if is_ours else shape.num_weights
    again = HALF if is_ours else FULL if layout.sharding == "DDP" else 0
    reference = work.has_reference and work.adapter_rank is None
    return (
        Part("working weights, bfloat16", _working(shape, layout), in_sampling=is_ours),
        Part("master weights, float32", FULL * masters / s),
        Part("optimizer", ADAM * trained / s),
        Part("start model, for KL", reference * (HALF if is_ours else FULL) * shape.num_weights / s),
        Part("gradients", (FULL + again) * trained / s, in_sampling=False),
    )


def _working(shape: ModelShape, layout: Layout) -> int:
    """All weights; or, of shards, the embedding and the head, two layers and the gradient of one."""
    if layout.sharding == "FSDP2":
        return HALF * min(shape.num_weights, shape.outer_weights + 3 * shape.layer_weights)
    return HALF * shape.num_weights


def _training(shape: ModelShape, work: Work, layout: Layout) -> tuple[Part, ...]:
    tokens = layout.micro_rows(work) * (work.prompt + work.max_tokens)
    logits = CHUNK_COPIES * FULL * CHUNK_ELEMENTS
    if layout.engine != "embedded":
        rows = max(layout.micro_rows(work), layout.score_rows(work))
        logits = rows * work.max_tokens * shape.vocabulary * LOGIT_BYTES
    return (
        Part("activations", tokens * activation_bytes(shape, work.is_checkpointed), in_sampling=False),
        Part("logits", logits, in_sampling=False),
    )


def activation_bytes(shape: ModelShape, is_checkpointed: bool) -> int:
    """What is kept of a token for the backward pass.

    A layer keeps, in bytes: 16 h for two norms (input, its float32 copy, output), 2 (3 H D + 2 K D) for queries, keys,
    values and what attention gives, 8 I for the MLP. Checkpointed: the input of each layer, 2 h, and one layer whole.
    """
    attention = (3 * shape.heads + 2 * shape.kv_heads) * shape.head_size
    layer = 16 * shape.hidden + HALF * attention + 8 * shape.mlp
    return shape.layers * HALF * shape.hidden + layer if is_checkpointed else shape.layers * layer


def _sampling(shape: ModelShape, work: Work, layout: Layout, rows: int) -> tuple[Part, ...]:
    stays = layout.engine == "trl"  # verl's sampler sleeps while verl trains; ours forgets its cache
    cache = rows * row_bytes(shape, work, layout)
    if layout.engine == "embedded":
        return (Part("KV cache", cache, in_training=False),)
    return (
        Part("sampler's weights, bfloat16", HALF * shape.num_weights / layout.tensor, in_training=stays),
        Part("KV cache", cache, in_training=stays),
    )


def row_bytes(shape: ModelShape, work: Work, layout: Layout) -> float:
    """The cache of one completion: ours has room for the longest, vLLM's pages for what was written."""
    tokens = work.prompt + (work.max_tokens if layout.engine == "embedded" else work.length)
    return tokens * shape.cache_bytes(HALF) / layout.tensor


@dataclass(frozen=True, slots=True)
class Fit:
    """A layout that fits, with the settings that make it fit."""

    layout: Layout
    work: Work
    rows: int
    """Completions side by side."""
    parts: tuple[Part, ...]


def fit(shape: ModelShape, work: Work, layout: Layout, memory: float) -> Fit | None:
    """As many rows side by side as `memory` bytes allow, at most those that there are; None where not one fits."""
    rows = layout.most_rows(work)
    row = row_bytes(shape, work, layout)
    without = needed(parts(shape, work, layout, 0))
    room = memory - (max(without) if layout.engine == "trl" else without[0])
    rows = min(rows, int(max(room, 0) // row))
    found = parts(shape, work, layout, rows)
    return Fit(layout, work, rows, found) if rows and max(needed(found)) <= memory else None


def smaller(work: Work) -> tuple[Work, ...]:
    """The same step in less memory: micro-batches halved, then activations computed twice. No number changes."""
    halved = [work]
    while halved[-1].micro_batch > 1:
        halved.append(replace(halved[-1], micro_batch=halved[-1].micro_batch // 2))
    return (*halved, *(replace(each, is_checkpointed=True) for each in halved if not work.is_checkpointed))
