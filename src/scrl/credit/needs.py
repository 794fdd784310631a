"""Whether a group comes with what a method needs, and what to do where it does not."""

from __future__ import annotations

import math
from collections.abc import Collection

from scrl.credit.method import NEEDS, Evidence
from scrl.errors import InputError

REMEDY = "Record it while sampling, or use method 'ttrl'."
REMEDIES = {
    "entropy": "Record entropies while sampling, or use method 'ttrl'.",
    "truth": "Give every question a gold answer, or use a method that needs none.",
    "partner": "Give every question a rephrasing (column `rephrased`), or use a method that needs none.",
    "reference_share": "A run computes it; or use a method that needs none.",
    "embedding": "A run loads it; or set credit.embedding to ngrams.",
    "elsewhere": "Give the groups of other questions (elsewhere=…), or use a method that needs none.",
}


GROUP_NEEDS = {
    "truth": "truth",
    "reference_share": "reference_share",
    "partner": "partner",
    "embedding": "embed",
    "elsewhere": "elsewhere",
}
"""Needs that a group meets as a whole → the field of Evidence; the others are met by every completion."""


def check_needs(method: str, needs: Collection[str], evidence: Evidence) -> None:
    """Refuse a group without what the method needs."""
    for name in sorted(needs):
        lacking = _first_lacking(name, evidence)
        if lacking is not None:
            where, found = lacking
            place = f"question {evidence.group.question_id!r}{where}"
            raise InputError(f"{place}: method {method!r} needs {NEEDS[name]}{found}. {REMEDIES.get(name, REMEDY)}")


def _first_lacking(name: str, evidence: Evidence) -> tuple[str, str] | None:
    """Where a need is not met, and what was found instead; None where it is met."""
    if name in GROUP_NEEDS:
        return ("", ", and this one has none") if getattr(evidence, GROUP_NEEDS[name]) is None else None
    for place, completion in enumerate(evidence.group.completions):
        value: object = completion.entropy if name == "entropy" else completion.facts.get(name)
        if name == "text":  # an answer without a text was read elsewhere; a text may well be empty
            value = None if isinstance(completion.answer, str) and not completion.text else 0.0
        if not isinstance(value, int | float) or not math.isfinite(value):
            return f", completion {place}", f", found {value}"
    return None
