"""Our settings → TRL's: each is translated, kept by us, or refused with the reason; none is ignored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from scrl.config import RunConfig
from scrl.engines.requirements import refuse, shared_refusals
from scrl.errors import ConfigError, did_you_mean
from scrl.optional_deps import require_extra
from scrl.policy.settings import BETAS

LOSS_TYPES = {"completion": "grpo", "token": "dapo", "constant": "dr_grpo", "pairs": "bnpo"}
"""TRL's name for what a token's loss is divided by; `bnpo` is the mean over the tokens of a micro-batch."""
NEEDS_MET = frozenset({"entropy", "length", "text", "truth", "elsewhere"})
"""The needs of methods that can be met here; others require the start model or all logits."""


def check_config(config: RunConfig) -> None:
    refuse(_refusals(config))
    if config.engine_options.get("use_vllm"):
        require_extra("vllm", "engine_options.use_vllm")


def _refusals(config: RunConfig) -> Iterator[tuple[str, str]]:
    """(setting, reason) for every setting that TRL cannot honour."""
    yield from shared_refusals(config, "TRL", NEEDS_MET)
    loss, compute = config.loss, config.compute
    if config.rule().method.advantage is not None:
        yield "method", f"{config.method!r} computes its own advantages, and TRL's are single numbers of mean 0"
    if loss.entropy_bonus:
        yield "loss.entropy_bonus", "TRL weighs the entropy by tokens, not as it weighs the loss"
    if loss.kl_weight and loss.kl not in ("k3", "k3-capped"):
        yield "loss.kl", f"TRL has only the estimate k3, not {loss.kl}"
    if loss.dual_clip is not None and loss.dual_clip <= 1 + loss.clip_high:
        yield "loss.dual_clip", "TRL takes it only above 1 + loss.clip_high"
    if compute.device not in ("auto", "cpu", "cuda"):
        yield "compute.device", f"TRL takes all GPUs it sees, not {compute.device}; choose with CUDA_VISIBLE_DEVICES"
    evaluation = config.evaluation
    if not evaluation.is_off and (evaluation.temperature is not None or evaluation.top_p is not None):
        reason = "TRL samples as in training, with no temperature or top_p of its own"
        yield "evaluation", f"{reason}; evaluation.completions 0 leaves it out"


def step_size(config: RunConfig, questions: int) -> int:
    """B for this many questions in all; it must be the same at every step."""
    whole, rest = divmod(questions, config.questions_per_step)
    if rest and 0 < whole < config.steps and not config.drop_last:
        reason = f"TRL's steps are of one size, and {config.questions_per_step} do not divide {questions} questions"
        raise ConfigError(f"questions_per_step: {reason}. Choose a divisor, or drop_last.")
    return min(config.questions_per_step, questions)


def batch_sizes(config: RunConfig, questions: int, processes: int) -> dict[str, int]:
    """One generation = one step of `questions` groups of M rows; how many rows go into a pass and an update."""
    groups = min(config.questions_per_update, questions)
    if questions % groups:
        reason = f"TRL's updates are of one size, and {groups} do not divide the {questions} questions of a step"
        raise ConfigError(f"questions_per_update: {reason}. Choose a divisor.")
    rows, rest = divmod(groups * config.trained, processes)
    if rest:
        reason = f"{processes} processes do not divide the {groups} × {config.trained} completions of an update"
        raise ConfigError(f"trained: {reason}. Change it, questions_per_update or the processes.")
    most = 2 if config.loss.mean == "pairs" else config.compute.micro_batch
    if config.loss.mean == "pairs" and rows % 2:
        raise ConfigError(f"loss.mean: pairs need an even number of completions per process; an update has {rows}")
    per_pass = max(size for size in range(1, min(most, rows) + 1) if rows % size == 0)
    return {
        "num_generations": config.trained,
        "per_device_train_batch_size": per_pass,
        "gradient_accumulation_steps": rows // per_pass,
        "steps_per_generation": rows // per_pass * (questions // groups),
    }


def grpo_settings(config: RunConfig, *, questions: int, processes: int, is_cpu: bool) -> dict[str, Any]:
    """The arguments of GRPOConfig for a run with `questions` per step, without `engine_options`."""
    check_config(config)
    sizes = batch_sizes(config, questions, processes)
    updates = sizes["steps_per_generation"] // sizes["gradient_accumulation_steps"]
    loss, optimizer, sampling = config.loss, config.optimizer, config.sampling
    return sizes | {
        "max_steps": config.steps * updates,
        "shuffle_dataset": False,  # the order of the questions is ours
        "scale_rewards": "none",  # rewards are advantages already
        **{name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k")},
        "max_completion_length": sampling.max_tokens,
        "loss_type": LOSS_TYPES[loss.mean],
        "importance_sampling_level": "token" if loss.ratio == "token" else "sequence",
        "epsilon": loss.clip_low,
        "epsilon_high": loss.clip_high,
        "delta": loss.dual_clip,
        "beta": loss.kl_weight,
        "use_bias_correction_kl": False,
        "lr_scheduler_type": "cosine" if optimizer.schedule == "cosine" else "constant_with_warmup",
        "warmup_steps": round(optimizer.warmup * config.steps * updates),
        "adam_beta1": BETAS[0],
        "adam_beta2": BETAS[1],
        **{name: getattr(optimizer, name) for name in ("learning_rate", "weight_decay", "max_grad_norm")},
        "gradient_checkpointing": config.compute.gradient_checkpointing,
        "use_cpu": is_cpu,
        "bf16": config.compute.dtype == "bfloat16" or (config.compute.dtype == "auto" and not is_cpu),
        "seed": config.seed,
        "logging_steps": updates,
        "logging_nan_inf_filter": False,  # NaN must not look like a number
        "save_steps": config.checkpoint_every * updates,
        "report_to": list(config.trackers) or "none",
        "trust_remote_code": config.trust_remote_code,
    }


def differences(config: RunConfig, *, questions: int) -> Iterator[str]:
    """How TRL differs from the local engine with these settings."""
    if config.questions_per_update < questions:
        yield "TRL shuffles the completions of a step before it splits them into updates: an update mixes questions"
        if config.loss.mean == "token":
            yield "TRL divides by the tokens of a step's mean update, not by those of each update"
    if round(config.optimizer.warmup * config.steps * questions / min(config.questions_per_update, questions)):
        yield "TRL's learning rate begins at 0: its warm-up is one update behind"
    if config.loss.kl_weight and config.loss.kl == "k3-capped":
        yield "TRL's k3 has no cap"
    if config.optimizer.weight_decay:
        yield "TRL does not decay biases and norms"


def with_options(settings: Mapping[str, Any], options: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Ours and TRL's own settings together; one that we set is refused, because it is changed by our name for it."""
    for name in options:
        if name not in names:
            raise ConfigError(f"engine_options.{name}: TRL has no such setting.{did_you_mean(name, names)}")
        if name in settings:
            raise ConfigError(f"engine_options.{name}: is set by another setting of ours; see docs/scaling.md")
    return dict(settings) | dict(options)
