"""What the functions of a method return, checked: a method may be a user's own."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import numpy as np

from scrl.credit.method import Method
from scrl.errors import ConfigError
from scrl.records import Floats, Labels, Tally

Kind = TypeVar("Kind")


def of_kind(method: Method, kind: type[Kind], part: str, value: object) -> Kind:
    """What a part of a method returned, which must be of this type."""
    if not isinstance(value, kind):
        raise ConfigError(
            f"method {method.name!r}: its `{part}` must return {kind.__name__}, got {type(value).__name__}"
        )
    return value


def checked_labels(method: Method, value: object, tally: Tally) -> Labels:
    """Labels, which must be answers of the group; none can be both right and ruled out."""
    labels = of_kind(method, Labels, "label", value)
    positive = set() if labels.positive is None else {labels.positive}
    unknown, both = (positive | labels.negatives) - set(tally.keys_K), positive & labels.negatives
    if unknown or both:
        named = f"names {min(unknown)!r}, which nobody answered" if unknown else ""
        why = named or f"rules out {min(both)!r}, which it calls right"
        raise ConfigError(f"method {method.name!r}: its `label` {why}; labels are keys of evidence.tally.keys_K")
    return labels


def finite_numbers(method: Method, part: str, values: Any, number: int, of: str, sign: Literal[-1, 0, 1] = 0) -> Floats:
    """What a part of a method returned, which must be one finite number for each of `of`; `sign`: ≥ 0 or ≤ 0."""
    try:
        values_n = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # a user's own method may return anything
        values_n = np.array(np.nan)
    is_fit = values_n.shape == (number,) and np.isfinite(values_n).all() and (sign * values_n >= 0).all()
    if not is_fit:
        bound = {-1: " ≤ 0", 0: "", 1: " ≥ 0"}[sign]
        raise ConfigError(
            f"method {method.name!r}: its `{part}` must give one finite number{bound} for each of the "
            f"{number} {of}; got {values!r:.200}"
        )
    return values_n
