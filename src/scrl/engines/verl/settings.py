"""Our settings ↔ verl's: each is translated or refused with the reason; none is ignored.

`scrl train --engine verl` writes verl's configuration from a run's settings (`verl_settings`), and our trainer reads it
back (`read_settings`). In it, `scrl.` holds what decides credit; everything else has its own place in verl's settings.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scrl.config import RunConfig, build_config
from scrl.engines.requirements import refuse, shared_refusals
from scrl.errors import ConfigError, did_you_mean
from scrl.policy.settings import BETAS
from scrl.settings import leaves, merged, value_at

NEEDS_MET = frozenset({"entropy", "length", "text", "elsewhere"})
"""The needs of methods that can be met here; others require gold, a second prompt or all logits."""
LOSS_AGG_MODES = {"completion": "seq-mean-token-mean", "token": "token-mean", "constant": "seq-mean-token-sum-norm"}
"""verl's name for what a token's loss is divided by."""
NO_DUAL_CLIP = 1e9
"""verl always has a dual clip; this one never binds."""
DEFAULTS: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo"},
    "actor_rollout_ref": {
        "model": {"override_config": {"attn_implementation": "sdpa"}, "use_remove_padding": False},
        "actor": {"strategy": "fsdp2", "use_dynamic_bsz": True},
        "rollout": {"name": "vllm", "tensor_model_parallel_size": 1},
    },
    "trainer": {"v1": {"trainer_mode": "scrl"}, "project_name": "scrl"},
}
"""Where verl's own defaults do not fit and we have no such setting; `engine_options` may change them."""
CREDIT_SETTINGS = (
    "method", "preset", "credit", "reader", "significant_digits", "seed", "completions", "label_votes",
    "label_completions",
)  # fmt: skip
"""What is allowed under `scrl.`; the model, the questions, sampling, loss and optimizer are verl's."""
REQUIRED: dict[str, tuple[tuple[Any, ...], str]] = {
    "algorithm.adv_estimator": (("grpo",), "advantages are those of scrl.method. Set it to grpo"),
    "algorithm.norm_adv_by_std_in_grpo": ((True,), "it would be ignored. Set +scrl.credit.advantage=centred instead"),
    "algorithm.use_kl_in_reward": ((False,), "it would be ignored. Set actor_rollout_ref.actor.use_kl_loss instead"),
    "algorithm.rollout_correction.bypass_mode": (
        (False, None),
        "it leaves out the pass that entropies come from. Set it to False",
    ),
    "algorithm.filter_groups.enable": (
        (False, None),
        "it looks at scores of reward functions, which train nothing here. Set it to False",
    ),
    "reward.reward_model.enable": ((False, None), "its scores train nothing here. Set it to False"),
    "skip.rollout_tq.enable": ((False, None), "it takes drawn votes for a step's completions. Set it to False"),
    "trainer.v1.sampler.sync_refill_failed_groups": ((False, None), "it asks other questions. Set it to False"),
    "actor_rollout_ref.rollout.do_sample": ((True, None), "equal completions cannot vote. Set it to True"),
}
"""verl's settings of which our trainer can honour only some values, and why."""


class RunFacts(NamedTuple):
    """What verl's configuration depends on besides a run's settings."""

    folder: str
    questions: int
    prompt_tokens: int
    """Tokens of the longest prompt."""
    has_gold: bool = True
    template: str | None = None
    """A chat template that the tokenizer lacks."""
    switches: Mapping[str, Any] = {}
    """Arguments of the chat template besides the messages."""


