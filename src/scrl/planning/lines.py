"""A plan for GPUs in lines for people: what a step is, what each engine takes, where the time goes, how to start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from textwrap import wrap

from scrl.planning.fit import CLOSE, GpuPlan, Option, remedies
from scrl.planning.memory import GIB, VLLM_OVERHEAD, Fit, peaks
from scrl.planning.step_time import GPUS, WHATS, Cluster, efficiency, phases
from scrl.reporting.text import counted

WIDTH = 100
PORT = 29500
MOST_SHARE = 0.85
"""The largest share of a GPU's memory that vLLM is given."""


def plan_lines(plan: GpuPlan, start: Sequence[Sequence[str]]) -> Iterator[str]:
    """The whole page; `start` are the commands before the engine's own options, the last of which is `scrl train …`."""
    yield from _step_lines(plan)
    yield ""
    yield from _engine_lines(plan)
    yield ""
    if plan.best is None or plan.best.fit is None:
        yield "no engine can run this on these GPUs. What would make it possible:"
        yield from (f"  {line}" for line in remedies(plan))
        return
    yield from _memory_lines(plan, plan.best.fit)
    yield ""
    yield from _time_lines(plan, plan.best, plan.best.fit)
    yield ""
    yield from _wrapped(f"use {plan.best.layout}: {_reason(plan, plan.best)}")
    for words in (*start[:-1], start_words(plan, plan.best.fit, start[-1])):
        yield from _command(words)


def _step_lines(plan: GpuPlan) -> Iterator[str]:
    work, cluster, config = plan.work, plan.cluster, plan.config
    yield f"{config.model}: {plan.shape.num_weights:,} weights; {_machines(cluster)}"
    again = f", {config.dynamic_sampling.rounds} times more at most" if config.dynamic_sampling.rounds else ""
    questions = counted(work.questions, "question")
    yield f"{counted(config.steps, 'step')} of {questions} × {config.completions} completions{again}; of a step:"
    yield f"  sampled  {work.sampled_rows:>9,} sequences {work.sampled_rows * work.length:>13,.0f} tokens"
    updates = counted(work.updates, "update")
    yield f"  trained  {work.trained_rows:>9,} sequences {work.tokens_trained:>13,.0f} tokens, {updates}"
    length = f"a completion has {work.length:,.0f} tokens"
    if plan.length is not None:
        yield f"{length}; assumed: a prompt has {work.prompt}"
    else:
        yield f"assumed: {length} (half of sampling.max_tokens; see --length), a prompt {work.prompt}"
    if cluster.is_kind_assumed:
        yield f"assumed: GPUs as fast as an {cluster.kind} (see --kind: {', '.join(GPUS)})"


def _machines(cluster: Cluster) -> str:
    """`1 × 8 H100, 79 GiB each`; where no kind was named, only the memory is known."""
    memory = f"{cluster.memory / GIB:g} GiB"
    if not cluster.is_kind_assumed:
        return f"{cluster.nodes} × {cluster.gpus} {cluster.kind}, {memory} each"
    gpus = "a GPU" if cluster.total == 1 else f"{cluster.nodes} × {cluster.gpus} GPUs"
    return f"{gpus} of {memory}, with the speed of an {cluster.kind} (assumed)"


def _engine_lines(plan: GpuPlan) -> Iterator[str]:
    names = ("rollout", "scoring", "update", "sync", "in all")
    yield f"{'engine':<12} GPUs  GiB a GPU {''.join(f'{name:>9}' for name in names)}  seconds a step"
    refusals = {option.layout.engine: option.refusal for option in plan.options if option.refusal is not None}
    for option in plan.options:
        engine = option.layout.engine
        if option.refusal is not None:  # the same for all layouts of an engine
            if words := refusals.pop(engine, None):
                yield from _wrapped(f"{engine:<12} refused: {words}", indent=13)
        elif option.fit is None:
            yield f"{option.layout!s:<12} does not fit: {option.least / GIB:.1f} GiB a GPU at least"
        else:
            seconds = [phase.seconds for phase in phases(plan.shape, option.fit, plan.cluster)]
            numbers = "".join(f"{value:>9,.1f}" for value in (*seconds, option.seconds))
            gib, basis = max(peaks(option.fit.parts)) / GIB, _basis(plan, option.fit)
            yield f"{option.layout!s:<12} {option.layout.gpus:>4}  {gib:>9.1f} {numbers}  estimated ({basis})"


