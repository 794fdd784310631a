"""What a run will do and need, said before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from scrl.config import RunConfig
from scrl.data.prompts import prompt_text, prompt_tokens
from scrl.data.questions import LoadedQuestions
from scrl.data.sources import reader_of
from scrl.errors import InputError
from scrl.evaluation.oracle import require_gold
from scrl.planning.capacity import GIB, rows_of_a_pass, trained_bytes
from scrl.planning.shapes import shape_of
from scrl.planning.sizing import PROMPT
from scrl.policy.model import device_of, load_tokenizer, loading, pick_device, pick_dtype
from scrl.policy.model_paths import model_folder
from scrl.records import Question
from scrl.training.dynamic_sampling import check_others
from scrl.training.prepare import usable_questions
from scrl.training.stream import QuestionStream


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run, in numbers and in lines for people."""

    updates: int
    epochs: float
    num_weights: int
    memory_bytes: dict[str, int]
    lines: tuple[str, ...]
    first_prompt: str | None = None
    """None where there is no tokenizer to make it."""


class Loaded(NamedTuple):
    """A model without its weights."""

    shape: Any
    """Its configuration."""
    tokenizer: Any
    num_weights: int


class Sizes(NamedTuple):
    """What memory depends on besides the settings."""

    num_weights: int
    cached_numbers: int
    """Keys and values of a token."""
    prompt_tokens: int
    """Of the longest prompt."""


def make_plan(config: RunConfig) -> Plan:
    """Count what a run will do; loads the questions, the tokenizer and the model's shape, but no weights."""
    return _whole_plan(config, _found(config), _load(config))


def plan_anyway(config: RunConfig) -> Plan:
    """The same; where the model cannot be had but its shape is known, as much as follows from that."""
    found = _found(config)
    try:
        loaded = _load(config)
    except InputError as error:
        return _plan_by_shape(config, found, error)
    return _whole_plan(config, found, loaded)


def _found(config: RunConfig) -> LoadedQuestions:
    """The questions, if a run could start with them."""
    found, held_out = config.load_questions(), config.load_held_out()
    require_gold(config.rule(), found.questions)
    trained = {question.text for question in found.questions}
    shared = sum(question.text in trained for question in held_out.questions) if held_out else 0
    if not held_out or not shared:
        return found
    note = f"{shared} of the {len(held_out.questions)} held-out questions are trained on: they are not held out"
    return replace(found, notes=(*found.notes, note))


def _load(config: RunConfig) -> Loaded:
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = model_folder(config.model)
    trust = {"trust_remote_code": config.trust_remote_code}
    with loading(config.model):
        shape = AutoConfig.from_pretrained(folder, **trust)
        tokenizer = load_tokenizer(config.model, **trust)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(shape, **trust)
    return Loaded(shape, tokenizer, sum(weight.numel() for weight in model.parameters()))


def _whole_plan(config: RunConfig, found: LoadedQuestions, loaded: Loaded) -> Plan:
    shape, tokenizer, num_weights = loaded
    questions, too_long = usable_questions(config, tokenizer, shape, found.questions)
    forms = config.rule().question_forms(questions)
    longest = max(len(prompt_tokens(form, tokenizer, config.prompt)) for form in forms)
    plan = _plan(config, questions, Sizes(num_weights, _cached_numbers(shape), longest))
    first_prompt = prompt_text(questions[0], tokenizer, config.prompt)
    return replace(plan, lines=(*found.notes, *too_long, *plan.lines), first_prompt=first_prompt)


def _plan_by_shape(config: RunConfig, found: LoadedQuestions, why: InputError) -> Plan:
    """Prompts are not looked at, which is said with the reason; that is raised where no shape is known either."""
    try:
        shape = shape_of(config.model)
    except InputError:
        raise why from None
    longest = min(PROMPT, config.prompt.max_tokens)
    plan = _plan(config, found.questions, Sizes(shape.num_weights, shape.cache_bytes(1), longest))
    said = f"planned from its shape alone: prompts are not looked at, and taken to have {longest} tokens"
    return replace(plan, lines=(*found.notes, str(why), said, *plan.lines))


def _plan(config: RunConfig, questions: Sequence[Question], sizes: Sizes) -> Plan:
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    check_others(stream, config.dynamic_sampling)
    groups = len(config.rule().question_forms(questions)) // len(questions)
    memory = memory_bytes(config, sizes, groups)
    updates = stream.updates(config.steps, config.questions_per_update, groups)
    epochs = config.steps / stream.steps_per_epoch
    lines = (
        *_sizes(config, stream, groups, updates, epochs),
        _memory_line(config, sizes.num_weights, memory),
        *warnings(config),
    )
    return Plan(updates, epochs, sizes.num_weights, memory, lines)


