"""What would make a run possible that no engine can do on the GPUs it was planned for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from scrl.config import RunConfig
from scrl.errors import ConfigError
from scrl.planning.capacity import GIB
from scrl.planning.sizing import Sizing, Way, size
from scrl.planning.step_time import Cluster
from scrl.policy.settings import LoraSettings

GPUS_OF_A_NODE = 8
"""Most machines have no room for more."""
MOST_NODES = 128


class Change(NamedTuple):
    """Other settings that need less memory."""

    words: str
    effect: str
    settings: dict[str, Any]


def ways_out(sizing: Sizing) -> Iterator[str]:
    """Each in a line, with the engine that a plan of it would choose."""
    config, cluster = sizing.config, sizing.cluster
    yield from _even_updates(config, cluster)
    for words, effect, settings in lighter(config):
        way = chosen(sizing, config.model_copy(update=settings), cluster)
        if way is not None:
            yield f"{words}: {effect} would fit ({way})"
    yield from _more_gpus(sizing)
    least = [option.least for option in sizing.options if option.refusal is None]
    if least:
        gib = ceil(min(least) / GIB)
        yield f"GPUs with {gib} GiB each ({chosen(sizing, config, replace(cluster, memory=gib * GIB))})"
    else:
        yield "other settings, where the refusals name them"


def chosen(sizing: Sizing, config: RunConfig, cluster: Cluster) -> Way | None:
    """The way that a plan with these settings on these machines would choose, if one can be."""
    length = None if sizing.length is None else min(sizing.length, config.sampling.max_tokens)
    try:
        best = size(config, cluster, sizing.num_questions, length).best
    except ConfigError:  # settings that do not go together
        return None
    return best.way if best is not None else None


def lighter(config: RunConfig) -> Iterator[Change]:
    """An adapter, half of vLLM's cache, completions half as long."""
    if config.lora is None:
        lora = LoraSettings()
        yield Change("--lora true", f"an adapter of rank {lora.rank}", {"lora": lora})
    if config.compute.sampler == "vllm":
        share = config.compute.vllm_memory / 2
        compute = config.compute.model_copy(update={"vllm_memory": share})
        yield Change(f"--compute.vllm-memory {share:g}", "half the cache", {"compute": compute})
    if config.sampling.max_tokens > 1:
        tokens = config.sampling.max_tokens // 2
        sampling = config.sampling.model_copy(update={"max_tokens": tokens})
        yield Change(f"--sampling.max-tokens {tokens}", "completions half as long", {"sampling": sampling})


def _more_gpus(sizing: Sizing) -> Iterator[str]:
    """The first number of GPUs that would do; where an update would not divide among them, a larger update."""
    config = sizing.config
    for cluster in larger_clusters(sizing.cluster):
        update = questions_of_even_updates(config, cluster)
        way = update and chosen(sizing, config.model_copy(update={"questions_per_update": update}), cluster)
        if way:
            options = [
                f"--gpus {cluster.gpus}" if cluster.gpus != sizing.cluster.gpus else "",
                f"--nodes {cluster.nodes}" if cluster.nodes != sizing.cluster.nodes else "",
                f"--questions-per-update {update}" if update != config.questions_per_update else "",
            ]
            yield f"{' '.join(filter(None, options))}: {cluster.total} such GPUs would hold it ({way})"
            return


def larger_clusters(cluster: Cluster) -> Iterator[Cluster]:
    """Twice as many GPUs, four times as many, …: first in a machine, as far as one has room for them, then machines."""
    while cluster.nodes < MOST_NODES:
        if 2 * cluster.gpus <= GPUS_OF_A_NODE:
            cluster = replace(cluster, gpus=2 * cluster.gpus)
        else:
            cluster = replace(cluster, nodes=2 * cluster.nodes)
        yield cluster


def _even_updates(config: RunConfig, cluster: Cluster) -> Iterator[str]:
    update = questions_of_even_updates(config, cluster)
    if update is None:
        yield f"more --questions-per-step: a whole step's completions do not divide among {cluster.total} GPUs"
    elif update != config.questions_per_update:
        yield f"--questions-per-update {update}: an update's completions would divide among {cluster.total} GPUs"


def questions_of_even_updates(config: RunConfig, cluster: Cluster) -> int | None:
    """Those that are set, or the fewest whose completions TRL and verl can share out evenly; None where none can be."""
    step = config.questions_per_step
    divisors = (k for k in range(1, step + 1) if step % k == 0)
    tried = (config.questions_per_update, *divisors)
    return next((k for k in tried if k * config.trained % cluster.total == 0), None)
