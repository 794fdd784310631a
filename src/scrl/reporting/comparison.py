"""Evaluations compared question by question, so both sides need the same questions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

import numpy as np

from scrl.errors import ConfigError, InputError, did_you_mean
from scrl.evaluation.statistics import TIES, Difference, majority_transitions, paired_difference, sign_flip_p_value
from scrl.reporting.evaluations import BY_QUESTION, Evaluation, Place, in_words, metrics_of
from scrl.reporting.tables import Share, Table

RESAMPLING_SEED = 0
"""The seed of intervals and p-values computed when results are read: the same files give the same numbers."""
MAX_P_VALUE = 0.05
"""A difference is clear when its p-value is below this and its interval excludes 0."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two places, or one at two steps, with their evaluations by benchmark, for benchmarks that both have."""

    letters: tuple[str, str]
    places: tuple[Place, Place]
    evaluations: Mapping[str, tuple[Evaluation, Evaluation]]

    @property
    def names(self) -> tuple[str, str]:
        return self.places[0].name, self.places[1].name


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations on the same questions, and the difference after − before."""

    letters: tuple[str, str]
    benchmark: str
    before: float
    after: float
    questions: int
    difference: Difference
    p_value: float

    @property
    def verdict(self) -> str:
        """Which is ahead, if interval and p-value agree; with few questions the interval alone excludes 0 too soon."""
        first, second = self.letters
        if not self.difference.is_clear or self.p_value >= MAX_P_VALUE:
            return f"{first} and {second} are not told apart"
        return f"{second} is clearly {'ahead' if self.difference.mean > 0 else 'behind'}"


def pair_places(places: Sequence[Place]) -> list[Pairing]:
    """Each place with the first, the baseline; a single place with its own first evaluation."""
    first, *others = places
    if not others:
        return [_with_own_start(first)]
    pairings = []
    for letter, other in zip(ascii_uppercase[1:], others, strict=False):
        pairs = {name: (first.chosen(name), other.chosen(name)) for name in first.benchmarks}
        common = {name: (one, two) for name, (one, two) in pairs.items() if one and two}
        if not common:
            has = " and ".join(f"{at.name} has {', '.join(map(in_words, at.benchmarks))}" for at in (first, other))
            fix = "Measure both models on the same questions with scrl evaluate, with the same settings."
            raise InputError(f"{has}: no benchmark in common. {fix}")
        pairings.append(Pairing(("A", letter), (first, other), common))
    return pairings


def _with_own_start(place: Place) -> Pairing:
    """On each benchmark the first evaluation and the last, or the one at the step the user named."""
    pairs = {name: (place.first(name), place.chosen(name)) for name in place.benchmarks}
    later = {name: (one, two) for name, (one, two) in pairs.items() if one and two and one["step"] < two["step"]}
    if not later:
        raise InputError(f"{place.name}: has no later evaluation to compare its first one with; give a second place")
    name = place.name.rpartition("@")[0] if place.step is not None else place.name
    steps = [sorted({pair[side]["step"] for pair in later.values()}) for side in (0, 1)]
    before, after = (replace(place, name=f"{name}@{', '.join(map(str, own))}") for own in steps)
    return Pairing(("A", "B"), (before, after), later)


def compare_all(pairings: Sequence[Pairing], metric: str) -> list[Comparison]:
    """Every pair of evaluations that has gold."""
    pairs = [(pairing, pair) for pairing in pairings for pair in pairing.evaluations.values()]
    measured = metrics_of(evaluation for _, pair in pairs for evaluation in pair)
    if not measured:
        raise InputError("no evaluation has a value that needs gold: none of the questions came with an answer")
    graded = [(pairing, pair) for pairing, pair in pairs if metrics_of(pair)]
    for pairing, pair in graded:
        for name, evaluation in zip(pairing.names, pair, strict=True):
            if metric not in measured:
                raise ConfigError(f"--metric: {metric!r} was not measured.{did_you_mean(metric, measured)}")
            if metric + BY_QUESTION not in evaluation:
                has = f"it has {', '.join(metrics_of([evaluation])) or 'no gold answers'}"
                what = in_words(evaluation["benchmark"])
                raise InputError(f"{name}: has no {metric} of {what} question by question; {has}")
    return [_compare(pairing, pair, metric) for pairing, pair in graded]


def _compare(pairing: Pairing, pair: tuple[Evaluation, Evaluation], metric: str) -> Comparison:
    benchmark = in_words(pair[0]["benchmark"])
    first, second = (evaluation[metric + BY_QUESTION] for evaluation in pair)
    if first.keys() != second.keys():  # a difference over the common questions would measure something else
        odd = sorted(first.keys() ^ second.keys())
        reason = f"were not measured on the same questions: {len(odd)} ids are in only one of them, as {odd[0]!r}"
        raise InputError(f"{benchmark}: {' and '.join(pairing.names)} {reason}; evaluate both on the same ones")
    for digest, what in (("questions_digest", "questions"), ("gold_digest", "right answers")):
        found = [evaluation.get(digest) for evaluation in pair]
        if found[0] != found[1] and (what == "questions" or None not in found):  # older files have none of the latter
            names = " and ".join(pairing.names)
            raise InputError(f"{benchmark}: {names}: the same ids, but other {what}; evaluate both on one file")
    before_Q, after_Q = ([values[name] for name in sorted(first)] for values in (first, second))
    before, after = (math.fsum(values_Q) / len(values_Q) for values_Q in (before_Q, after_Q))
    difference = paired_difference(before_Q, after_Q, seed=RESAMPLING_SEED)
    p_value = sign_flip_p_value(np.subtract(after_Q, before_Q), seed=RESAMPLING_SEED)
    return Comparison(pairing.letters, benchmark, before, after, len(before_Q), difference, p_value)


def legend(pairings: Sequence[Pairing]) -> Iterator[str]:
    sides = {letter: (pairing, side) for pairing in pairings for side, letter in enumerate(pairing.letters)}
    for letter, (pairing, side) in sides.items():
        evaluations = [pair[side] for pair in pairing.evaluations.values()]
        models = ", ".join(dict.fromkeys(str(evaluation.get("model", "unknown")) for evaluation in evaluations))
        steps = ", ".join(dict.fromkeys(str(evaluation["step"]) for evaluation in evaluations))
        step = f", step {steps}" if pairing.places[side].has_steps else ""
        yield f"{letter} = {pairing.names[side]} ({models}{step})"


def comparison_table(comparisons: Sequence[Comparison], metric: str) -> Table:
    others = {each.letters[1] for each in comparisons}
    other = others.pop() if len(others) == 1 else "other"
    rows = []
    for each in comparisons:
        p_value = "< 0.001" if each.p_value < 0.001 else f"{each.p_value:.3f}"
        shares = (Share(each.before), Share(each.after), each.difference)
        rows.append((in_words(each.benchmark), each.questions, *shares, p_value, each.verdict))
    return Table(
        ("benchmark", "n", "A", other, f"{other} − A", "p", "verdict"),
        tuple(rows),
        f"{metric} in %, paired by question: 95 % interval over questions, p-value of a sign-flip test.",
    )


def remarks(pairings: Sequence[Pairing], comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Why these numbers may not mean what they seem to."""
    for pairing in pairings:
        first, second = pairing.letters
        for name in sorted(set(pairing.places[0].benchmarks) ^ set(pairing.places[1].benchmarks)):
            yield f"not compared: {in_words(name)}, which only one of {first} and {second} was measured on"
        for name, pair in pairing.evaluations.items():
            if not metrics_of(pair):
                yield f"not compared: {in_words(name)}, whose questions have no gold"
                continue
            for what, (one, two) in _unlike(*pair):
                yield f"warning: {in_words(name)}: {what} differs: {one} for {first}, {two} for {second}"
            if counts := majority_transitions(*pair):
                words = ", ".join(f"{count} {transition}" for transition, count in counts.items())
                yield f"{in_words(name)}: by majority, from {first} to {second}: {words} ({TIES})"
    if (count := len(comparisons)) > 1:
        yield f"{count} comparisons, each p-value for itself: one in twenty falls below 0.05 by chance alone."


def _unlike(*pair: Evaluation) -> Iterator[tuple[str, list[object]]]:
    """How two evaluations were made differently: what, and both values."""
    for name in ("samples", "temperature", "top_p", "max_tokens", "significant_digits"):
        if pair[0].get(name) != pair[1].get(name):
            missing = "all" if name == "significant_digits" else "unknown"
            yield name, [evaluation.get(name, missing) for evaluation in pair]
    for name in ("reader", "prompt"):  # which older files do not say
        if len(found := [evaluation[name] for evaluation in pair if name in evaluation]) == 2 and found[0] != found[1]:
            yield name, found
    ks = [sorted({int(name.partition("@")[2]) for name in metrics_of([evaluation])} - {1}) for evaluation in pair]
    if ks[0] != ks[1]:
        yield "k", [", ".join(map(str, k)) for k in ks]
