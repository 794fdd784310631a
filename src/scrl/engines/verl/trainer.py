"""verl: our votes and advantages in its synchronous trainer, by trainer.v1.trainer_mode=scrl.

    python -m verl.trainer.main_ppo trainer.v1.trainer_mode=scrl algorithm.adv_estimator=grpo \
        actor_rollout_ref.rollout.n=16 +scrl.completions=32 +scrl.method=scrl …

A step of verl's: sample → log π_old with entropies → log π_ref → advantages → update. N completions are sampled instead
of rollout.n; when their entropies are known, all N vote, and the M = rollout.n that credit chose stay in verl's queue;
the advantages are those of credit. Votes that are drawn separately (`label_votes`) are sampled before the step's own
completions, in the same way. Checkpoints also hold what later steps need to know about earlier ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils
from verl.utils.dataset.rl_dataset import collate_fn

from scrl.credit.elsewhere import LastVotes
from scrl.credit.group_metrics import group_metrics, positive_labels
from scrl.credit.label_votes import LabelVotes
from scrl.credit.labels import count_votes
from scrl.credit.method import Evidence
from scrl.credit.rule import CreditedGroup
from scrl.engines.requirements import require_engine
from scrl.engines.verl.settings import read_settings
from scrl.errors import ConfigError, InputError
from scrl.files.run_state import ENGINE_STATE
from scrl.lab.stored_groups import first_visits
from scrl.records import Completion, Group, Question, Sample, Sampled
from scrl.reporting.text import counted
from scrl.training.crediting import Crediting, label_note, with_drawn
from scrl.training.stream import QuestionStream

require_engine("verl")

FIELDS = ("prompts", "responses", "response_mask", "old_log_probs", "entropy", "rm_scores", "extra_info")
"""What is read for every completion, by verl's names."""
logger = logging.getLogger(f"verl.{__name__}")  # shown as verl's own


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
        self.label_votes = None if self.settings.label_votes == "present" else LabelVotes()
        """The votes that decide; None: those of the completions themselves."""
        self.votes_pass: int | None = None
        """The pass over the questions before which votes were last drawn."""
        if self.settings.votes_file is not None:
            self.label_votes = with_drawn(LabelVotes(), first_visits(self.settings.votes_file, self.rule), self.rule)
            label_note(self.label_votes, self.rule, len(self.label_votes.votes))  # refused where none has a label
        self.advantages: dict[str, Tensor] = {}
        """By key: Â of every token of the completions trained on at this step."""
        config.trainer.v1.trainer_mode = "sync"  # verl compares with this name in several places
        super().__init__(config)

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each question in the table that is trained on."""
        table = self.train_dataset
        return {self._name(table[row]): row for row in range(len(table))}

    def prepare_step(self) -> dict[str, Any]:
        """Votes, if they are due, by the weights that sample this step; then verl's own."""
        return {**self._draw_votes_if_due(), **super().prepare_step()}

    def _draw_votes_if_due(self) -> dict[str, float]:
        """Votes on every question without a label, as many at a time as a step has completions; metrics of it."""
        this_pass, start = (self.global_steps - 1) // self.steps_per_epoch, perf_counter()
        if self.label_votes is None or not self.settings.votes_due(self.votes_pass, this_pass):
            return {}
        asked = {name: row for name, row in self.rows.items() if name not in self.label_votes.labels}
        if not asked:
            return {}
        rows, number = [*asked.values()], self.settings.votes_per_question
        drawn, lengths = list[Evidence](), list[float]()
        logger.info("%s votes on each of %s", number, counted(len(rows), "question"))
        at_once = max(1, self.config.data.train_batch_size * self.settings.completions // number)
        for first in range(0, len(rows), at_once):
            for rows_G in self._sample(rows[first : first + at_once], number):
                completions_G = tuple(map(self._completion, rows_G))
                lengths += [completion.facts["length"] for completion in completions_G]
                group = Group(completions_G, self._name(rows_G[0]), self.global_steps - 1)
                drawn.append(self.rule.evidence(group))
        votes = dict.fromkeys(asked, (None,)) | dict(self.label_votes.votes)  # where sampling failed, no answer
        before = LabelVotes(votes, self.label_votes.labels)
        self.label_votes, self.votes_pass = with_drawn(before, drawn, self.rule), this_pass
        if note := label_note(self.label_votes, self.rule, len(self.rows)):
            logger.info(note)
        measured = {"votes_drawn": len(lengths), "tokens_votes": sum(lengths), "seconds_votes": perf_counter() - start}
        return {f"scrl/{name}": value for name, value in measured.items()}

    def _sample(self, rows: Sequence[int], number: int) -> list[list[dict[str, Any]]]:
        """This many completions of each of these questions, sampled as verl samples those of a step."""
        batch = self._ask(rows, number)
        self._submit_batch_to_rollout(batch)
        drawn, _ = self.replay_buffer.sample(
            global_steps=self.global_steps, partition_id="train", batch_size=len(batch)
        )
        found = read_rows(drawn.partition_id, drawn.keys)
        tq.kv_clear(keys=drawn.keys, partition_id=drawn.partition_id)
        return [[found[key] for key in keys_G] for keys_G in groups_of(found).values()]

    def _ask(self, rows: Sequence[int], number: int) -> TensorDict:
        """These rows of the table, as verl's own batches have them, with the number of completions to sample."""
        table = collate_fn([self.train_dataset[row] for row in rows])
        table["uid"] = np.array([str(uuid4()) for _ in rows], dtype=object)
        batch = tensordict_utils.get_tensordict(table)
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        tensordict_utils.assign_non_tensor_stack(batch, "__rollout_n__", [number] * len(rows))
        return batch

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """Questions, each with the number of completions to sample: N, where verl would take M.

        Where only questions with a label teach anything, these are asked, in an order of our own.
        """
        number = self.settings.completions
        if self.label_votes is not None and self.rule.is_silent_without_label:
            size, questions = self.config.data.train_batch_size, [Question(name, "") for name in self.rows]
            first_step = (self.votes_pass or 0) * self.steps_per_epoch
            stream = QuestionStream(questions, size, self.settings.seed).only(self.label_votes.labels, first_step)
            asked = stream.filled(self.global_steps - 1, num_prompts or size, questions)
            return self._ask([self.rows[question.id] for question in asked], number)
        batch = super()._next_train_batch(num_prompts)
        tensordict_utils.assign_non_tensor_stack(batch, "__rollout_n__", [number] * len(batch))
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
        state = {"labels": self.labels, "last_votes": self.last_votes.to_json(), "votes_pass": self.votes_pass}
        if self.label_votes is not None:
            state["label_votes"] = self.label_votes.to_json()
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
            if "label_votes" in state:
                self.label_votes, self.votes_pass = LabelVotes.from_json(state["label_votes"]), state["votes_pass"]

    def _completion(self, row: Mapping[str, Any]) -> Completion:
        """What the policy wrote."""
        written = row["responses"][row["response_mask"].bool()]
        text = self.tokenizer.decode(written.tolist(), skip_special_tokens=True)
        is_full = len(row["responses"]) >= self.config.actor_rollout_ref.rollout.response_length
        is_cut = is_full and int(row["responses"][-1]) != self.tokenizer.eos_token_id
        return Completion(text, facts={"length": float(len(written))}, is_cut=is_cut)

    def _name(self, row: Mapping[str, Any], uid: str = "") -> str:
        """The name of a row's question; verl's own if it has none, where only the completions of a step vote."""
        name = (row.get("extra_info") or {}).get("question_id")
        if name is None and ("elsewhere" in self.rule.needs or self.label_votes is not None):
            reason = f"method {self.rule.method.name!r} looks at earlier votes on a question, and verl renames them"
            raise ConfigError(f"data.train_files: {reason}. Name them in the column extra_info.question_id.")
        return str(uid if name is None else name)

    def _sampled(self, rows: Sequence[Mapping[str, Any]], uid: str) -> Sampled:
        """One group: the tokens of each completion that the policy wrote, with log π_old and H of each."""
        samples_G = []
        for row in rows:
            is_written_T, completion = row["response_mask"].bool(), self._completion(row)
            sample = Sample(
                completion.text,
                row["responses"][is_written_T].numpy(),
                row["old_log_probs"][is_written_T].double().numpy(),
                row["entropy"][is_written_T].double().numpy(),
                is_finished=not completion.is_cut,
            )
            samples_G.append(sample)
        question = Question(self._name(rows[0], uid), "")
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
