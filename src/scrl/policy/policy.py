"""Advantages → weights: one optimizer step for each question's trained completions.

    policy = Policy(language_model, loss, optimizer, compute, updates=1920, temperature=1.0, max_tokens=1024)
    report = policy.update(sampled_B, credit_B)

Shapes: B questions, R completions of a micro-batch, T tokens, n tokens of all R, E hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from scrl.errors import TrainingError
from scrl.policy.losses import (
    clipped_surrogate,
    completion_ratios,
    is_clipped,
    kl_to_reference,
    token_ratios,
    token_weights,
)  # fmt: skip
from scrl.policy.model import LanguageModel, body_and_head
from scrl.policy.optimizer import Optimizer
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.policy.token_scores import token_scores
from scrl.records import Credit, Floats, Sampled, Tokens

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class TrainedRow:
    """One completion to train on."""

    prompt_P: Tokens
    tokens_T: Tokens
    old_logprobs_T: Floats
    """log π_old."""
    rise: float
    """P ≥ 0."""
    fall: float
    """Q ≤ 0; the advantage is P + Q."""
    weights_T: Floats
    """Of its tokens in the loss."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What the updates of one step did."""

    loss: float
    grad_norm: float
    clipped_share: float
    learning_rate: float
    kl: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """R rows, padded on the right: with causal attention nothing needs to be masked."""

    tokens_RL: Tensor
    """Prompts and completions."""
    mask_RT: Tensor
    """Where the completions have a token."""
    first_R: Tensor
    """The column of each completion's first token."""
    old_logprobs_RT: Tensor
    rises_R: Tensor
    falls_R: Tensor
    weights_RT: Tensor