def _basis(plan: GpuPlan, fit: Fit) -> str:
    """Whether the efficiencies behind an engine's seconds are measured."""
    measured = [efficiency(fit, plan.cluster.kind, what).measured_on for what in WHATS]
    return "measured" if all(measured) else "half assumed" if any(measured) else "assumed"


def _memory_lines(plan: GpuPlan, fit: Fit) -> Iterator[str]:
    title = f"memory of a GPU, GiB: {fit.layout}"
    if fit.layout.has_vllm(fit.work):
        title += f", vLLM over {fit.layout.tensor} GPU{'s' * (fit.layout.tensor > 1)}"
    yield f"{title:<56}{'sampling':>9}{'training':>9}"
    for part in filter(lambda part: part.bytes, fit.parts):
        gib = f"{part.bytes / GIB:.2f}"
        sampling, training = (gib if here else "–" for here in (part.in_sampling, part.in_training))
        yield f"  {_label(fit, part.name):<54}{sampling:>9}{training:>9}"
    sampling, training = (f"{total / GIB:.2f}" for total in peaks(fit.parts))
    yield f"  {f'sum, of {plan.cluster.memory / GIB:g}':<54}{sampling:>9}{training:>9}"


def _label(fit: Fit, name: str) -> str:
    """What the page calls a part of memory."""
    layout, work = fit.layout, fit.work
    if name == "sampler's cache":
        rows, share = f"{fit.rows} of {layout.rows(work)}", work.vllm_memory
        what = f"{rows} completions" if share is None else f"{share:g} of the GPU: {rows}"
        return f"KV cache, {what} side by side"
    if name == "activations":
        by_rows = f"{layout.micro_rows(work)} × {work.longest}"
        tokens = by_rows if work.micro_tokens is None else layout.micro_tokens(work)
        return f"activations, {tokens} tokens{', computed twice' if work.is_checkpointed else ''}"
    is_split = work.masters == "split" and layout.engine == "embedded"
    labels = {
        "weights": "working weights, bfloat16",
        "masters": "master weights, " + ("what bfloat16 lacks" if is_split else "float32"),
        "optimizer": "optimizer" if work.state == "float32" else "optimizer, bfloat16",
        "start model": "start model, for KL",
        "vLLM's weights": "sampler's weights, bfloat16",
        "overhead": "context, workspaces, fragments",
    }
    return labels.get(name, name)


def _time_lines(plan: GpuPlan, best: Option, fit: Fit) -> Iterator[str]:
    slowest = max(phases(plan.shape, fit, plan.cluster), key=lambda phase: phase.seconds)
    rows, wanted = fit.rows, fit.layout.rows(fit.work)
    is_short = slowest.name == "rollout" and rows < wanted
    few = f", with {rows} of {wanted} rows of a sampler at a time" if is_short else ""
    share = slowest.seconds / best.seconds
    yield from _wrapped(f"bottleneck: {slowest.name}, {share:.0%} of a step; it waits for {slowest.limit}{few}")
    hours, basis = best.seconds * plan.config.steps / 3600, _basis(plan, fit)
    shares = [(what, *efficiency(fit, plan.cluster.kind, what)) for what in WHATS]
    words = "; ".join(f"{what} {share:.2f}, {run or 'assumed'}" for what, share, run in shares)
    yield from _wrapped(
        f"hours: {hours:,.{1 if hours >= 1 else 2}f} for {plan.config.steps:,} steps of {best.seconds:,.1f} s, "
        f"estimated ({basis} efficiencies{'' if basis == 'assumed' else f': {words}'}); "
        "loading, checkpoints and evaluations on top"
    )


