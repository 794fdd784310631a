"""Which engine a run should have on given GPUs: every way to lay it out, what it needs, and the one to take.

sizing = make_sizing(config, make_cluster("H100", gpus=8, nodes=2, memory_gib=80), length=1500)
sizing.best.fit.layout.engine, sizing.best.seconds
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from scrl.config import RunConfig
from scrl.data.sources import benchmark_of
from scrl.data.tables import is_hub_id
from scrl.engines.trl.settings import batch_sizes, check_config, step_size
from scrl.engines.verl.job import Job, verl_settings
from scrl.errors import ConfigError
from scrl.planning.capacity import EngineName, Fit, Layout, Sharding, Work, fit, least_memory, smaller
from scrl.planning.shapes import ModelShape, shape_of
from scrl.planning.step_time import Cluster, step_seconds
from scrl.sampling.vllm import refuse_more

PROMPT = 200
"""Tokens of a prompt: without a tokenizer they cannot be counted. Assumed."""
CLOSE = 1.1
"""A simpler engine is taken where its step takes at most this many times the fastest one's."""


class Way(NamedTuple):
    """An engine, and how it spreads weights over GPUs."""

    engine: EngineName
    sharding: Sharding

    def __str__(self) -> str:
        """`verl, FSDP2`."""
        return self.engine if self.sharding == "none" else f"{self.engine}, {self.sharding}"


ON_ONE = (Way("embedded", "none"), Way("trl", "none"), Way("verl", "FSDP2"))
ON_MANY = (Way("embedded", "none"), Way("trl", "DDP"), Way("trl", "FSDP2"), Way("verl", "FSDP2"))
"""Simplest first; the embedded engine takes one of the GPUs."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run: that it fits, or why it cannot be."""

    way: Way
    fit: Fit | None = None
    seconds: float = float("inf")
    """A step."""
    refusal: str | None = None
    """Which setting the engine cannot follow."""
    least: float = 0.0
    """Bytes of a GPU that it would need."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """A run on given machines."""

    config: RunConfig
    shape: ModelShape
    work: Work
    cluster: Cluster
    num_questions: int | None
    """As far as that is known without a network."""
    length: float | None
    """Mean tokens of a completion, where they were given."""
    options: tuple[Option, ...]
    best: Option | None


def make_sizing(config: RunConfig, cluster: Cluster, *, length: float | None = None) -> Sizing:
    """Try every way; nothing is loaded but questions of one's own."""
    _check(config)
    return size(config, cluster, num_questions(config), length)


def size(config: RunConfig, cluster: Cluster, known: int | None, length: float | None) -> Sizing:
    """The same with as many questions as are `known`."""
    shape, work = shape_of(config.model), work_of(config, known, length)
    options = tuple(
        _option(config, shape, work, cluster, known, way)
        for way in (ON_ONE if cluster.total == 1 else ON_MANY)
        if not config.engine_options or way.engine == config.engine
    )
    return Sizing(config, shape, work, cluster, known, length, options, recommended(options))


def _check(config: RunConfig) -> None:
    if config.compute.dtype == "float32":
        raise ConfigError("compute.dtype: GPUs' rates are known for bfloat16 alone. Set bfloat16 or auto.")
    if config.compute.device not in ("auto", "cuda"):
        raise ConfigError(f"compute.device: this is a plan for GPUs, not for {config.compute.device}. Set auto.")


