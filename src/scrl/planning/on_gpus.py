"""What a run takes on given GPUs with each engine: the tokens of a step, and the memory of a GPU, part by part.

plan = plan_on_gpus(config, 80 * GIB)      # config.nodes machines with config.gpus such GPUs each
print(*gpu_lines(plan), sep="\n")
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import wrap

from scrl.config import RunConfig
from scrl.credit.elsewhere import require_others
from scrl.data.sources import benchmark_of
from scrl.data.tables import is_hub_id
from scrl.engines.trl.settings import batch_sizes, check_config, step_size
from scrl.engines.verl.settings import RunFacts, verl_settings
from scrl.errors import ConfigError
from scrl.planning.memory import GIB, PROMPT, Fit, Layout, Work, disk_bytes, fit, least_memory, peaks, smaller, work_of
from scrl.planning.shapes import ModelShape, shape_of
from scrl.reporting.text import counted

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run: how it fits, what it needs if it does not, or why an engine refuses it."""

    layout: Layout
    fit: Fit | None = None
    least: float = 0.0
    """Bytes that it needs on each GPU."""
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A run on given machines, simplest engine first."""

    config: RunConfig
    memory: float
    """Bytes of each GPU."""
    shape: ModelShape
    work: Work
    options: tuple[Option, ...]

    @property
    def fits(self) -> bool:
        """Whether any engine can run it."""
        return any(option.fit for option in self.options)


def plan_on_gpus(config: RunConfig, memory: float) -> GpuPlan:
    """Try every engine; only the user's own files of questions are read, and only the model's shape."""
    if not 0 < memory < 1e6 * GIB:
        raise ConfigError(f"--gpu-memory: is GiB of one GPU, and more than 0; got {memory / GIB:g}")
    if config.compute.dtype == "float32":
        raise ConfigError("compute.dtype: memory of GPUs is counted for bfloat16 alone. Set bfloat16 or auto.")
    if config.compute.device not in ("auto", "cuda"):
        raise ConfigError(f"compute.device: this is a plan for GPUs, not for {config.compute.device}. Set auto.")
    rule, num_questions = config.rule(), count_questions(config)
    if num_questions is not None:
        config = config.with_steps(num_questions)
    if "elsewhere" in rule.needs and num_questions is not None:
        require_others([str(number) for number in range(num_questions)], rule.method.name)
    shape, work = shape_of(config.model), work_of(config, num_questions)
    options = []
    for layout in layouts(config.gpus * config.nodes):
        if not config.engine_options or layout.engine == config.engine:
            refusal = refusal_of(config, layout, num_questions)
            options.append(
                Option(layout, refusal=refusal) if refusal else best_fit(shape, work, layout, config.gpus, memory)
            )
    return GpuPlan(config, memory, shape, work, tuple(options))


def count_questions(config: RunConfig) -> int | None:
    """The number of questions, as far as it is known without a network."""
    benchmark = benchmark_of(config.questions)
    if benchmark is None:
        return None if is_hub_id(config.questions) else len(config.load_questions().questions)
    if ":" in config.questions:
        return config.limit
    return min(benchmark.num_questions, config.limit or benchmark.num_questions)


def layouts(n: int) -> tuple[Layout, ...]:
    """Layouts on n GPUs; the local engine takes one of them."""
    trl = (Layout("trl", "none", 1),) if n == 1 else (Layout("trl", "DDP", n), Layout("trl", "FSDP2", n))
    return (Layout("local", "none", 1), *trl, Layout("verl", "FSDP2", n))


def refusal_of(config: RunConfig, layout: Layout, num_questions: int | None) -> str | None:
    """Why an engine would refuse these settings on these GPUs, if it would."""
    config = config.model_copy(update={"engine": layout.engine})
    questions = min(config.questions_per_step, num_questions or config.questions_per_step)
    try:
        if layout.engine == "trl":
            check_config(config)
            batch_sizes(config, step_size(config, num_questions or questions), layout.gpus)
        elif layout.engine == "verl":
            verl_settings(config, RunFacts("OUT", questions, PROMPT))
    except ConfigError as error:
        return str(error)
    return None


def best_fit(shape: ModelShape, work: Work, layout: Layout, gpus: int, memory: float) -> Option:
    """With a sampler over 1, 2, 4, … of a machine's GPUs: where most of its completions are written side by side.

    Micro-batches are halved, and activations computed twice, only where it does not fit otherwise. The GPUs of a
    sampler share the model's heads evenly.
    """
    most = 1 if layout.engine == "local" else gpus
    spread = [replace(layout, tensor=t) for t in range(1, most + 1) if most % t == 0 and shape.kv_heads % t == 0]
    tries = [[fit(shape, less, each, memory) for less in smaller(work)] for each in spread]
    fits = list(filter(None, (next(filter(None, of_sampler), None) for of_sampler in tries)))
    best = max(fits, key=lambda found: found.rows / found.layout.rows_at_once(found.work), default=None)
    return Option(layout, best, min(least_memory(shape, less, each) for each in spread for less in smaller(work)))


def gpu_lines(plan: GpuPlan) -> Iterator[str]:
    """The plan for people."""
    config, work = plan.config, plan.work
    gpus = "a GPU" if config.gpus * config.nodes == 1 else f"{config.nodes} × {config.gpus} GPUs"
    yield f"{config.model}: {plan.shape.num_weights:,} weights; {gpus} of {plan.memory / GIB:g} GiB"
    questions = counted(work.questions, "question")
    steps = counted(config.steps, "step") if config.steps else "steps"
    yield f"{steps} of {questions} × {config.completions} completions; of a step:"
    sampled, updates = work.sampled_rows * work.max_tokens, counted(work.updates, "update")
    yield f"  sampled  {work.sampled_rows:>9,} sequences of at most {work.max_tokens:,} tokens: {sampled:,}"
    trained = f"{work.longest:,}, {work.prompt} of a prompt (assumed): {work.trained_rows * work.longest:,}; {updates}"
    yield f"  trained  {work.trained_rows:>9,} sequences of at most {trained}"
    yield ""
    yield f"{'memory of a GPU, GiB':<62}{'sampling':>9}{'training':>9}"
    refusals = {option.layout.engine: option.refusal for option in plan.options if option.refusal}
    for option in plan.options:
        if option.fit is not None:
            yield from _fit_lines(plan, option.fit)
        elif option.refusal is None:
            yield f"{option.layout}: does not fit: needs at least {option.least / GIB:.1f} GiB on each GPU"
        elif words := refusals.pop(option.layout.engine, None):  # the same for all layouts of an engine
            yield from wrap(f"{option.layout.engine}: refused. {words}", WIDTH, subsequent_indent="  ")


def _fit_lines(plan: GpuPlan, fit: Fit) -> Iterator[str]:
    layout, work = fit.layout, fit.work
    sampler = "" if layout.engine == "local" else f", vLLM over {counted(layout.tensor, 'GPU')}"
    yield f"{layout} on {counted(layout.gpus, 'GPU')}{sampler}"
    if changes := " ".join(_changes(plan.work, fit)):
        yield f"  with {changes}"
    rows = f"{fit.rows} of {layout.rows_at_once(work)} completions"
    details = {
        "sampler's cache": rows,
        "activations": f"{layout.micro_tokens(work):,} tokens{', computed twice' if work.is_checkpointed else ''}",
    }
    for part in filter(lambda part: part.bytes, fit.parts):
        name = f"{part.name}, {details[part.name]}" if part.name in details else part.name
        sampling, training = (f"{part.bytes / GIB:.2f}" if here else "–" for here in part[2:])
        yield f"  {name:<60}{sampling:>9}{training:>9}"
    sampling, training = (f"{total / GIB:.2f}" for total in peaks(fit.parts))
    yield f"  {f'sum, of {plan.memory / GIB:g}':<60}{sampling:>9}{training:>9}"
    if layout.engine == "local":
        disk = disk_bytes(plan.shape, work, is_renewed=plan.config.steps > plan.config.checkpoint_every)
        yield f"  and up to {disk / 1e9:,.1f} GB on disk for checkpoints"


def _changes(wanted: Work, fit: Fit) -> Iterator[str]:
    """The settings that make it fit, where they are not those of the run."""
    if fit.work.micro_batch != wanted.micro_batch:
        yield f"--compute.micro-batch {fit.work.micro_batch}"
    if fit.work.is_checkpointed != wanted.is_checkpointed:
        yield "--compute.gradient-checkpointing true"
    if fit.layout.engine == "local" and fit.rows < fit.layout.rows_at_once(fit.work):  # vLLM lets rows wait
        yield f"--compute.sampler-rows {fit.rows}"