class Policy:
    """The model that is trained."""

    def __init__(
        self,
        language_model: LanguageModel,
        loss: LossSettings,
        optimizer: OptimizerSettings,
        compute: ComputeSettings,
        *,
        updates: int,
        temperature: float,
        max_tokens: int,
    ) -> None:
        """`temperature` and `max_tokens` are the sampler's: ratios are those of softmax(logits / T)."""
        self.language_model = language_model
        self._model = language_model.model
        self._loss = loss
        self._temperature = temperature or 1.0
        self._max_tokens = max_tokens
        self.micro_batch = compute.micro_batch
        self.optimizer = Optimizer(self._model.parameters(), optimizer, updates)
        self._reference = self._frozen_copy() if loss.kl_weight and not language_model.has_adapter else None
        self._plain = body_and_head(self._model)
        self._reference_plain = body_and_head(self._reference) if self._reference is not None else None
        self._is_rounded = any(weight.dtype != torch.float32 for weight in self._model.parameters())
        self._notes: list[str] = []
        self._is_checkpointed = compute.gradient_checkpointing
        self.note = None if self._plain else "this model changes its logits, so they are held whole: more memory"

    def update(
        self, sampled_B: Sequence[Sampled], credit_B: Sequence[Credit], questions_per_update: int = 1
    ) -> UpdateReport:
        """One optimizer step for every `questions_per_update` questions, in the order given."""
        self._set_mode()
        self._notes.clear()
        pairs = list(zip(sampled_B, credit_B, strict=True))
        parts = [pairs[first : first + questions_per_update] for first in range(0, len(pairs), questions_per_update)]
        rows_U = [self.rows(part) for part in parts]
        if self._is_rounded:
            rows_U = [self._that_fits(self.rescored, rows) for rows in rows_U]
        done = [self._step(rows) for rows in rows_U]
        tokens = max(1.0, sum(d["tokens"] for d in done))
        return UpdateReport(
            loss=float(np.mean([d["loss"] for d in done])),
            grad_norm=float(np.mean([d["grad_norm"] for d in done])),
            clipped_share=sum(d["clipped"] for d in done) / tokens,
            learning_rate=done[-1]["learning_rate"],
            kl=sum(d["kl"] for d in done) / tokens if self._loss.kl_weight else None,
            notes=tuple(self._notes),
        )

    def rows(self, pairs: Sequence[tuple[Sampled, Credit]]) -> list[TrainedRow]:
        """The trained completions of one update, each token with its weight in the loss."""
        chosen = [(sampled, credit, row) for sampled, credit in pairs for row in credit.trained]
        own_R = [_own_weights(sampled, credit, row) for sampled, credit, row in chosen]
        shared_R = token_weights([float(own_T.sum()) for own_T in own_R], self._loss.mean, self._max_tokens)
        return [
            TrainedRow(
                sampled.prompt_P,
                sampled.samples_G[row].tokens_T,
                sampled.samples_G[row].logprobs_T,
                *_sides(credit, row),
                weights_T=shared * own_T,
            )
            for (sampled, credit, row), own_T, shared in zip(chosen, own_R, shared_R, strict=True)
        ]

    @torch.no_grad()
    def rescored(self, rows: Sequence[TrainedRow]) -> list[TrainedRow]:
        """The rows with π_old as the update's own forward pass sees it.

        In bfloat16 two ways to compute the same log-probability differ by some percent; the ratio must start at 1.
        """
        scored: list[TrainedRow] = []
        for first in range(0, len(rows), self.micro_batch):
            part = rows[first : first + self.micro_batch]
            logprobs_RT = self.score(self._batch(part))[0].double().cpu().numpy()
            scored += [
                replace(row, old_logprobs_T=old_T[: len(row.tokens_T)])
                for row, old_T in zip(part, logprobs_RT, strict=True)
            ]
        return scored

    def _set_mode(self) -> None:
        """No dropout but the adapter's own. Gradient checkpointing works in training mode alone."""
        self._model.train(self._is_checkpointed)
        for name, module in self._model.named_modules():
            if "lora_dropout" in name:
                module.train()

    def _step(self, rows: Sequence[TrainedRow]) -> dict[str, float]:
        learning_rate = self.optimizer.learning_rate
        measured = self._that_fits(self.gradient, rows)
        grad_norm = self.optimizer.step()
        if not (math.isfinite(measured["loss"]) and math.isfinite(grad_norm)):
            raise TrainingError(
                f"the loss is {measured['loss']} and the gradient's norm {grad_norm}: training cannot go on. Lower "
                "optimizer.learning_rate, or compute in float32 (compute.dtype)."
            )
        return measured | {"grad_norm": grad_norm, "learning_rate": learning_rate}

    def _that_fits(self, work: Callable[[Sequence[TrainedRow]], Result], rows: Sequence[TrainedRow]) -> Result:
        """Work on rows by micro-batches, with the micro-batch halved as often as memory asks for."""
        while True:
            try:
                return work(rows)
            except torch.OutOfMemoryError as error:
                self.optimizer.clear()
                if min(self.micro_batch, len(rows)) == 1:
                    raise TrainingError(
                        "memory ran out with one completion at a time. Shorten sampling.max_tokens, turn on "
                        "compute.gradient_checkpointing, or train an adapter (lora)."
                    ) from error
            self.micro_batch = min(self.micro_batch, len(rows)) // 2
            self._notes.append(f"memory ran out: compute.micro_batch is now {self.micro_batch}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def gradient(self, rows: Sequence[TrainedRow]) -> dict[str, float]:
        """Leave the gradient of the loss over `rows` in the masters, micro-batch by micro-batch."""
        totals = dict.fromkeys(("loss", "clipped", "kl", "tokens"), 0.0)
        for first in range(0, len(rows), self.micro_batch):
            batch = self._batch(rows[first : first + self.micro_batch])
            loss, measured = self._batch_loss(batch)
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self.optimizer.collect()
            for key, value in measured.items():
                totals[key] += value
        return totals

    def _batch_loss(self, batch: _Batch) -> tuple[Tensor, dict[str, float]]:
        loss = self._loss
        mask_RT = batch.mask_RT
        logprobs_RT, entropies_RT = self.score(batch)
        clip: dict[str, Any] = {"clip_low": loss.clip_low, "clip_high": loss.clip_high, "dual_clip": loss.dual_clip}
        if loss.ratio == "completion":
            ratios_RT = completion_ratios(logprobs_RT, batch.old_logprobs_RT, mask_RT)
        else:
            ratios_RT = token_ratios(logprobs_RT, batch.old_logprobs_RT)
        token_loss_RT = clipped_surrogate(ratios_RT, batch.rises_R, batch.falls_R, **clip)
        clipped = is_clipped(ratios_RT, batch.rises_R, batch.falls_R, **clip) & mask_RT
        measured = {"clipped": float(clipped.sum()), "tokens": float(mask_RT.sum())}
        if loss.kl_weight:
            kl_RT = kl_to_reference(logprobs_RT, self._reference_logprobs(batch), loss.kl)
            token_loss_RT = token_loss_RT + loss.kl_weight * kl_RT
            measured["kl"] = float((kl_RT.detach() * mask_RT).sum())
        if loss.entropy_bonus:
            token_loss_RT = token_loss_RT - loss.entropy_bonus * entropies_RT
        total = (torch.where(mask_RT, token_loss_RT, 0.0) * batch.weights_RT).sum()
        return total, measured | {"loss": float(total.detach())}

    def score(self, batch: _Batch, *, by_reference: bool = False) -> tuple[Tensor, Tensor]:
        """log π and H of every completion token, [R, T], by this model or by the frozen copy of the start model."""
        model: Any = self._reference if by_reference else self._model
        plain = self._reference_plain if by_reference else self._plain
        targets_n, where_n = self._targets(batch)
        if plain is None:
            chosen = model(input_ids=batch.tokens_RL, use_cache=False)
            logits_nV = chosen.logits.flatten(0, 1)[where_n].float() / self._temperature
            logprobs_nV = torch.log_softmax(logits_nV, dim=-1)
            scores = (
                logprobs_nV.gather(-1, targets_n[:, None]).squeeze(-1),
                torch.special.entr(logprobs_nV.exp()).sum(-1),
            )
        else:
            body, head = plain
            hidden_nE = body(input_ids=batch.tokens_RL, use_cache=False).last_hidden_state.flatten(0, 1)[where_n]
            scores = token_scores(hidden_nE, head.weight, targets_n, bias_V=head.bias, temperature=self._temperature)
        blank_RT = torch.zeros(batch.mask_RT.shape, device=targets_n.device)
        logprobs_RT, entropies_RT = (blank_RT.masked_scatter(batch.mask_RT, score_n) for score_n in scores)
        return logprobs_RT, entropies_RT

    def _targets(self, batch: _Batch) -> tuple[Tensor, Tensor]:
        """The completion tokens, and the flat places whose hidden states predict them."""
        rows_n, columns_n = batch.mask_RT.nonzero(as_tuple=True)
        places_n = batch.first_R[rows_n] + columns_n
        return batch.tokens_RL[rows_n, places_n], rows_n * batch.tokens_RL.shape[1] + places_n - 1

    @torch.no_grad()
    def _reference_logprobs(self, batch: _Batch) -> Tensor:
        """By the start model: the adapter switched off, or the frozen copy."""
        if self._reference is not None:
            return self.score(batch, by_reference=True)[0]
        with self._model.disable_adapter():
            return self.score(batch)[0]

    def _batch(self, rows: Sequence[TrainedRow]) -> _Batch:
        lengths = [len(row.tokens_T) for row in rows]
        width = max(len(row.prompt_P) + length for row, length in zip(rows, lengths, strict=True))
        tokens_RL = np.zeros((len(rows), width), dtype=np.int64)
        mask_RT = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        old_RT, weights_RT = np.zeros((2, *mask_RT.shape), dtype=np.float32)
        for place, row in enumerate(rows):
            joined = np.concatenate((row.prompt_P, row.tokens_T))
            tokens_RL[place, : len(joined)] = joined
            old_RT[place, : lengths[place]] = row.old_logprobs_T
            weights_RT[place, : lengths[place]] = row.weights_T
        numbers = np.asarray([(len(row.prompt_P), row.rise, row.fall) for row in rows])
        device = self.language_model.device
        first_R, rises_R, falls_R = torch.from_numpy(numbers).to(device, torch.float32).unbind(1)
        return _Batch(
            tokens_RL=torch.from_numpy(tokens_RL).to(device),
            mask_RT=torch.from_numpy(mask_RT).to(device),
            first_R=first_R.long(),
            old_logprobs_RT=torch.from_numpy(old_RT).to(device),
            rises_R=rises_R,
            falls_R=falls_R,
            weights_RT=torch.from_numpy(weights_RT).to(device),
        )

    def _frozen_copy(self) -> Any:
        return deepcopy(self._model).requires_grad_(False).eval()


def _own_weights(sampled: Sampled, credit: Credit, row: int) -> Floats:
    """What a method makes of a completion's tokens: all the same, unless it says otherwise."""
    if credit.token_weights_G is not None:
        return credit.token_weights_G[row]
    return np.ones(len(sampled.samples_G[row].tokens_T))


def _sides(credit: Credit, row: int) -> tuple[float, float]:
    """P and Q of a completion."""
    if credit.sides is not None:
        return float(credit.sides[0][row]), float(credit.sides[1][row])
    advantage = float(credit.advantages[row])
    return max(advantage, 0.0), min(advantage, 0.0)