def work_of(config: RunConfig, known: int | None, length: float | None = None) -> Work:
    """A full step of as many questions as are `known`; completions are half as long as allowed, where none is given."""
    most = config.sampling.max_tokens
    if length is not None and not 0 < length <= most:
        raise ConfigError(f"--length: the mean completion has more than 0 and at most {most} tokens; got {length:g}")
    both = 2 if "partner" in config.rule().needs else 1
    questions = min(config.questions_per_step, known or config.questions_per_step) * both
    return Work(
        questions=questions,
        sampled=questions * config.completions * (1 + config.dynamic_sampling.rounds),
        trained=questions * config.trained,
        updates=-(-questions // config.questions_per_update),
        prompt=min(PROMPT, config.prompt.max_tokens),
        length=most / 2 if length is None else length,
        max_tokens=most,
        micro_batch=config.compute.micro_batch,
        sampler_rows=config.compute.sampler_rows,
        is_checkpointed=config.compute.gradient_checkpointing,
        has_reference=config.loss.kl_weight > 0,
        adapter_rank=config.lora.rank if config.lora else None,
        masters=config.optimizer.masters,
        state=config.optimizer.state,
        micro_tokens=config.compute.micro_tokens,
        vllm_memory=config.compute.vllm_memory if config.compute.sampler == "vllm" else None,
    )


def num_questions(config: RunConfig) -> int | None:
    """As far as that is known without a network."""
    benchmark = benchmark_of(config.questions)
    if benchmark is None:
        return None if is_hub_id(config.questions) else len(config.load_questions().questions)
    if ":" in config.questions:
        return config.limit
    return min(benchmark.num_questions, config.limit or benchmark.num_questions)


def recommended(options: tuple[Option, ...]) -> Option | None:
    """The simplest of those that are about as fast as the fastest."""
    fastest = min(option.seconds for option in options)
    return next((option for option in options if option.fit and option.seconds <= CLOSE * fastest), None)


def _option(config: RunConfig, shape: ModelShape, work: Work, cluster: Cluster, known: int | None, way: Way) -> Option:
    refusal = refused(config, way.engine, cluster, known)
    if refusal is not None:
        return Option(way, refusal=refusal)
    fits, least = fits_of(shape, work, cluster, way)
    timed = [(step_seconds(shape, each, cluster), place, each) for place, each in enumerate(fits)]
    if not timed:
        return Option(way, least=least)
    seconds, _, best = min(timed)
    return Option(way, best, seconds, least=least)


def fits_of(shape: ModelShape, work: Work, cluster: Cluster, way: Way) -> tuple[list[Fit], float]:
    """All that fit of: samplers over 1, 2, 4, … GPUs, smaller micro-batches, activations twice; and the least bytes."""
    tried = [(layout, less) for layout in layouts(shape, cluster, way) for less in smaller(work)]
    least = min(least_memory(shape, less, layout) for layout, less in tried)
    fits = [fit(shape, less, layout, cluster.memory) for layout, less in tried]
    return [each for each in fits if each is not None], least


def layouts(shape: ModelShape, cluster: Cluster, way: Way) -> list[Layout]:
    """A sampler's GPUs are of one machine and share its heads evenly."""
    if way.engine == "embedded":
        return [Layout(*way, 1)]
    sizes = [t for t in range(1, cluster.gpus + 1) if cluster.gpus % t == 0 and shape.kv_heads % t == 0]
    return [Layout(*way, cluster.total, t) for t in sizes]


def refused(config: RunConfig, engine: EngineName, cluster: Cluster, known: int | None) -> str | None:
    """What an engine would say to these settings on so many GPUs, with as many questions as are `known`."""
    own = {"engine": engine, "nodes": cluster.nodes, "gpus": cluster.gpus}
    questions = min(config.questions_per_step, known or config.questions_per_step)
    theirs = config.model_copy(update=own if config.engine == engine else own | {"engine_options": {}})
    try:
        if engine == "trl":
            check_config(theirs)
            batch_sizes(theirs, step_size(theirs, known or questions), cluster.total)
        elif engine == "verl":
            files = ("OUT", "train.parquet", "validation.parquet")
            verl_settings(theirs, Job(*files, questions, PROMPT, cluster.nodes, cluster.gpus))
        elif config.compute.sampler == "vllm":
            refuse_more(config.rule().token_facts)
    except ConfigError as error:
        return str(error)
    return None