def verl_settings(config: RunConfig, facts: RunFacts) -> dict[str, Any]:
    """verl's configuration for a run; `engine_options` (a tree like verl's own) go on top."""
    refuse(_refusals(config, facts))
    is_validated = facts.has_gold and not config.evaluation.is_off
    loss, optimizer, sampling, validation = config.loss, config.optimizer, config.sampling, config.evaluation_sampling
    longest = facts.prompt_tokens + sampling.max_tokens
    dtype = "float32" if config.compute.dtype == "float32" else "bfloat16"
    adapter: dict[str, Any] = {}
    if config.lora is not None:
        rank = config.lora.rank
        adapter = {"lora_rank": rank, "lora_alpha": 2 * rank, "target_modules": "all-linear"}
    settings: dict[str, Any] = {
        "data": {
            "train_files": f"{facts.folder}/train.parquet",
            "val_files": f"{facts.folder}/validation.parquet",
            "train_batch_size": min(config.questions_per_step, facts.questions),
            "max_prompt_length": facts.prompt_tokens,
            "max_response_length": sampling.max_tokens,
            "filter_overlong_prompts": False,
            "seed": config.seed,
            "apply_chat_template_kwargs": dict(facts.switches),
            "trust_remote_code": config.trust_remote_code,
        },
        "actor_rollout_ref": {
            "model": adapter
            | {
                "path": config.model,
                "custom_chat_template": facts.template,
                "trust_remote_code": config.trust_remote_code,
                "enable_gradient_checkpointing": config.compute.gradient_checkpointing,
            },
            "actor": {
                "ppo_mini_batch_size": min(config.questions_per_update, facts.questions),
                "ppo_max_token_len_per_gpu": config.compute.micro_batch * longest,
                "policy_loss": {"loss_mode": "vanilla" if loss.ratio == "token" else "gspo"},
                "loss_agg_mode": LOSS_AGG_MODES[loss.mean],
                "loss_scale_factor": sampling.max_tokens if loss.mean == "constant" else None,
                "clip_ratio_low": loss.clip_low,
                "clip_ratio_high": loss.clip_high,
                "clip_ratio_c": NO_DUAL_CLIP if loss.dual_clip is None else loss.dual_clip,
                "use_kl_loss": loss.kl_weight > 0,
                "kl_loss_coef": loss.kl_weight,
                "kl_loss_type": loss.kl.removesuffix("-capped"),  # verl's k3 always is
                "entropy_coeff": loss.entropy_bonus,
                "grad_clip": optimizer.max_grad_norm,
                "fsdp_config": {"dtype": dtype},
                "checkpoint": {"save_contents": ["model", "optimizer", "extra", "hf_model"]},
                "optim": {
                    "lr": optimizer.learning_rate,
                    "lr_warmup_steps_ratio": optimizer.warmup,
                    "lr_scheduler_type": optimizer.schedule,
                    "betas": list(BETAS),
                    "weight_decay": optimizer.weight_decay,
                },
            },
            "rollout": {
                "n": config.trained,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k or -1,
                "dtype": dtype,
                "max_model_len": longest,
                "val_kwargs": {
                    "n": config.evaluation.completions or 1,
                    "temperature": validation.temperature,
                    "top_p": validation.top_p,
                    "top_k": sampling.top_k or -1,
                    "do_sample": True,
                },
            },
        },
        "reward": {
            "custom_reward_function": {
                "path": "pkg://scrl.engines.verl.score",
                "name": "compute_score",
                "reward_kwargs": {"reader": config.reader, "significant_digits": config.significant_digits},
            }
        },
        "trainer": {
            "nnodes": config.nodes,
            "n_gpus_per_node": config.gpus,
            "total_training_steps": config.steps,
            "total_epochs": config.steps,  # an epoch has at least one step
            "val_before_train": is_validated,
            "test_freq": (config.evaluation.every or config.steps) if is_validated else -1,
            "save_freq": config.checkpoint_every,
            "default_local_dir": f"{facts.folder}/checkpoints",
            "experiment_name": facts.folder.rpartition("/")[2],
            "logger": ["console", "file", *config.trackers],
        },
        "ray_kwargs": {
            "ray_init": {"runtime_env": {"env_vars": {"VERL_FILE_LOGGER_PATH": f"{facts.folder}/verl.jsonl"}}}
        },
        "scrl": {name: value for name in CREDIT_SETTINGS if (value := getattr(config, name)) is not None}
        | ({} if config.votes_file is None else {"label_votes": str(config.votes_file.resolve())}),
    }
    for name, option in leaves(config.engine_options):
        if option is not None and value_at(settings, name) is not None:
            raise ConfigError(f"engine_options.{name}: is set by another setting of ours; see docs/scaling.md")
    # One storage process per GPU, at most verl's eight: each wants a CPU core, and a run waits for all of them.
    storage = {"SimpleStorage": {"num_data_storage_units": min(8, config.nodes * config.gpus)}}
    ours = merged(DEFAULTS | {"transfer_queue": {"backend": storage}}, settings)
    return merged(ours, config.engine_options)


