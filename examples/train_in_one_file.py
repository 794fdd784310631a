"""SCRL on a language model in one file: sampling, labels, rewards, loss, optimizer. Only torch and transformers.

    python examples/train_in_one_file.py MODEL QUESTIONS.txt --steps 20 --out adapted

MODEL is a folder or a hub id of a causal chat model, QUESTIONS.txt has one question per line and no answers. A model
that reads nothing but arithmetic, such as an export of scrl's embedded one, needs --instruction ''. Equations are
numbered as in the paper (arXiv:2603.19880). Nothing of the package is imported; a test checks that two steps give the
same weights as the package, which adds: exact comparison of answers (here they are equal when their texts are), fast
samplers, memory savings, evaluation, resuming, reports, other methods and engines.

Shapes: G completions of a question (N of them, M trained on), R rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

MIN_SHARE, MIN_MARGIN, MAX_NEGATIVE_SHARE, ENTROPY_WEIGHT = 0.375, 0.125, 0.125, 0.1
"""τ_pos, τ_marg, τ_neg and λ_H, the paper's values."""
SLACK = 1e-12
"""Shares that are equal on paper count as equal."""


@dataclass
class Settings:
    """The settings of a run."""

    steps: int = 20
    questions_per_step: int = 8
    completions: int = 32
    trained: int = 16
    max_tokens: int = 512
    temperature: float = 1.0
    learning_rate: float = 2e-6
    clip: float = 0.2
    seed: int = 0
    instruction: str = "Let's think step by step and output the final answer within \\boxed{}."


@dataclass
class Completion:
    """One completion as sampled."""

    text: str
    tokens_T: list[int]
    logprobs_T: list[float]
    entropies_T: list[float]

    @property
    def entropy(self) -> float:
        """h̄ = (1/T) Σ_t h_t.                                                                            (eq. 6)"""
        return float(np.mean(self.entropies_T))


