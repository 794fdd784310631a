"""Our settings → verl's: `scrl train --engine verl` writes a configuration of verl's from a run's settings.

Each setting is translated or refused with the reason; none is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from scrl.config import RunConfig, merged
from scrl.engines.refusals import shared_refusals
from scrl.engines.verl.settings import MEANS, OURS, check_method, leaves, value_at
from scrl.errors import ConfigError

NO_DUAL_CLIP = 1e9
"""verl always has a dual clip; this one never binds."""
CHOICES: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {
        "actor": {"strategy": "fsdp2", "use_dynamic_bsz": True},
        "rollout": {"name": "vllm", "tensor_model_parallel_size": 1},
    },
    "trainer": {"v1": {"trainer_mode": "scrl"}, "project_name": "scrl"},
}
"""What no setting of ours stands for, and verl's own defaults do not fit; `engine_options` may change it."""


class Job(NamedTuple):
    """What a configuration of verl's needs to know besides a run's settings."""

    folder: str
    train_files: str
    val_files: str
    questions: int
    prompt_tokens: int
    """Of the longest prompt."""
    nodes: int = 1
    gpus: int = 1
    """A node."""
    is_measured: bool = True
    """Whether there are gold answers to validate with."""
    template: str | None = None
    """A chat template that the tokenizer lacks."""
    switches: Mapping[str, Any] = {}
    """What the chat template is told besides the messages."""


def verl_settings(config: RunConfig, job: Job) -> dict[str, Any]:
    """The configuration of verl for a run; `engine_options` (a tree like verl's own) lies on top."""
    for name, reason in _refusals(config, job):
        raise ConfigError(f"{name}: {reason}. Change it, or use engine: embedded.")
    settings: dict[str, Any] = {
        "data": _data(config, job),
        "actor_rollout_ref": {
            "model": _model(config, job),
            "actor": _actor(config, job),
            "rollout": _rollout(config, job),
        },
        "reward": {
            "custom_reward_function": {
                "path": "pkg://scrl.engines.verl.score",
                "name": "compute_score",
                "reward_kwargs": {"reader": config.reader, "significant_digits": config.significant_digits},
            },
        },
        "trainer": _trainer(config, job),
        "ray_kwargs": {
            "ray_init": {"runtime_env": {"env_vars": {"VERL_FILE_LOGGER_PATH": f"{job.folder}/verl.jsonl"}}}
        },
        "scrl": {name: value for name in OURS if (value := getattr(config, name)) is not None},
    }
    for name in leaves(config.engine_options, ""):
        if value_at(settings, name.removeprefix(".")) is not None:
            raise ConfigError(f"engine_options{name}: is set by another setting of ours; see docs/scaling.md")
    check_method(config, settings["actor_rollout_ref"]["actor"])
    return merged(merged(merged(CHOICES, _queue(job)), settings), config.engine_options)


def _refusals(config: RunConfig, job: Job) -> Iterator[tuple[str, str]]:
    rows, gpus = min(config.questions_per_update, job.questions) * config.trained, job.nodes * job.gpus
    yield from shared_refusals(config, "verl")
    if config.sampling.temperature == 0:
        yield "sampling.temperature", "equal completions cannot vote"
    if config.compute.sampler != "local":
        yield "compute.sampler", "verl draws by a sampler of its own (engine_options.actor_rollout_ref.rollout.name)"
    if config.compute.packing != "auto":
        yield "compute.packing", "verl packs where compute.attention is flash_attention_2"
    if config.loss.mean not in MEANS:
        yield "loss.mean", f"verl has no mean over {config.loss.mean}; `token` is the mean over a whole update"
    if config.loss.ratio == "completion" and config.loss.dual_clip is not None:
        yield "loss.dual_clip", "verl has none for a ratio of completions"
    if config.compute.device not in ("auto", "cuda"):
        yield "compute.device", f"verl trains on GPUs, not on {config.compute.device}"
    if config.lora is not None and config.lora.dropout:
        yield "lora.dropout", "verl has none"
    if rows % gpus:
        yield "trained", f"the {rows} completions of an update cannot be shared out evenly among {gpus} GPUs"