def _refusals(config: RunConfig, facts: RunFacts) -> Iterator[tuple[str, str]]:
    """(setting, reason) for every setting that verl cannot honour."""
    rows, gpus = min(config.questions_per_update, facts.questions) * config.trained, config.nodes * config.gpus
    yield from _credit_refusals(config)
    if config.loss.mean not in LOSS_AGG_MODES:
        yield "loss.mean", f"verl has no mean over {config.loss.mean}; `token` is the mean over a whole update"
    if config.loss.ratio == "completion" and config.loss.dual_clip is not None:
        yield "loss.dual_clip", "verl has none for a ratio of completions"
    if config.compute.device not in ("auto", "cuda"):
        yield "compute.device", f"verl trains on GPUs, not on {config.compute.device}"
    if rows % gpus:
        yield "trained", f"the {rows} completions of an update cannot be divided evenly among {gpus} GPUs"


def _credit_refusals(config: RunConfig) -> Iterator[tuple[str, str]]:
    """(setting, reason) for what our trainer cannot honour, whoever wrote verl's configuration."""
    yield from shared_refusals(config, "verl", NEEDS_MET)
    if config.draws_votes and "entropy" in config.rule().needs:
        reason = "needs the entropies of votes, and verl measures only those of the completions of a step"
        yield "label_votes", f"method {config.method!r} {reason}"


def read_settings(verl: Mapping[str, Any]) -> RunConfig:
    """Our settings from the whole of verl's configuration; what would be ignored is refused."""
    for name, (values, reason) in REQUIRED.items():
        if value_at(verl, name) not in values:
            raise ConfigError(f"{name}: {value_at(verl, name)!r} cannot be used, {reason}.")
    for place in ("custom_reward_function", "reward_model"):
        for name, value in leaves(verl.get(place), place):
            if value in (None, {}):
                continue
            raise ConfigError(f"{name}: verl 0.9 ignores it. Set it under `reward.`, where verl now looks for it.")
    credit = dict(verl.get("scrl") or {})
    for name in credit:
        if name not in CREDIT_SETTINGS:
            near = did_you_mean(name, CREDIT_SETTINGS)
            raise ConfigError(f"scrl.{name}: all but what decides credit has its place in verl's own settings.{near}")
    rollout = verl["actor_rollout_ref"]["rollout"]
    config = build_config(
        credit
        | {"model": str(verl["actor_rollout_ref"]["model"]["path"]), "questions": str(verl["data"]["train_files"])}
        | {"trained": rollout["n"], "engine": "verl", "sampling": {"max_tokens": rollout["response_length"]}}
    )
    refuse(_credit_refusals(config))
    return config


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse `engine_options` that verl does not have: it would merge them, and stop a minute later or ignore them."""
    if not options:
        return
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    verl = importlib.util.find_spec("verl")  # its files are read, it is not imported
    assert verl is not None
    assert verl.origin is not None
    with initialize_config_dir(str(Path(verl.origin).parent / "trainer" / "config"), version_base=None):
        defaults = OmegaConf.to_container(compose("ppo_trainer"))
    for name, known in unknown_options(options, defaults):
        hint = did_you_mean(name.rpartition(".")[2], known)
        raise ConfigError(f"engine_options.{name}: verl has no such setting.{hint}")


def unknown_options(
    options: Mapping[str, Any], known: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Dotted names that are not among the known ones, each with those that are known in its place.

    verl's files do not list all settings of the class (`_target_`) that it makes of a part of its configuration, nor
    any of Ray's own.
    """
    for key, value in options.items():
        name = f"{place}{key}"
        if key not in known:
            names = [*known]
            if known.get("_target_"):
                from hydra.utils import get_class

                names += getattr(get_class(known["_target_"]), "__dataclass_fields__", ())
            if key not in names:
                yield name, [each for each in names if not each.startswith("_")]
        elif isinstance(value, Mapping) and isinstance(known[key], Mapping) and name != "ray_kwargs.ray_init":
            yield from unknown_options(value, known[key], f"{name}.") if known[key] else ()
