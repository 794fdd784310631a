"""A sizing in lines for people: what a step is, what each engine would take, where the time goes, and how to start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from textwrap import wrap

from scrl.planning.capacity import GIB, VLLM_OVERHEAD, Fit, needed
from scrl.planning.sizing import CLOSE, Option, Sizing
from scrl.planning.step_time import GPUS, basis, phases, provenance
from scrl.planning.ways_out import ways_out

WIDTH = 100
PORT = 29500
MOST_SHARE = 0.85
"""Of a GPU's memory that vLLM is given at most."""


def sizing_lines(sizing: Sizing, start: Sequence[Sequence[str]]) -> Iterator[str]:
    """The whole page; `start` is the commands before the engine's own words, the last of which is `scrl train …`."""
    yield from _step_lines(sizing)
    yield ""
    yield from _engine_lines(sizing)
    yield ""
    if sizing.best is None or sizing.best.fit is None:
        yield "no engine can do this on these GPUs. What would:"
        yield from (f"  {line}" for line in ways_out(sizing))
        return
    yield from _memory_lines(sizing, sizing.best.fit)
    yield ""
    yield from _time_lines(sizing, sizing.best, sizing.best.fit)
    yield ""
    yield from _wrapped(f"use {sizing.best.way}: {_reason(sizing, sizing.best)}")
    for words in (*start[:-1], start_words(sizing, sizing.best.fit, start[-1])):
        yield from _command(words)


def _step_lines(sizing: Sizing) -> Iterator[str]:
    work, cluster, config = sizing.work, sizing.cluster, sizing.config
    yield (
        f"{config.model}: {sizing.shape.num_weights:,} weights; {cluster.nodes} × {cluster.gpus} {cluster.kind}, "
        f"{cluster.memory / GIB:g} GiB each"
    )
    again = f", {config.dynamic_sampling.rounds} times more at most" if config.dynamic_sampling.rounds else ""
    yield f"{config.steps} steps of {work.questions} questions × {config.completions} completions{again}; of a step:"
    yield f"  sampled  {work.sampled:>9,} sequences {work.tokens_sampled:>13,.0f} tokens"
    yield f"  trained  {work.trained:>9,} sequences {work.tokens_trained:>13,.0f} tokens, {work.updates} updates"
    length = f"a completion has {work.length:,.0f} tokens"
    if sizing.length is not None:
        yield f"{length}; assumed: a prompt has {work.prompt}"
    else:
        yield f"assumed: {length} (half of sampling.max_tokens; see --length), a prompt {work.prompt}"
    if cluster.is_kind_assumed:
        yield f"assumed: GPUs of {cluster.memory / GIB:g} GiB are {cluster.kind} (see --kind: {', '.join(GPUS)})"


def _engine_lines(sizing: Sizing) -> Iterator[str]:
    names = ("rollout", "scoring", "update", "sync", "in all")
    yield f"{'engine':<12} GPUs  GiB a GPU {''.join(f'{name:>9}' for name in names)}  seconds a step"
    refusals = {option.way.engine: option.refusal for option in sizing.options if option.refusal is not None}
    for option in sizing.options:
        if option.refusal is not None:  # the same for all ways of an engine
            words = refusals.pop(option.way.engine, None)
            yield from _wrapped(f"{option.way.engine:<12} refused: {words}", indent=13) if words else ()
        elif option.fit is None:
            yield f"{option.way!s:<12} does not fit: {option.least / GIB:.1f} GiB a GPU at least"
        else:
            yield _engine_line(sizing, option, option.fit)


def _engine_line(sizing: Sizing, option: Option, fit: Fit) -> str:
    seconds = [phase.seconds for phase in phases(sizing.shape, fit, sizing.cluster)]
    numbers = "".join(f"{value:>9,.1f}" for value in (*seconds, option.seconds))
    used = max(needed(fit.parts)) / GIB
    source = basis(fit, sizing.cluster.kind)
    return f"{option.way!s:<12} {fit.layout.gpus:>4}  {used:>9.1f} {numbers}  estimated ({source})"


def _memory_lines(sizing: Sizing, fit: Fit) -> Iterator[str]:
    title = f"memory of a GPU, GiB: {_way_with_sampler(fit)}"
    yield f"{title:<56}{'sampling':>9}{'training':>9}"
    for part in fit.parts:
        shown = [f"{part.bytes / GIB:.2f}" if here else "–" for here in (part.in_sampling, part.in_training)]
        yield f"  {_part_name(fit, part.name):<54}{shown[0]:>9}{shown[1]:>9}"
    sums = [f"{total / GIB:.2f}" for total in needed(fit.parts)]
    label = f"sum, of {sizing.cluster.memory / GIB:g}"
    yield f"  {label:<54}{sums[0]:>9}{sums[1]:>9}"


def _way_with_sampler(fit: Fit) -> str:
    layout = fit.layout
    name = layout.engine if layout.sharding == "none" else f"{layout.engine}, {layout.sharding}"
    if not layout.has_vllm(fit.work):
        return name
    return f"{name}, vLLM over {layout.tensor} GPU{'s' * (layout.tensor > 1)}"


def _part_name(fit: Fit, name: str) -> str:
    layout, work = fit.layout, fit.work
    if name == "KV cache":
        share, rows = layout.cache_share(work), f"{fit.rows} of {layout.rows(work)}"
        if share:
            return f"KV cache, {share:g} of the GPU: {rows} side by side"
        return f"KV cache, {rows} completions side by side"
    if name == "activations":
        tokens = (
            f"{layout.micro_rows(work)} × {work.longest}" if work.micro_tokens is None else layout.micro_tokens(work)
        )
        return f"activations, {tokens} tokens{', computed twice' if work.is_checkpointed else ''}"
    return name


