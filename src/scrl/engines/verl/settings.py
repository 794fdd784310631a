"""verl's settings → ours: each is translated or refused with the fix; none is passed over.

In verl's configuration, `scrl.` holds what decides credit; all else has a place of verl's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from scrl.config import RunConfig, build_config
from scrl.errors import ConfigError, did_you_mean

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
