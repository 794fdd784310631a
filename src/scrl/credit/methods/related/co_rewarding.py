"""Co-rewarding-I (Zhang et al. 2025, arXiv:2508.00410): each form of a question is labelled by the other.

y⁺ = argmax_a p'(a)        p': shares among the completions of the same question rephrased
R_i = [a_i = y⁺]

Both directions: the question's completions are compared with the majority of its rephrasing, and the other way round.
From the authors' code; they compare answers as strings, here equal answers are those of one class. Where the other form
has no answer there is no label and all earn 0, as does a missing answer. Ties are a setting here (`ties`). A label that
no completion of a form gives is left out there: it can reward nothing.

Left out: Co-rewarding-II, whose label comes from a slowly moving average of the weights: it needs a second model.
"""

from __future__ import annotations

from dataclasses import replace

from scrl.credit.labels import majority_positive
from scrl.credit.method import CreditSettings, Evidence, needing
from scrl.credit.methods.ttrl import TTRL
from scrl.records import Labels


def label(evidence: Evidence, settings: CreditSettings) -> Labels:
    """The majority of the other form, where a completion of this one gives it too."""
    assert evidence.partner is not None
    majority = majority_positive(evidence.partner, first_seen_wins=settings.first_seen_wins)
    return Labels(majority if majority in evidence.tally.keys_K else None)


CO_REWARDING = replace(
    TTRL,
    name="co-rewarding",
    idea="reward the most frequent answer to the same question in other words",
    equation="R = [a = argmax p′], p′: shares of the other form",
    paper="arXiv:2508.00410",
    label=label,
    needs=needing("partner"),
)
