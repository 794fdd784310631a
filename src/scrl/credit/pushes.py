"""Where a rule pushes: how an update changes the probability of some answers, to first order.

    push(e) = cov(Â, e) = (1/M) Σ_i Â_i (e_i − ē)        over the completions of a group that are trained on

If every question had its own table of probabilities, one step of natural policy gradient would change the probability
of an event e by push(e), times a constant. Two events need no gold beyond votes: the completion gives a stock answer
(one of the most popular answers of the other questions), and, in `evaluation/`, the completion is right.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from scrl.records import Credit, Floats, Tally


def push(credit: Credit, event_G: Floats) -> float:
    """cov(Â, e) over the completions trained on."""
    rows = list(credit.trained)
    event_M = event_G[rows]
    return float(np.mean(credit.advantages[rows] * (event_M - event_M.mean())))


def gives(tally: Tally, answers: Container[str | None]) -> Floats:
    """e_i: 1 where a completion gives one of these answers."""
    keys = (*tally.keys_K, None)  # the last for the index -1 of a missing answer
    return np.array([float(keys[j] is not None and keys[j] in answers) for j in tally.class_of_G])


def push_to_stock(credit: Credit) -> float | None:
    """The push towards stock answers; None while too few other questions have been seen."""
    return push(credit, gives(credit.tally, credit.stock)) if credit.stock else None


def stock_share(credit: Credit) -> float | None:
    """The share of completions that give a stock answer; None while too few other questions have been seen."""
    return float(gives(credit.tally, credit.stock).mean()) if credit.stock else None
