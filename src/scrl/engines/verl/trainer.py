"""verl: our votes and advantages in its synchronous trainer, by trainer.v1.trainer_mode=scrl.

    python -m verl.trainer.main_ppo trainer.v1.trainer_mode=scrl algorithm.adv_estimator=grpo \
        actor_rollout_ref.rollout.n=16 +scrl.completions=32 +scrl.method=scrl …

A step of verl's: sample → log π_old with entropies → log π_ref → advantages → update. N completions are sampled instead
of rollout.n; when their entropies are known, all N vote, and the M = rollout.n that credit chose stay in verl's queue;
the advantages are those of credit. Checkpoints also hold what later steps need to know about earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
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

from scrl.credit.elsewhere import LastVotes
from scrl.credit.group_metrics import group_metrics, positive_labels
from scrl.credit.label_votes import LabelVotes
from scrl.credit.labels import count_votes
from scrl.credit.rule import CreditedGroup
from scrl.engines.requirements import require_engine
from scrl.engines.verl.settings import read_settings
from scrl.errors import ConfigError, InputError
from scrl.files.run_state import ENGINE_STATE
from scrl.lab.stored_groups import first_visits
from scrl.records import Question, Sample, Sampled
from scrl.training.crediting import Crediting, with_drawn

require_engine("verl")

FIELDS = ("prompts", "responses", "response_mask", "old_log_probs", "entropy", "rm_scores", "extra_info")
"""What is read for every completion, by verl's names."""


@register_trainer("scrl")
class ScrlTrainer(PPOTrainerSync):
    """verl's synchronous trainer with credit from votes."""

    def __init__(self, config: Any) -> None:
        """`config` is verl's own, with ours under `scrl.`."""
        self.settings = read_settings(OmegaConf.to_container(config, resolve=True))
        self.rule = self.settings.rule()
        self.labels: dict[str, str | None] = {}
        """The positive label of each question at its last visit; None where the rule abstained."""
        self.last_votes = LastVotes()
        """The votes of each question at its last visit."""
        self.label_votes: LabelVotes | None = None
        """The votes that decide; None: those of the completions themselves."""
        if self.settings.votes_file is not None:
            self.label_votes = with_drawn(LabelVotes(), first_visits(self.settings.votes_file, self.rule), self.rule)
        self.advantages: dict[str, Tensor] = {}
        """By key: Â of every token of the completions trained on at this step."""
        config.trainer.v1.trainer_mode = "sync"  # verl compares with this name in several places
        super().__init__(config)

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """Questions, each with the number of completions to sample: N, where verl would take M."""
        batch = super()._next_train_batch(num_prompts)
        tensordict_utils.assign_non_tensor_stack(batch, "__rollout_n__", [self.settings.completions] * len(batch))
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """log π_old and entropies of all N, then credit; the M to train on stay, balanced anew."""
        batch = super()._compute_old_log_prob(batch, metrics)
        start = perf_counter()
        tags = zip(batch.keys, batch.tags, strict=True)
        rows = read_rows(batch.partition_id, [key for key, tag in tags if not tag.get("is_padding", False)])
        keys_BG = groups_of(rows)
        sampled_B = [self._sampled([rows[key] for key in keys_G], uid) for uid, keys_G in keys_BG.items()]
        groups_B = self._credit(sampled_B)
        self.advantages, rewards = {}, {}
        for keys_G, group in zip(keys_BG.values(), groups_B, strict=True):
            for g in group.credit.trained:
                key = keys_G[g]
                self.advantages[key] = float(group.credit.advantages[g]) * rows[key]["response_mask"].float()
                rewards[key] = torch.zeros(len(rows[key]["responses"]))
                rewards[key][-1] = float(group.credit.rewards[g])  # at the last token, where verl looks for it
        put(batch.partition_id, {"rm_scores": rewards})
        rest = [key for key in batch.keys if key not in rewards]
        if rest:
            tq.kv_clear(keys=rest, partition_id=batch.partition_id)
        ours = group_metrics(groups_B, self.labels)
        scores = [float(row["rm_scores"].sum()) for row in rows.values() if "rm_scores" in row]
        if scores:  # of verl's reward function, which trains nothing
            ours["score_mean"] = sum(scores) / len(scores)
        self.labels |= positive_labels(groups_B)
        ours["seconds_credit"] = perf_counter() - start
        metrics |= {f"scrl/{name}": value for name, value in ours.items()}
        return self._balance_batch(batch.select_keys(list(rewards)), metrics)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """verl's own pass, then our advantages in place of its own; padding has none."""
        batch = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        masks = zip(batch.keys, data["response_mask"].unbind(), strict=True)  # verl may have removed tokens
        ours = {key: mask_T * self.advantages.get(key, torch.zeros(len(mask_T))) for key, mask_T in masks}
        return put(batch.partition_id, {"advantages": ours, "returns": ours})

    def _save_checkpoint(self) -> None:
        """Ours first: verl ends by naming the checkpoint as its latest."""
        folder = Path(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}")
        folder.mkdir(parents=True, exist_ok=True)
        state = {"labels": self.labels, "last_votes": self.last_votes.to_json()}
        (folder / ENGINE_STATE).write_text(json.dumps(state), encoding="utf-8")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        """verl's, and what we wrote into it."""
        super()._load_checkpoint()
        trainer = self.config.trainer
        folder = Path(trainer.default_local_dir, f"global_step_{self.global_steps}")
        if trainer.resume_mode == "resume_path":
            folder = Path(trainer.resume_from_path)
        if self.global_steps:
            if not (folder / ENGINE_STATE).is_file():
                raise InputError(f"{folder}: has no {ENGINE_STATE}; it is not a checkpoint of this trainer")
            state = json.loads((folder / ENGINE_STATE).read_text(encoding="utf-8"))
            self.labels, self.last_votes = state["labels"], LastVotes.from_json(state["last_votes"])

    def _sampled(self, rows: Sequence[Mapping[str, Any]], uid: str) -> Sampled:
        """One group: the tokens of each completion that the policy wrote, with log π_old and H of each."""
        samples_G = []
        for row in rows:
            is_written_T = row["response_mask"].bool()
            tokens_T = row["responses"][is_written_T]
            sample = Sample(
                self.tokenizer.decode(tokens_T.tolist(), skip_special_tokens=True),
                tokens_T.numpy(),
                row["old_log_probs"][is_written_T].double().numpy(),
                row["entropy"][is_written_T].double().numpy(),
                is_finished=len(row["responses"]) < self.config.actor_rollout_ref.rollout.response_length,
            )
            samples_G.append(sample)
        name = (rows[0].get("extra_info") or {}).get("question_id")
        if name is None and ("elsewhere" in self.rule.needs or self.label_votes is not None):
            reason = f"method {self.rule.method.name!r} looks at earlier votes on a question, and verl renames them"
            raise ConfigError(f"data.train_files: {reason}. Name them in the column extra_info.question_id.")
        question = Question(uid if name is None else str(name), "")
        return Sampled(question, rows[0]["prompts"].numpy(), tuple(samples_G), self.global_steps - 1)

    def _credit(self, sampled_B: Sequence[Sampled]) -> list[CreditedGroup]:
        """What the groups of a step earn.

        verl hands over fewer completions if sampling one failed, and fills up with padding.
        """
        classes_B = [self.rule.classify(sampled.group) for sampled in sampled_B]
        pairs_B = list(zip(sampled_B, classes_B, strict=True))
        votes = ((sampled.question.id, count_votes(classes, None)) for sampled, classes in pairs_B)
        self.last_votes = self.last_votes.after(votes)
        groups_B = []
        for sampled, classes in pairs_B:
            size = len(sampled.samples_G)
            rule = replace(self.rule, num_trained=min(self.rule.num_trained or size, size))
            crediting = Crediting(rule, last_votes=self.last_votes, label_votes=self.label_votes)
            groups_B += crediting.credit([sampled], [classes])
            positive_G, negative_G = groups_B[-1].credit.split_advantages
            if np.nansum(positive_G * negative_G) < 0:
                reason = "pushes one completion up and down at once, and verl has one advantage per token"
                raise ConfigError(f"method: {rule.method.name!r} {reason}. Change it, or use engine: local.")
        return groups_B


