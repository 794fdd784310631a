"""Self-Harmony (arXiv:2511.01191): the answer that a question and its rephrasing agree on.

    y*  = argmax_a 2 p₀(a) p₁(a) / (p₀(a) + p₁(a))        p₀, p₁: shares among the completions of the two forms
    R_i = [a_i = y*]                                      for the question as it is
    R_i = (1 − w · pen) [a_i = y*]                        for the rephrased question, w = 0.1
    pen = 1 − JS(p₀, p₁) / ln 2

From the authors' code: the harmonic mean, ties going to the more frequent answer, and both penalties. An answer that
only one form has scores 0, so where no answer is shared the most frequent one of both is taken. Our reading: a tie that
frequency leaves goes to the smallest key, or to the answer seen first (`ties`), in the question as it is before its
rephrasing; JS, in nats, is that of the answers that were given, missing ones left out; a missing answer earns 0.

What differs here: the authors' model rephrases the questions itself, and a second penalty, (1 − 0.1 · format_pen), is
for a rephrasing out of shape. Here rephrasings come with the questions, so there is nothing to punish. The penalty that
is left is the same for all of a group, so with normalised advantages it cancels; with `advantage: centred` it acts.
A label that no completion of a form gives is left out there: it can reward nothing.
"""

from __future__ import annotations

from fractions import Fraction
from math import fsum, log

from pydantic import Field

from scrl.answers.classes import MISSING
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, needing
from scrl.credit.rewards import match_rewards
from scrl.records import Labels, Tally


class SelfHarmonySettings(CreditSettings):
    """What the rephrased form's reward is scaled by."""

    agreement_penalty: float = Field(
        0.1, ge=0, le=1, description="w: the rephrased form earns up to this share less, the more both forms agree."
    )


def label(evidence: Evidence, settings: SelfHarmonySettings) -> Labels:
    """y*, where a completion of this form gives it."""
    assert evidence.partner is not None
    forms = (evidence.tally, evidence.partner)
    as_it_is, rephrased = reversed(forms) if evidence.is_rephrased else forms
    best = harmonic_answer(as_it_is, rephrased, first_seen_wins=settings.first_seen_wins)
    return Labels(best if best in evidence.tally.keys_K else None)


def reward(evidence: Evidence, labels: Labels, settings: SelfHarmonySettings) -> Shaped:
    """1 for y*, a little less for the rephrased form, else 0."""
    assert evidence.partner is not None
    rewards_G = match_rewards(evidence.tally, labels)
    if evidence.is_rephrased and settings.agreement_penalty:
        penalty = 1 - divergence(evidence.tally, evidence.partner) / log(2)
        rewards_G = rewards_G * (1 - settings.agreement_penalty * penalty)
    return Shaped(rewards_G)


def harmonic_answer(one: Tally, other: Tally, *, first_seen_wins: bool) -> str | None:
    """argmax_a 2 p q / (p + q), in exact numbers; ties by p + q, then the smallest key, or the first seen.

    None without any answer.
    """
    p, q = _exact_shares(one), _exact_shares(other)
    zero = Fraction(0)

    def score(key: str) -> tuple[Fraction, Fraction]:
        first, second = p.get(key, zero), q.get(key, zero)
        return 2 * first * second / (first + second), first + second

    seen = dict.fromkeys(tally.keys_K[j] for tally in (one, other) for j in tally.class_of_G if j != MISSING)
    return max(seen if first_seen_wins else sorted(seen), key=score, default=None)


def _exact_shares(tally: Tally) -> dict[str, Fraction]:
    pairs = zip(tally.keys_K, tally.counts_K, strict=True)
    return {key: Fraction(count, tally.size) for key, count in pairs}


def divergence(one: Tally, other: Tally) -> float:
    """JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m), m = (p + q)/2: 0 … ln 2; ln 2 where one form has no answer at all."""
    p, q = _given(one), _given(other)
    if not p or not q:
        return log(2)
    terms = [
        0.5 * share * log(share / (0.5 * (p.get(key, 0.0) + q.get(key, 0.0))))
        for shares in (p, q)
        for key, share in shares.items()
    ]
    return min(max(fsum(terms), 0.0), log(2))


def _given(tally: Tally) -> dict[str, float]:
    """Shares among the answers that were given."""
    total = sum(tally.counts_K)
    return {key: count / total for key, count in zip(tally.keys_K, tally.counts_K, strict=True)}


SELF_HARMONY = Method(
    name="self-harmony",
    idea="reward the answer that holds for the question and for its rephrasing",
    equation="R = [a = argmax 2p₀p₁/(p₀ + p₁)]",
    paper="arXiv:2511.01191",
    settings=SelfHarmonySettings,
    label=label,
    reward=reward,
    needs=needing("partner"),
    has_negatives=False,
)
