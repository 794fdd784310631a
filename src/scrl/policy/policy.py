"""Advantages → weights: one optimizer step for each question's trained completions.

    policy = Policy(language_model, loss, optimizer, compute, updates=1920, temperature=1.0, max_tokens=1024)
    report = policy.update(sampled_B, credit_B)

Shapes: B questions, U updates, R completions of a micro-batch, T tokens, n tokens of all R, E hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from scrl.attention import unplanned_attention
from scrl.errors import TrainingError
from scrl.policy.batching import MANY_TOKENS, Batch, TrainedRow, filled, is_worth_packing, num_tokens, trained_rows
from scrl.policy.losses import clipped_surrogate, completion_ratios, is_clipped, kl_to_reference, token_ratios
from scrl.policy.low_memory_adamw import open_optimizer
from scrl.policy.model import LanguageModel, body_and_head
from scrl.policy.packing import packed_attention, packs_rows
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.policy.token_scores import CHUNK_ELEMENTS, logit_scores, token_scores
from scrl.records import Credit, Sampled

Result = TypeVar("Result")
Measured = dict[str, Tensor | int]
"""Sums over the tokens of a micro-batch; on a GPU they are perhaps still to come."""
MEASURED = ("loss", "clipped", "trained", "kl", "tokens")
"""The loss, tokens trained on that were clipped, tokens trained on (those with a weight), KL, all tokens."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What the updates of one step did."""

    loss: float
    grad_norm: float
    clipped_share: float
    learning_rate: float
    kl: float | None
    notes: tuple[str, ...] = ()


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
        self.micro_tokens = compute.micro_tokens
        self.optimizer = open_optimizer(self._model.parameters(), optimizer, updates)
        self._reference = self._frozen_copy() if loss.kl_weight and not language_model.has_adapter else None
        self._plain = body_and_head(self._model)
        self._reference_plain = body_and_head(self._reference) if self._reference is not None else None
        self._is_rounded = any(weight.dtype != torch.float32 for weight in self._model.parameters())
        self._notes: list[str] = []
        self._is_checkpointed = compute.gradient_checkpointing
        self._chunk_elements: int | None = None
        self.make_room: Callable[[], str | None] = lambda: None
        """Asked first when memory runs out: whether somebody else gives some back, in words."""
        self.is_packed, self.note = packs_rows(self._plain, compute)
        self._is_always_packed = compute.packing == "on"
        if self._plain is None:
            self.note = "this model changes its logits, so they are held whole: more memory"

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
            rows_U = [_unscored(rows_U[0]), *(self._that_fits(self.rescored, rows) for rows in rows_U[1:])]
        done = [self._step(rows) for rows in rows_U]
        tokens = max(1.0, sum(d["tokens"] for d in done))
        return UpdateReport(
            loss=float(np.mean([d["loss"] for d in done])),
            grad_norm=float(np.mean([d["grad_norm"] for d in done])),
            clipped_share=sum(d["clipped"] for d in done) / max(1.0, sum(d["trained"] for d in done)),
            learning_rate=done[-1]["learning_rate"],
            kl=sum(d["kl"] for d in done) / tokens if self._loss.kl_weight else None,
            notes=tuple(self._notes),
        )

    def rows(self, pairs: Sequence[tuple[Sampled, Credit]]) -> list[TrainedRow]:
        """The trained completions of one update, each token with its weight in the loss."""
        return trained_rows(pairs, self._loss.mean, self._max_tokens)

    @torch.no_grad()
    def rescored(self, rows: Sequence[TrainedRow]) -> list[TrainedRow]:
        """The rows with π_old as the update's own forward pass sees it, without an adapter's dropout.

        In bfloat16 two ways to compute the same log-probability differ by some percent; the ratio must start at 1. Not
        needed for a step's first update: there π_old is what the update itself computes.
        """
        parts = self._micro_batches(rows)
        self._model.eval()
        try:
            scores = [self.score(self._batch(part))[0] for part in parts]  # all are begun before the first is looked at
        finally:  # memory may have run out
            self._set_mode()
        return [
            replace(row, old_logprobs_T=old_T[: len(row.tokens_T)])
            for part, logprobs_RT in zip(parts, scores, strict=True)
            for row, old_T in zip(part, logprobs_RT.cpu().double().numpy(), strict=True)
        ]

    def _set_mode(self) -> None:
        """No dropout but the adapter's own. Gradient checkpointing works in training mode alone."""
        self._model.train(self._is_checkpointed)
        for name, module in self._model.named_modules():
            if "lora_dropout" in name:
                module.train()

    def _step(self, rows: Sequence[TrainedRow]) -> dict[str, float]:
        learning_rate = self.optimizer.learning_rate
        measured_P = self._that_fits(self.gradient, rows)
        grad_norm = self.optimizer.step()
        measured = totals(measured_P)
        if not (math.isfinite(measured["loss"]) and math.isfinite(grad_norm)):
            raise TrainingError(
                f"the loss is {measured['loss']} and the gradient's norm {grad_norm}: training cannot go on. Lower "
                "optimizer.learning_rate, or compute in float32 (compute.dtype)."
            )
        return measured | {"grad_norm": grad_norm, "learning_rate": learning_rate}

    def _that_fits(self, work: Callable[[Sequence[TrainedRow]], Result], rows: Sequence[TrainedRow]) -> Result:
        """Work on rows by micro-batches, with less at a time as often as memory asks for it."""
        while True:
            try:
                return work(rows)
            except torch.OutOfMemoryError as error:
                self.optimizer.clear()
                changed = self.make_room() or self._take_less(self._micro_batches(rows))
                if changed is None:
                    raise TrainingError(
                        "memory ran out with one completion at a time. Shorten sampling.max_tokens, turn on "
                        "compute.gradient_checkpointing, or train an adapter (lora)."
                    ) from error
            self._notes.append(f"memory ran out: {changed}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _micro_batches(self, rows: Sequence[TrainedRow]) -> list[Sequence[TrainedRow]]:
        """`rows` in order, in parts of `micro_batch` rows or of at most `micro_tokens` tokens."""
        if self.micro_tokens is not None:
            return filled(rows, self.micro_tokens, self.is_packed)
        return [rows[first : first + self.micro_batch] for first in range(0, len(rows), self.micro_batch)]

    def _take_less(self, parts: Sequence[Sequence[TrainedRow]]) -> str | None:
        """Half of these parts at a time, then smaller blocks of logits; what changed, in words, if anything could.

        Packed rows are counted in tokens from then on: fewer rows a pass would also be fewer where they are short.
        """
        if max(map(len, parts)) == 1:
            return self._shrink_blocks()
        if self.micro_tokens is not None or self.is_packed:
            self.micro_tokens = max(num_tokens(part, self.is_packed) for part in parts if len(part) > 1) // 2
            return f"compute.micro_tokens is now {self.micro_tokens}"
        self.micro_batch = max(map(len, parts)) // 2
        return f"compute.micro_batch is now {self.micro_batch}"

    def _shrink_blocks(self) -> str | None:
        """Once; a model that gives its logits whole has no blocks."""
        if self._plain is None or self._chunk_elements is not None:
            return None
        self._chunk_elements = CHUNK_ELEMENTS
        return f"logits in blocks of {4 * CHUNK_ELEMENTS // 2**20} MiB"

    def gradient(self, rows: Sequence[TrainedRow]) -> list[Measured]:
        """Leave the gradient of the loss over `rows` in the masters; what was measured in each of P micro-batches.

        Nothing is looked at on the way: a GPU works on one micro-batch while the next is put together.
        """
        measured_P: list[Measured] = []
        parts = self._micro_batches(rows)
        self.optimizer.expect(len(parts))
        for part in parts:
            batch = self._batch(part)
            with _attention(batch, self._plain):  # which activations that are computed again need too
                loss, measured = self._batch_loss(batch)
                loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self.optimizer.collect()
            measured_P.append(measured)
        return measured_P

    def _batch_loss(self, batch: Batch) -> tuple[Tensor, Measured]:
        loss = self._loss
        mask_RT = batch.mask_RT
        logprobs_RT, entropies_RT = self.score(batch)
        old_RT = logprobs_RT.detach() if batch.old_logprobs_RT is None else batch.old_logprobs_RT
        clip: dict[str, Any] = {"clip_low": loss.clip_low, "clip_high": loss.clip_high, "dual_clip": loss.dual_clip}
        if loss.ratio == "completion":
            ratios_RT = completion_ratios(logprobs_RT, old_RT, mask_RT)
        else:
            ratios_RT = token_ratios(logprobs_RT, old_RT)
        token_loss_RT = clipped_surrogate(ratios_RT, batch.rises_R, batch.falls_R, **clip)
        trained_RT = batch.weights_RT > 0
        clipped_RT = is_clipped(ratios_RT, batch.rises_R, batch.falls_R, **clip) & trained_RT
        measured: Measured = {
            "clipped": clipped_RT.sum(), "trained": trained_RT.sum(), "tokens": len(batch.targets_n)
        }  # fmt: skip
        if loss.kl_weight:
            kl_RT = kl_to_reference(logprobs_RT, self._reference_logprobs(batch), loss.kl)
            token_loss_RT = token_loss_RT + loss.kl_weight * kl_RT
            measured["kl"] = (kl_RT.detach() * mask_RT).sum()
        if loss.entropy_bonus:
            token_loss_RT = token_loss_RT - loss.entropy_bonus * entropies_RT
        total = (torch.where(mask_RT, token_loss_RT, 0.0) * batch.weights_RT).sum()
        return total, measured | {"loss": total.detach()}

    def score(self, batch: Batch, *, by_reference: bool = False) -> tuple[Tensor, Tensor]:
        """log π and H of every completion token, [R, T], by this model or by the frozen copy of the start model."""
        model: Any = self._reference if by_reference else self._model
        plain = self._reference_plain if by_reference else self._plain
        targets_n, where_n = batch.targets_n, batch.places_n
        if plain is None:
            logits_RLV = model(input_ids=batch.tokens_RL, use_cache=False).logits
            scores = logit_scores(logits_RLV.flatten(0, 1)[where_n], targets_n, self._temperature)
        else:
            body, head = plain
            places = {} if batch.packing is None else batch.packing.arguments()
            with _attention(batch, plain):
                hidden_RLE = body(input_ids=batch.tokens_RL, use_cache=False, **places).last_hidden_state
            scores = token_scores(
                hidden_RLE.flatten(0, 1)[where_n],
                head.weight,
                targets_n,
                bias_V=head.bias,
                temperature=self._temperature,
                chunk_elements=self._chunk_elements,
            )
        blank_RT = torch.zeros(batch.mask_RT.shape, device=targets_n.device)
        logprobs_RT, entropies_RT = (blank_RT.masked_scatter(batch.mask_RT, score_n) for score_n in scores)
        return logprobs_RT, entropies_RT

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch) -> Tensor:
        """By the start model: the adapter switched off, or the frozen copy."""
        if self._reference is not None:
            return self.score(batch, by_reference=True)[0]
        with self._model.disable_adapter():
            return self.score(batch)[0]

    def _batch(self, rows: Sequence[TrainedRow]) -> Batch:
        is_packed = self.is_packed and (self._is_always_packed or is_worth_packing(rows))
        return Batch.of(rows, self.language_model.device, is_packed)

    def _frozen_copy(self) -> Any:
        return deepcopy(self._model).requires_grad_(False).eval()


def _unscored(rows: Sequence[TrainedRow]) -> list[TrainedRow]:
    """The rows of an update by the policy that drew them.

    With an adapter's dropout, π and π_old then have the same mask: the ratio is 1, and the gradient that of log π under
    the mask.
    """
    return [replace(row, old_logprobs_T=None) for row in rows]


def totals(measured_P: Sequence[Measured]) -> dict[str, float]:
    """Of P micro-batches."""
    return {key: sum(float(part.get(key, 0)) for part in measured_P) for key in MEASURED}


def _attention(batch: Batch, plain: tuple[Any, Any] | None) -> AbstractContextManager[None]:
    """What a forward and backward pass of a body over this batch runs in."""
    if batch.packing is not None and plain:
        return packed_attention(plain[0].config)
    return nullcontext() if batch.tokens_RL.numel() >= MANY_TOKENS else unplanned_attention()
