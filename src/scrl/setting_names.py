"""The names of settings: short ones, other projects' names for them, and the message about an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from scrl.errors import ConfigError
from scrl.settings import inner_model, leaves, merged, setting_rows, tree_of, value_at

Model = TypeVar("Model", bound=BaseModel)

REQUEST_NAMES = {
    "max_tokens": "sampling.max_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "prompt_style": "prompt.style",
    "instruction": "prompt.instruction",
    "system": "prompt.system",
}
SAMPLING_NAMES = REQUEST_NAMES | {
    "max_prompt_tokens": "prompt.max_tokens",
    "device": "compute.device",
    "dtype": "compute.dtype",
    "sampler": "compute.sampler",
    "sampler_rows": "compute.sampler_rows",
}
RUN_NAMES = SAMPLING_NAMES | {"learning_rate": "optimizer.learning_rate"}
EVALUATION_NAMES = SAMPLING_NAMES | {"completions": "samples", "questions": "benchmarks", "k": "ks"}
"""Short names → settings: for requests to a server, for all sampling, for a run and for an evaluation."""

IN_STEPS = "a run is counted in steps here; steps = epochs × questions / questions_per_step"
FOREIGN_NAMES: dict[str, dict[str, str]] = {
    "TRL": {
        "model_name_or_path": "model", "dataset_name": "questions", "num_generations": "completions",
        "max_completion_length": "max_tokens", "max_prompt_length": "max_prompt_tokens", "max_steps": "steps",
        "output_dir": "out", "per_device_train_batch_size": "compute.micro_batch", "beta": "loss.kl_weight",
        "epsilon": "loss.clip_low", "epsilon_high": "loss.clip_high", "loss_type": "loss_variant",
        "warmup_ratio": "optimizer.warmup", "lr_scheduler_type": "optimizer.schedule",
        "save_steps": "checkpoint_every", "eval_steps": "evaluation.every", "report_to": "trackers",
        "use_peft": "lora", "lora_r": "lora.rank", "num_train_epochs": IN_STEPS,
        "gradient_accumulation_steps": "questions_per_update says what an update is, compute.micro_batch a pass",
        "reward_funcs": "the method decides what is rewarded here; scrl methods lists them",
    },
    "transformers": {
        "max_new_tokens": "max_tokens", "num_return_sequences": "completions", "torch_dtype": "dtype",
    },
    "verl": {
        "lr": "learning_rate", "rollout.n": "completions", "model.path": "model", "train_files": "questions",
        "val_files": "evaluation.held_out", "train_batch_size": "questions_per_step",
        "ppo_mini_batch_size": "questions_per_update", "ppo_micro_batch_size_per_gpu": "compute.micro_batch",
        "max_response_length": "max_tokens", "total_training_steps": "steps", "kl_loss_coef": "loss.kl_weight",
        "kl_coef": "loss.kl_weight", "entropy_coeff": "loss.entropy_bonus", "clip_ratio": "loss.clip_low",
        "clip_ratio_low": "loss.clip_low", "clip_ratio_high": "loss.clip_high",
        "default_local_dir": "out", "save_freq": "checkpoint_every",
        "test_freq": "evaluation.every", "n_gpus_per_node": "gpus", "nnodes": "nodes", "total_epochs": IN_STEPS,
    },
    "TTRL": {"n_votes_per_prompt": "completions", "n_samples_per_prompt": "trained"},
    "lm-eval": {
        "tasks": "questions", "output_path": "out", "max_gen_toks": "max_tokens", "batch_size": "sampler_rows",
        "system_instruction": "system", "apply_chat_template": "prompt_style", "repeats": "completions",
        "model_args": "each has its own name here, e.g. --model, --dtype, --trust-remote-code",
        "gen_kwargs": "each has its own name here, e.g. --temperature, --max-tokens",
        "num_fewshot": "no examples are put before a question here; write them into the questions",
    },
}  # fmt: skip
"""Project → its word → the name here, or in words what to use instead. The end of verl's dotted names is enough."""
NOT_OF_A_RUN = {
    "epochs": IN_STEPS,
    "num_epochs": IN_STEPS,
    "batch_size": "is several settings here: questions_per_step, questions_per_update, compute.micro_batch (of a pass)",
}
"""Words that no project owns, or that mean something else in an evaluation."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one kind of settings."""

    model: type[BaseModel]
    short: Mapping[str, str]
    not_here: Mapping[str, str] = field(default_factory=dict)
    """Names that make sense elsewhere but not here, and why."""
    listed_by: str = "scrl train --list-settings"

    def long(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values under their long names; a setting with two values is refused."""
        result = {name: value for name, value in values.items() if name not in self.short}
        for name, setting in self.short.items():
            if name not in values:
                continue
            old = value_at(result, setting)
            if old is None:
                result = merged(result, tree_of(setting, values[name]))
            elif old != values[name]:
                given = f"{values[name]!r} and {old!r}"
                raise ConfigError(f"{name} is short for {setting}, and both are given: {given}; leave out one")
        return result

    def refuse_unknown(self, values: Mapping[str, Any], *, is_option: bool = False, more: Collection[str] = ()) -> None:
        """Refuse the first unknown name; `is_option`: it was given to a command. `more` may be suggested too."""
        for place in self.unknown(values):
            raise ConfigError(self.about(place, is_option=is_option, more=more))

    def unknown(self, values: Mapping[str, Any]) -> Iterator[str]:
        """The dotted names that are not settings."""
        fields = self.model.model_fields
        for name, value in values.items():
            if name not in (*fields, *self.short):
                yield next(leaves(value, str(name)))[0]
            elif name in fields and isinstance(value, Mapping) and (inner := inner_model(fields[name].annotation)):
                yield from (f"{name}.{rest}" for rest in Names(inner, {}).unknown(value))

    def about(self, name: str, *, is_option: bool, more: Collection[str] = ()) -> str:
        """What to say about an unknown name: why it makes no sense, what it is called here, or which one is nearest."""
        shown = as_option if is_option else str
        if name in self.not_here:
            return f"{shown(name)}: {self.not_here[name]}"
        if (found := foreign(name)) is not None:
            project, here = found
            reason = f", but {self.not_here[here]}" if here in self.not_here else ""
            whose = f"{project}'" if project.endswith("s") else f"{project}'s"
            return f"{shown(name)} is {whose} name; {here if ' ' in here else f'here it is {shown(here)}{reason}'}"
        known = [*self.short, *(row[0] for row in setting_rows(self.model)), *more]
        if name in known:
            return f"{name}: is written {name.replace('.', ': {')}: …{'}' * name.count('.')}, one within the other"
        near = nearest(name, known, self.short)
        hint = f" Did you mean {' or '.join(map(as_option if is_option else repr, near))}?" if near else ""
        return f"{shown(name)}: there is no such setting.{hint or f' {self.listed_by} shows all.'}"


def validated(model: type[Model], values: Any, short: Mapping[str, str] = MappingProxyType({})) -> Model:
    """Settings from plain values; errors name the setting, by its short name if it has one, and the reason."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):  # raised by one of our validators
            raise cause from error
        place = ".".join(str(part) for part in problem["loc"]) or model.__name__
        name = next((name for name, setting in short.items() if setting == place), place)
        if problem["type"] == "missing" and place in model.model_fields:
            raise ConfigError(f"{name}: is required. {model.model_fields[place].description}") from error
        raise ConfigError(f"{name}: {problem['msg']}; got {problem['input']!r}") from error


def as_option(name: str) -> str:
    """`sampling.max_tokens` → `--sampling.max-tokens`."""
    return f"--{name.replace('_', '-')}"


def foreign(name: str) -> tuple[str, str] | None:
    """The project, and our name or what to use instead, of another project's word, whatever precedes its last dots."""
    parts = name.lower().split(".")
    ends = [".".join(parts[first:]) for first in range(len(parts))]
    found = ((project, names[end]) for end in ends for project, names in FOREIGN_NAMES.items() if end in names)
    return next(found, None)


def nearest(name: str, known: Collection[str], short: Mapping[str, str]) -> list[str]:
    """The names with the same ending, or the one spelled most alike; short ones before long ones."""
    short_of = {setting: each for each, setting in short.items()}
    ends: dict[str, list[str]] = {}
    for each in known:
        names = ends.setdefault(each.rpartition(".")[2], [])
        if short_of.get(each, each) not in names:
            names.append(short_of.get(each, each))
    end = name.rpartition(".")[2]
    if end in ends and len(ends[end]) <= 3:
        return ends[end]
    alike = [each for each in known if difflib.get_close_matches(end, [each.rpartition(".")[2]], cutoff=0.5)]
    if close := difflib.get_close_matches(name, alike, n=1, cutoff=0.7):  # not by their groups alone
        return close
    near = difflib.get_close_matches(end, list(ends), n=1, cutoff=0.7)
    return ends[near[0]][:3] if near else []
