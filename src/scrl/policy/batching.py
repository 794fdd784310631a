"""Completions with their credit → rows to train on → the tensors of one pass.

    rows = training_rows(pairs, mean, max_tokens)
    for part in split_by_tokens(rows, most_tokens, is_packed):
        batch = Batch.of(part, device, is_packed)

Shapes: R completions of a batch, L columns, P prompt tokens, T completion tokens, n completion tokens of all R.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scrl.device import attention_without_cudnn, pad_rows, to_device
from scrl.policy.losses import token_weights
from scrl.policy.packing import Packing, packed_attention
from scrl.policy.settings import Mean
from scrl.records import Credit, Floats, Sampled, Tokens

PACKING_COST = 1.06
"""Time per packed token over time per padded one: 1 / 17,063 against 1 / 18,000 with 16 × 3,072 on an H200."""
MANY_TOKENS = 2**15
"""From this many tokens per pass on, cuDNN may plan for their length; below it, padded rows are never faster."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRow:
    """One completion to train on."""

    prompt_P: Tokens
    tokens_T: Tokens
    old_logprobs_T: Floats | None
    """log π_old; None if π_old is the policy at the time the row is trained on."""
    positive_part: float
    """P ≥ 0 of `SplitAdvantage`."""
    negative_part: float
    """Q ≤ 0; the advantage is P + Q."""
    token_weight: float
    """The weight of each of its tokens in the loss."""

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt_P) + len(self.tokens_T)


def training_rows(pairs: Sequence[tuple[Sampled, Credit]], mean: Mean, max_tokens: int) -> list[TrainingRow]:
    """The trained completions of one update, each token with its weight in the loss."""
    chosen = [(sampled, sampled.samples_G[i], credit, i) for sampled, credit in pairs for i in credit.trained]
    weights_R = token_weights([len(sample.tokens_T) for _, sample, _, _ in chosen], mean, max_tokens)
    rows = []
    for (sampled, sample, credit, i), weight in zip(chosen, weights_R.tolist(), strict=True):
        positive_G, negative_G = credit.split_advantages
        parts = float(positive_G[i]), float(negative_G[i])
        rows.append(TrainingRow(sampled.prompt_P, sample.tokens_T, sample.logprobs_T, *parts, weight))
    return rows


def with_old_logprobs(rows: Sequence[TrainingRow], old_RT: Tensor | None) -> list[TrainingRow]:
    """The rows with other log π_old; None changes nothing."""
    if old_RT is None:
        return list(rows)
    olds = old_RT.cpu().double().numpy()
    return [replace(row, old_logprobs_T=old_T[: len(row.tokens_T)]) for row, old_T in zip(rows, olds, strict=True)]


def split_by_tokens(rows: Sequence[TrainingRow], most: int, is_packed: bool) -> list[Sequence[TrainingRow]]:
    """`rows` in order, in parts of at most `most` tokens, but at least one row."""
    parts: list[list[TrainingRow]] = []
    for row in rows:
        if parts and num_tokens([*parts[-1], row], is_packed) <= most:
            parts[-1].append(row)
        else:
            parts.append([row])
    return [*parts]


def is_worth_packing(rows: Sequence[TrainingRow]) -> bool:
    """Whether packing is faster than padding: always, except for many tokens in rows of nearly one length."""
    padded, packed = (num_tokens(rows, is_packed) for is_packed in (False, True))
    return padded < MANY_TOKENS or padded > PACKING_COST * packed


def num_tokens(rows: Sequence[TrainingRow], is_packed: bool) -> int:
    """Tokens that a pass over these rows computes, padding included.

    Packed rows share their prompts. A copy of a shared key and value takes at most an eighth of the memory of a token's
    activations (in a Llama without grouped heads), and counts as an eighth of a token.
    """
    if not is_packed:
        return len(rows) * max(row.length for row in rows)
    parts = by_prompt(rows)
    copies = sum(len(part) * len(part[0].prompt_P) for part in parts if len(part) > 1)
    return sum(len(part[0].prompt_P) + sum(len(row.tokens_T) for row in part) for part in parts) + copies // 8