def _queue(job: Job) -> dict[str, Any]:
    """A storage process a GPU, at most verl's eight: each wants a CPU core, and a run waits for all of them."""
    return {"transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": min(8, job.nodes * job.gpus)}}}}


def _data(config: RunConfig, job: Job) -> dict[str, Any]:
    return {
        "train_files": job.train_files,
        "val_files": job.val_files,
        "train_batch_size": min(config.questions_per_step, job.questions),
        "max_prompt_length": job.prompt_tokens,
        "max_response_length": config.sampling.max_tokens,
        "filter_overlong_prompts": False,
        "seed": config.seed,
        "apply_chat_template_kwargs": dict(job.switches),
        "trust_remote_code": config.trust_remote_code,
    }


def _model(config: RunConfig, job: Job) -> dict[str, Any]:
    adapter: dict[str, Any] = {}
    if config.lora is not None:
        targets = config.lora.targets if isinstance(config.lora.targets, str) else list(config.lora.targets)
        adapter = {"lora_rank": config.lora.rank, "lora_alpha": config.lora.alpha, "target_modules": targets}
    return adapter | {
        "path": config.model,
        "custom_chat_template": job.template,
        "override_config": {"attn_implementation": config.compute.attention},
        "use_remove_padding": config.compute.attention == "flash_attention_2",
        "trust_remote_code": config.trust_remote_code,
        "enable_gradient_checkpointing": config.compute.gradient_checkpointing,
    }


def _actor(config: RunConfig, job: Job) -> dict[str, Any]:
    loss, optimizer = config.loss, config.optimizer
    longest = job.prompt_tokens + config.sampling.max_tokens
    return {
        "ppo_mini_batch_size": min(config.questions_per_update, job.questions),
        "ppo_max_token_len_per_gpu": max(config.compute.micro_tokens or config.compute.micro_batch * longest, longest),
        "policy_loss": {"loss_mode": "vanilla" if loss.ratio == "token" else "gspo"},
        "loss_agg_mode": MEANS[loss.mean],
        "loss_scale_factor": config.sampling.max_tokens if loss.mean == "constant" else None,
        "clip_ratio_low": loss.clip_low,
        "clip_ratio_high": loss.clip_high,
        "clip_ratio_c": NO_DUAL_CLIP if loss.dual_clip is None else loss.dual_clip,
        "use_kl_loss": loss.kl_weight > 0,
        "kl_loss_coef": loss.kl_weight,
        "kl_loss_type": loss.kl,
        "entropy_coeff": loss.entropy_bonus,
        "grad_clip": optimizer.max_grad_norm,
        "fsdp_config": {"dtype": "float32" if config.compute.dtype == "float32" else "bfloat16"},
        "checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]},
        "optim": {
            "lr": optimizer.learning_rate,
            "lr_warmup_steps_ratio": optimizer.warmup,
            "lr_scheduler_type": optimizer.schedule,
            "betas": list(optimizer.betas),
            "weight_decay": optimizer.weight_decay,
        },
    }


def _rollout(config: RunConfig, job: Job) -> dict[str, Any]:
    sampling, evaluation = config.sampling, config.evaluation
    return {
        "n": config.trained,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "dtype": "float32" if config.compute.dtype == "float32" else "bfloat16",
        "max_model_len": job.prompt_tokens + sampling.max_tokens,
        "val_kwargs": {
            "n": evaluation.completions,
            "temperature": sampling.temperature if evaluation.temperature is None else evaluation.temperature,
            "top_p": sampling.top_p if evaluation.top_p is None else evaluation.top_p,
            "top_k": sampling.top_k or -1,
            "do_sample": True,
        },
    }


def _trainer(config: RunConfig, job: Job) -> dict[str, Any]:
    is_measured = job.is_measured and not config.evaluation.is_off
    return {
        "nnodes": job.nodes,
        "n_gpus_per_node": job.gpus,
        "total_training_steps": config.steps,
        "total_epochs": config.steps,  # an epoch has a step at least
        "val_before_train": is_measured,
        "test_freq": (config.evaluation.every or config.steps) if is_measured else -1,
        "save_freq": config.checkpoint_every,
        "default_local_dir": f"{job.folder}/checkpoints",
        "experiment_name": job.folder.rpartition("/")[2],
        "logger": ["console", "file", *config.trackers],
    }
