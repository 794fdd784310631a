"""A model of the votes small enough to compute: what the rules label, where they push, where that ends.

    python docs/theory.py

Every question q has a table of probabilities p_q over A answers; completions are draws from it. theory.md states what
can be proved about it, tests/test_theory.py checks each statement over a grid, and this prints the figures.

Shapes: K answers of one question; in the dynamics S seeds, Q questions, B of them per step, A answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import floor, lgamma
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scrl.credit.elsewhere import MIN_OTHERS
from scrl.credit.labels import is_selected
from scrl.credit.methods.scrl import ScrlSettings
from scrl.files.jsonl import read_json_lines
from scrl.records import Floats
from scrl.reporting.tables import Cell, Table, as_markdown

# What is labelled


def label_chances(chances_K: Floats, votes: int, *, min_share: float = 0.0, min_margin: float = 0.0) -> Floats:
    """P(the rule labels a_j) with `votes` votes, exactly: the sum over all outcomes of the vote.

    Thresholds of 0 are the majority vote, where a tie labels nothing.
    """
    counts_XK = _outcomes(votes, len(chances_K))
    log_ways_X = lgamma(votes + 1) - np.vectorize(lgamma)(counts_XK + 1.0).sum(axis=1)
    weights_X = np.exp(log_ways_X) * np.prod(np.power(chances_K, counts_XK), axis=1)
    second_X, first_X = np.sort(counts_XK, axis=1)[:, -2:].T
    labelled_X = is_selected(first_X, second_X, votes, min_share=min_share, min_margin=min_margin)
    winners_X = counts_XK.argmax(axis=1)
    return np.bincount(winners_X, weights=weights_X * labelled_X, minlength=len(chances_K)).astype(np.float64)


def _outcomes(votes: int, answers: int) -> NDArray[np.int64]:
    """All ways to split the votes over this many answers: stars and bars."""
    bars = np.array(list(combinations(range(votes + answers - 1), answers - 1)), dtype=np.int64)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=(-1, votes + answers - 1))
    return np.diff(edges, axis=1) - 1


def least_lead(votes: int, min_margin: float) -> int:
    """d = ⌊τ_marg N⌋ + 1: the smallest lead, in votes, above the margin."""
    return floor(min_margin * votes + 1e-12) + 1


def swap_bound(chances_K: Floats, votes: int, *, min_margin: float) -> float:
    """P(a label that is not the likeliest answer) ≤ x / (1 + x),  x = Σ_{j≠m} (p_j / p_m)^d."""
    others_K = np.sort(chances_K)[:-1] / np.max(chances_K)
    x = float(np.sum(others_K ** least_lead(votes, min_margin)))
    return x / (1 + x)


# Where it pushes


def contrast_rewards(shares_A: Floats, elsewhere_A: Floats, weight: float) -> Floats:
    """R(a) = p(a) − β p̄(a), for one question or many."""
    return np.asarray(shares_A - weight * elsewhere_A)


def pushes(shares_A: Floats, rewards_A: Floats) -> Floats:
    """cov(R, [answer = a]) = p(a) (R(a) − Σ_b p(b) R(b)): how fast an update raises the chance of each answer."""
    return np.asarray(shares_A * (rewards_A - np.sum(shares_A * rewards_A, axis=-1, keepdims=True)))


# Labels that follow the model


def sharpened(shares_Q: Floats, power: float) -> Floats:
    """f(s) = s^γ / (s^γ + (1 − s)^γ): shares of a model trained to agree, whatever is right; γ = 1 changes nothing."""
    return np.asarray(shares_Q**power / (shares_Q**power + (1 - shares_Q) ** power))


def precision(shares_Q: Floats, right_Q: Floats, min_share: float) -> tuple[float, float]:
    """The share of questions labelled, those with s ≥ τ, and that of these labels that are right; NaN without any."""
    labelled_Q = shares_Q >= min_share
    return float(labelled_Q.mean()), float(right_Q[labelled_Q].mean()) if labelled_Q.any() else float("nan")


def first_votes(visits: Sequence[Mapping[str, Any]]) -> tuple[Floats, Floats]:
    """Lines of votes.jsonl → the share of each question's top answer at its first visit, and whether it is right."""
    firsts = {line["question_id"]: line for line in reversed(visits)}
    tops = [(max(line["votes"].values(), default=0), line) for line in firsts.values()]
    shares_Q = np.array([votes / line["completions"] for votes, line in tops])
    return shares_Q, np.array([float(0 < votes == line["right"]) for votes, line in tops])


