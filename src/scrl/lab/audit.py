"""Would consensus lie on these questions? Figures about stored completions, with gold or without.

Nothing is trained. `verdict` says what the figures mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from scrl.answers.readers import SoundReader
from scrl.credit.elsewhere import NUM_STOCK
from scrl.credit.group_metrics import has_signal
from scrl.credit.labels import is_selected, majority_positive, rare_answers, selective_positive
from scrl.credit.rule import CreditRule
from scrl.data.completion_files import CompletionFile
from scrl.evaluation.gold import entropy_auroc, majority_accuracy
from scrl.evaluation.statistics import clustered_interval
from scrl.lab.label import label_summary
from scrl.lab.resampling import top_votes
from scrl.lab.stored_groups import StoredGroup, credit_of, groups_for, lacking, several_golds
from scrl.lab.verdict import PAPER, verdict
from scrl.records import Credit

SCHEMA_VERSION = 1
AUDITED = ("ttrl", "scrl", "contrast", "contrast-label", "compass", "oracle")
"""The methods looked at by default: those with labels or pushes that cost little to compute."""
POPULAR_SHARE = 0.06
"""A label is popular elsewhere from this mean share over the other questions. With answers spread over 20 values or
more, an answer that belongs to one question stays below it (1/20 = 5 %)."""
CALIBRATION_EDGES = (0.0, 0.25, 0.5, 0.75, 1.0)
_OF_LABEL = (
    "stock_label_share", "push_stock", "push_right", "push_stock_wrong", "positive_accuracy", "negative_accuracy",
    "truth_flagged",
)  # fmt: skip
"""Figures of a method as `scrl label` reports them."""


def audit_file(source: CompletionFile, rules: Mapping[str, CreditRule], *, seed: int = 0) -> dict[str, Any]:
    """The audit of a file; the first rule says how its answers are read and compared."""
    return audit_groups(groups_for(source, list(rules.values())), rules, seed=seed)


def audit_groups(groups: Sequence[StoredGroup], rules: Mapping[str, CreditRule], *, seed: int = 0) -> dict[str, Any]:
    """The audit as written to JSON; `refused` says which methods need what these groups do not have."""
    reasons = {name: lacking(rule, groups) for name, rule in rules.items()}
    served = {name: rule for name, rule in rules.items() if reasons[name] is None}
    credits = {name: [credit_of(rule, stored) for stored in groups] for name, rule in served.items()}
    has_gold = any(stored.truth is not None for stored in groups)
    figures: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "questions": len({stored.question_id for stored in groups}),
        "groups": len(groups),
        "steps": len({stored.group.step for stored in groups}),
        "group_sizes": dict(sorted(Counter(stored.tally.size for stored in groups).items())),
        "votes": vote_figures(groups),
        "sound_alone": isinstance(next(iter(rules.values())).reader, SoundReader),
        "methods": {name: method_figures(rule, groups, credits[name], seed=seed) for name, rule in served.items()},
        "refused": {name: reason for name, reason in reasons.items() if reason is not None},
        "stock": stock_figures(groups),
        "gold": gold_figures(groups, seed=seed) if has_gold else None,
        "several_golds": several_golds(groups),
    }
    return figures | {"verdict": [asdict(finding) for finding in verdict(figures)]}


def vote_figures(groups: Sequence[StoredGroup]) -> dict[str, Any]:
    """Shares, margins, missing and cut completions: means over groups, so that each question weighs the same."""
    top, sizes_Q = top_votes(groups), np.array([stored.tally.size for stored in groups])
    is_sharp = is_selected(top.first, top.second, sizes_Q, min_share=PAPER.min_share, min_margin=PAPER.min_margin)
    cut = [stored.num_cut / stored.tally.size for stored in groups if stored.num_cut is not None]
    entropies = [stored.tally.group_entropy for stored in groups if stored.tally.group_entropy is not None]
    is_known = len(entropies) == len(groups)
    origin = "estimated" if any(stored.num_estimates for stored in groups) else "exact"
    return {
        "agreement": float(np.mean(top.first / sizes_Q)),
        "margin": float(np.mean((top.first - top.second) / sizes_Q)),
        "sharp_share": float(np.mean(is_sharp)),
        "unanimous_share": float(np.mean(top.first == sizes_Q)),
        "distinct_answers": float(np.mean([len(stored.tally.keys_K) for stored in groups])),
        "no_answer_share": float(np.mean([stored.tally.num_missing / stored.tally.size for stored in groups])),
        "cut_share": _mean(cut),
        "entropy": origin if is_known else None,
        "entropy_mean": float(np.mean(entropies)) if is_known else None,
    }


def method_figures(
    rule: CreditRule, groups: Sequence[StoredGroup], credits: Sequence[Credit], *, seed: int
) -> dict[str, Any]:
    """What `scrl label` would report for a method, as shares, with intervals where gold is known."""
    summary = label_summary(rule, groups, credits)
    right: dict[str, list[float]] = {stored.question_id: [] for stored in groups}
    for stored, credit in zip(groups, credits, strict=True):
        if stored.truth is not None and credit.labels.positive is not None:
            right[stored.question_id].append(float(credit.labels.positive == stored.truth.key))
    return {
        "has_labels": rule.method.has_labels,
        "coverage": summary["positive_questions"] / len(groups),
        "negatives_per_question": summary["negative_answers"] / len(groups),
        "signal_share": float(np.mean([has_signal(credit) for credit in credits])),
        "entropy_only_share": summary["entropy_only_questions"] / len(groups),
        **{key: summary.get(key) for key in _OF_LABEL},
        "positive_accuracy_interval": _interval(right, seed=seed),
    }


def _interval(values: Mapping[str, Sequence[float]], *, seed: int) -> list[float] | None:
    return list(clustered_interval(values, seed=seed)) if any(values.values()) else None


def stock_figures(groups: Sequence[StoredGroup]) -> dict[str, Any]:
    """The answers that are popular over all questions: their mean share, and how many questions they win.

    `label_share`: of the majority labels, those that are stock answers; None where stock answers are not known.
    """
    winners, shares = Counter[str](), Counter[str]()
    is_stock_label = []
    for stored in groups:
        tally, stock = stored.tally, stored.elsewhere.stock
        shares.update(dict(zip(tally.keys_K, (share / len(groups) for share in tally.shares_K), strict=True)))
        if (winner := majority_positive(tally, first_seen_wins=False)) is not None:
            winners[winner] += 1
            is_stock_label += [winner in stock] if stock else []
    popular = sorted(shares, key=lambda key: (-shares[key], key))[: 2 * NUM_STOCK]
    return {
        "num_stock": NUM_STOCK,
        "is_known": any(stored.elsewhere.stock for stored in groups),
        "distinct_answers": len(shares),
        "label_share": _mean(is_stock_label),
        "popular": [{"answer": key, "mean_share": shares[key], "wins": winners[key]} for key in popular],
        "labels": popular_labels(groups),
    }


def popular_labels(groups: Sequence[StoredGroup]) -> dict[str, dict[str, Any]]:
    """The labels of a sharp consensus, those that are popular over the other questions and those that are not."""
    rights: dict[str, list[bool | None]] = {"popular": [], "other": []}
    for stored in groups:
        label = selective_positive(stored.tally, min_share=PAPER.min_share, min_margin=PAPER.min_margin)
        if label is not None:
            kind = "popular" if stored.elsewhere.shares.get(label, 0.0) >= POPULAR_SHARE else "other"
            rights[kind].append(None if stored.truth is None else label == stored.truth.key)
    checked = {kind: [right for right in found if right is not None] for kind, found in rights.items()}
    return {kind: {"labels": len(found), "right": _mean(checked[kind])} for kind, found in rights.items()}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def gold_figures(groups: Sequence[StoredGroup], *, seed: int) -> dict[str, Any]:
    """How often the vote is right, whether its share says so, and whether entropy tells right from wrong."""
    names = ("majority_accuracy", "pass@1", "pass@n", "vote_gain", "entropy_auroc", "rare_entropy_auroc")
    values: dict[str, dict[str, list[float]]] = {name: {s.question_id: [] for s in groups} for name in names}
    bins: list[list[tuple[float, float]]] = [[] for _ in CALIBRATION_EDGES[1:]]
    for stored in groups:
        if stored.truth is None:
            continue
        tally, key = stored.tally, stored.truth.key
        right = None if key is None else tally.keys_K.index(key)
        vote, share = majority_accuracy(tally, right), 0.0 if right is None else tally.shares_K[right]
        rare = rare_answers(tally, max_share=PAPER.max_negative_share)
        measured = (vote, share, float(share > 0), vote - share, entropy_auroc(tally, right))
        for name, value in zip(names, (*measured, entropy_auroc(tally, right, rare)), strict=True):
            if value is not None:
                values[name][stored.question_id].append(value)
        top = max(tally.shares_K, default=0.0)
        bins[min(int(np.searchsorted(CALIBRATION_EDGES[1:], top)), len(bins) - 1)].append((top, vote))
    return {
        "questions": len({stored.question_id for stored in groups if stored.truth is not None}),
        **{name: _mean_with_interval(values[name], seed=seed) for name in names},
        "calibration": [
            {
                "from": low, "to": high, "groups": len(pairs),
                "mean_share": _mean([top for top, _ in pairs]), "right": _mean([vote for _, vote in pairs]),
            }
            for low, high, pairs in zip(CALIBRATION_EDGES, CALIBRATION_EDGES[1:], bins, strict=False)
        ],
    }  # fmt: skip


def _mean_with_interval(values: Mapping[str, Sequence[float]], *, seed: int) -> dict[str, Any] | None:
    flat = [value for of_question in values.values() for value in of_question]
    if not flat:
        return None
    return {"mean": float(np.mean(flat)), "interval": _interval(values, seed=seed), "groups": len(flat)}