def _sizes(config: RunConfig, stream: QuestionStream, groups: int, updates: int, epochs: float) -> Iterator[str]:
    questions = min(config.questions_per_step, len(stream.questions))
    batch = questions * groups
    both = " × 2, as they are and in other words," if groups == 2 else ""
    yield (
        f"{config.method}: {questions} questions{both} × {config.completions} completions → {config.trained} trained → "
        f"{batch * config.trained} sequences → {-(-batch // config.questions_per_update)} updates a step"
    )
    asked_in_all = config.steps * (1 + config.dynamic_sampling.rounds) * batch
    if "reference_share" in config.rule().needs:  # the start model is asked everything once
        asked_in_all += len(stream.questions) * groups
    yield (
        f"{config.steps} steps, {updates} updates, {epochs:.1f} epochs of {len(stream.questions)} questions; up to "
        f"{asked_in_all * config.completions * config.sampling.max_tokens:,} tokens sampled"
    )


def memory_bytes(config: RunConfig, sizes: Sizes, groups: int) -> dict[str, int]:
    """The large parts of memory. With an adapter, gradients and optimizer are small and left out."""
    num_weights, cached_numbers, prompt_tokens = sizes
    device = device_of(config.compute) if config.engine == "embedded" else pick_device(config.compute.device)
    size = pick_dtype(config.compute.dtype, device).itemsize
    trained = 0 if config.lora else num_weights
    columns = prompt_tokens + config.sampling.max_tokens
    passed = rows_of_a_pass(config.compute.micro_batch, config.compute.micro_tokens, columns)
    is_one_pass = config.trained * config.questions_per_update <= passed
    each = trained_bytes(config.optimizer.masters, config.optimizer.state, size, is_one_pass=is_one_pass)
    if config.compute.sampler == "vllm":
        sampler = {"sampler's cache": _vllm_cache(config, device), "vLLM's weights": num_weights * size}
    else:
        rows = min(config.compute.sampler_rows, config.questions_per_step * groups * config.completions)
        sampler = {"sampler's cache": rows * columns * cached_numbers * size}
    return {
        "weights": num_weights * size,
        "masters": trained * each.masters,
        "gradients": trained * each.gradients,
        "optimizer": trained * each.averages,
        "start model": num_weights * size if config.loss.kl_weight and not config.lora else 0,
        **sampler,
    }


def _cached_numbers(shape: Any) -> int:
    """Keys and values of a token."""
    shape = shape.get_text_config()
    heads = getattr(shape, "num_key_value_heads", None) or getattr(shape, "num_attention_heads", 1)
    head = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    return int(shape.num_hidden_layers * 2 * heads * head)


def _vllm_cache(config: RunConfig, device: torch.device) -> int:
    """A share of the GPU's memory; 0 where there is no GPU to ask."""
    if device.type != "cuda":
        return 0
    return int(config.compute.vllm_memory * torch.cuda.get_device_properties(device).total_memory)


def _memory_line(config: RunConfig, num_weights: int, memory: dict[str, int]) -> str:
    total = sum(memory.values())
    parts = ", ".join(f"{name} {amount / GIB:.2f}" for name, amount in memory.items() if amount)
    above = "activations"
    if not memory["sampler's cache"]:
        above += f" and vLLM's cache (a share of {config.compute.vllm_memory:g} of the GPU)"
    return f"{num_weights:,} weights; about {total / GIB:.2f} GiB ({parts}), and {above} on top"


def warnings(config: RunConfig) -> Iterator[str]:
    """What a user should know before spending the time."""
    rule = config.rule()
    limit = getattr(rule.settings, "max_negative_share", 0.0)
    if rule.method.has_negatives and limit and config.completions * limit <= 1:
        yield (
            f"with {config.completions} completions no answer can be rarer than {limit:.1%}: nothing can be ruled out. "
            f"Sample more than {1 / limit:.0f}."
        )
    elif rule.method.has_negatives and limit and config.completions * limit <= 2:
        yield f"with {config.completions} completions only answers seen once can be ruled out"
    if config.evaluation.held_out and reader_of(config.questions) != (other := reader_of(config.evaluation.held_out)):
        yield f"held-out questions are read like the others, as {config.reader}, though theirs would be {other}"
    if config.sampling.is_restricted:
        yield (
            "sampling.top_p, top_k or temperature 0 restrict what is drawn: the ratio in the loss is then biased, "
            "because it is that of the unrestricted policy"
        )
    if config.steps < 5:
        yield f"few steps ({config.steps}): take this for a trial"
