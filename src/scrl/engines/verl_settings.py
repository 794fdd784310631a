"""verl's settings → ours, and ours → verl's: each is translated or refused with the fix; none is passed over.

In verl's configuration, `scrl.` holds what decides credit; all else has a place of verl's own. The other way round,
`scrl train --engine verl` writes a configuration of verl's from a run's settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from scrl.errors import ConfigError, did_you_mean
from scrl.training.config import RunConfig, build_config, merged

OURS = ("method", "preset", "credit", "reader", "significant_digits", "seed", "completions")
"""What may stand under `scrl.`; the model, the questions, sampling, loss and optimizer are verl's."""
PLACES = {
    "model": "actor_rollout_ref.model.path",
    "questions": "data.train_files",
    "questions_per_step": "data.train_batch_size",
    "questions_per_update": "actor_rollout_ref.actor.ppo_mini_batch_size",
    "trained": "actor_rollout_ref.rollout.n",
    "sampling": "actor_rollout_ref.rollout.temperature, …top_p and data.max_response_length",
    "loss": "actor_rollout_ref.actor",
    "optimizer": "actor_rollout_ref.actor.optim",
    "steps": "trainer.total_training_steps",
}
"""Where verl has settings of ours that one may look for under `scrl.`."""
GIVEN = frozenset({"entropy", "length", "text"})
"""The needs of methods that verl's passes can meet; others ask for gold, a second prompt or all logits."""
MEANS = {"completion": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
"""verl's name for what a token's loss is divided by."""
NO_DUAL_CLIP = 1e9
"""verl always has a dual clip; this one never binds."""


class Only(NamedTuple):
    """The values of a verl setting that this trainer can do with."""

    name: str
    values: tuple[Any, ...]
    why: str


ONLY = (
    Only("algorithm.adv_estimator", ("grpo",), "advantages are those of scrl.method. Set it to grpo"),
    Only("algorithm.norm_adv_by_std_in_grpo", (True,), "it is passed over. Set +scrl.credit.advantage=centred instead"),
    Only("algorithm.use_kl_in_reward", (False,), "it is passed over. Set actor_rollout_ref.actor.use_kl_loss instead"),
    Only(
        "algorithm.rollout_correction.bypass_mode",
        (False, None),
        "it leaves out the pass that entropies come from. Set it to False",
    ),
    Only(
        "algorithm.filter_groups.enable",
        (False, None),
        "it looks at scores of reward functions, which train nothing here. Set it to False",
    ),
    Only("reward.reward_model.enable", (False, None), "its scores train nothing here. Set it to False"),
    Only("actor_rollout_ref.rollout.do_sample", (True, None), "equal completions cannot vote. Set it to True"),
)
CHOICES: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {
        "actor": {"strategy": "fsdp2", "use_dynamic_bsz": True},
        "rollout": {"name": "vllm", "tensor_model_parallel_size": 1},
    },
    "trainer": {"v1": {"trainer_mode": "scrl"}, "project_name": "scrl"},
}
"""What no setting of ours stands for, and verl's own defaults do not fit; `engine_options` may change it."""
LEGACY = ("custom_reward_function", "reward_model")
"""Where verl looked for rewards before 0.9; now it takes them and passes them over."""


def read_settings(theirs: Mapping[str, Any]) -> RunConfig:
    """Our settings from the whole of verl's configuration; what would be passed over is refused."""
    for only in ONLY:
        if value_at(theirs, only.name) not in only.values:
            raise ConfigError(f"{only.name}: {value_at(theirs, only.name)!r} cannot be used, {only.why}.")
    for name in (name for place in LEGACY for name in leaves(theirs.get(place), place)):
        raise ConfigError(f"{name}: verl 0.9 passes it over. Set it under `reward.`, where verl now looks for it.")
    given = dict(theirs.get("scrl") or {})
    for name in given:
        if name not in OURS:
            fix = f" Set {PLACES[name]} instead." if name in PLACES else did_you_mean(name, OURS)
            raise ConfigError(f"scrl.{name}: is not a setting of this engine.{fix}")
    rollout = theirs["actor_rollout_ref"]["rollout"]
    config = build_config(
        given
        | {"model": str(theirs["actor_rollout_ref"]["model"]["path"]), "questions": str(theirs["data"]["train_files"])}
        | {"trained": rollout["n"], "engine": "verl", "sampling": {"max_tokens": rollout["response_length"]}}
    )
    check_method(config, theirs["actor_rollout_ref"]["actor"])
    return config


def check_method(config: RunConfig, actor: Mapping[str, Any]) -> None:
    """Refuse a method that asks for more than verl's passes give."""
    rule = config.rule()
    for reason in _method_refusals(config, actor):
        raise ConfigError(f"method: {rule.method.name!r} {reason}. Use another method, or the embedded engine.")


def _method_refusals(config: RunConfig, actor: Mapping[str, Any]) -> Iterator[str]:
    rule = config.rule()
    if rule.method.plan is not None:
        yield "draws completions that share their beginnings, and verl draws each on its own"
    for need in sorted(rule.needs - GIVEN):
        yield f"needs {need!r}, which verl's passes do not give"
    if rule.method.weigh_tokens is not None and (
        actor["loss_agg_mode"] != MEANS["completion"] or actor["use_kl_loss"] or actor["entropy_coeff"]
    ):
        yield f"weighs tokens, which verl's loss can do with loss_agg_mode={MEANS['completion']}, no KL and no bonus"


def value_at(tree: Any, name: str) -> Any:
    """The value at a dotted name; None where there is nothing."""
    for part in name.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def leaves(tree: Any, name: str) -> Iterator[str]:
    """The dotted names of all values that are not None."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{name}.{key}")
    elif tree is not None:
        yield name


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
                "path": "pkg://scrl.evaluation.verl_score",
                "name": "compute_score",
                "reward_kwargs": {"reader": config.reader},
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
    return merged(merged(CHOICES, settings), config.engine_options)


def _refusals(config: RunConfig, job: Job) -> Iterator[tuple[str, str]]:
    rows, gpus = min(config.questions_per_update, job.questions) * config.trained, job.nodes * job.gpus
    if config.dynamic_sampling.rounds:
        yield "dynamic_sampling.rounds", "verl asks the questions of a step once"
    if config.sampling.stop:
        yield "sampling.stop", "verl ends completions at end-of-text tokens alone"
    if config.sampling.temperature == 0:
        yield "sampling.temperature", "equal completions cannot vote"
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
        "ppo_max_token_len_per_gpu": config.compute.micro_batch * longest,
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
