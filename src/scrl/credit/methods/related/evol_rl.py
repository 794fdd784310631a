"""EVOL-RL (Zhou et al. 2025, arXiv:2509.15194): the majority selects, novelty varies.

    y⁺  = argmax_j p_j
    s_i = 1 − (½ · mean similarity to the others of its class + ½ · max similarity to all others)
    ŝ   = s by its place between the least and the most novel of its class: 0 … 1
    R_i = ½ + ½ ŝ_i  for the majority,  −1 + ½ ŝ_i  for other answers,  −1  for a missing answer

All numbers are those of the authors' code: in a class whose members are equally novel ŝ = ½ (the majority earns 0.75),
a class of one has ŝ = 1 (1.0). What is compared is the text after `</think>`, or the whole text if there is none. Our
reading: those two rules hold for every class, a completion is never compared with itself, and completions without an
answer are among `all others`. Not imitated: a box without a digit earns −1 there too, which would punish every answer
to a multiple-choice question.

The authors compare embeddings of Qwen3-Embedding-4B, which a separate server computes. Here the cosine of hashed
character trigrams stands in for it, which needs no model and sees wording, not meaning. The authors run it with
`loss.entropy_bonus: 0.003`, `loss.clip_high: 0.28` and `loss.kl_weight: 0.001`: choices of the loss, not of the reward,
and none is made here.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import numpy as np

from scrl.answers.classes import MISSING
from scrl.credit.labels import SLACK
from scrl.credit.method import CreditSettings, Evidence, Shaped, needing, never
from scrl.credit.methods.ttrl import TTRL
from scrl.records import Floats, Labels, Tally

BITS = 12
"""Trigrams are counted in 2^BITS buckets."""
_CODE_POINT_BITS = 21
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: Fibonacci hashing


def reward(evidence: Evidence, labels: Labels, settings: CreditSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """½ + ½ ŝ for the majority, −1 + ½ ŝ for other answers, −1 for a missing answer."""
    tally = evidence.tally
    counts_GE = np.array([trigram_counts(compared_text(each.text)) for each in evidence.group.completions])
    novelties_G = class_novelties(tally, cosines(counts_GE)).tolist()
    rewards_G = np.array(
        [
            -1.0 if j == MISSING else (0.5 if tally.keys_K[j] == labels.positive else -1.0) + 0.5 * novelty
            for j, novelty in zip(tally.class_of_G, novelties_G, strict=True)
        ]
    )
    return Shaped(rewards_G)


def compared_text(text: str) -> str:
    """What follows the last `</think>`, or all of it."""
    return text.rpartition("</think>")[2]


def trigram_counts(text: str) -> Floats:
    """How often each bucket of character trigrams is hit; all 0 for an empty text.

    A trigram is packed into one number (a code point has 21 bits), so that only the last step, the bucket, is a hash:
    the same on every machine, and in every process.
    """
    if not text:
        return np.zeros(2**BITS)
    letters = np.frombuffer(f"  {text}  ".encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    one, two = np.uint64(_CODE_POINT_BITS), np.uint64(2 * _CODE_POINT_BITS)
    trigrams = (letters[:-2] << two) | (letters[1:-1] << one) | letters[2:]
    buckets = ((trigrams * _MIX) >> np.uint64(64 - BITS)).astype(np.int64)
    return np.bincount(buckets, minlength=2**BITS).astype(np.float64)


def cosines(counts_GE: Floats) -> Floats:
    """cos(u, v) of all pairs; 0 with a vector that is 0.

    Every product is a whole number and every sum exact, so the order of the completions changes no bit.
    """
    products_GG = counts_GE @ counts_GE.T
    squares_G = np.diagonal(products_GG)
    lengths_GG = np.sqrt(np.outer(squares_G, squares_G))
    return np.divide(products_GG, lengths_GG, out=np.zeros_like(products_GG), where=lengths_GG > 0)


def class_novelties(tally: Tally, similar_GG: Floats) -> Floats:
    """ŝ of every completion: 1 for one alone in its class, ½ where all of a class are alike; 0 without an answer."""
    novelties_G = np.zeros(tally.num_completions)
    for j in range(len(tally.keys_K)):
        members = [i for i, own in enumerate(tally.class_of_G) if own == j]
        if len(members) <= 1:
            novelties_G[members] = 1.0
            continue
        values = []
        for i in members:
            in_class = [float(similar_GG[i, k]) for k in members if k != i]
            values.append(1 - (0.5 * fsum(in_class) / len(in_class) + 0.5 * float(np.delete(similar_GG[i], i).max())))
        low, high = min(values), max(values)
        novelties_G[members] = [0.5 if high - low <= SLACK else (value - low) / (high - low) for value in values]
    return novelties_G


EVOL_RL = replace(
    TTRL,
    name="evol-rl",
    idea="the majority is right, and within every answer the more novel completion earns more",
    equation="R = ½ + ½ŝ if a = argmax p, else −1 + ½ŝ; ŝ: novelty within the class",
    paper="arXiv:2509.15194",
    reward=reward,
    needs=needing("text"),
    is_silent_without_label=never,
)
