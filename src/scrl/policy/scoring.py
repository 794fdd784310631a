"""log π and H of tokens by a model.

Shapes: R completions, L columns, n completion tokens of a batch, E hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scrl.device import attention_without_cudnn, pad_rows, to_device
from scrl.errors import TrainingError
from scrl.policy.model import in_eval_mode, plain_model
from scrl.policy.token_scores import logit_scores, token_scores
from scrl.records import Floats, Tokens

BodyAndHead = tuple[Any, nn.Linear]
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
    with in_eval_mode(model.modules()):
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


def completion_logprobs(model: Any, pairs_R: Sequence[tuple[Tokens, Tokens]]) -> list[Floats]:
    """log π of every token of completions, each given after its prompt, without gradient.

    Completions of similar length share a pass of at most SCORED_TOKENS tokens, padded on the right, where causal
    attention never looks.
    """
    score_tokens, device = TokenScorer(model), next(model.parameters()).device
    logprobs: dict[int, Floats] = {}
    left = sorted(range(len(pairs_R)), key=lambda row: -sum(map(len, pairs_R[row])))
    try:
        with in_eval_mode(model.modules()), attention_without_cudnn():
            while left:
                size = max(1, SCORED_TOKENS // sum(map(len, pairs_R[left[0]])))
                rows, left = left[:size], left[size:]
                pairs = [pairs_R[row] for row in rows]
                tokens_RL = pad_rows([np.concatenate(pair) for pair in pairs], np.int64)
                states_n = np.concatenate([  # the hidden state before a token predicts it
                    row * tokens_RL.shape[1] + np.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
                    for row, (prompt, tokens) in enumerate(pairs)
                ])  # fmt: skip
                targets_n = np.concatenate([tokens for _, tokens in pairs])
                inputs = [to_device(values, device) for values in (tokens_RL, states_n, targets_n)]
                logprobs_n, _ = score_tokens(inputs[0], inputs[1], inputs[2], temperature=1.0)
                ends = np.cumsum([len(tokens) for _, tokens in pairs])[:-1]
                logprobs |= zip(rows, np.split(logprobs_n.double().cpu().numpy(), ends), strict=True)
    except torch.OutOfMemoryError as error:
        raise TrainingError("memory ran out while completions were scored: shorten sampling.max_tokens") from error
    return [logprobs[row] for row in range(len(pairs_R))]
