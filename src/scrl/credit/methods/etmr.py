"""ETMR (arXiv:2508.11356): a tree of rollouts that forks where the model is uncertain; the majority of leaves decides.

    M roots are written to the end; in each the N tokens of highest entropy become forks, from each of which B more
    completions are written. All M (1 + N B) leaves vote:   y⁺ = argmax_j p_j        R_i = [a_i = y⁺]

If forks fall evenly, that takes (1 + N B / 2) / (1 + N B) of the tokens of as many separate completions: 60 % at
N = B = 2.

The paper's second part, advantages reshaped by entropy, is the setting `reshape`:

    Â_i ← max(0, 2 − h_i / h̄) Â_i       (2 − h / h̄ = 1 + (h̄ − h) / h̄)

It is off by default: in the table of the SCRL paper the row ETMR has the numbers of the tree alone, although its text
names both. No code was published; two summaries agree on the above. What is uncertain:

* whether h̄ is the mean over the completions trained on (our choice) or over all that voted;
* 2 − h / h̄ is below 0 for a completion of more than twice the mean entropy, where it would flip its advantage's sign:
  it is not taken below 0. Where h̄ = 0 nothing is changed;
* which leaves are trained on (here by `which_trained`, as everywhere; tokens that leaves share are trained on in each
  of them), how far apart forks must be (here any two tokens can be forks), and whether the token at a fork is drawn
  anew (here it is).

A missing answer earns 0, as in TTRL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from typing import Literal

import numpy as np
from pydantic import Field

from scrl.credit.advantages import reward_advantages, split_by_sign
from scrl.credit.method import CreditSettings, Evidence, Shaped, SplitAdvantage, Tree
from scrl.credit.methods.ttrl import TTRL
from scrl.errors import ConfigError
from scrl.records import Labels


class EtmrSettings(CreditSettings):
    """The shape of the tree, and how advantages are reshaped."""

    forks: int = Field(2, ge=1, description="N: places of highest entropy in each root at which it forks.")
    branches: int = Field(2, ge=1, description="B: completions written from each fork, besides the root itself.")
    reshape: Literal["none", "residual"] = Field(
        "none", description="Advantages as they are, or smaller where the entropy is high."
    )


def plan(num_completions: int, settings: EtmrSettings) -> Tree:
    """M = N_completions / (1 + N B) roots; a number that has no such M is refused."""
    leaves = 1 + settings.forks * settings.branches
    roots, rest = divmod(num_completions, leaves)
    if rest:
        possible = [str(number * leaves) for number in (roots, roots + 1) if number]
        raise ConfigError(
            f"completions: a root with {settings.forks} forks of {settings.branches} branches has {leaves} leaves, so "
            f"there cannot be {num_completions} in all. Take {' or '.join(possible)}, or change credit.forks or "
            "credit.branches."
        )
    return Tree(roots, settings.forks, settings.branches)


def advantage(
    evidence: Evidence,
    labels: Labels,  # noqa: ARG001 - a method's signature
    shaped: Shaped,
    rows: Sequence[int],
    settings: EtmrSettings,
) -> SplitAdvantage:
    """The usual advantages, scaled by max(0, 2 − h_i / h̄) where that is asked for."""
    advantages_M = reward_advantages(shaped.rewards_G[list(rows)], settings)
    if settings.reshape == "residual":
        assert evidence.tally.entropies_G is not None
        entropies_M = [evidence.tally.entropies_G[i] for i in rows]
        if mean := fsum(entropies_M) / len(entropies_M):
            advantages_M = np.maximum(0.0, 2 - np.array(entropies_M) / mean) * advantages_M
    return split_by_sign(advantages_M)


ETMR = replace(
    TTRL,
    name="etmr",
    idea="completions share their beginnings and fork where the model is uncertain; the majority is rewarded",
    equation="R = [a = argmax p];  reshaped by Â ← max(0, 2 − h/h̄) Â where asked for",
    paper="arXiv:2508.11356",
    settings=EtmrSettings,
    needs=lambda settings: frozenset({"entropy"} if settings.reshape == "residual" else ()),
    advantage=advantage,
    plan=plan,
)
