"""Which engine a run should have on given GPUs: every way to lay it out, what it needs, and the one to take.

sizing = make_sizing(config, make_cluster("H100", gpus=8, nodes=2, memory_gib=80), length=1500)
sizing.best.fit.layout.engine, sizing.best.seconds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from scrl.data.sources import benchmark_of
from scrl.data.tables import is_hub_id
from scrl.engines.trl_settings import batch_sizes, check_config
from scrl.engines.verl_job import Job, verl_settings
from scrl.errors import ConfigError
from scrl.policy.settings import LoraSettings
from scrl.rollout.vllm import refuse_more
from scrl.training.capacity import GIB, EngineName, Fit, Layout, Sharding, Work, fit, least_memory, smaller
from scrl.training.config import RunConfig
from scrl.training.crediting import recorded
from scrl.training.shapes import ModelShape, shape_of
from scrl.training.step_time import Cluster, step_seconds

PROMPT = 200
"""Tokens of a prompt: without a tokenizer they cannot be counted. Assumed."""
CLOSE = 1.1
"""A simpler engine is taken where its step takes at most this many times the fastest one's."""
MOST_NODES = 128


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
    options: tuple[Option, ...]
    best: Option | None


def make_sizing(config: RunConfig, cluster: Cluster, *, length: float | None = None) -> Sizing:
    """Try every way; nothing is loaded but questions of one's own."""
    _check(config)
    shape, work = shape_of(config.model), work_of(config, length)
    options = tuple(
        _option(config, shape, work, cluster, way)
        for way in (ON_ONE if cluster.total == 1 else ON_MANY)
        if not config.engine_options or way.engine == config.engine
    )
    return Sizing(config, shape, work, cluster, options, recommended(options))


def _check(config: RunConfig) -> None:
    if config.compute.dtype == "float32":
        raise ConfigError("compute.dtype: GPUs' rates are known for bfloat16 alone. Set bfloat16 or auto.")
    if config.compute.device not in ("auto", "cuda"):
        raise ConfigError(f"compute.device: this is a plan for GPUs, not for {config.compute.device}. Set auto.")


def work_of(config: RunConfig, length: float | None = None) -> Work:
    """A full step; completions are half as long as they may be, where nothing else is known."""
    most = config.sampling.max_tokens
    if length is not None and not 0 < length <= most:
        raise ConfigError(f"--length: the mean completion has more than 0 and at most {most} tokens; got {length:g}")
    both = 2 if "partner" in config.rule().needs else 1
    questions = min(config.questions_per_step, num_questions(config) or config.questions_per_step) * both
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


def _option(config: RunConfig, shape: ModelShape, work: Work, cluster: Cluster, way: Way) -> Option:
    refusal = refused(config, way.engine, cluster)
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


def refused(config: RunConfig, engine: EngineName, cluster: Cluster) -> str | None:
    """What an engine would say to these settings on so many GPUs."""
    own = {"engine": engine, "nodes": cluster.nodes, "gpus": cluster.gpus}
    known = num_questions(config)
    questions = min(config.questions_per_step, known or config.questions_per_step)
    theirs = config.model_copy(update=own if config.engine == engine else own | {"engine_options": {}})
    try:
        if engine == "trl":
            check_config(theirs)
            _check_even_steps(config, known)
            batch_sizes(theirs, questions, cluster.total)
        elif engine == "verl":
            files = ("OUT", "train.parquet", "validation.parquet")
            verl_settings(theirs, Job(*files, questions, PROMPT, cluster.nodes, cluster.gpus))
        elif config.compute.sampler == "vllm":
            refuse_more(recorded(config.rule()))
    except ConfigError as error:
        return str(error)
    return None


def _check_even_steps(config: RunConfig, known: int | None) -> None:
    if known is not None and known > config.questions_per_step and known % config.questions_per_step:
        if config.drop_last:
            return
        raise ConfigError(
            f"questions_per_step: TRL's steps are all of one size, and {config.questions_per_step} do not divide the "
            f"{known} questions. Choose a divisor, or leave the last ones out with drop_last."
        )


def ways_out(sizing: Sizing) -> Iterator[str]:
    """What would make a run possible that is not."""
    config, shape, work, cluster = sizing.config, sizing.shape, sizing.work, sizing.cluster
    yield from _even_updates(config, cluster)
    open_ways = [option.way for option in sizing.options if option.refusal is None]
    if work.adapter_rank is None:
        rank = LoraSettings().rank
        for way in _fitting(shape, replace(work, adapter_rank=rank), cluster, open_ways):
            yield f"--lora true: an adapter of rank {rank} would fit ({way})"
    if work.vllm_memory is not None:
        for way in _fitting(shape, replace(work, vllm_memory=work.vllm_memory / 2), cluster, open_ways):
            yield f"--compute.vllm-memory {work.vllm_memory / 2:g}: half the cache would fit ({way})"
    shorter = replace(work, max_tokens=work.max_tokens // 2, length=min(work.length, work.max_tokens // 2))
    for way in _fitting(shape, shorter, cluster, open_ways) if work.max_tokens > 1 else ():
        yield f"--sampling.max-tokens {shorter.max_tokens}: completions half as long would fit ({way})"
    nodes = cluster.nodes
    while nodes < MOST_NODES:
        nodes *= 2
        for way in _fitting(shape, work, replace(cluster, nodes=nodes), open_ways):
            yield f"--nodes {nodes}: {nodes * cluster.gpus} such GPUs would hold it ({way})"
            nodes = MOST_NODES
    if open_ways:
        least, way = min((option.least, str(option.way)) for option in sizing.options if option.refusal is None)
        yield f"GPUs with {ceil(least / GIB)} GiB each ({way})"
    else:
        yield "other settings, where the refusals name them"


def _fitting(shape: ModelShape, work: Work, cluster: Cluster, ways: list[Way]) -> Iterator[str]:
    """The first of the ways that fits, if one does."""
    yield from [str(way) for way in ways if fits_of(shape, work, cluster, way)[0]][:1]


def _even_updates(config: RunConfig, cluster: Cluster) -> Iterator[str]:
    """TRL and verl share out the completions of an update evenly."""
    if config.questions_per_update * config.trained % cluster.total == 0:
        return
    step = config.questions_per_step
    even = [k for k in range(1, step + 1) if step % k == 0 and k * config.trained % cluster.total == 0]
    if even:
        yield f"--questions-per-update {even[0]}: an update's completions would divide among {cluster.total} GPUs"
    else:
        yield f"more --questions-per-step: a whole step's completions do not divide among {cluster.total} GPUs"
