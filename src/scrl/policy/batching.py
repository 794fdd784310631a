"""Completions with their credit → rows to train on → the tensors of one pass.

    rows = trained_rows(pairs, mean, max_tokens)
    for part in filled(rows, micro_tokens, is_packed):
        batch = Batch.of(part, device, is_packed)

Shapes: R completions of a batch, L columns, P prompt tokens, T completion tokens, n completion tokens of all R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scrl.device_copy import sent, stacked
from scrl.policy.losses import Mean, token_weights
from scrl.policy.packing import Packing
from scrl.records import Credit, Floats, Sampled, Tokens

PACKING_COSTS = 1.06
"""Seconds of a packed token, in those of a padded one: 1 / 17,063 against 1 / 18,000 with 16 × 3,072 on an H200."""
MANY_TOKENS = 2**15
"""Of a pass: so many that cuDNN may plan for their length, without which padded rows are not the faster ones."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedRow:
    """One completion to train on."""

    prompt_P: Tokens
    tokens_T: Tokens
    old_logprobs_T: Floats | None
    """log π_old; None where π_old is the policy as it is when the row is trained on."""
    rise: float
    """P ≥ 0."""
    fall: float
    """Q ≤ 0; the advantage is P + Q."""
    weights_T: Floats
    """Of its tokens in the loss."""

    @property
    def length(self) -> int:
        """Of prompt and completion."""
        return len(self.prompt_P) + len(self.tokens_T)


def trained_rows(pairs: Sequence[tuple[Sampled, Credit]], mean: Mean, max_tokens: int) -> list[TrainedRow]:
    """The trained completions of one update, each token with its weight in the loss."""
    chosen = [(sampled, credit, row) for sampled, credit in pairs for row in credit.trained]
    own_R = [_own_weights(sampled, credit, row) for sampled, credit, row in chosen]
    shared_R = token_weights([float(own_T.sum()) for own_T in own_R], mean, max_tokens)
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


def filled(rows: Sequence[TrainedRow], most: int, is_packed: bool) -> list[Sequence[TrainedRow]]:
    """`rows` in order, in parts of at most `most` tokens, but at least one row."""
    parts: list[list[TrainedRow]] = []
    for row in rows:
        if parts and num_tokens([*parts[-1], row], is_packed) <= most:
            parts[-1].append(row)
        else:
            parts.append([row])
    return [*parts]


def is_worth_packing(rows: Sequence[TrainedRow]) -> bool:
    """Whether packing is the faster of the two: always, but for many tokens in rows of nearly one length."""
    padded, packed = (num_tokens(rows, is_packed) for is_packed in (False, True))
    return padded < MANY_TOKENS or padded > PACKING_COSTS * packed


def num_tokens(rows: Sequence[TrainedRow], is_packed: bool) -> int:
    """What a pass over these rows computes, padding included."""
    lengths = [row.length for row in rows]
    return sum(lengths) if is_packed else len(lengths) * max(lengths)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """R rows, packed, or padded on the right: with causal attention nothing needs to be masked."""

    tokens_RL: Tensor
    """Prompts and completions; all of them in one row where they are packed."""
    packing: Packing | None
    mask_RT: Tensor
    """Where the completions have a token."""
    targets_n: Tensor
    """The completions' tokens, one completion after the other."""
    places_n: Tensor
    """Where each of them is predicted: the place of the token before it among all `tokens_RL`, row after row."""
    old_logprobs_RT: Tensor | None
    rises_R: Tensor
    falls_R: Tensor
    weights_RT: Tensor

    @classmethod
    def of(cls, rows: Sequence[TrainedRow], device: torch.device, is_packed: bool) -> Batch:
        """Of these rows, on this device, without waiting for it."""
        tokens_RL, starts_R = packed(rows) if is_packed else padded(rows)
        lengths = [len(row.tokens_T) for row in rows]
        mask_RT = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
        old_R = [row.old_logprobs_T for row in rows if row.old_logprobs_T is not None]
        firsts_R = starts_R + np.asarray([len(row.prompt_P) for row in rows])
        rows_n, columns_n = mask_RT.nonzero()
        sides_R2 = np.asarray([(row.rise, row.fall) for row in rows], dtype=np.float32)
        rises_R, falls_R = sent(sides_R2, device).unbind(1)
        return cls(
            tokens_RL=sent(tokens_RL, device),
            packing=Packing.of([row.length for row in rows], device) if is_packed else None,
            mask_RT=sent(mask_RT, device),
            targets_n=sent(np.concatenate([row.tokens_T for row in rows]).astype(np.int64), device),
            places_n=sent(firsts_R[rows_n] + columns_n - 1, device),
            old_logprobs_RT=sent(stacked(old_R, np.float32), device) if old_R else None,
            rises_R=rises_R,
            falls_R=falls_R,
            weights_RT=sent(stacked([row.weights_T for row in rows], np.float32), device),
        )


def padded(rows: Sequence[TrainedRow]) -> tuple[Tokens, Tokens]:
    """Prompts and completions [R, L], and where each row starts when they are read row after row."""
    tokens_RL = stacked([np.concatenate((row.prompt_P, row.tokens_T)) for row in rows], np.int64)
    return tokens_RL, tokens_RL.shape[1] * np.arange(len(rows))


def packed(rows: Sequence[TrainedRow]) -> tuple[Tokens, Tokens]:
    """Prompts and completions [1, N], and where each row starts."""
    tokens_N = np.concatenate([part for row in rows for part in (row.prompt_P, row.tokens_T)]).astype(np.int64)
    return tokens_N[None], np.cumsum([0, *(row.length for row in rows[:-1])])
