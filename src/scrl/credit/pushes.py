"""Where a rule pushes: how an update changes the probability of some answers, to first order.

    push(e) = cov(Â, e) = (1/M) Σ_i Â_i (e_i − ē)        over the completions of a group that are trained on

If every question had its own table of probabilities, one step of natural policy gradient would change the probability
of an event e by push(e), times a constant. Two events need no gold beyond votes: the completion gives a stock answer
(one of the most popular answers of the other questions), and, in `evaluation/`, the completion is right.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import numpy as np

from scrl.records import Credit, Floats, Tally


def push(credit: Credit, event_G: Floats) -> float:
    """cov(Â, e) over the completions trained on."""
    rows = list(credit.trained)
    event_M = event_G[rows]
    return float(np.mean(credit.advantages[rows] * (event_M - event_M.mean())))


def gives(tally: Tally, answers: Container[str | None]) -> Floats:
    """e_i: 1 where a completion gives one of these answers."""
    keys = (*tally.keys_K, None)  # the last has the index of a missing answer, MISSING = -1
    return np.array([float(keys[j] is not None and keys[j] in answers) for j in tally.class_of_G])


def push_to_stock(credit: Credit) -> float | None:
    """The push towards stock answers; None while too few other questions have been seen."""
    return push(credit, gives(credit.tally, credit.stock)) if credit.stock else None


def stock_share(credit: Credit) -> float | None:
    """The share of completions that give a stock answer; None while too few other questions have been seen."""
    return float(gives(credit.tally, credit.stock).mean()) if credit.stock else None


def stock_label(credit: Credit) -> float | None:
    """1 if the positive label is a stock answer, 0 if not; None without a label, or while stock answers are unknown."""
    is_known = bool(credit.stock) and credit.labels.positive is not None
    return float(credit.labels.positive in credit.stock) if is_known else None


STOCK_FIGURES: dict[str, Callable[[Credit], float | None]] = {
    "stock_share": stock_share,
    "stock_label_share": stock_label,
    "push_stock": push_to_stock,
}
"""Figures about stock answers, which need no gold; each is reported as its mean over the groups that have it."""


def stock_values(credits: Sequence[Credit]) -> dict[str, list[float]]:
    """Each of STOCK_FIGURES for the groups that have it; absent where none has."""
    values_by_name = {
        name: [value for credit in credits if (value := figure(credit)) is not None]
        for name, figure in STOCK_FIGURES.items()
    }
    return {name: values for name, values in values_by_name.items() if values}
