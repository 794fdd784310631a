"""log π and H of tokens by a model.

    score = scorer(model)
    scores_R = score(pairs_R, temperature)          pairs (prompt_P, tokens_T) → (log π_T, H_T)

`scorer` is for samplers that draw without recording either, and for a run's probe: one forward pass over prompt and
completion, without gradient. Completions of similar length share a batch of at most SCORED_TOKENS tokens, padding
included; they are padded on the right, where causal attention never looks.

Shapes: R completions, L columns, n completion tokens of a batch, E hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scrl.attention import attention_without_cudnn
from scrl.device_copy import pad_rows, to_device
from scrl.errors import TrainingError
from scrl.policy.model import in_eval_mode, plain_model
from scrl.policy.token_scores import logit_scores, token_scores
from scrl.records import Floats, Tokens

BodyAndHead = tuple[Any, nn.Linear]
Pair = tuple[Tokens, Tokens]
"""A prompt and a completion."""
Scores = tuple[Floats, Floats]
"""log π and entropy of every token of a completion."""
SCORED_TOKENS = 2**14
"""Tokens of a forward pass: in the 3B shape of Qwen2.5 its widest activation, [16384, 11008] of bf16, takes 361 MB."""


def body_and_head(model: Any) -> BodyAndHead | None:
    """The part that gives hidden states and the linear head on top, if the logits are just head(body).

    None if a model does something else to its logits (a cap, a scale): then they are taken from it whole.
    """
    inner = plain_model(model)
    head, body = inner.get_output_embeddings(), getattr(inner, inner.base_model_prefix, None)
    config = inner.config.get_text_config()
    if not isinstance(head, nn.Linear) or body is None or getattr(config, "final_logit_softcapping", None):
        return None  # a cap does not show on small logits; everything else shows below
    tokens_13 = torch.arange(3, device=head.weight.device)[None]
    with in_eval_mode(model):
        expected = model(input_ids=tokens_13, use_cache=False).logits
        found = head(body(input_ids=tokens_13, use_cache=False).last_hidden_state)
    is_same = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    return (body, head) if is_same else None


class TokenScorer:
    """Scores tokens by a model: by its body and head in chunks, or from whole logits where it has no plain head."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.body_and_head = body_and_head(model)

    def __call__(
        self, tokens_RL: Tensor, states_n: Tensor, targets_n: Tensor, temperature: float, *,
        chunk_elements: int | None = None, **arguments: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """log π and H of n tokens, each predicted by the hidden state at a flat index into `tokens_RL`.

        `arguments` are the body's own.
        """
        if self.body_and_head is None:
            logits_nV = self.model(input_ids=tokens_RL, use_cache=False).logits.flatten(0, 1)[states_n]
            return logit_scores(logits_nV, targets_n, temperature)
        body, head = self.body_and_head
        hidden_nE = body(input_ids=tokens_RL, use_cache=False, **arguments).last_hidden_state.flatten(0, 1)[states_n]
        options: dict[str, Any] = {"temperature": temperature, "chunk_elements": chunk_elements}
        return token_scores(hidden_nE, head.weight, targets_n, bias_V=head.bias, **options)


def scorer(model: Any) -> Callable[[Sequence[Pair], float], list[Scores]]:
    """Scores completions by `model` as it is at the time of the call; its mode (training or not) is left alone."""
    score_tokens = TokenScorer(model)

    def score(pairs_R: Sequence[Pair], temperature: float) -> list[Scores]:
        scores: dict[int, Scores] = {}
        try:
            with in_eval_mode(model):
                for rows in batches([len(prompt) + len(tokens) for prompt, tokens in pairs_R], SCORED_TOKENS):
                    found = _score_batch(score_tokens, [pairs_R[row] for row in rows], temperature)
                    scores |= zip(rows, found, strict=True)
        except torch.OutOfMemoryError as error:
            raise TrainingError("memory ran out while completions were scored: shorten sampling.max_tokens") from error
        return [scores[row] for row in range(len(pairs_R))]

    return score


def batches(lengths_R: Sequence[int], most: int) -> Iterator[list[int]]:
    """Rows that share a batch, longest first: rows × longest ≤ most, and at least one row."""
    order = sorted(range(len(lengths_R)), key=lambda row: -lengths_R[row])
    while order:
        size = max(1, most // max(1, lengths_R[order[0]]))
        yield order[:size]
        order = order[size:]


def _score_batch(score_tokens: TokenScorer, pairs: Sequence[Pair], temperature: float) -> list[Scores]:
    device = next(score_tokens.model.parameters()).device
    tokens_RL = pad_rows([np.concatenate(pair) for pair in pairs], np.int64)
    states_n = np.concatenate([  # the hidden state before a token predicts it
        row * tokens_RL.shape[1] + np.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
        for row, (prompt, tokens) in enumerate(pairs)
    ])  # fmt: skip
    targets_n = np.concatenate([tokens for _, tokens in pairs])
    with attention_without_cudnn():
        inputs = (to_device(tokens_RL, device), to_device(states_n, device), to_device(targets_n, device))
        scores = score_tokens(*inputs, temperature)
    ends = np.cumsum([len(tokens) for _, tokens in pairs])[:-1]
    logprobs, entropies = (np.split(values_n.double().cpu().numpy(), ends) for values_n in scores)
    return list(zip(logprobs, entropies, strict=True))
