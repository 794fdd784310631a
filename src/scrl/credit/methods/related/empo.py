"""EMPO (Zhang et al. 2025, arXiv:2504.05812): less semantic entropy, so every answer earns its share.

R_i = p(a_i)        0 for a missing answer; 0 for all where no two completions agree

The equation, the 0 of a missing answer and the silence of a group whose semantic entropy is log N are those of the
authors' code. There is no label: all answers are rewarded, each by its votes. Our reading where the source is silent: a
group with missing answers is silent too as soon as the answers that were given all differ. The authors' newer recipe
can leave out questions whose confidence, the share of the most frequent answer, is not in (0.3, 1): `keep_shares`; the
completions of a question that is left out earn 0, which is no advantage for any of them. It also runs with the loss of
GSPO (`loss_variant: gspo`), which is a choice of the loss and not of the reward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, field_validator

from scrl.credit.labels import SLACK
from scrl.credit.method import CreditSettings, Evidence, Method, Shaped, no_labels
from scrl.credit.rewards import spread
from scrl.records import Labels, Tally


class EmpoSettings(CreditSettings):
    """Which questions are left out."""

    keep_shares: tuple[float, float] | None = Field(
        None,
        description="Only questions whose most frequent answer has a share strictly between these two are trained on; "
        "none: all. The authors' newer recipe: [0.3, 1].",
    )

    @field_validator("keep_shares", mode="before")
    @classmethod
    def _as_typed(cls, value: Any) -> Any:
        return tuple(value.strip("[] ").split(",")) if isinstance(value, str) else value

    @field_validator("keep_shares")
    @classmethod
    def _in_order(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not 0 <= value[0] < value[1] <= 1:
            raise ValueError("must be two shares, 0 ≤ low < high ≤ 1")
        return value


def reward(evidence: Evidence, labels: Labels, settings: EmpoSettings) -> Shaped:  # noqa: ARG001 - a method's signature
    """R_i = p(a_i); all 0 where nobody agrees or the question is left out."""
    tally = evidence.tally
    is_heard = max(tally.counts_K, default=0) > 1 and is_kept(tally, settings.keep_shares)
    return Shaped(spread(tally, tally.shares_K, missing=0.0) if is_heard else np.zeros(tally.num_completions))


def is_kept(tally: Tally, keep_shares: tuple[float, float] | None) -> bool:
    """low < max_j p_j < high, compared as counts."""
    if keep_shares is None:
        return True
    low, high = (share * tally.size for share in keep_shares)
    return low + SLACK < max(tally.counts_K, default=0) < high - SLACK


EMPO = Method(
    name="empo",
    idea="every answer earns its share of the votes; nothing where all answers differ",
    equation="R = p(a)",
    paper="arXiv:2504.05812",
    settings=EmpoSettings,
    label=no_labels,
    reward=reward,
    has_negatives=False,
)