def by_prompt(rows: Sequence[TrainingRow]) -> list[list[TrainingRow]]:
    """Neighbouring rows of one question, which has one array of prompt tokens."""
    return [list(part) for _, part in groupby(rows, key=lambda row: id(row.prompt_P))]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """R rows, packed, or padded on the right: with causal attention nothing needs to be masked."""

    tokens_RL: Tensor
    """Prompts and completions; [1, L] if they are packed: each prompt once, with its completions after it."""
    packing: Packing | None
    mask_RT: Tensor
    """True where the completions have a token."""
    targets_n: Tensor
    """The completions' tokens, one completion after the other."""
    states_n: Tensor
    """The flat index into `tokens_RL` of the hidden state that predicts each of them: that of the token before it, or
    of the prompt's last."""
    places_n: Tensor
    """The flat index of each of them in [R, T]."""
    old_logprobs_RT: Tensor | None
    positive_part_R: Tensor
    negative_part_R: Tensor
    token_weight_R: Tensor

    def spread(self, values_n: Tensor) -> Tensor:
        """A number of each completion token as [R, T], with zeros as padding.

        Its gradient is an indexing. That of `masked_scatter` would count the mask, and wait for the GPU to do so.
        """
        blank_RT = torch.zeros(self.mask_RT.shape, dtype=values_n.dtype, device=values_n.device)
        return blank_RT.view(-1).index_copy(0, self.places_n, values_n).view_as(blank_RT)

    def attention(self, parts: tuple[Any, Any] | None) -> AbstractContextManager[None]:
        """The context for forward and backward passes over this batch; `parts`: the model's body and head, if any."""
        if self.packing is not None and parts:
            return packed_attention(parts[0].config)
        return nullcontext() if self.tokens_RL.numel() >= MANY_TOKENS else attention_without_cudnn()

    @classmethod
    def of(cls, rows: Sequence[TrainingRow], device: torch.device, is_packed: bool) -> Batch:
        """These rows on a device, without waiting for it."""
        lengths, packing = [len(row.tokens_T) for row in rows], None
        if is_packed:
            parts = by_prompt(rows)
            pieces = [piece for part in parts for piece in (part[0].prompt_P, *(row.tokens_T for row in part))]
            tokens_RL = np.concatenate(pieces).astype(np.int64)[None]
            firsts_R, lasts_R = _places_in_sequence(parts)
            groups: list[tuple[int, list[int]]] = [  # a single row is one piece
                (len(part[0].prompt_P), [len(row.tokens_T) for row in part]) if len(part) > 1 else (part[0].length, [])
                for part in parts
            ]
            packing = Packing.of(groups, device)
        else:
            tokens_RL = pad_rows([np.concatenate((row.prompt_P, row.tokens_T)) for row in rows], np.int64)
            firsts_R = tokens_RL.shape[1] * np.arange(len(rows)) + [len(row.prompt_P) for row in rows]
            lasts_R = firsts_R - 1
        mask_RT = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        rows_n, columns_n = mask_RT.nonzero()
        states_n = np.where(columns_n == 0, lasts_R[rows_n], firsts_R[rows_n] + columns_n - 1)
        old_R = [row.old_logprobs_T for row in rows if row.old_logprobs_T is not None]
        numbers = [(row.positive_part, row.negative_part, row.token_weight) for row in rows]
        numbers_R3 = to_device(np.asarray(numbers, dtype=np.float32), device)
        positive_part_R, negative_part_R, token_weight_R = numbers_R3.unbind(1)
        return cls(
            tokens_RL=to_device(tokens_RL, device),
            packing=packing,
            mask_RT=to_device(mask_RT, device),
            targets_n=to_device(np.concatenate([row.tokens_T for row in rows]).astype(np.int64), device),
            states_n=to_device(states_n, device),
            places_n=to_device(mask_RT.ravel().nonzero()[0], device),
            old_logprobs_RT=to_device(pad_rows(old_R, np.float32), device) if old_R else None,
            positive_part_R=positive_part_R,
            negative_part_R=negative_part_R,
            token_weight_R=token_weight_R,
        )


def _places_in_sequence(parts: Sequence[Sequence[TrainingRow]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The index of each row's first own token, and of its prompt's last, when completions follow their prompt."""
    firsts, lasts, place = [], [], 0
    for part in parts:
        place += len(part[0].prompt_P)
        lasts += [place - 1] * len(part)
        for row in part:
            firsts.append(place)
            place += len(row.tokens_T)
    return np.asarray(firsts), np.asarray(lasts)