def _reason(plan: GpuPlan, best: Option) -> str:
    others = [option for option in plan.options if option.fit is not None and option is not best]
    if not others:
        return "the only one that can"
    if best.seconds <= min(option.seconds for option in others):
        return "the fastest"
    return f"the simplest of those that take at most {CLOSE - 1:.0%} longer than the fastest"


def start_words(plan: GpuPlan, fit: Fit, words: Sequence[str]) -> list[str]:
    """The command that starts the run with an engine, and with the settings that make it fit."""
    cluster, engine, tensor = plan.cluster, fit.layout.engine, fit.layout.tensor
    changes, command = list(_changes(plan, fit)), list(words)
    for name in changes[::2]:
        if name in command:
            del command[command.index(name) : command.index(name) + 2]
    command += changes
    if engine == "embedded":
        return command
    if engine == "verl":
        rollout = "--engine_options.actor_rollout_ref.rollout"
        command += f"--engine verl --nodes {cluster.nodes} --gpus {cluster.gpus} --out OUT".split()
        command += [f"{rollout}.gpu_memory_utilization", _vllm_share(plan, fit)]
        return command + ([f"{rollout}.tensor_model_parallel_size", str(tensor)] if tensor > 1 else [])
    vllm = "--engine_options.vllm"
    command = [*_launcher(plan, fit), *command[1:], "--engine", "trl", "--engine_options.use_vllm", "true"]
    command += [f"{vllm}_mode", "colocate", f"{vllm}_gpu_memory_utilization", _vllm_share(plan, fit)]
    command += [f"{vllm}_tensor_parallel_size", str(tensor)] if tensor > 1 else []
    return [*command, "--out", "OUT"]


def _changes(plan: GpuPlan, fit: Fit) -> Iterator[str]:
    """Settings that differ from those of the plan."""
    if fit.work.micro_tokens != plan.work.micro_tokens:
        yield from ("--compute.micro-tokens", str(fit.work.micro_tokens))
    if fit.work.micro_batch != plan.work.micro_batch:
        yield from ("--compute.micro-batch", str(fit.work.micro_batch))
    if fit.work.is_checkpointed != plan.work.is_checkpointed:
        yield from ("--compute.gradient-checkpointing", "true")
    if not fit.layout.has_vllm(fit.work) and fit.rows < fit.layout.rows_at_once(fit.work):  # vLLM lets rows wait
        yield from ("--compute.sampler-rows", str(fit.rows))


def _vllm_share(plan: GpuPlan, fit: Fit) -> str:
    """vLLM's share of a GPU: its weights, its cache, half of the overhead; and what is free, with TRL half of that."""
    own = sum(part.bytes for part in fit.parts if part.name in ("vLLM's weights", "sampler's cache"))
    memory, (sampling, training) = plan.cluster.memory, peaks(fit.parts)
    free = memory - sampling if fit.layout.engine == "verl" else (memory - max(sampling, training)) / 2
    return f"{int(100 * min(MOST_SHARE, (own + VLLM_OVERHEAD / 2 + free) / memory)) / 100:g}"


def _launcher(plan: GpuPlan, fit: Fit) -> list[str]:
    """The launcher of a process on every GPU; with several machines, to be typed on each."""
    nodes, gpus, is_one = plan.cluster.nodes, plan.cluster.gpus, plan.cluster.nodes == 1
    if fit.layout.sharding == "FSDP2":  # the file of docs/scaling.md
        machines = f"--num_machines {nodes} --machine_rank RANK --main_process_ip FIRST --main_process_port {PORT}"
        launch = f"accelerate launch --config_file fsdp2.yaml --num_processes {plan.cluster.total}"
        return f"{launch} {'' if is_one else machines} -m scrl".split()
    machines = f"--nnodes {nodes} --rdzv_backend c10d --rdzv_endpoint FIRST:{PORT}"
    return f"torchrun {'' if is_one else machines} --nproc_per_node {gpus} -m scrl".split()


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
