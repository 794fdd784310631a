"""verl: our votes and advantages in its synchronous trainer, by trainer.v1.trainer_mode=scrl.

    python -m verl.trainer.main_ppo trainer.v1.trainer_mode=scrl algorithm.adv_estimator=grpo \
        actor_rollout_ref.rollout.n=16 +scrl.completions=32 +scrl.method=scrl …

A step of verl's: sample → log π_old with entropies → log π_ref → advantages → update. Three of its methods are
overridden. N completions are asked for instead of rollout.n; when their entropies are known, all N vote, and the
M = rollout.n that credit chose stay in verl's queue; the advantages are those of credit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils

from scrl.credit.group_metrics import group_metrics
from scrl.credit.rule import CreditRule
from scrl.engines.verl.settings import read_settings
from scrl.engines.versions import require_engine
from scrl.errors import ConfigError
from scrl.records import Credit, Floats, Question, Sample, Sampled

require_engine("verl")

FIELDS = ("prompts", "responses", "response_mask", "old_log_probs", "entropy", "rm_scores", "extra_info")
"""What is read of every completion, by verl's names."""


@register_trainer("scrl")
class ScrlTrainer(PPOTrainerSync):
    """verl's synchronous trainer with credit from votes."""

    def __init__(self, config: Any) -> None:
        """`config` is verl's own, with ours under `scrl.`."""
        self.settings = read_settings(OmegaConf.to_container(config, resolve=True))
        self.rule = self.settings.rule()
        self.labels: dict[str, str | None] = {}
        """The last positive label of each question."""
        self.advantages: dict[str, Tensor] = {}
        """By key: Â of every token of the completions that are trained on at this step."""
        config.trainer.v1.trainer_mode = "sync"  # verl compares with this name in several places
        super().__init__(config)

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """Questions, each with the number of completions to draw: N, where verl would take M."""
        batch = super()._next_train_batch(num_prompts)
        tensordict_utils.assign_non_tensor_stack(batch, "__rollout_n__", [self.settings.completions] * len(batch))
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """log π_old and entropies of all N, then credit; the M that are trained on go on, balanced anew."""
        batch = super()._compute_old_log_prob(batch, metrics)
        started = perf_counter()
        tags = zip(batch.keys, batch.tags, strict=True)
        rows = read_rows(batch.partition_id, [key for key, tag in tags if not tag.get("is_padding", False)])
        keys_B = groups_of(rows)
        sampled_B = [self._sampled([rows[key] for key in keys], uid) for uid, keys in keys_B.items()]
        credit_B = [credit_of(self.rule, sampled) for sampled in sampled_B]
        self.advantages = {}
        rewards: dict[str, float] = {}
        for keys, credit, sampled in zip(keys_B.values(), credit_B, sampled_B, strict=True):
            rewards |= {keys[row]: float(credit.rewards[row]) for row in credit.trained}
            ours_M = [token_advantages(credit, sampled, row) for row in credit.trained]
            self.advantages |= {
                keys[row]: spread(ours_T, rows[keys[row]]["response_mask"])
                for row, ours_T in zip(credit.trained, ours_M, strict=True)
            }
        put(batch.partition_id, {"rm_scores": {key: at_last(rows[key], rewards[key]) for key in rewards}})
        left = [key for key in batch.keys if key not in rewards]
        kept = batch.select_keys(list(rewards))
        if left:
            tq.kv_clear(keys=left, partition_id=batch.partition_id)
        measured = group_metrics(sampled_B, credit_B, self.labels) | score(rows)
        metrics |= {f"scrl/{name}": value for name, value in measured.items()}
        metrics["scrl/seconds_credit"] = perf_counter() - started
        self.labels |= {s.question.id: c.labels.positive for s, c in zip(sampled_B, credit_B, strict=True)}
        return self._balance_batch(kept, metrics)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """What verl computes besides, and our advantages in place of its own; padding has none."""
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        masks = zip(batch.keys, data["response_mask"].unbind(), strict=True)  # verl may have taken tokens out
        ours = {key: mask_T * self.advantages.get(key, torch.zeros(len(mask_T))) for key, mask_T in masks}
        return put(batch.partition_id, {"advantages": ours, "returns": ours})

    def _sampled(self, rows: Sequence[Mapping[str, Any]], uid: str) -> Sampled:
        most = self.config.actor_rollout_ref.rollout.response_length
        samples = tuple(sample_of(row, self.tokenizer.decode, most) for row in rows)
        name = (rows[0].get("extra_info") or {}).get("question_id", uid)
        return Sampled(Question(str(name), ""), rows[0]["prompts"].numpy(), samples, self.global_steps - 1)