def generator_for(seed: int, *names: object) -> np.random.Generator:
    """Random numbers that depend only on the names of their purpose, so the order of calls does not matter."""
    digest = hashlib.blake2b("\x1f".join(map(str, (seed, *names))).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


# Sampling


@torch.no_grad()
def sample(model: Any, tokenizer: Any, prompt: list[int], name: str, step: int, settings: Settings) -> list[Completion]:
    """N completions of a prompt, with log π and the entropy of π of every token, π = softmax(logits / T)."""
    size, end = settings.completions, tokenizer.eos_token_id
    uniforms_GT = torch.tensor(
        np.stack([
            generator_for(settings.seed, "sample", step, name, number).random(settings.max_tokens)
            for number in range(size)
        ])
    )  # fmt: skip
    tokens: list[list[int]] = [[] for _ in range(size)]
    logprobs: list[list[float]] = [[] for _ in range(size)]
    entropies: list[list[float]] = [[] for _ in range(size)]
    cache = None
    inputs_GP = torch.tensor([prompt] * size, device=model.device)
    for place in range(settings.max_tokens):
        out = model(inputs_GP, past_key_values=cache, use_cache=True)
        logits_GV, cache = out.logits[:, -1].float(), out.past_key_values
        log_pi_GV = torch.log_softmax(logits_GV / settings.temperature, dim=-1)
        pi_GV = log_pi_GV.exp()
        entropy_G = torch.special.entr(pi_GV).sum(dim=-1)  # h_t = −Σ_v π(v) log π(v)                           (eq. 5)
        cdf_GV = pi_GV.cumsum(dim=-1)
        below_G = uniforms_GT[:, place].to(cdf_GV) * cdf_GV[:, -1]
        drawn_G = torch.searchsorted(cdf_GV, below_G[:, None], right=True).squeeze(-1).clamp(max=cdf_GV.shape[-1] - 1)
        for row, token in enumerate(drawn_G.tolist()):
            if end not in tokens[row][-1:]:
                tokens[row].append(token)
                logprobs[row].append(float(log_pi_GV[row, token]))
                entropies[row].append(float(entropy_G[row]))
        if all(end in written[-1:] for written in tokens):
            break
        inputs_GP = drawn_G[:, None]
    texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return [Completion(*parts) for parts in zip(texts, tokens, logprobs, entropies, strict=True)]


# Credit


def read_answer(text: str) -> str | None:
    """The content of the last box, braces within it included; an empty or unclosed box is no answer."""
    _, found, rest = text.rpartition("\\boxed{")
    depth = 0
    for place, letter in enumerate(rest if found else ""):
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return rest[:place].strip() or None
    return None


def rewards_of(completions: list[Completion]) -> np.ndarray:
    """R_i = p(a_i)·[a_i = y⁺] + (p(a_i) − τ_neg)·[a_i ∈ 𝒩⁻] − λ_H (H̄(a_i) − H̄); −τ_neg without an answer.  (eq. 9)"""
    answers_G = [read_answer(completion.text) for completion in completions]
    entropies_G = [completion.entropy for completion in completions]
    size, votes = len(completions), Counter(answer for answer in answers_G if answer is not None)
    share = {answer: count / size for answer, count in votes.items()}
    entropy = {  # H̄_j, and H̄ below                                                                          (eq. 7)
        answer: np.mean([h for a, h in zip(answers_G, entropies_G, strict=True) if a == answer]) for answer in votes
    }
    mean_entropy = np.mean(entropies_G)
    ranked = [*votes.most_common(2), ("", 0), ("", 0)]
    (first, most), (_, second) = ranked[:2]
    is_sharp = most >= MIN_SHARE * size - SLACK and most - second > MIN_MARGIN * size + SLACK  #                (eq. 4)
    positive = first if most and is_sharp else None
    negatives = {  #                                                                                           (eq. 8)
        answer
        for answer, count in votes.items()
        if count < MAX_NEGATIVE_SHARE * size - SLACK and entropy[answer] >= mean_entropy - SLACK
    } - {positive}
    return np.array([
        -MAX_NEGATIVE_SHARE
        if answer is None
        else share[answer] * (answer == positive)
        + (share[answer] - MAX_NEGATIVE_SHARE) * (answer in negatives)
        - ENTROPY_WEIGHT * (entropy[answer] - mean_entropy)
        for answer in answers_G
    ])  # fmt: skip


def advantages_of(rewards_M: np.ndarray) -> np.ndarray:
    """Â_i = (R_i − μ) / (σ + 1e-6); 0 where all earn the same.                                               (eq. 1)"""
    if np.ptp(rewards_M) == 0:
        return np.zeros(len(rewards_M))
    return np.asarray((rewards_M - rewards_M.mean()) / (rewards_M.std() + 1e-6))


# The update


def loss_of(
    model: Any, prompt: list[int], chosen: list[Completion], advantages_M: np.ndarray, settings: Settings
) -> Tensor:
    """−J = −(1/M) Σ_i (1/T_i) Σ_t min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â), ρ = π / π_old.                          (eq. 2)"""
    longest = max(len(completion.tokens_T) for completion in chosen)
    tokens_MT = torch.zeros(len(chosen), longest, dtype=torch.long)
    old_MT, mask_MT = torch.zeros(len(chosen), longest), torch.zeros(len(chosen), longest)
    for row, completion in enumerate(chosen):
        length = len(completion.tokens_T)
        tokens_MT[row, :length] = torch.tensor(completion.tokens_T)
        old_MT[row, :length] = torch.tensor(completion.logprobs_T)
        mask_MT[row, :length] = 1.0
    inputs_ML = torch.cat((torch.tensor([prompt] * len(chosen)), tokens_MT), dim=1).to(model.device)
    logits_MTV = model(inputs_ML).logits[:, len(prompt) - 1 : -1].float() / settings.temperature
    logprobs_MT = torch.log_softmax(logits_MTV, dim=-1).gather(-1, tokens_MT.to(model.device)[..., None]).squeeze(-1)
    ratio_MT = torch.exp(logprobs_MT - old_MT.to(model.device))
    advantage_M1 = torch.tensor(advantages_M, dtype=torch.float32, device=model.device)[:, None]
    clipped_MT = ratio_MT.clamp(1 - settings.clip, 1 + settings.clip)
    gain_MT = torch.minimum(ratio_MT * advantage_M1, clipped_MT * advantage_M1) * mask_MT.to(model.device)
    return -(gain_MT.sum(dim=1) / mask_MT.sum(dim=1).to(model.device)).mean()


def batch_of(questions: list[str], step: int, settings: Settings) -> list[int]:
    """The questions of a step: every epoch visits each once, in its own order."""
    size = settings.questions_per_step
    epoch, place = divmod(step, -(-len(questions) // size))
    order = generator_for(settings.seed, "order", epoch).permutation(len(questions))
    return [int(number) for number in order[place * size : (place + 1) * size]]


def train(model: Any, tokenizer: Any, questions: list[str], settings: Settings) -> Any:
    """The loop: sample N, vote, reward, train on M, one update per question."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    for step in range(settings.steps):
        model.eval()  # no dropout, neither here nor in the update
        sampled = []
        for number in batch_of(questions, step, settings):
            message = {"role": "user", "content": f"{questions[number]} {settings.instruction}".strip()}
            prompt = tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
            tokens = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            sampled.append((number, tokens, sample(model, tokenizer, tokens, str(number), step, settings)))
        agreed = []
        for number, prompt, completions in sampled:
            draw = generator_for(settings.seed, "trained", step, str(number))
            rows = sorted(draw.choice(settings.completions, settings.trained, replace=False).tolist())
            rewards_G = rewards_of(completions)
            loss = loss_of(model, prompt, [completions[row] for row in rows], advantages_of(rewards_G[rows]), settings)
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            votes = Counter(answer for answer in map(read_answer, (each.text for each in completions)) if answer)
            agreed.append(max(votes.values(), default=0) / settings.completions)
        print(f"step {step + 1}: {np.mean(agreed):.0%} agree")
    return model


def main() -> None:
    """Read the command line, train, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("questions")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--instruction", default=Settings.instruction)
    parser.add_argument("--out", default="adapted")
    given = parser.parse_args()
    with open(given.questions, encoding="utf-8") as file:
        questions = [line.strip() for line in file if line.strip()]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    if tokenizer.unk_token_id in tokenizer(given.instruction, add_special_tokens=False)["input_ids"]:
        parser.error("the tokenizer does not know the words of the instruction; leave it out with --instruction ''")
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).to(device)
    settings = Settings(steps=given.steps, max_tokens=given.max_tokens, instruction=given.instruction)
    train(model, tokenizer, questions, settings)
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)


if __name__ == "__main__":
    main()
