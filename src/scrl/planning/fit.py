"""Which engine a run should have on given GPUs: every layout, what it needs, the one to take, and what else would fit.

plan = plan_on_gpus(config, make_cluster("H100", gpus=8, nodes=2, memory_gib=80), length=1500)
plan.best.layout.engine, plan.best.seconds
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from scrl.config import RunConfig
from scrl.credit.elsewhere import require_others
from scrl.data.sources import benchmark_of
from scrl.data.tables import is_hub_id
from scrl.engines.trl.settings import batch_sizes, check_config, step_size
from scrl.engines.verl.settings import Job, verl_settings
from scrl.errors import ConfigError
from scrl.planning.memory import GIB, PROMPT, EngineName, Fit, Layout, Work, fit, least_memory, smaller, work_of
from scrl.planning.shapes import ModelShape, shape_of
from scrl.planning.step_time import Cluster, step_seconds
from scrl.policy.settings import LoraSettings
from scrl.sampling.vllm import refuse_more

CLOSE = 1.1
"""A simpler engine is chosen if its step takes at most this many times as long as the fastest one's."""
GPUS_OF_A_NODE = 8
"""The most GPUs that a typical machine has room for."""
MOST_NODES = 128


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run, and how long a step takes; or why it is impossible."""

    layout: Layout
    fit: Fit | None = None
    seconds: float = float("inf")
    refusal: str | None = None
    """Which setting the engine cannot honour."""
    least: float = 0.0
    """Bytes that it needs on each GPU."""


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A run on given machines."""

    config: RunConfig
    shape: ModelShape
    work: Work
    cluster: Cluster
    num_questions: int | None
    length: float | None
    """Mean tokens of a completion, where they were given."""
    options: tuple[Option, ...]
    best: Option | None


def plan_on_gpus(config: RunConfig, cluster: Cluster, *, length: float | None = None) -> GpuPlan:
    """Try every engine; only the user's own files of questions are read, and only the model's shape."""
    if config.compute.dtype == "float32":
        raise ConfigError("compute.dtype: GPUs' rates are known for bfloat16 alone. Set bfloat16 or auto.")
    if config.compute.device not in ("auto", "cuda"):
        raise ConfigError(f"compute.device: this is a plan for GPUs, not for {config.compute.device}. Set auto.")
    rule, num_questions = config.rule(), count_questions(config)
    if "elsewhere" in rule.needs and num_questions is not None:
        require_others([str(number) for number in range(num_questions)], rule.method.name)
    return compare_engines(config, cluster, num_questions, length)


def count_questions(config: RunConfig) -> int | None:
    """The number of questions, as far as it is known without a network."""
    benchmark = benchmark_of(config.questions)
    if benchmark is None:
        return None if is_hub_id(config.questions) else len(config.load_questions().questions)
    if ":" in config.questions:
        return config.limit
    return min(benchmark.num_questions, config.limit or benchmark.num_questions)


def compare_engines(config: RunConfig, cluster: Cluster, num_questions: int | None, length: float | None) -> GpuPlan:
    """The plan for this many questions."""
    shape, work = shape_of(config.model), work_of(config, num_questions, length)
    options = []
    for layout in layouts(cluster):
        if config.engine_options and layout.engine != config.engine:
            continue
        refusal = refusal_of(config, layout.engine, cluster, num_questions)
        options.append(Option(layout, refusal=refusal) if refusal else best_fit(shape, work, cluster, layout))
    return GpuPlan(config, shape, work, cluster, num_questions, length, tuple(options), best_option(options))


def layouts(cluster: Cluster) -> tuple[Layout, ...]:
    """Layouts, simplest first; the embedded engine takes one of the GPUs."""
    n = cluster.total
    trl = (Layout("trl", "none", 1),) if n == 1 else (Layout("trl", "DDP", n), Layout("trl", "FSDP2", n))
    return (Layout("embedded", "none", 1), *trl, Layout("verl", "FSDP2", n))


def refusal_of(config: RunConfig, engine: EngineName, cluster: Cluster, num_questions: int | None) -> str | None:
    """Why an engine would refuse these settings on these GPUs, if it would."""
    config = config.model_copy(update={"engine": engine, "nodes": cluster.nodes, "gpus": cluster.gpus})
    questions = min(config.questions_per_step, num_questions or config.questions_per_step)
    try:
        if engine == "trl":
            check_config(config)
            batch_sizes(config, step_size(config, num_questions or questions), cluster.total)
        elif engine == "verl":
            verl_settings(config, Job("OUT", questions, PROMPT))
        else:
            facts = config.rule().token_facts
            if config.compute.sampler == "vllm":
                refuse_more(facts)
    except ConfigError as error:
        return str(error)
    return None