def drift(visits: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """The last quarter of a run: share of questions labelled, labels right, and right among as many by first votes."""
    last = max(line["step"] for line in visits)
    late = [line for line in visits if line["step"] > 0.75 * last]
    labels = [
        (line["votes"].get(str(line["positive"])), line["right"]) for line in late if line["positive"] is not None
    ]
    coverage = len(labels) / len(late)
    shares_Q, right_Q = first_votes(visits)
    kept = np.argsort(-shares_Q, kind="stable")[: max(1, round(coverage * len(shares_Q)))]
    return coverage, sum(votes == right for votes, right in labels) / len(labels), float(right_Q[kept].mean())


# Where it ends


@dataclass(frozen=True, slots=True)
class World:
    """Questions whose answers have their own part, z_q, and a part that all share, s: p_q = softmax(z_q + s).

    The right answer is favoured in z_q, more or less; `len(stock)` answers have a head start in s.
    """

    questions: int = 83
    answers: int = 60
    votes: int = 32
    per_step: int = 8
    favour: tuple[float, float] = (1.2, 1.5)
    """Mean and spread, over questions, of the head start of the right answer."""
    stock: tuple[float, ...] = (2.0, 1.7, 1.4)
    own_speed: float = 0.6
    """How far z_q moves per unit of gradient."""
    gate: float = 0.65
    """Chance that a rare answer passes SCRL's entropy gate, which knows nothing here."""


@dataclass(frozen=True, slots=True)
class State:
    """Means over seeds and questions."""

    right: float
    """Probability of the right answer: pass@1."""
    stock: float
    """Probability of the stock answers."""


Rule = Callable[[Floats, Floats, np.random.Generator, World], Floats]
"""(shares, elsewhere, rng, world) → the reward of every answer, arrays [S, B, A]."""


def majority(shares_SBA: Floats, _elsewhere: Floats, rng: np.random.Generator, world: World) -> Floats:
    """TTRL: R(a) = [a = argmax p]; a tie is broken at random."""
    winners_SB = (shares_SBA + rng.random(shares_SBA.shape) / (2 * world.votes)).argmax(axis=-1)
    return np.asarray(np.arange(shares_SBA.shape[-1]) == winners_SB[..., None], dtype=float)


def selective(shares_SBA: Floats, _elsewhere: Floats, rng: np.random.Generator, world: World) -> Floats:
    """SCRL at its defaults, with a coin toss per answer as its gate, without the entropy term."""
    second_SB, first_SB = np.sort(shares_SBA, axis=-1)[..., -2:].transpose(2, 0, 1)
    scrl = ScrlSettings()
    is_sharp_SB = is_selected(first_SB, second_SB, 1.0, min_share=scrl.min_share, min_margin=scrl.min_margin)
    positive_SBA = is_sharp_SB[..., None] & (shares_SBA == first_SB[..., None])
    is_rare_SBA = (shares_SBA < scrl.max_negative_share) & (rng.random(shares_SBA.shape) < world.gate)
    return np.asarray(shares_SBA * positive_SBA + (shares_SBA - scrl.max_negative_share) * is_rare_SBA)


def contrast(weight: float) -> Rule:
    """R = p − β p̄."""
    return lambda shares_SBA, elsewhere_SBA, _rng, _world: contrast_rewards(shares_SBA, elsewhere_SBA, weight)


RULES: dict[str, Rule] = {
    "ttrl": majority,
    "scrl": selective,
    "p alone": contrast(0.0),
    "p − p̄": contrast(1.0),
    "contrast, p − 1.5 p̄": contrast(1.5),
    "p − 2 p̄": contrast(2.0),
}
SPEEDS = {"slow": 0.02, "medium": 0.05, "fast": 0.15}
"""How far the shared part moves per unit of gradient; nobody knows which is true of a language model."""


def dynamics(rule: Rule, shared_speed: float, *, steps: int, seeds: int) -> tuple[State, State]:
    """Where GRPO steps with this rule begin and end, all seeds in parallel.

    A step draws votes for `per_step` questions, and moves z_q and s along Σ_i Â_i ∇ log p_q(a_i) / N with
    Â = (R − μ) / (σ + 1e-6). Every rule starts from the same tables.
    """
    world, rng = World(), np.random.default_rng(seeds)
    own_SQA = rng.normal(0, 1, (seeds, world.questions, world.answers))
    right_SQ = rng.integers(0, world.answers, (seeds, world.questions))
    favour_SQ = rng.normal(*world.favour, right_SQ.shape)
    own_SQA += favour_SQ[..., None] * (np.arange(world.answers) == right_SQ[..., None])
    shared_SA = np.zeros((seeds, world.answers))
    shared_SA[:, : len(world.stock)] = world.stock
    seed_S1 = np.arange(seeds)[:, None]
    last_SQA = np.zeros_like(own_SQA)
    seen_SQ = np.zeros(right_SQ.shape, dtype=bool)
    begin = _state(own_SQA, shared_SA, right_SQ, world)
    for _ in range(steps):
        chosen_SB = rng.random(right_SQ.shape).argsort(axis=1)[:, : world.per_step]
        tables_SBA = _softmax(own_SQA[seed_S1, chosen_SB] + shared_SA[:, None])
        shares_SBA = rng.multinomial(world.votes, tables_SBA) / world.votes
        last_SQA[seed_S1, chosen_SB] = shares_SBA
        seen_SQ[seed_S1, chosen_SB] = True
        others = seen_SQ.sum(axis=1)[:, None, None] - 1
        elsewhere_SBA = (last_SQA.sum(axis=1)[:, None] - shares_SBA) / np.maximum(others, 1) * (others >= MIN_OTHERS)
        rewards_SBA = rule(shares_SBA, elsewhere_SBA, rng, world)
        pushes_SBA = pushes(shares_SBA, rewards_SBA)
        variance_SB1 = np.sum(pushes_SBA * rewards_SBA, axis=-1, keepdims=True).clip(min=0)
        gradient_SBA = pushes_SBA / (np.sqrt(variance_SB1) + 1e-6)
        own_SQA[seed_S1, chosen_SB] += world.own_speed * gradient_SBA
        shared_SA += shared_speed * gradient_SBA.sum(axis=1)
    return begin, _state(own_SQA, shared_SA, right_SQ, world)


def _softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _state(own_SQA: Floats, shared_SA: Floats, right_SQ: NDArray[np.int64], world: World) -> State:
    tables_SQA = _softmax(own_SQA + shared_SA[:, None])
    right = np.take_along_axis(tables_SQA, right_SQ[..., None], 2)
    stock = tables_SQA[..., : len(world.stock)].sum(axis=-1)
    return State(float(right.mean()), float(stock.mean()))


# The figures

EXAMPLES = ((0.5, 0.3, 0.2), (0.4, 0.3, 0.3), (0.7, 0.2, 0.1))


def labels_table() -> Table:
    """Chances of three answers → how often each rule labels the likeliest one, or another."""
    settings = ScrlSettings()
    rows: list[tuple[Cell, ...]] = []
    for chances, votes in product(EXAMPLES, (16, 32, 64)):
        chances_K = np.array(chances)
        majority_K = label_chances(chances_K, votes)
        selective_K = label_chances(chances_K, votes, min_share=settings.min_share, min_margin=settings.min_margin)
        bound = swap_bound(chances_K, votes, min_margin=settings.min_margin)
        figures = (majority_K[1:].sum(), selective_K[1:].sum(), bound, selective_K[0])
        words = " ".join(f"{100 * chance:.0f}" for chance in chances)
        rows.append((words, votes, *(f"{100 * x:.1f}" for x in figures)))
    header = ("chances", "N", "majority: not", "selective: not", "at most", "selective: it is")
    return Table(header, tuple(rows), "How often, in %, a label is not the likeliest answer, and how often it is")


def dynamics_table(steps: int = 400, seeds: int = 4) -> Table:
    """Where each rule ends, for three speeds of the part that all questions share."""
    begin, _ = dynamics(RULES["ttrl"], 0.0, steps=0, seeds=seeds)
    rows = [("start", *[f"{100 * begin.right:.0f} / {100 * begin.stock:.0f}"] * len(SPEEDS))]
    for name, rule in RULES.items():
        ends = [dynamics(rule, speed, steps=steps, seeds=seeds)[1] for speed in SPEEDS.values()]
        rows.append((name, *(f"{100 * end.right:.0f} / {100 * end.stock:.0f}" for end in ends)))
    title = f"pass@1 / stock answers in % after {steps} steps, {World().questions} questions, mean of {seeds} seeds"
    return Table(("rule", *(f"shared part {name}" for name in SPEEDS)), tuple(rows), title)


def drift_table() -> Table:
    """The published runs of SCRL."""
    rows = []
    for path in sorted((Path(__file__).parent.parent / "results").glob("*/scrl-*/votes.jsonl")):
        figures = drift([line.fields for line in read_json_lines(path)])
        rows.append((f"{path.parent.parent.name}/{path.parent.name}", *(f"{100 * x:.0f}" for x in figures)))
    header = ("run", "questions labelled", "labels right", "as many by first votes: right")
    return Table(header, tuple(rows), "SCRL's labels in the last quarter of each run, in %")


if __name__ == "__main__":
    print(as_markdown(drift_table()))
    print(as_markdown(labels_table()))
    print(as_markdown(dynamics_table()))