def _time_lines(sizing: Sizing, best: Option, fit: Fit) -> Iterator[str]:
    slowest = max(phases(sizing.shape, fit, sizing.cluster), key=lambda phase: phase.seconds)
    rows, wanted = fit.rows, fit.layout.rows(fit.work)
    is_short = slowest.name == "rollout" and rows < wanted
    few = f", with {rows} of {wanted} rows of a sampler at a time" if is_short else ""
    share = slowest.seconds / best.seconds
    yield from _wrapped(f"bottleneck: {slowest.name}, {share:.0%} of a step; it waits for {slowest.limit}{few}")
    hours = best.seconds * sizing.config.steps / 3600
    source = provenance(fit, sizing.cluster.kind)
    yield from _wrapped(
        f"hours: {hours:,.{1 if hours >= 1 else 2}f} for {sizing.config.steps:,} steps of {best.seconds:,.1f} s, "
        f"{source}; loading, checkpoints and evaluations on top"
    )


def _reason(sizing: Sizing, best: Option) -> str:
    others = [option for option in sizing.options if option.fit is not None and option is not best]
    if not others:
        return "the only one that can"
    if best.seconds <= min(option.seconds for option in others):
        return "the fastest"
    return f"the simplest of those that take at most {CLOSE - 1:.0%} longer than the fastest"


def start_words(sizing: Sizing, fit: Fit, words: Sequence[str]) -> list[str]:
    """The command that starts the run with an engine, and with the settings that make it fit."""
    cluster, changed = sizing.cluster, [*words, *_changed(sizing, fit)]
    if fit.layout.engine == "embedded":
        return changed
    if fit.layout.engine == "verl":
        rollout = "--engine_options.actor_rollout_ref.rollout"
        own = [f"{rollout}.gpu_memory_utilization", _share(sizing, fit)]
        own += [f"{rollout}.tensor_model_parallel_size", str(fit.layout.tensor)] if fit.layout.tensor > 1 else []
        place = ["--nodes", str(cluster.nodes), "--gpus", str(cluster.gpus), "--out", "OUT"]
        return [*changed, "--engine", "verl", *place, *own]
    vllm = ["--engine_options.use_vllm", "true", "--engine_options.vllm_mode", "colocate"]
    vllm += ["--engine_options.vllm_gpu_memory_utilization", _share(sizing, fit)]
    vllm += ["--engine_options.vllm_tensor_parallel_size", str(fit.layout.tensor)] if fit.layout.tensor > 1 else []
    return [*_launcher(sizing, fit), *changed[1:], "--engine", "trl", *vllm, "--out", "OUT"]


def _changed(sizing: Sizing, fit: Fit) -> Iterator[str]:
    """Settings that differ from those that were asked for."""
    if fit.work.micro_tokens != sizing.work.micro_tokens:
        yield from ("--compute.micro-tokens", str(fit.work.micro_tokens))
    if fit.work.micro_batch != sizing.work.micro_batch:
        yield from ("--compute.micro-batch", str(fit.work.micro_batch))
    if fit.work.is_checkpointed != sizing.work.is_checkpointed:
        yield from ("--compute.gradient-checkpointing", "true")
    if not fit.layout.has_vllm(fit.work) and fit.rows < fit.layout.most_rows(fit.work):  # vLLM lets rows wait
        yield from ("--compute.sampler-rows", str(fit.rows))


def _share(sizing: Sizing, fit: Fit) -> str:
    """vLLM's share of a GPU: its weights, its cache, half of the overhead; and what is free, with TRL half of that."""
    own = sum(part.bytes for part in fit.parts if part.name.startswith(("sampler", "KV")))
    own += VLLM_OVERHEAD / 2
    memory, (in_sampling, in_training) = sizing.cluster.memory, needed(fit.parts)
    is_released = fit.layout.engine == "verl"
    free = memory - in_sampling if is_released else (memory - max(in_sampling, in_training)) / 2
    return f"{int(100 * min(MOST_SHARE, (own + free) / memory)) / 100:g}"


def _launcher(sizing: Sizing, fit: Fit) -> list[str]:
    """What starts a process on every GPU; on several machines, to be typed on each."""
    cluster = sizing.cluster
    if fit.layout.sharding == "FSDP2":  # the file of docs/scaling.md
        many = ["--num_machines", str(cluster.nodes), "--machine_rank", "RANK", "--main_process_ip", "FIRST"]
        many += ["--main_process_port", str(PORT)]
        sizes = ["--num_processes", str(cluster.total), *(many if cluster.nodes > 1 else [])]
        return ["accelerate", "launch", "--config_file", "fsdp2.yaml", *sizes, "-m", "scrl"]
    many = ["--nnodes", str(cluster.nodes), "--rdzv_backend", "c10d", "--rdzv_endpoint", f"FIRST:{PORT}"]
    return ["torchrun", *(many if cluster.nodes > 1 else []), "--nproc_per_node", str(cluster.gpus), "-m", "scrl"]


def _command(words: Sequence[str]) -> Iterator[str]:
    """A command in as many lines as it needs, to be pasted into a shell."""
    glue = "\0"  # between an option and its value
    text = " ".join(word if word == ">" else shlex.quote(word) for word in words)
    text = re.sub(r"(--[^ =]+) (?![->])", rf"\1{glue}", text)
    lines = wrap(text, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    for place, line in enumerate(lines):
        end = " \\" if place + 1 < len(lines) else ""
        yield f"  {'  ' * (place > 0)}{line.replace(glue, ' ')}{end}"


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return wrap(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
