"""SCRL in one file: the whole method with numpy alone, equations numbered as in the paper (arXiv:2603.19880).

    python examples/scrl_in_one_file.py

Nothing of the package is imported; a test holds its functions to the same numbers. What the package adds: reading and
comparing real answers, language models, and everything around them. Here a completion is two tokens, an approach and an
answer, drawn from tables of logits, so that the loop from samples to weights fits on a page.

Shapes: G completions of one question, T tokens of a completion, V vocabulary, K different answers.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MIN_SHARE, MIN_MARGIN, MAX_NEGATIVE_SHARE, ENTROPY_WEIGHT = 0.375, 0.125, 0.125, 0.1
"""τ_pos, τ_marg, τ_neg and λ_H, the paper's values."""
SLACK = 1e-12


def read_answer(text: str) -> str | None:
    """The last box without nested braces; an empty box is no answer."""
    inside = text.rpartition("\\boxed{")[2].partition("}")
    return inside[0].strip() or None if "\\boxed{" in text and inside[1] else None


def softmax(logits: Array) -> Array:
    """π(v) = exp(z_v) / Σ_u exp(z_u) over the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def token_entropies(logits_TV: Array) -> Array:
    """h_t = −Σ_v π(v) log π(v).                                                                          (eq. 5)"""
    probabilities_TV = softmax(logits_TV)
    return np.asarray(-(probabilities_TV * np.log(probabilities_TV)).sum(axis=-1))


def completion_entropy(logits_TV: Array) -> float:
    """h̄ = (1/T) Σ_t h_t.                                                                                 (eq. 6)"""
    return float(token_entropies(logits_TV).mean())


def mean_entropies(answers_G: list[str | None], entropies_G: Array) -> tuple[dict[str, float], float]:
    """H̄_j = mean of h̄ over the completions with answer j; H̄ = mean over all.                            (eq. 7)"""
    of_answer = {
        answer: float(np.mean([h for a, h in zip(answers_G, entropies_G, strict=True) if a == answer]))
        for answer in set(answers_G)
        if answer is not None
    }
    return of_answer, float(np.mean(entropies_G))


def positive_label(answers_G: list[str | None]) -> str | None:
    """y⁺ = the top answer if p₁ ≥ τ_pos and p₁ − p₂ > τ_marg, else none.                                  (eq. 4)"""
    size = len(answers_G)
    ranked = [*Counter(a for a in answers_G if a is not None).most_common(2), ("", 0), ("", 0)]
    (first, votes), (_, rival) = ranked[:2]
    is_sharp = votes >= MIN_SHARE * size - SLACK
    is_separated = votes - rival > MIN_MARGIN * size + SLACK
    return first if votes and is_sharp and is_separated else None


def negative_labels(answers_G: list[str | None], entropies_G: Array) -> set[str]:
    """𝒩⁻ = {a_j : p_j < τ_neg and H̄_j ≥ H̄}, without y⁺.                                                  (eq. 8)"""
    of_answer, overall = mean_entropies(answers_G, entropies_G)
    limit = MAX_NEGATIVE_SHARE * len(answers_G) - SLACK
    rare_and_uncertain = {a for a, h in of_answer.items() if answers_G.count(a) < limit and h >= overall - SLACK}
    return rare_and_uncertain - {positive_label(answers_G) or ""}


def shaped_rewards(answers_G: list[str | None], entropies_G: Array) -> Array:
    """R = p(a)·[a = y⁺] + (p(a) − τ_neg)·[a ∈ 𝒩⁻] − λ_H (H̄(a) − H̄); a missing answer earns −τ_neg.       (eq. 9)"""
    positive, negatives = positive_label(answers_G), negative_labels(answers_G, entropies_G)
    of_answer, overall = mean_entropies(answers_G, entropies_G)

    def reward(answer: str | None) -> float:
        if answer is None:
            return -MAX_NEGATIVE_SHARE
        share = answers_G.count(answer) / len(answers_G)
        label_terms = share * (answer == positive) + (share - MAX_NEGATIVE_SHARE) * (answer in negatives)
        return label_terms - ENTROPY_WEIGHT * (of_answer[answer] - overall)

    return np.array([reward(answer) for answer in answers_G])


def majority_rewards(answers_G: list[str | None]) -> Array:
    """TTRL, for comparison: 1 for the most frequent answer (the smallest of tied ones), else 0."""
    votes = Counter(a for a in answers_G if a is not None)
    winner = min(votes, key=lambda a: (-votes[a], a)) if votes else None
    return np.array([float(a is not None and a == winner) for a in answers_G])


def advantages(rewards_G: Array) -> Array:
    """Â = (R − μ) / (σ + 1e-6).                                                                          (eq. 1)

    For rewards 1 and 0 with a share f of ones, Â⁺ = √((1 − f)/f): the weaker the consensus, the louder it is. (eq. 3)
    """
    return np.asarray((rewards_G - rewards_G.mean()) / (rewards_G.std() + 1e-6))


def grpo_objective(log_ratios_GT: Array, advantages_G: Array, clip: float = 0.2) -> float:
    """J = (1/G) Σ_i (1/T) Σ_t min(ρ Â, clip(ρ, 1 − ε, 1 + ε) Â), ρ = π_θ / π_old.                        (eq. 2)"""
    ratios_GT = np.exp(log_ratios_GT)
    clipped_GT = np.clip(ratios_GT, 1 - clip, 1 + clip)
    return float(np.minimum(ratios_GT * advantages_G[:, None], clipped_GT * advantages_G[:, None]).mean())


# --- A policy small enough to see: an approach, then an answer ---------------------------------------------------


class TablePolicy:
    """π(approach) and π(answer | approach) as tables of logits."""

    def __init__(self, approach_logits_A: Array, answer_logits_AV: Array) -> None:
        """Start from these tables."""
        self.approach_A, self.answer_AV = approach_logits_A.copy(), answer_logits_AV.copy()

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `size` completions: rows of (approach, answer)."""
        approaches = rng.choice(len(self.approach_A), size, p=softmax(self.approach_A))
        answers = [rng.choice(self.answer_AV.shape[1], p=softmax(self.answer_AV[a])) for a in approaches]
        return np.stack([approaches, answers], axis=1)

    def entropy(self, approach: int) -> float:
        """h̄ of a completion: the mean of its two token entropies."""
        first, second = token_entropies(self.approach_A[None])[0], token_entropies(self.answer_AV[approach][None])[0]
        return float((first + second) / 2)

    def ascend(self, completions_GT: NDArray[np.int64], advantages_G: Array, rate: float) -> None:
        """One step up the gradient of J at ρ = 1: (1/GT) Σ Â ∇ log π, and ∇ log softmax = onehot − π."""
        weight_G = rate * advantages_G / completions_GT.size
        step_A, step_AV = np.zeros_like(self.approach_A), np.zeros_like(self.answer_AV)
        for (approach, answer), weight in zip(completions_GT, weight_G, strict=True):
            step_A += weight * (np.eye(len(step_A))[approach] - softmax(self.approach_A))
            step_AV[approach] += weight * (np.eye(step_AV.shape[1])[answer] - softmax(self.answer_AV[approach]))
        self.approach_A += step_A
        self.answer_AV += step_AV

    def chance_of(self, answer: int) -> float:
        """How often it gives this answer."""
        return float(softmax(self.approach_A) @ softmax(self.answer_AV)[:, answer])