def best_fit(shape: ModelShape, work: Work, cluster: Cluster, layout: Layout) -> Option:
    """The fastest that fits of: samplers over 1, 2, 4, … GPUs, smaller micro-batches, activations computed twice.

    A sampler's GPUs are of one machine and share its heads evenly.
    """
    most = 1 if layout.engine == "embedded" else cluster.gpus
    sizes = [t for t in range(1, most + 1) if most % t == 0 and shape.kv_heads % t == 0]
    tries = [(replace(layout, tensor=t), less) for t in sizes for less in smaller(work)]
    least = min(least_memory(shape, less, each) for each, less in tries)
    fits = [found for each, less in tries if (found := fit(shape, less, each, cluster.memory)) is not None]
    if not fits:
        return Option(layout, least=least)
    best = min(fits, key=lambda found: step_seconds(shape, found, cluster))
    return Option(best.layout, best, step_seconds(shape, best, cluster), least=least)


def best_option(options: list[Option]) -> Option | None:
    """The simplest of those that are about as fast as the fastest."""
    fastest = min(option.seconds for option in options)
    return next((option for option in options if option.fit and option.seconds <= CLOSE * fastest), None)


def remedies(plan: GpuPlan) -> Iterator[str]:
    """What would make a run possible that no engine can do: one line each, with the engine a plan would choose."""
    config, cluster = plan.config, plan.cluster
    update = even_update(config, cluster)
    if update is None:
        yield f"more --questions-per-step: a whole step's completions do not divide among {cluster.total} GPUs"
    elif update != config.questions_per_update:
        yield f"--questions-per-update {update}: an update's completions would divide among {cluster.total} GPUs"
    for words, effect, settings in lighter_settings(config):
        if best := best_of(plan, config.model_copy(update=settings), cluster):
            yield f"{words}: {effect} would fit ({best.layout})"
    for more in larger_clusters(cluster):
        update = even_update(config, more)
        if update and (best := best_of(plan, config.model_copy(update={"questions_per_update": update}), more)):
            options = [
                f"--gpus {more.gpus}" if more.gpus != cluster.gpus else "",
                f"--nodes {more.nodes}" if more.nodes != cluster.nodes else "",
                f"--questions-per-update {update}" if update != config.questions_per_update else "",
            ]
            yield f"{' '.join(filter(None, options))}: {more.total} such GPUs would hold it ({best.layout})"
            break
    least = [option.least for option in plan.options if option.refusal is None]
    if least:
        gib = ceil(min(least) / GIB)
        best = best_of(plan, config, replace(cluster, memory=gib * GIB))
        yield f"GPUs with {gib} GiB each ({best and best.layout})"
    else:
        yield "other settings, where the refusals name them"


def best_of(plan: GpuPlan, config: RunConfig, cluster: Cluster) -> Option | None:
    """The choice of the same plan with these settings on these machines, if anything fits."""
    length = None if plan.length is None else min(plan.length, config.sampling.max_tokens)
    try:
        return compare_engines(config, cluster, plan.num_questions, length).best
    except ConfigError:  # settings that do not go together
        return None


def lighter_settings(config: RunConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(options, what they mean, settings): an adapter, half of vLLM's cache, completions half as long."""
    if config.lora is None:
        lora = LoraSettings()
        yield "--lora true", f"an adapter of rank {lora.rank}", {"lora": lora}
    if config.compute.sampler == "vllm":
        share = config.compute.vllm_memory / 2
        compute = config.compute.model_copy(update={"vllm_memory": share})
        yield f"--compute.vllm-memory {share:g}", "half the cache", {"compute": compute}
    if config.sampling.max_tokens > 1:
        tokens = config.sampling.max_tokens // 2
        sampling = config.sampling.model_copy(update={"max_tokens": tokens})
        yield f"--max-tokens {tokens}", "completions half as long", {"sampling": sampling}


def larger_clusters(cluster: Cluster) -> Iterator[Cluster]:
    """Twice as many GPUs, four times as many, …: first in one machine, as far as it has room, then more machines."""
    while cluster.nodes < MOST_NODES:
        if 2 * cluster.gpus <= GPUS_OF_A_NODE:
            cluster = replace(cluster, gpus=2 * cluster.gpus)
        else:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
        yield cluster


def even_update(config: RunConfig, cluster: Cluster) -> int | None:
    """questions_per_update, or the fewest whose completions TRL and verl can share out evenly; None where none can."""
    step = config.questions_per_step
    divisors = (k for k in range(1, step + 1) if step % k == 0)
    tries = (config.questions_per_update, *divisors)
    return next((k for k in tries if k * config.trained % cluster.total == 0), None)
