"""Advantages → weights: one optimizer step for every `questions_per_update` questions.

    policy = Policy(language_model, loss, optimizer, compute, updates=1920, temperature=1.0, max_tokens=1024)
    report = policy.update(sampled_B, credit_B)

Shapes: B questions, R completions of a micro-batch, T tokens, n tokens of all R.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from scrl.errors import TrainingError
from scrl.policy.batching import (
    Batch,
    TrainingRow,
    is_worth_packing,
    num_tokens,
    split_by_tokens,
    training_rows,
    with_old_logprobs,
)
from scrl.policy.fused_layers import fuse_layers
from scrl.policy.losses import (
    Clip,
    clipped_surrogate,
    completion_ratios,
    is_clipped,
    kl_to_reference,
    require_finite,
    token_ratios,
)
from scrl.policy.memory import PassMemory, free_room, measure_pass
from scrl.policy.model import LanguageModel, plain_model, recompute_activations
from scrl.policy.optimizer import open_optimizer
from scrl.policy.packing import choose_packing
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.policy.token_scores import CHUNK_ELEMENTS, TokenScorer
from scrl.records import Credit, Sampled

Result = TypeVar("Result")
Number_co = TypeVar("Number_co", covariant=True)
Updates = Sequence[Sequence[TrainingRow]]
"""The rows of each update."""
TRIED_LENGTH = 1024
"""Tokens of the completions that memory is measured on. sampling.max_tokens may be larger, but is rarely reached."""
Queued = Tensor | float
"""A number that a GPU may still be computing."""


class Sums(NamedTuple, Generic[Number_co]):
    """Sums over the tokens of a micro-batch, or of all micro-batches of an update."""

    loss: Number_co
    clipped: Number_co
    tokens: Number_co
    kl: Number_co


def total(sums: Sequence[Sums[Queued]]) -> Sums[float]:
    """The sums over all micro-batches, once they are computed."""
    return Sums(*(sum(float(getattr(each, name)) for each in sums) for name in Sums._fields))


class QueuedUpdate(NamedTuple):
    """An optimizer step that a GPU may still be computing."""

    sums: Sequence[Sums[Queued]]
    """The sums of its micro-batches."""
    grad_norm: Tensor
    learning_rate: float

    def read(self) -> tuple[Sums[float], float]:
        """Its sums and the gradient's norm, once they are computed; refused if they are not finite."""
        sums, grad_norm = total(self.sums), float(self.grad_norm)
        require_finite(sums.loss, grad_norm)
        return sums, grad_norm


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
        self.most_tokens: int | None = None
        """The most tokens of a pass that fit into memory, if that was measured or memory ran out."""
        self._pass_memory: PassMemory | None = None
        has_adapter = language_model.has_adapter
        self.optimizer = open_optimizer(self._model.parameters(), optimizer, updates, has_adapter=has_adapter)
        layers_note = fuse_layers(self._model)
        self._scorer = TokenScorer(self._model)
        self._reference: TokenScorer | None = None
        """A frozen copy of the start model; with an adapter, the model beneath it serves."""
        if loss.kl_weight and not language_model.has_adapter:
            self._reference = TokenScorer(deepcopy(self._model).requires_grad_(False).eval())
        self._is_rounded = any(weight.dtype != torch.float32 for weight in self._model.parameters())
        self.is_checkpointed = compute.gradient_checkpointing
        """Whether activations are computed twice; a policy that runs out of memory may begin to."""
        self._chunk_elements: int | None = None
        self._notes: list[str] = []
        self.make_room: Callable[[], str | None] = lambda: None
        """Called first when memory runs out: frees what others hold and says so, or returns None."""
        self.is_packed, packing_note = choose_packing(self._scorer.body_and_head)
        is_whole = self._scorer.body_and_head is None
        logits_note = "this model changes its logits, so they are held whole: more memory" if is_whole else None
        self.note = "; ".join(filter(None, (layers_note, packing_note, logits_note))) or None

    def measure_passes(self) -> str | None:
        """On a GPU: how many tokens of a pass fit into the memory that is free now; a note if that may be too few."""
        device = self.language_model.device
        if device.type != "cuda":
            return None
        notes: list[str] = []
        most_tokens = self._measure_most_tokens(device)
        if most_tokens < min(TRIED_LENGTH, self._max_tokens) and (change := self._recompute()):
            notes.append(f"one completion does not fit into the GPU's memory: {change}")
            most_tokens = self._measure_most_tokens(device)
        if self._pass_memory is None:
            return "; ".join(notes) or None
        self.most_tokens = max(1, most_tokens)
        if self.most_tokens < self.micro_batch * self._max_tokens:
            notes.append(f"passes of an update take at most {self.most_tokens:,} tokens: more do not fit")
        return "; ".join(notes) or None

    def _measure_most_tokens(self, device: torch.device) -> int:
        """The most tokens of a pass, as measured; 0 if none of the passes tried fits."""
        self._set_mode()
        self._pass_memory = measure_pass(self._try_pass, device)
        torch.cuda.empty_cache()
        if self._pass_memory is None:
            return 0
        return self._pass_memory.tokens(free_room(device) - self.optimizer.bytes_to_come)

    def _recompute(self) -> str | None:
        """Keep no activations from now on; returns what changed; None if it does so already or cannot."""
        if self.is_checkpointed or not plain_model(self._model).supports_gradient_checkpointing:
            return None
        recompute_activations(self._model)
        self.is_checkpointed = True
        self._pass_memory = self.most_tokens = None  # those of passes that keep them
        self._set_mode()
        return "activations are computed twice (compute.gradient_checkpointing)"

    def _try_pass(self, tokens: int) -> int:
        """The gradient over at least this many tokens, which is thrown away; how many there were.

        A tiny pass goes first: like all but the first pass of an update, the one that is measured adds to a gradient.
        """
        length = min(TRIED_LENGTH, self._max_tokens, tokens)
        tiny, row = (
            TrainingRow(np.zeros(1, np.int64), np.zeros(T, np.int64), None, 1.0, 0.0, 1.0) for T in (1, length)
        )
        in_all, each = (tokens - 1, length) if self.is_packed else (tokens, row.length)  # packed, they share the prompt
        rows = [row] * -(-in_all // each)
        self.optimizer.expect(2)
        try:
            for part in ([tiny], rows):
                batch = self._batch(part)
                with batch.attention(self._scorer.body_and_head):
                    self._batch_loss(batch)[0].backward()  # type: ignore[no-untyped-call, unused-ignore]
                self.optimizer.collect()
        finally:
            self.optimizer.clear()
        return num_tokens(rows, self.is_packed)

    def update(
        self, sampled_B: Sequence[Sampled], credit_B: Sequence[Credit], questions_per_update: int = 1
    ) -> UpdateReport:
        """One optimizer step for every `questions_per_update` questions, in the order given."""
        self._set_mode()
        self._notes.clear()
        pairs = list(zip(sampled_B, credit_B, strict=True))
        firsts = range(0, len(pairs), questions_per_update)
        updates = [self.rows(pairs[first : first + questions_per_update]) for first in firsts]
        if self._is_rounded:
            # Before a step's first update the weights are those that sampled: π_old is π, and the ratio 1.
            updates[0] = [replace(row, old_logprobs_T=None) for row in updates[0]]
            updates[1:] = self._retry(lambda: self.rescore(updates[1:]), updates[1:])
        queued = [self._step(rows) for rows in updates]  # all of them before one is read
        sums_U, norms_U = zip(*(update.read() for update in queued), strict=True)
        sums = total(sums_U)
        return UpdateReport(
            loss=float(np.mean([each.loss for each in sums_U])),
            grad_norm=float(np.mean(norms_U)),
            clipped_share=sums.clipped / max(1.0, sums.tokens),
            learning_rate=queued[-1].learning_rate,
            kl=sums.kl / max(1.0, sums.tokens) if self._loss.kl_weight else None,
            notes=tuple(self._notes),
        )

    def rows(self, pairs: Sequence[tuple[Sampled, Credit]]) -> list[TrainingRow]:
        """The trained completions of one update, each token with its weight in the loss."""
        return training_rows(pairs, self._loss.mean, self._max_tokens)

    def _set_mode(self) -> None:
        """Gradient checkpointing works in training mode only; there is no dropout in either mode."""
        self._model.train(self.is_checkpointed)

    @torch.no_grad()
    def rescore(self, updates: Updates) -> list[list[TrainingRow]]:
        """The rows of updates with π_old as each update's own forward pass sees it.

        In bfloat16 two ways to compute the same log-probability differ by a few percent; the ratio must start at 1.
        """
        # All are queued before the first is read.
        queued = [[(part, self._old_logprobs(part)) for part in self._micro_batches(rows)] for rows in updates]
        return [[row for part, old_RT in parts for row in with_old_logprobs(part, old_RT)] for parts in queued]

    def _old_logprobs(self, rows: Sequence[TrainingRow]) -> Tensor | None:
        return None if self.is_without_signal(rows) else self.score(self._batch(rows))[0]

    def _step(self, rows: Sequence[TrainingRow]) -> QueuedUpdate:
        learning_rate = self.optimizer.learning_rate
        self._check_room(rows)
        sums = self._retry(lambda: self.gradient(rows), [rows], keeps_activations=True)
        return QueuedUpdate(sums, self.optimizer.step(), learning_rate)

    def gradient(self, rows: Sequence[TrainingRow]) -> list[Sums[Queued]]:
        """Leave the gradient of the loss over `rows` in the masters; returns the sums of each micro-batch.

        No result is read on the way: a GPU computes one micro-batch while the next is prepared.
        """
        sums: list[Sums[Queued]] = []
        micro_batches = self._micro_batches(rows)
        self.optimizer.expect(len(micro_batches))
        if micro_batches and all(map(self.is_without_signal, micro_batches)):
            self.optimizer.expect_nothing()
        for part in micro_batches:
            if self.is_without_signal(part):
                # what the pass would have counted
                sums.append(Sums(loss=0, clipped=0, tokens=sum(len(row.tokens_T) for row in part), kl=0))
                continue
            batch = self._batch(part)
            with batch.attention(self._scorer.body_and_head):  # around backward too, which may recompute activations
                loss, sums_of_batch = self._batch_loss(batch)
                loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            self.optimizer.collect()
            sums.append(sums_of_batch)
        return sums

    def is_without_signal(self, rows: Sequence[TrainingRow]) -> bool:
        """Whether the loss of these rows is 0 whatever the weights: no advantage, no KL, no entropy bonus."""
        has_more = self._loss.kl_weight or self._loss.entropy_bonus
        return not has_more and not any(row.positive_part or row.negative_part for row in rows)

    def _batch_loss(self, batch: Batch) -> tuple[Tensor, Sums[Queued]]:
        """−J of eq. 2 over the completions of a micro-batch, and what is counted beside it.

        J = Σ_i Σ_t w_it min(ρ_it Â_i, clip(ρ_it, 1 − ε_low, 1 + ε_high) Â_i) − β KL (+ an entropy bonus), with
        w_it = 1 / (completions of the update · T_i) unless `loss.mean` is another; Â comes as P and Q, its two parts.
        """
        loss, mask_RT = self._loss, batch.mask_RT
        logprobs_RT, entropies_RT = self.score(batch)
        old_RT = logprobs_RT.detach() if batch.old_logprobs_RT is None else batch.old_logprobs_RT
        if loss.ratio == "completion":
            ratios_RT = completion_ratios(logprobs_RT, old_RT, mask_RT)
        else:
            ratios_RT = token_ratios(logprobs_RT, old_RT)
        parts_R = (batch.positive_part_R, batch.negative_part_R)
        clip = Clip(loss.clip_low, loss.clip_high, loss.dual_clip)
        token_loss_RT = clipped_surrogate(ratios_RT, *parts_R, clip)
        clipped_RT = is_clipped(ratios_RT, *parts_R, clip) & mask_RT
        kl: Queued = 0
        if loss.kl_weight:
            kl_RT = kl_to_reference(logprobs_RT, self._reference_logprobs(batch), loss.kl)
            token_loss_RT = token_loss_RT + loss.kl_weight * kl_RT
            kl = (kl_RT.detach() * mask_RT).sum()
        if loss.entropy_bonus:
            token_loss_RT = token_loss_RT - loss.entropy_bonus * entropies_RT
        loss_sum = (torch.where(mask_RT, token_loss_RT, 0.0) * batch.token_weight_R[:, None]).sum()
        return loss_sum, Sums(loss_sum.detach(), clipped_RT.sum(), len(batch.targets_n), kl)

    @torch.no_grad()
    def _reference_logprobs(self, batch: Batch) -> Tensor:
        """Scores by the start model: the frozen copy, or the model with its adapter switched off."""
        if self._reference is not None:
            return self.score(batch, self._reference)[0]
        with self._model.disable_adapter():
            return self.score(batch)[0]

    def score(self, batch: Batch, scorer: TokenScorer | None = None) -> tuple[Tensor, Tensor]:
        """log π and H of every completion token, [R, T], by this model or another."""
        scorer = scorer or self._scorer
        arguments = {} if batch.packing is None else batch.packing.arguments()
        with batch.attention(scorer.body_and_head):  # the reference has a body of its own
            scores = scorer(
                batch.tokens_RL, batch.states_n, batch.targets_n, self._temperature,
                chunk_elements=self._chunk_elements, **arguments,
            )  # fmt: skip
        logprobs_RT, entropies_RT = map(batch.spread, scores)
        return logprobs_RT, entropies_RT

    def _micro_batches(self, rows: Sequence[TrainingRow]) -> list[Sequence[TrainingRow]]:
        """`rows` in order, in parts of `micro_batch` rows and at most what fits."""
        parts = [rows[first : first + self.micro_batch] for first in range(0, len(rows), self.micro_batch)]
        if self.most_tokens is None:
            return parts
        return [piece for part in parts for piece in split_by_tokens(part, self.most_tokens, self.is_packed)]

    def _batch(self, rows: Sequence[TrainingRow]) -> Batch:
        is_packed = self.is_packed and is_worth_packing(rows)
        return Batch.of(rows, self.language_model.device, is_packed)

    def _check_room(self, rows: Sequence[TrainingRow]) -> None:
        """Ask for memory before it runs out, if others could give theirs back."""
        micro_batches = self._micro_batches(rows)
        if self._pass_memory is None or not micro_batches:
            return
        needed = self._pass_memory.bytes(max(num_tokens(part, self.is_packed) for part in micro_batches))
        if needed > free_room(self.language_model.device) and (change := self.make_room()):
            self._notes.append(f"the update needs {needed / 2**30:.1f} GiB: {change}")

    def _retry(self, work: Callable[[], Result], updates: Updates, *, keeps_activations: bool = False) -> Result:
        """Work on these updates by micro-batches; whenever memory runs out, start again with less at a time."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError as error:
                self.optimizer.clear()
                parts = [part for rows in updates for part in self._micro_batches(rows)]
                change = self.make_room() or self._take_less(parts, keeps_activations)
                if change is None:
                    words = "memory ran out with one completion at a time: shorten sampling.max_tokens, or set lora"
                    raise TrainingError(words) from error
            self._notes.append(f"memory ran out: {change}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _take_less(self, parts: Sequence[Sequence[TrainingRow]], keeps_activations: bool) -> str | None:
        """Halve the micro-batches `parts`; then shrink blocks of logits; then keep no activations, if they were kept.

        Returns what changed, or None if nothing could be changed. Packed rows are counted in tokens: with fewer rows
        per pass, short ones would be fewer too.
        """
        if max(map(len, parts)) == 1:
            if self._scorer.body_and_head is not None and self._chunk_elements is None:
                self._chunk_elements = CHUNK_ELEMENTS
                return f"logits in blocks of {4 * CHUNK_ELEMENTS // 2**20} MiB"
            return self._recompute() if keeps_activations else None
        if self.is_packed:
            self.most_tokens = max(num_tokens(part, is_packed=True) for part in parts if len(part) > 1) // 2
            return f"passes of an update take at most {self.most_tokens:,} tokens"
        self.micro_batch = max(map(len, parts)) // 2
        return f"compute.micro_batch is now {self.micro_batch}"
