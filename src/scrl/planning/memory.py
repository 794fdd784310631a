"""The memory that a step of a run takes on each GPU, part by part, with each engine: arithmetic on a model's shape.

W weights of which A are trained (all, or an adapter's), n GPUs, s shards (n with FSDP2, else 1), t GPUs that share a
sampler. Bytes per GPU:

                    local       TRL, DDP    TRL, FSDP2    verl, FSDP2
    working weights 2 W         2 W         layers gathered for a moment: 2 (outer + 3 layer)
    masters         4 A         4 W         4 W / s       4 W / s           where all are trained
    gradients       4 A + 2 A   4 A + 4 A   4 A / s       4 A / s
    optimizer       8 A         8 A         8 A / s       8 A / s
    start model     2 W         4 W         4 W / s       4 W / s           with KL and without an adapter
    sampler         –           2 W / t     2 W / t       2 W / t           TRL alone keeps it while it trains

The local engine samples with the weights it trains. Its working weights may be float32 (`Work.size`); split masters and
optimizer.state make the rest smaller (`bytes_per_trained_weight`). TRL and verl keep float32 weights and compute in
bfloat16; DDP holds gradients a second time in its buckets. Norms' statistics, token ids and masks are in OVERHEAD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from scrl.config import RunConfig
from scrl.planning.shapes import ModelShape
from scrl.policy.token_scores import FUSED_CHUNK_ELEMENTS

GIB = 2**30
HALF, FULL = 2, 4
"""Bytes of a number: bfloat16 and float32."""
BLOCK_BYTES = FULL + HALF
"""Bytes per logit with the local engine, which holds one block at a time: float32, its gradient in bfloat16."""
TRL_TILE = 4096 * 32_768
"""Logits that TRL holds at a time, in bfloat16: of 4,096 tokens and 32,768 words (trl.kernels.chunked_logprob)."""
LOGIT_BYTES = 8
"""Bytes per logit with verl, which holds all those of a micro-batch: four copies in bfloat16. Assumed."""
OVERHEAD, VLLM_OVERHEAD = 2 * GIB, 6 * GIB
"""CUDA's context, workspaces, fragments; with vLLM its graphs, NCCL's buffers, and a scoring pass. Assumed."""
PROMPT = 200
"""Tokens of a prompt if there is no tokenizer to count them. Assumed."""

EngineName = Literal["local", "trl", "verl"]


@dataclass(frozen=True, slots=True)
class Work:
    """One step of a run. Rows are completions; a prompt has `prompt` tokens."""

    questions: int
    """One group of completions each."""
    sampled_rows: int
    trained_rows: int
    updates: int
    update_rows: int
    """Rows of the largest update."""
    prompt: int
    max_tokens: int
    micro_batch: int
    sampler_rows: int
    is_checkpointed: bool = False
    has_reference: bool = False
    """Whether a KL to the start model is in the loss."""
    adapter_rank: int | None = None
    state: Literal["float32", "bfloat16"] = "float32"
    """How the optimizer's averages are kept."""
    size: int = HALF
    """Bytes of a working weight, and of a number in the KV cache."""

    @property
    def longest(self) -> int:
        """Tokens of a prompt and the longest completion."""
        return self.prompt + self.max_tokens


