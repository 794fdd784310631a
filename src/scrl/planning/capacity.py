"""What a step of a run takes of each GPU's memory, part by part, with each engine: arithmetic on a model's shape.

W weights of which A are trained (all, or an adapter's), n GPUs, s shards (n with FSDP2, else 1), t GPUs that share a
sampler. Bytes of a GPU:

                    embedded    TRL, DDP    TRL, FSDP2    verl, FSDP2
    working weights 2 W         2 W         layers gathered for a moment: 2 (outer + 3 layer)
    masters         4 A         4 W         4 W / s       4 W / s           where all are trained
    gradients       4 A + 2 A   4 A + 4 A   4 A / s       4 A / s
    optimizer       8 A         8 A         8 A / s       8 A / s
    start model     2 W         4 W         4 W / s       4 W / s           with KL and without an adapter
    sampler         – or 2 W    2 W / t     2 W / t       2 W / t           TRL alone keeps it while it trains

The embedded engine samples with the weights it trains; with compute.sampler: vllm, vLLM has a copy of them, and
compute.vllm_memory of the GPU as its cache. optimizer.masters and optimizer.state make masters, gradients and optimizer
smaller there (`trained_bytes`). TRL and verl keep float32 weights and compute in bfloat16; DDP holds gradients a second
time in its buckets. What is smaller (norms' statistics, token ids, masks) is in OVERHEAD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from scrl.planning.shapes import ModelShape
from scrl.policy.fused_token_scores import CHUNK_ELEMENTS

GIB = 2**30
HALF, FULL = 2, 4
"""Bytes of a number: bfloat16 and float32."""
ADAM = 8
"""Bytes of AdamW's two averages."""
BLOCK_BYTES = FULL + HALF
"""Of each logit of a block with the embedded engine, which never holds more: in float32, its gradient in bfloat16."""
LOGIT_BYTES = 8
"""Of each logit with TRL and verl, which hold those of a micro-batch whole: four copies in bfloat16. Assumed."""
OVERHEAD, VLLM_OVERHEAD = 2 * GIB, 6 * GIB
"""CUDA's context, workspaces, fragments; with vLLM its graphs, NCCL's buffers, and a pass that scores. Assumed."""

EngineName = Literal["embedded", "trl", "verl"]
Sharding = Literal["none", "DDP", "FSDP2"]
Masters = Literal["float32", "split"]
State = Literal["float32", "bfloat16"]


class TrainedBytes(NamedTuple):
    """Bytes of a weight that is trained, besides the working weight."""

    masters: int
    gradients: int
    averages: int


def trained_bytes(masters: Masters, state: State, size: int, *, is_one_pass: bool) -> TrainedBytes:
    """With the embedded engine and working weights of `size` bytes: the table in `scrl.policy.low_memory_adamw`.

    `is_one_pass`: whether an update is a single backward pass.
    """
    averages = 2 * (HALF if state == "bfloat16" else FULL)
    if size == FULL:
        return TrainedBytes(0, FULL, averages)
    if masters == state == "float32":
        return TrainedBytes(FULL, FULL + size, averages)
    return TrainedBytes(HALF if masters == "split" else FULL, size if is_one_pass else FULL, averages)