def read_rows(partition: str, keys: list[str]) -> dict[str, dict[str, Any]]:
    """What verl's queue holds of some completions, by key."""
    data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=list(FIELDS))
    columns = {name: _column(data[name]) for name in FIELDS if name in data.keys()}  # noqa: SIM118 - no mapping
    return {key: {name: values[place] for name, values in columns.items()} for place, key in enumerate(keys)}


def _column(values: Any) -> list[Any]:
    if isinstance(values, Tensor):
        return [value.cpu() for value in values.unbind()]
    return [getattr(value, "data", value) for value in values]


def put(partition: str, columns: Mapping[str, Mapping[str, Tensor]]) -> KVBatchMeta:
    """Write one number a token, by field and key."""
    keys = list(next(iter(columns.values())))
    fields = {
        name: torch.nested.as_nested_tensor([values[key] for key in keys], layout=torch.jagged)
        for name, values in columns.items()
    }
    return tq.kv_batch_put(keys=keys, partition_id=partition, fields=TensorDict(fields, batch_size=len(keys)))


def groups_of(keys: Sequence[str] | Mapping[str, Any]) -> dict[str, list[str]]:
    """The keys `uid_session_output` of each question, in the order of sessions."""
    groups: dict[str, dict[int, str]] = {}
    for key in keys:
        uid, session, output = key.rsplit("_", 2)
        if int(output) or int(session) in groups.setdefault(uid, {}):
            raise ConfigError("actor_rollout_ref.rollout.agent: completions of several parts cannot vote.")
        groups[uid][int(session)] = key
    return {uid: [key for _, key in sorted(sessions.items())] for uid, sessions in groups.items()}


def sample_of(row: Mapping[str, Any], decode: Callable[..., str], most_tokens: int) -> Sample:
    """One completion: the tokens that the policy wrote, with log π_old and H of each."""
    is_written_T = row["response_mask"].bool()
    tokens_T = row["responses"][is_written_T]
    return Sample(
        decode(tokens_T.tolist(), skip_special_tokens=True),
        tokens_T.numpy(),
        row["old_log_probs"][is_written_T].double().numpy(),
        row["entropy"][is_written_T].double().numpy(),
        is_finished=len(row["responses"]) < most_tokens,
    )


def credit_of(rule: CreditRule, sampled: Sampled) -> Credit:
    """What a group earned; verl hands out fewer completions where drawing one failed, and fills up with padding."""
    size = len(sampled.samples_G)
    credit = replace(rule, num_trained=min(rule.num_trained or size, size)).credit(sampled.group)
    if credit.sides is not None and np.nansum(credit.sides[0] * credit.sides[1]) < 0:
        raise ConfigError(
            f"method: {rule.method.name!r} pushes one completion up and down at once, and verl's loss has one "
            "advantage a token. Use another method, or the embedded engine."
        )
    return replace(credit, token_weights_G=rule.token_weights([sample.entropies_T for sample in sampled.samples_G]))


def token_advantages(credit: Credit, sampled: Sampled, row: int) -> Floats:
    """Â_t = Â · w_t · T / Σ w: the mean over T tokens is then the mean that w weighs."""
    length = len(sampled.samples_G[row].tokens_T)
    advantages_T = np.full(length, credit.advantages[row])
    if credit.token_weights_G is None:
        return advantages_T
    weights_T = credit.token_weights_G[row]
    weighed_T: Floats = advantages_T * weights_T * length / weights_T.sum()
    return weighed_T


def spread(advantages_T: Floats, mask_T: Tensor) -> Tensor:
    """The advantages of written tokens at their places; 0 elsewhere."""
    values_T = torch.zeros(len(mask_T))
    values_T[mask_T.bool()] = torch.from_numpy(advantages_T).float()
    return values_T


def at_last(row: Mapping[str, Any], reward: float) -> Tensor:
    """A completion's reward at its last token, where verl looks for it."""
    rewards_T = torch.zeros(len(row["responses"]))
    rewards_T[-1] = reward
    return rewards_T


def score(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """The mean score of verl's reward function, which is only looked at."""
    scores = [float(row["rm_scores"].sum()) for row in rows.values() if "rm_scores" in row]
    return {"score_mean": sum(scores) / len(scores)} if scores else {}
