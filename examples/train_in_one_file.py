"""Training without answers in one file, as `scrl train` does it: votes, labels, rewards, loss. torch and transformers.

    python examples/train_in_one_file.py MODEL QUESTIONS.txt --steps 20 --out adapted

MODEL is a folder or a hub id of a causal chat model, QUESTIONS.txt has one question per line and no answers. A model
that reads nothing but arithmetic, such as an export of scrl's embedded one, needs --instruction ''. Before each pass
over the questions the model votes on those without a label. An answer whose share stands out from its share over the
other questions becomes the label, and stays. Questions with a label are trained on with GRPO; the others cost nothing.
Equations are numbered as in the paper (arXiv:2603.19880). Nothing of the package is imported; a test checks that three
steps at a constant rate give the same weights as the package, which adds: exact comparison of answers (here they are
equal when their texts are), fast samplers, memory savings, evaluation, resuming, reports, other methods and engines.

Shapes: G completions of a question, T tokens, V vocabulary, P prompt, L all of a row.
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

ELSEWHERE_WEIGHT, MIN_CONTRAST, MIN_OTHERS = 1.5, 0.4, 8
"""β and τ, and how many other questions p̄ needs."""
SLACK = 1e-12
"""Shares that are equal on paper count as equal."""


@dataclass
class Settings:
    """The settings of a run."""

    steps: int = 20
    questions_per_step: int = 8
    completions: int = 16
    max_tokens: int = 512
    temperature: float = 0.6
    learning_rate: float = 1e-6
    clip: float = 0.2
    seed: int = 0
    instruction: str = "Let's think step by step and output the final answer within \\boxed{}."


@dataclass
class Completion:
    """One completion as sampled."""

    tokens_T: list[int]
    logprobs_T: list[float]
    answer: str | None


def generator_for(seed: int, *names: object) -> np.random.Generator:
    """Random numbers that depend only on the names of their purpose, so the order of calls does not matter."""
    digest = hashlib.blake2b("\x1f".join(map(str, (seed, *names))).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


# Sampling


@torch.no_grad()
def sample(
    model: Any, tokenizer: Any, prompt: list[int], question: str, draw: object, settings: Settings
) -> list[Completion]:
    """N completions of a prompt with log π of every token, π = softmax(logits / T); `draw` names them for the seed."""
    size, end = settings.completions, tokenizer.eos_token_id
    uniforms_GT = torch.tensor(
        np.stack([
            generator_for(settings.seed, "sample", draw, question, number).random(settings.max_tokens)
            for number in range(size)
        ])
    )  # fmt: skip
    tokens: list[list[int]] = [[] for _ in range(size)]
    logprobs: list[list[float]] = [[] for _ in range(size)]
    cache = None
    inputs_GP = torch.tensor([prompt] * size, device=model.device)
    for place in range(settings.max_tokens):
        out = model(inputs_GP, past_key_values=cache, use_cache=True)
        logits_GV, cache = out.logits[:, -1].float(), out.past_key_values
        log_pi_GV = torch.log_softmax(logits_GV / settings.temperature, dim=-1)
        cdf_GV = log_pi_GV.exp().cumsum(dim=-1)
        below_G = uniforms_GT[:, place].to(cdf_GV) * cdf_GV[:, -1]
        drawn_G = torch.searchsorted(cdf_GV, below_G[:, None], right=True).squeeze(-1).clamp(max=cdf_GV.shape[-1] - 1)
        for row, token in enumerate(drawn_G.tolist()):
            if end not in tokens[row][-1:]:
                tokens[row].append(token)
                logprobs[row].append(float(log_pi_GV[row, token]))
        if all(end in written[-1:] for written in tokens):
            break
        inputs_GP = drawn_G[:, None]
    answers = map(read_answer, tokenizer.batch_decode(tokens, skip_special_tokens=True))
    return [Completion(*parts) for parts in zip(tokens, logprobs, answers, strict=True)]


def read_answer(text: str) -> str | None:
    """The content of the last box, braces within it included; an empty or unclosed box is no answer."""
    _, found, rest = text.rpartition("\\boxed{")
    depth = 0
    for place, letter in enumerate(rest if found else ""):
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return rest[:place].strip() or None
    return None


# Credit


def shares_of(votes: list[Completion]) -> dict[str, float]:
    """p(a) = n_a / N; completions without an answer count in N."""
    counts = Counter(vote.answer for vote in votes if vote.answer is not None)
    return {answer: count / len(votes) for answer, count in counts.items()}


def label_of(question: str, shares: dict[str, dict[str, float]]) -> str | None:
    """y⁺ = argmax_a p(a) − β p̄(a) if that is at least τ, else none; p̄: the mean share over the other questions."""
    others = [of_one for name, of_one in shares.items() if name != question]

    def contrast(answer: str) -> float:
        elsewhere = sum(of_one.get(answer, 0.0) for of_one in others) / max(1, len(others))
        return shares[question][answer] - ELSEWHERE_WEIGHT * elsewhere * (len(others) >= MIN_OTHERS)

    best = max(sorted(shares[question]), key=contrast, default=None)
    return best if best is not None and contrast(best) >= MIN_CONTRAST - SLACK else None


def advantages_of(rewards_G: np.ndarray) -> np.ndarray:
    """Â_i = (R_i − μ) / (σ + 1e-6); 0 where all earn the same.                                               (eq. 1)"""
    if np.ptp(rewards_G) == 0:
        return np.zeros(len(rewards_G))
    return np.asarray((rewards_G - rewards_G.mean()) / (rewards_G.std() + 1e-6))


# The update


def loss_of(
    model: Any, prompt: list[int], completions: list[Completion], advantages_G: np.ndarray, settings: Settings
) -> Tensor:
    """−J = −(1/G) Σ_i (1/T_i) Σ_t min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â), ρ = π / π_old.                          (eq. 2)"""
    longest = max(len(completion.tokens_T) for completion in completions)
    tokens_GT = torch.zeros(len(completions), longest, dtype=torch.long)
    old_GT, mask_GT = torch.zeros(len(completions), longest), torch.zeros(len(completions), longest)
    for row, completion in enumerate(completions):
        length = len(completion.tokens_T)
        tokens_GT[row, :length] = torch.tensor(completion.tokens_T)
        old_GT[row, :length] = torch.tensor(completion.logprobs_T)
        mask_GT[row, :length] = 1.0
    inputs_GL = torch.cat((torch.tensor([prompt] * len(completions)), tokens_GT), dim=1).to(model.device)
    logits_GTV = model(inputs_GL).logits[:, len(prompt) - 1 : -1].float() / settings.temperature
    logprobs_GT = torch.log_softmax(logits_GTV, dim=-1).gather(-1, tokens_GT.to(model.device)[..., None]).squeeze(-1)
    ratio_GT = torch.exp(logprobs_GT - old_GT.to(model.device))
    advantage_G1 = torch.tensor(advantages_G, dtype=torch.float32, device=model.device)[:, None]
    clipped_GT = ratio_GT.clamp(1 - settings.clip, 1 + settings.clip)
    gain_GT = torch.minimum(ratio_GT * advantage_G1, clipped_GT * advantage_G1) * mask_GT.to(model.device)
    return -(gain_GT.sum(dim=1) / mask_GT.sum(dim=1).to(model.device)).mean()


def batch_of(labelled: list[str], step: int, first: int, settings: Settings) -> list[str]:
    """The questions of a step: from step `first` on all labelled ones are visited once, then again in another order."""
    steps = -(-len(labelled) // settings.questions_per_step)
    number, place = divmod(step - first, steps)
    order = generator_for(settings.seed, "order", first + number).permutation(len(labelled))
    return [labelled[number] for number in np.array_split(order, steps)[place]]


def train(model: Any, tokenizer: Any, questions: list[str], settings: Settings) -> Any:
    """The loop: vote before each pass, then sample questions with a label, reward it, one update per question."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.01)
    prompts, shares, labels = dict[str, list[int]](), dict[str, dict[str, float]](), dict[str, str]()
    for number, question in enumerate(questions):
        message = {"role": "user", "content": f"{question} {settings.instruction}".strip()}
        prompt = tokenizer.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        prompts[str(number)] = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    model.eval()  # no dropout, neither here nor in the update
    for step in range(settings.steps):
        this_pass, place = divmod(step, -(-len(questions) // settings.questions_per_step))
        if place == 0:
            draw = f"votes-{this_pass}" if this_pass else "reference"
            asked = [name for name in prompts if name not in labels]
            for name in asked:
                shares[name] = shares_of(sample(model, tokenizer, prompts[name], name, draw, settings))
            labels |= {name: label for name in asked if (label := label_of(name, shares)) is not None}
            print(f"{len(labels)} of {len(questions)} questions have a label")
            if not labels:
                break
        batch = batch_of([name for name in prompts if name in labels], step, step - place, settings)
        sampled = [(name, sample(model, tokenizer, prompts[name], name, step, settings)) for name in batch]
        right = 0.0
        for name, completions in sampled:
            rewards_G = np.array([float(completion.answer == labels[name]) for completion in completions])
            loss = loss_of(model, prompts[name], completions, advantages_of(rewards_G), settings)
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            right += float(rewards_G.mean()) / len(sampled)
        print(f"step {step + 1}: {right:.0%} of the completions give their question's label")
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
