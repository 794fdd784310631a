"""Thousands of settings of a method on stored completions, in seconds.

Answers are read and classed once. The thresholds of a sharp consensus, τ_pos and τ_marg, decide only *whether* a group
has its positive label; so for each choice of the other settings a group is credited twice, with the label and without
it, and every setting takes one of the two. A method other than SCRL and its ablations is credited at every setting. All
figures equal those of `scrl label`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import fsum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrl.answers.classes import MISSING
from scrl.credit.advantages import reward_advantages
from scrl.credit.elsewhere import MIN_OTHERS
from scrl.credit.group_metrics import gives
from scrl.credit.labels import is_selected
from scrl.credit.method import Evidence, Method
from scrl.credit.methods import METHODS, find_method
from scrl.credit.methods.scrl import WITHOUT_SELECTIVE, ScrlSettings
from scrl.credit.methods.ttrl import TTRL
from scrl.credit.rule import CreditRule, credit_rule, is_entropy_only
from scrl.lab.resampling import resampled_votes, top_votes
from scrl.lab.stored_groups import StoredGroup, credit_of
from scrl.records import Floats, Labels

GRID: dict[str, dict[str, tuple[Any, ...]]] = {
    "scrl": {
        "min_share": tuple(number / 40 for number in range(1, 26)),
        "min_margin": tuple(number / 40 for number in range(20)),
        "max_negative_share": (0.0, 0.0625, 0.125, 0.1875, 0.25),
        "entropy_weight": (0.0, 0.05, 0.1, 0.2),
    },
    "contrast": {"elsewhere_weight": tuple(number / 4 for number in range(13))},
    "contrast-label": {
        "elsewhere_weight": tuple(number / 4 for number in range(13)),
        "min_contrast": tuple(number / 20 for number in range(1, 21)),
    },
}
"""The values tried by default: 10,000 settings of scrl, its defaults among them."""
THRESHOLDS = ("min_share", "min_margin")
"""The settings of `ScrlSettings` that decide whether there is a positive label, and nothing else."""
MAJORITY = (TTRL.label, WITHOUT_SELECTIVE.label)
"""Rules by which the majority gets the label, whatever the thresholds."""
STABILITY_DRAWS = 50
"""Resamples of every group; over 100 questions a share of labels is then known within half a point."""


class Counts(NamedTuple):
    """What one setting makes of one group, in whole numbers."""

    labelled: int
    negatives: int
    entropy_only: int
    checked: int
    """Whether it has a positive label, and gold is known."""
    right: int
    negatives_checked: int
    negatives_wrong: int
    truth_flagged: int
    stock_known: int
    """Whether it has a positive label, and the stock answers are known."""
    stock_label: int


PUSHES = ("push_stock", "push_right", "push_stock_wrong")


def sweep_settings(
    groups: Sequence[StoredGroup],
    method: str | Method,
    values: Mapping[str, Sequence[Any]],
    *,
    preset: str = "paper",
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """One row for each setting: what `scrl label` would count, and how stable the positive labels are.

    `values` are those to try for some settings, in place of those of GRID.
    """
    found = find_method(method)
    name = method if isinstance(method, str) else method.name
    grid = {**(GRID.get(name, {}) if _is_built_in(found) else {}), **values}
    if len({stored.question_id for stored in groups}) <= MIN_OTHERS:  # p̄ never counts
        grid = {each: tried for each, tried in grid.items() if each in values or each != "elsewhere_weight"}
    if found.label in MAJORITY or not _is_scrl(found):
        stability = majority_stability(groups, seed=seed) if found.label in MAJORITY else None
        for rule, chosen in _rules(found, grid, preset, seed):
            (row,) = _rows(groups, [rule], np.ones((1, len(groups)), dtype=bool))
            is_known = rule.settings.ties == "smallest"
            yield {"method": name, **chosen, **row, "stability": stability if is_known else None}
        return
    threshold_values = {name: grid.pop(name) for name in THRESHOLDS if name in grid}
    thresholds = [chosen for _, chosen in _rules(found, threshold_values, preset, seed)]
    selected_SQ, stability_S = _selected(groups, thresholds, seed=seed)
    for rule, chosen in _rules(found, grid, preset, seed):
        # With thresholds of 0 every majority without a tie is labelled, with thresholds of 1 none is.
        settings = [rule.settings.model_copy(update=dict.fromkeys(THRESHOLDS, value)) for value in (0.0, 1.0)]
        rows = _rows(groups, [replace(rule, settings=extreme) for extreme in settings], selected_SQ)
        for threshold, row, stability in zip(thresholds, rows, stability_S, strict=True):
            yield {"method": name, **threshold, **chosen, **row, "stability": stability}


def _is_built_in(method: Method) -> bool:
    return METHODS.get(method.name) is method


def _is_scrl(method: Method) -> bool:
    """Whether it is SCRL or one of its ablations; a method made from one of them may have any parts."""
    return _is_built_in(method) and method.settings is ScrlSettings


def _rules(
    method: Method, values: Mapping[str, Sequence[Any]], preset: str, seed: int
) -> list[tuple[CreditRule, dict[str, Any]]]:
    """A rule for every combination of these values, with the values chosen."""
    choices = [dict(zip(values, choice, strict=True)) for choice in product(*values.values())]
    rules = [credit_rule(method, preset=preset, seed=seed, **choice) for choice in choices]
    return [(rule, {name: getattr(rule.settings, name) for name in values}) for rule in rules]


def _selected(
    groups: Sequence[StoredGroup], thresholds: Sequence[Mapping[str, float]], *, seed: int
) -> tuple[NDArray[np.bool_], list[float | None]]:
    """For every pair of thresholds: which groups get their label, and what share of them a resample labels alike."""
    top, drawn = top_votes(groups), resampled_votes(groups, STABILITY_DRAWS, seed=seed)
    sizes_Q = np.array([stored.tally.size for stored in groups])
    pairs = [{name: pair.get(name, getattr(ScrlSettings(), name)) for name in THRESHOLDS} for pair in thresholds]
    selected_SQ = np.array([is_selected(top.first, top.second, sizes_Q, **pair) for pair in pairs])
    is_same = drawn.winner == top.winner
    stability_S = [
        float(np.mean((is_same & is_selected(drawn.first, drawn.second, sizes_Q, **pair))[:, selected_Q]))
        if selected_Q.any()
        else None
        for pair, selected_Q in zip(pairs, selected_SQ, strict=True)
    ]
    return selected_SQ, stability_S


def majority_stability(groups: Sequence[StoredGroup], *, seed: int) -> float | None:
    """How often a resample has the same majority."""
    top, drawn = top_votes(groups), resampled_votes(groups, STABILITY_DRAWS, seed=seed)
    has_answer_Q = top.winner != MISSING
    return float(np.mean((drawn.winner == top.winner)[:, has_answer_Q])) if has_answer_Q.any() else None


def _outcomes(rules: Sequence[CreditRule], groups: Sequence[StoredGroup]) -> tuple[NDArray[np.int64], Floats]:
    """Counts [R, Q, C] and pushes [R, Q, 3] of every rule on every group; NaN without stock answers, or gold."""
    counts_RQC = np.zeros((len(rules), len(groups), len(Counts._fields)), dtype=np.int64)
    pushes_RQ3 = np.empty((len(rules), len(groups), len(PUSHES)))
    for place, stored in enumerate(groups):
        evidence = Evidence(stored.group, stored.classes, stored.tally)
        credited = [_credited(rule, stored, evidence) for rule in rules]
        counts_RQC[:, place] = [_counts(stored, labels, is_by_entropy) for labels, _, is_by_entropy in credited]
        advantages_RG = np.array([advantages_G for _, advantages_G, _ in credited])
        pushes_RQ3[:, place] = (advantages_RG[:, None, :] * _events(stored)).mean(axis=2)
    return counts_RQC, pushes_RQ3


def _credited(rule: CreditRule, stored: StoredGroup, evidence: Evidence) -> tuple[Labels, Floats, bool]:
    """Labels, advantages and whether entropy is the only signal, as by `CreditRule.assign`.

    SCRL and its ablations skip its checks, which cost more than the rest.
    """
    if not _is_scrl(rule.method):
        credit = credit_of(rule, stored)
        return credit.labels, credit.advantages, credit.is_entropy_only
    labels = rule.method.label(evidence, rule.settings)
    shaped = rule.method.reward(evidence, labels, rule.settings)
    return labels, reward_advantages(shaped.rewards_G, rule.settings), is_entropy_only(shaped, slice(None))


def _events(stored: StoredGroup) -> Floats:
    """e − ē of the events of PUSHES, one row each; NaN if unknown."""
    tally, stock, truth = stored.tally, stored.elsewhere.stock, stored.truth
    unknown_G = np.full(tally.size, np.nan)
    events = (
        gives(tally, stock) if stock else unknown_G,
        unknown_G if truth is None else gives(tally, (truth.key,)),
        gives(tally, set(stock) - {truth.key}) if stock and truth is not None else unknown_G,
    )
    return np.array([event_G - event_G.mean() for event_G in events])


def _counts(stored: StoredGroup, labels: Labels, is_entropy_only: bool) -> Counts:
    truth, stock, positive, negatives = stored.truth, stored.elsewhere.stock, labels.positive, labels.negatives
    return Counts(
        labelled=positive is not None,
        negatives=len(negatives),
        entropy_only=is_entropy_only,
        checked=positive is not None and truth is not None,
        right=positive is not None and truth is not None and positive == truth.key,
        negatives_checked=0 if truth is None else len(negatives),
        negatives_wrong=0 if truth is None else len(negatives - {truth.key}),
        truth_flagged=truth is not None and truth.key in negatives,
        stock_known=positive is not None and bool(stock),
        stock_label=positive in stock,
    )


def _rows(
    groups: Sequence[StoredGroup], rules: Sequence[CreditRule], selected_SQ: NDArray[np.bool_]
) -> Iterator[dict[str, Any]]:
    """For every choice of groups that get their label: the keys of `scrl label`'s summary, in its arithmetic.

    Selected groups are credited by the first of the rules, the others by the last.
    """
    counts_RQC, pushes_RQ3 = _outcomes(rules, groups)
    counts_SC = selected_SQ @ counts_RQC[0] + ~selected_SQ @ counts_RQC[-1]
    pushes_SQ3 = np.where(selected_SQ[..., None], pushes_RQ3[0], pushes_RQ3[-1])
    pushes = {name: _means(pushes_SQ3[..., place]) for place, name in enumerate(PUSHES)}
    has_truth = sum(stored.truth is not None and stored.truth.key is not None for stored in groups)
    for place, row in enumerate(counts_SC.tolist()):
        counts = Counts(*row)
        yield {
            "questions": len(groups),
            "positive_questions": counts.labelled,
            "coverage": counts.labelled / len(groups),
            "negative_answers": counts.negatives,
            "entropy_only_questions": counts.entropy_only,
            "positive_accuracy": _ratio(counts.right, counts.checked),
            "negative_accuracy": _ratio(counts.negatives_wrong, counts.negatives_checked),
            "truth_flagged": _ratio(counts.truth_flagged, has_truth),
            "stock_label_share": _ratio(counts.stock_label, counts.stock_known),
            **{name: means_S[place] for name, means_S in pushes.items()},
        }


def _means(pushes_SQ: Floats) -> Sequence[float | None]:
    """The mean push of every choice, exactly rounded, as by `scrl label`."""
    known_SQ = pushes_SQ[:, ~np.isnan(pushes_SQ[0])]
    return [fsum(pushes_Q) / len(pushes_Q) if pushes_Q else None for pushes_Q in known_SQ.tolist()]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def front(rows: Sequence[Mapping[str, Any]], quality: str) -> list[Mapping[str, Any]]:
    """The rows that no other beats in both coverage and `quality`, by rising coverage.

    Of rows alike in both, the one with the larger push towards right answers, or without gold away from stock answers.
    """

    def order(row: Mapping[str, Any]) -> tuple[float, float, float]:
        push = row["push_right"] if row["push_right"] is not None else -(row["push_stock"] or 0.0)
        return row["coverage"], row[quality], push

    best: list[Mapping[str, Any]] = []
    measured = [row for row in rows if row[quality] is not None and row["coverage"]]
    for row in sorted(measured, key=order, reverse=True):
        if not best or row[quality] > best[-1][quality]:
            best.append(row)
    return best[::-1]