def work_of(config: RunConfig, num_questions: int | None) -> Work:
    """A full step, if there are enough questions."""
    questions = min(config.questions_per_step, num_questions or config.questions_per_step)
    return Work(
        questions=questions,
        sampled_rows=questions * config.completions,
        trained_rows=questions * config.trained,
        updates=-(-questions // config.questions_per_update),
        update_rows=min(questions, config.questions_per_update) * config.trained,
        prompt=min(PROMPT, config.prompt.max_tokens),
        max_tokens=config.sampling.max_tokens,
        micro_batch=config.compute.micro_batch,
        sampler_rows=config.compute.sampler_rows,
        is_checkpointed=config.compute.gradient_checkpointing,
        has_reference=config.loss.kl_weight > 0,
        adapter_rank=config.lora.rank if config.lora else None,
        state=config.optimizer.state,
    )


def smaller(work: Work) -> tuple[Work, ...]:
    """The same step in less memory: micro-batches halved, then activations computed twice. No result changes."""
    works = [work]
    while works[-1].micro_batch > 1:
        works.append(replace(works[-1], micro_batch=works[-1].micro_batch // 2))
    return (*works, *(replace(each, is_checkpointed=True) for each in works if not work.is_checkpointed))


@dataclass(frozen=True, slots=True)
class Layout:
    """Which engine trains, and how the work is spread over how many GPUs."""

    engine: EngineName
    sharding: Literal["none", "DDP", "FSDP2"]
    gpus: int
    tensor: int = 1
    """t: GPUs that share one sampler."""

    def __str__(self) -> str:
        """`verl, FSDP2`."""
        return self.engine if self.sharding == "none" else f"{self.engine}, {self.sharding}"

    @property
    def shards(self) -> int:
        """s: into how many parts weights, gradients and optimizer are cut."""
        return self.gpus if self.sharding == "FSDP2" else 1

    def rows_at_once(self, work: Work) -> int:
        """The most rows that a sampler may write in parallel; verl leaves that to vLLM."""
        rows = -(-work.sampled_rows * self.tensor // self.gpus)
        return rows if self.engine == "verl" else min(rows, work.sampler_rows)

    def micro_rows(self, work: Work) -> int:
        """Rows of a forward and backward pass on one GPU."""
        return min(work.micro_batch, -(-work.update_rows // self.gpus))

    def micro_tokens(self, work: Work) -> int:
        """The most tokens of such a pass."""
        return self.micro_rows(work) * work.longest


class Part(NamedTuple):
    """Memory of one GPU for one purpose."""

    name: str
    bytes: float
    in_sampling: bool = True
    in_training: bool = True


def parts(shape: ModelShape, work: Work, layout: Layout, rows: int) -> tuple[Part, ...]:
    """The parts of a GPU's memory while `rows` completions are written in parallel."""
    is_ours, s, num_weights = layout.engine == "local", layout.shards, shape.num_weights
    trained = trained_weights(shape, work)
    masters, gradients, averages = bytes_per_trained_weight(work, layout)
    working = num_weights
    if layout.sharding == "FSDP2":  # the embedding and the head, two layers and the gradient of one
        working = min(num_weights, shape.outer_weights + 3 * shape.layer_weights)
    reference = num_weights if work.has_reference and work.adapter_rank is None else 0
    activations = layout.micro_tokens(work) * activation_bytes(shape, work, is_fused=is_ours)
    stays = layout.engine == "trl"  # vLLM sleeps while verl trains; our sampler drops its cache
    vllm_weights = 0 if is_ours else num_weights  # with TRL and verl, vLLM samples with a copy of its own
    return (
        Part("weights", work.size * working, in_sampling=is_ours),
        Part("masters", masters * (trained if is_ours else num_weights) / s),
        Part("optimizer", averages * trained / s),
        Part("start model", (work.size if is_ours else FULL) * reference / s),
        Part("gradients", gradients * trained / s, in_sampling=False),
        Part("activations", activations, in_sampling=False),
        Part("logits", logit_bytes(shape, work, layout), in_sampling=False),
        Part("vLLM's weights", work.size * vllm_weights / layout.tensor, in_training=stays),
        Part("sampler's cache", rows * row_bytes(shape, work, layout), in_training=stays),
        Part("overhead", OVERHEAD if is_ours else VLLM_OVERHEAD),
    )


def peaks(memory: tuple[Part, ...]) -> tuple[float, float]:
    """Bytes while sampling, and while training."""
    return sum(part.bytes * part.in_sampling for part in memory), sum(part.bytes * part.in_training for part in memory)


def trained_weights(shape: ModelShape, work: Work) -> int:
    """How many weights are trained: all of them, or those of the adapter."""
    return shape.num_weights if work.adapter_rank is None else shape.adapter_weights(work.adapter_rank)


def bytes_per_trained_weight(work: Work, layout: Layout) -> tuple[int, int, int]:
    """(masters, gradients, averages); for the local engine the table in `scrl.policy.optimizer`."""
    if layout.engine != "local":
        return FULL, 2 * FULL if layout.sharding == "DDP" else FULL, 2 * FULL
    averages = 2 * (HALF if work.state == "bfloat16" else FULL)
    if work.size == FULL:  # the weights are the masters
        return 0, FULL, averages
    is_split = work.adapter_rank is None
    if not is_split and work.state == "float32":
        return FULL, FULL + HALF, averages
    is_one_pass = work.update_rows <= work.micro_batch
    return HALF if is_split else FULL, HALF if is_one_pass else FULL, averages


def activation_bytes(shape: ModelShape, work: Work, *, is_fused: bool) -> int:
    """Bytes kept of a token for the backward pass.

    A layer keeps, in bytes: 16 E for two norms (input, its float32 copy, output), 2 (3 H + 2 H_kv) D for queries, keys,
    values and the output of attention, 8 mlp; with Liger norms 8 E (input, output), gates 6 mlp. An adapter reads what
    is kept anyway. Checkpointed: the input of each layer, 2 E, and one layer whole.
    """
    attention = (3 * shape.heads + 2 * shape.kv_heads) * shape.head_size
    norms, mlp = (8, 6) if is_fused else (16, 8)
    layer = norms * shape.hidden + HALF * attention + mlp * shape.mlp
    return shape.layers * HALF * shape.hidden + layer if work.is_checkpointed else shape.layers * layer


def logit_bytes(shape: ModelShape, work: Work, layout: Layout) -> int:
    """Bytes of the logits held at once, with their gradients.

    Local and TRL: a block of at most FUSED_CHUNK_ELEMENTS or TRL_TILE; and the sum of the head's gradient over all
    blocks in float32, 4 V E, unless the head is frozen. TRL sums that of the hidden states likewise, 4 E per token.
    verl: the logits of all completions of a pass, of which those that score what was sampled have most.
    """
    if layout.engine == "verl":
        rows = min(work.micro_batch, -(-work.sampled_rows // layout.gpus))
        return rows * work.max_tokens * shape.vocabulary * LOGIT_BYTES
    tokens = layout.micro_tokens(work) - layout.micro_rows(work) * work.prompt
    head = FULL * shape.vocabulary * shape.hidden if work.adapter_rank is None else 0
    if layout.engine == "trl":
        return HALF * TRL_TILE + FULL * shape.hidden * tokens + head
    return BLOCK_BYTES * min(tokens * shape.vocabulary, FUSED_CHUNK_ELEMENTS) + head


def row_bytes(shape: ModelShape, work: Work, layout: Layout) -> float:
    """The KV cache of one completion, if it is as long as allowed."""
    return work.longest * shape.cache_bytes(work.size) / layout.tensor


def disk_bytes(shape: ModelShape, work: Work, *, is_renewed: bool) -> float:
    """The checkpoints of the local engine: `best`, and `last`, twice while a new one replaces it."""
    masters, _, averages = bytes_per_trained_weight(work, Layout("local", "none", 1))
    last = work.size + masters + averages
    return trained_weights(shape, work) * (work.size + last * (2 if is_renewed else 1))


@dataclass(frozen=True, slots=True)
class Fit:
    """A layout that fits, with the settings that make it fit and `rows` completions in parallel."""

    layout: Layout
    work: Work
    rows: int
    parts: tuple[Part, ...]


def fit(shape: ModelShape, work: Work, layout: Layout, memory: float) -> Fit | None:
    """As many rows in parallel as `memory` bytes allow, up to those there are; None if not even one fits."""
    sampling, training = peaks(parts(shape, work, layout, 0))
    room = memory - (max(sampling, training) if layout.engine == "trl" else sampling)
    rows = min(layout.rows_at_once(work), int(max(room, 0) // row_bytes(shape, work, layout)))
    in_all = parts(shape, work, layout, rows)
    return Fit(layout, work, rows, in_all) if rows and max(peaks(in_all)) <= memory else None


def least_memory(shape: ModelShape, work: Work, layout: Layout) -> float:
    """Bytes of the smallest GPU that has room for a completion."""
    return max(peaks(parts(shape, work, layout, 1)))