def rows_of_a_pass(micro_batch: int, micro_tokens: int | None, longest: int) -> int:
    """Completions of a forward and backward pass, at most, where all have `longest` tokens with their prompts."""
    return micro_batch if micro_tokens is None else max(1, micro_tokens // longest)


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
    masters: Masters = "float32"
    state: State = "float32"
    """Of the optimizer: its averages."""
    micro_tokens: int | None = None
    """Of a forward and backward pass, in place of `micro_batch`."""
    vllm_memory: float | None = None
    """The share of a GPU that is vLLM's cache in the embedded engine; None: the local sampler draws."""

    @property
    def longest(self) -> int:
        """Tokens of a prompt and the longest completion."""
        return self.prompt + self.max_tokens

    @property
    def rows_of_a_pass(self) -> int:
        """Completions, at most."""
        return rows_of_a_pass(self.micro_batch, self.micro_tokens, self.longest)

    @property
    def tokens_of_a_pass(self) -> int:
        """At most; one completion is always taken whole."""
        return max(self.micro_tokens or self.micro_batch * self.longest, self.longest)

    @property
    def is_one_pass(self) -> bool:
        """Whether an update, on one GPU, is a single backward pass."""
        return -(-self.trained // self.updates) <= self.rows_of_a_pass

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
        return min(work.rows_of_a_pass, self._update_rows(work))

    def micro_tokens(self, work: Work) -> int:
        """Tokens of such a pass, at most."""
        return min(work.tokens_of_a_pass, self._update_rows(work) * work.longest)

    def _update_rows(self, work: Work) -> int:
        """Completions of an update on one GPU."""
        return -(-work.trained // (work.updates * self.gpus))

    def score_rows(self, work: Work) -> int:
        """Completions of a pass that only looks; with verl as many as the micro-batch allows, for it looks at all."""
        if self.engine != "verl":
            return self.micro_rows(work)
        return min(work.rows_of_a_pass, -(-work.sampled // self.gpus))

    def has_vllm(self, work: Work) -> bool:
        """Whether vLLM samples, with weights of its own; in plans it always does with TRL and verl."""
        return self.engine != "embedded" or work.vllm_memory is not None

    def cache_share(self, work: Work) -> float:
        """Of a GPU's memory, that is cache whatever is drawn; 0: the cache is as large as its rows."""
        return work.vllm_memory or 0.0 if self.engine == "embedded" else 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """Memory of one GPU for one purpose."""

    name: str
    bytes: float
    in_sampling: bool = True
    in_training: bool = True


MASTERS: dict[Masters, str] = {"float32": "master weights, float32", "split": "master weights, what bfloat16 lacks"}
OPTIMIZER: dict[State, str] = {"float32": "optimizer", "bfloat16": "optimizer, bfloat16"}
"""What the parts are called."""


def parts(shape: ModelShape, work: Work, layout: Layout, rows: int, memory: float = 0.0) -> tuple[Part, ...]:
    """The memory of a GPU, which has `memory` bytes, while `rows` completions are written side by side."""
    sampling = _sampling(shape, work, layout, rows, memory)
    found = (*_weights(shape, work, layout), *_training(shape, work, layout), *sampling)
    overhead = Part("context, workspaces, fragments", VLLM_OVERHEAD if layout.has_vllm(work) else OVERHEAD)
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
    each = _bytes_of_a_weight(work, layout)
    masters = trained if is_ours else shape.num_weights
    reference = work.has_reference and work.adapter_rank is None
    return (
        Part("working weights, bfloat16", _working(shape, layout), in_sampling=is_ours),
        Part(MASTERS[work.masters], each.masters * masters / s),
        Part(OPTIMIZER[work.state], each.averages * trained / s),
        Part("start model, for KL", reference * (HALF if is_ours else FULL) * shape.num_weights / s),
        Part("gradients", each.gradients * trained / s, in_sampling=False),
    )


def _bytes_of_a_weight(work: Work, layout: Layout) -> TrainedBytes:
    if layout.engine == "embedded":
        return trained_bytes(work.masters, work.state, HALF, is_one_pass=work.is_one_pass)
    return TrainedBytes(FULL, FULL + FULL * (layout.sharding == "DDP"), ADAM)


def _working(shape: ModelShape, layout: Layout) -> int:
    """All weights; or, of shards, the embedding and the head, two layers and the gradient of one."""
    if layout.sharding == "FSDP2":
        return HALF * min(shape.num_weights, shape.outer_weights + 3 * shape.layer_weights)
    return HALF * shape.num_weights


def _training(shape: ModelShape, work: Work, layout: Layout) -> tuple[Part, ...]:
    activations = layout.micro_tokens(work) * activation_bytes(shape, work.is_checkpointed)
    return (
        Part("activations", activations, in_sampling=False),
        Part("logits", logit_bytes(shape, work, layout), in_sampling=False),
    )


def logit_bytes(shape: ModelShape, work: Work, layout: Layout) -> int:
    """Logits that are held at once, and what becomes of them.

    Embedded: a block of at most CHUNK_ELEMENTS; and the sum of the head's gradient over all blocks in float32, 4 V h,
    unless the head is frozen. TRL and verl: the logits of all completions of a pass.
    """
    if layout.engine != "embedded":
        rows = max(layout.micro_rows(work), layout.score_rows(work))
        return rows * work.max_tokens * shape.vocabulary * LOGIT_BYTES
    scored = layout.micro_tokens(work) - layout.micro_rows(work) * work.prompt
    block = min(scored * shape.vocabulary, CHUNK_ELEMENTS)
    head = shape.vocabulary * shape.hidden if work.adapter_rank is None else 0
    return BLOCK_BYTES * block + FULL * head


def activation_bytes(shape: ModelShape, is_checkpointed: bool) -> int:
    """What is kept of a token for the backward pass.

    A layer keeps, in bytes: 16 h for two norms (input, its float32 copy, output), 2 (3 H D + 2 K D) for queries, keys,
    values and what attention gives, 8 I for the MLP. Checkpointed: the input of each layer, 2 h, and one layer whole.
    """
    attention = (3 * shape.heads + 2 * shape.kv_heads) * shape.head_size
    layer = 16 * shape.hidden + HALF * attention + 8 * shape.mlp
    return shape.layers * HALF * shape.hidden + layer if is_checkpointed else shape.layers * layer


def _sampling(shape: ModelShape, work: Work, layout: Layout, rows: int, memory: float) -> tuple[Part, ...]:
    stays = layout.engine == "trl"  # verl's vLLM sleeps while verl trains, and so does ours; our own forgets its cache
    weights = layout.has_vllm(work) * HALF * shape.num_weights / layout.tensor
    cache = max(rows * row_bytes(shape, work, layout), layout.cache_share(work) * memory)
    return (
        Part("sampler's weights, bfloat16", weights, in_training=stays),
        Part("KV cache", cache, in_training=stays),
    )


def row_bytes(shape: ModelShape, work: Work, layout: Layout) -> float:
    """The cache of one completion: ours has room for the longest, vLLM's pages for what was written."""
    tokens = work.prompt + work.length if layout.has_vllm(work) else work.longest
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
    row = row_bytes(shape, work, layout)
    rows = min(layout.most_rows(work), int(max(_cache_room(shape, work, layout, memory), 0) // row))
    found = parts(shape, work, layout, rows, memory)
    return Fit(layout, work, rows, found) if rows and max(needed(found)) <= memory else None


def _cache_room(shape: ModelShape, work: Work, layout: Layout, memory: float) -> float:
    """Bytes that the cache may have."""
    if layout.cache_share(work):
        return layout.cache_share(work) * memory
    without = needed(parts(shape, work, layout, 0))
    return memory - (max(without) if layout.engine == "trl" else without[0])


def least_memory(shape: ModelShape, work: Work, layout: Layout) -> float:
    """Bytes of the smallest GPU that has room for a completion: x ≥ all but the cache + share x, share x ≥ a row."""
    share = layout.cache_share(work)
    if not share:
        return max(needed(parts(shape, work, layout, 1)))
    sampling, training = needed(parts(shape, work, layout, 0))
    return max(sampling / (1 - share), row_bytes(shape, work, layout) / share, training)


def smaller(work: Work) -> tuple[Work, ...]:
    """The same step in less memory: micro-batches halved, then activations computed twice. No number changes."""
    halved = [work]
    while halved[-1].tokens_of_a_pass > work.longest:
        halved.append(_halved(halved[-1]))
    return (*halved, *(replace(each, is_checkpointed=True) for each in halved if not work.is_checkpointed))


def _halved(work: Work) -> Work:
    if work.micro_tokens is not None:
        return replace(work, micro_tokens=work.micro_tokens // 2)
    return replace(work, micro_batch=work.micro_batch // 2)