def adapt(policy: TablePolicy, method: str, steps: int, rng: np.random.Generator) -> None:
    """Test-time training on one question: sample N = 32, label, reward, normalise, step."""
    for _ in range(steps):
        completions_GT = policy.sample(32, rng)
        answers_G: list[str | None] = [str(answer) for answer in completions_GT[:, 1]]
        entropies_G = np.array([policy.entropy(int(approach)) for approach in completions_GT[:, 0]])
        rewards_G = shaped_rewards(answers_G, entropies_G) if method == "scrl" else majority_rewards(answers_G)
        policy.ascend(completions_GT, advantages(rewards_G), rate=2.0)


def weak_question(rng: np.random.Generator) -> TablePolicy:
    """Dispersed: a careful approach that is often right (answer 0), a careless one that scatters over 12 answers.

    By construction the careful approach is also the more certain one, which is the paper's premise.
    """
    careful, careless = np.full(12, -1.0), rng.normal(0.0, 0.5, 12)
    careful[0] = 1.8
    careless[1] += 1.2  # a tempting wrong answer
    return TablePolicy(np.array([0.0, 0.6]), np.stack([careful, careless]))


def main() -> None:
    """A worked example, then both methods on 40 questions where consensus is weak."""
    texts = ["\\boxed{4}"] * 7 + ["\\boxed{5}"] * 5 + ["\\boxed{9}", "\\boxed{11}", "so it is", "\\boxed{}"]
    answers_G = [read_answer(text) for text in texts]
    entropies_G = np.array([0.2] * 7 + [0.3] * 5 + [0.9, 0.1, 0.5, 0.5])
    print("answers  ", answers_G)
    print("positive ", positive_label(answers_G), "(7 of 16, but only 2 ahead: abstain)")
    print("negatives", negative_labels(answers_G, entropies_G), "(rare and uncertain; 11 is rare but certain)")
    print("rewards  ", shaped_rewards(answers_G, entropies_G).round(4))
    print("advantage", advantages(shaped_rewards(answers_G, entropies_G)).round(2))
    for method in ("ttrl", "scrl"):
        before, after = [], []
        for seed in range(40):
            policy = weak_question(np.random.default_rng(seed))
            before.append(policy.chance_of(0))
            adapt(policy, method, steps=40, rng=np.random.default_rng(1000 + seed))
            after.append(policy.chance_of(0))
        locked = np.mean(np.array(after) < 0.05)
        print(f"{method}: right answer {np.mean(before):.2f} → {np.mean(after):.2f}; lost for good on {locked:.0%}")


if __name__ == "__main__":
    main()