def read_rows(partition: str, keys: list[str]) -> dict[str, dict[str, Any]]:
    """What verl's queue holds for some completions, by key."""
    data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=list(FIELDS))
    rows: dict[str, dict[str, Any]] = {key: {} for key in keys}
    for name in (name for name in FIELDS if name in data.keys()):  # noqa: SIM118 - no mapping
        column = data[name].unbind() if isinstance(data[name], Tensor) else data[name]
        for row, value in zip(rows.values(), column, strict=True):
            row[name] = value.cpu() if isinstance(value, Tensor) else getattr(value, "data", value)
    return rows


def put(partition: str, columns: Mapping[str, Mapping[str, Tensor]]) -> KVBatchMeta:
    """Write one number per token, by field and key."""
    keys = list(next(iter(columns.values())))
    fields = {
        name: torch.nested.as_nested_tensor([values[key] for key in keys], layout=torch.jagged)
        for name, values in columns.items()
    }
    return tq.kv_batch_put(keys=keys, partition_id=partition, fields=TensorDict(fields, batch_size=len(keys)))


def groups_of(keys: Iterable[str]) -> dict[str, list[str]]:
    """The keys `uid_session_output` of each question, in the order of sessions."""
    groups: dict[str, dict[int, str]] = {}
    for key in keys:
        uid, session, output = key.rsplit("_", 2)
        if int(output) or int(session) in groups.setdefault(uid, {}):
            raise ConfigError("actor_rollout_ref.rollout.agent: completions of several parts cannot vote.")
        groups[uid][int(session)] = key
    return {uid: [key for _, key in sorted(sessions.items())] for uid, sessions in groups.items()}
