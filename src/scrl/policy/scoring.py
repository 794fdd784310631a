"""Completions → what the policy thinks of their tokens, for samplers that draw without telling.

    score = scorer(model)
    scores_R = score(pairs_R, temperature)          pairs (prompt_P, tokens_T) → (log π_T, H_T)

One forward pass over prompt and completion, without gradient. Completions of like length go together, as many as
SCORED_TOKENS tokens hold, padding counted in; padded on the right, where causal attention never looks.
Shapes: R completions, L columns, n completion tokens of a batch, E hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scrl.attention import unplanned_attention
from scrl.device_copy import sent, stacked
from scrl.errors import TrainingError
from scrl.policy.model import body_and_head
from scrl.policy.token_scores import logit_scores, token_scores
from scrl.records import Floats, Tokens

Pair = tuple[Tokens, Tokens]
"""A prompt and a completion."""
Scores = tuple[Floats, Floats]
"""log π(token) and entropy of every token of a completion."""
Score = Callable[[Sequence[Pair], float], list[Scores]]
SCORED_TOKENS = 2**14
"""Tokens of a forward pass: in the 3B shape of Qwen2.5 its widest activation, [16384, 11008] of bf16, takes 361 MB."""


def scorer(model: Any) -> Score:
    """Scores completions by `model` as it is at the time of the call; whether it is in training mode is left alone."""
    plain = body_and_head(model)

    @torch.no_grad()
    def score(pairs_R: Sequence[Pair], temperature: float) -> list[Scores]:
        was_training = model.training
        model.eval()
        scored: dict[int, Scores] = {}
        try:
            for rows in batches([len(prompt) + len(tokens) for prompt, tokens in pairs_R], SCORED_TOKENS):
                scored |= zip(rows, _scores(model, plain, [pairs_R[row] for row in rows], temperature), strict=True)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                "memory ran out while completions were scored. Lower compute.vllm_memory, or shorten "
                "sampling.max_tokens."
            ) from error
        finally:
            model.train(was_training)
        return [scored[row] for row in range(len(pairs_R))]

    return score


def batches(lengths_R: Sequence[int], most: int) -> Iterator[list[int]]:
    """Rows that go together, longest first: rows × longest ≤ most, and at least one row."""
    order = sorted(range(len(lengths_R)), key=lambda row: -lengths_R[row])
    while order:
        size = max(1, most // max(1, lengths_R[order[0]]))
        yield order[:size]
        order = order[size:]


def _scores(model: Any, plain: Any, pairs: Sequence[Pair], temperature: float) -> list[Scores]:
    device = next(model.parameters()).device
    tokens_RL = stacked([np.concatenate(pair) for pair in pairs], np.int64)
    width = tokens_RL.shape[1]
    where_n = np.concatenate([  # the hidden state before a token predicts it
        row * width + np.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
        for row, (prompt, tokens) in enumerate(pairs)
    ])  # fmt: skip
    targets_n = np.concatenate([tokens for _, tokens in pairs])
    places = (sent(values, device) for values in (tokens_RL, where_n, targets_n))
    found = _token_scores(model, plain, temperature, *places)
    ends = np.cumsum([len(tokens) for _, tokens in pairs])[:-1]
    logprobs, entropies = (np.split(values_n.double().cpu().numpy(), ends) for values_n in found)
    return list(zip(logprobs, entropies, strict=True))


def _token_scores(
    model: Any, plain: Any, temperature: float, tokens_RL: Tensor, where_n: Tensor, targets_n: Tensor
) -> tuple[Tensor, Tensor]:
    """log π and H of the tokens that the states at these flat places predict."""
    if plain is None:
        with unplanned_attention():
            logits_nV = model(input_ids=tokens_RL, use_cache=False).logits.flatten(0, 1)[where_n]
        return logit_scores(logits_nV, targets_n, temperature)
    body, head = plain
    with unplanned_attention():
        hidden_nE = body(input_ids=tokens_RL, use_cache=False).last_hidden_state.flatten(0, 1)[where_n]
    return token_scores(hidden_nE, head.weight, targets_n, bias_V=head.bias, temperature=temperature)
