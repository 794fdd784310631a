"""What a run will do and need on this machine, said before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from scrl.config import RunConfig
from scrl.credit.elsewhere import MIN_OTHERS, REPEATED, few_others
from scrl.credit.rule import too_few_to_rule_out
from scrl.data.prompts import prompt_text, prompt_tokens
from scrl.data.questions import LoadedQuestions
from scrl.data.sources import reader_of
from scrl.planning.memory import GIB, Layout, Work, disk_bytes, parts, work_of
from scrl.planning.shapes import ModelShape, counted_shape
from scrl.policy.memory import set_up_allocator
from scrl.policy.model import empty_model, load_tokenizer, memory_of, model_shape, pick_device, pick_dtype
from scrl.policy.model_paths import model_folder
from scrl.policy.settings import ADAPTER_LEARNING_RATE
from scrl.reporting.text import counted
from scrl.sampling.settings import ALL_EQUAL
from scrl.training.base_run import load_sets, usable_sets
from scrl.training.stream import QuestionStream

MANY_PASSES, FAR_OFF = 10, 30
"""Passes over the questions, and how many times the usual learning rate, above which a run is warned."""
_NO_ROOM = "WARNING: that does not fit; take a smaller model, an adapter (--lora.rank 16) or a larger machine"
TINY_MODEL = 10_000_000
"""Weights below which a model, such as the embedded one, wants larger learning rates."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run, in lines for people."""

    memory_bytes: dict[str, int]
    machine: str
    """The device and the type of working weights for which memory is counted: `CPU, float32`."""
    lines: tuple[str, ...]
    first_prompt: str


def make_plan(config: RunConfig) -> Plan:
    """Count what a run will do; loads the questions, the tokenizer and the model's shape, but no weights."""
    config = config.with_steps()
    if config.engine == "local":
        set_up_allocator(config.compute)
    loaded, held_out = load_sets(config)
    notes, trust = [*loaded.notes, *_about_held_out(loaded, held_out)], config.trust_remote_code
    model_config = model_shape(model_folder(config.model), trust)
    tokenizer = load_tokenizer(config.model, trust_remote_code=trust)
    num_weights = sum(weight.numel() for weight in empty_model(model_config, trust).parameters())
    (questions, _), more = usable_sets((loaded, held_out), config, tokenizer, model_config)
    longest = max(len(prompt_tokens(question, tokenizer, config.prompt)) for question in questions)
    shape = counted_shape(model_config, num_weights)
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    device = pick_device(config.compute.device)
    dtype, there = pick_dtype(config.compute.dtype, device), memory_of(device, "all")
    work = replace(work_of(config, len(questions)), prompt=longest, size=dtype.itemsize)
    updates = stream.updates(config.steps, config.questions_per_update)
    epochs = config.steps / stream.steps_per_epoch
    completions = config.steps * work.questions * config.completions
    completions += config.vote_rounds(epochs) * len(questions) * config.votes_per_question
    memory = memory_bytes(shape, work)
    amounts = ", ".join(f"{name} {amount / GIB:.2f}" for name, amount in memory.items() if amount)
    checkpoints: list[str] = []
    if config.lora is None and config.engine == "local":  # an adapter's are small; other engines write their own
        is_renewed = config.steps > config.checkpoint_every
        disk = disk_bytes(shape, work, is_renewed=is_renewed)
        by_probe = "; the probe will measure completions and time" if config.probe else ""
        checkpoints = [f"up to {disk / 1e9:.2g} GB on disk for checkpoints{by_probe}"]
    lines = (
        *dict.fromkeys((*notes, *more)),
        f"{config.method}: {counted(work.questions, 'question')} × {config.completions} completions → "
        f"{config.trained} trained → {work.trained_rows} sequences → {counted(work.updates, 'update')} a step",
        f"{counted(config.steps, 'step')}, {counted(updates, 'update')}, {epochs:.1f} passes over "
        f"{counted(len(questions), 'question')}; up to "
        f"{completions * config.sampling.max_tokens:,} tokens sampled",
        f"{shape.num_weights:,} weights; about {sum(memory.values()) / GIB:.2f} GiB ({amounts}), and activations on "
        f"top; this machine has {'an unknown amount' if there is None else f'{there / GIB:.1f} GiB'}",
        *checkpoints,
        *([_NO_ROOM] if there is not None and there < sum(memory.values()) else []),
        *warnings(config, len(questions), epochs, shape.num_weights),
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()
    machine = f"{name}, {str(dtype).removeprefix('torch.')}"
    return Plan(memory, machine, lines, prompt_text(questions[0], tokenizer, config.prompt))


def _about_held_out(loaded: LoadedQuestions, held_out: LoadedQuestions | None) -> Iterator[str]:
    if held_out is None:
        return
    yield from (f"Held out: {note}" for note in held_out.notes)
    trained = {question.text for question in loaded.questions}
    if shared := sum(question.text in trained for question in held_out.questions):
        yield f"WARNING: {shared} of the {len(held_out.questions)} held-out questions are trained on, so not held out"


def memory_bytes(shape: ModelShape, work: Work) -> dict[str, int]:
    """The large parts of memory with the local engine; what an adapter adds is small and left out."""
    work = replace(work, adapter_rank=None if work.adapter_rank is None else 0)
    layout = Layout("local", "none", 1)
    amounts = {part.name: int(part.bytes) for part in parts(shape, work, layout, layout.rows_at_once(work))}
    names = ("weights", "masters", "gradients", "optimizer", "start model", "sampler's cache")
    return {name: amounts[name] for name in names}


def warnings(config: RunConfig, num_questions: int, passes: float, num_weights: int) -> Iterator[str]:
    """What a user should know before spending the time."""
    rule, rate = config.rule(), config.optimizer.learning_rate
    if passes > MANY_PASSES:
        enough = math.ceil(MANY_PASSES * config.steps / passes)
        over = counted(num_questions, "question")
        yield f"WARNING: {passes:.0f} passes over {over}; --steps {enough} would make {MANY_PASSES}"
    if config.questions_per_step > num_questions:
        yield f"questions_per_step: {config.questions_per_step}, but there are {num_questions}; a step takes them all"
    if "elsewhere" in rule.needs and num_questions <= MIN_OTHERS:
        yield few_others(num_questions - 1)
    if config.guard.mode != "off" and config.steps < 2 * config.guard.window:
        yield f"guard.window: it looks after {2 * config.guard.window} steps, and there are {config.steps}; lower it"
    if config.reader == "choice" and getattr(rule.settings, "elsewhere_weight", None):
        yield f"reader choice: if {REPEATED}"
    own = rule.method.run_settings["optimizer"]["learning_rate"]
    usual = own if config.lora is None else ADAPTER_LEARNING_RATE
    if num_weights > TINY_MODEL and not usual / FAR_OFF <= rate <= usual * FAR_OFF:
        yield f"WARNING: optimizer.learning_rate is {rate:g}; {usual:g} is usual; so far off, runs fail or do nothing"
    yield from too_few_to_rule_out(rule, {config.completions: num_questions})
    if config.evaluation.held_out and reader_of(config.questions) != (other := reader_of(config.evaluation.held_out)):
        yield f"held-out questions are read like the others, as {config.reader}, though theirs would be {other}"
    if not config.sampling.temperature:
        yield ALL_EQUAL
    elif config.sampling.top_p < 1 or config.sampling.top_k:
        yield "sampling.top_p or top_k bias the ratio in the loss, which is that of the unrestricted policy"
    if config.probe and config.engine != "local":
        yield f"engine {config.engine} trains without a probe: look at some completions first, with scrl evaluate"
