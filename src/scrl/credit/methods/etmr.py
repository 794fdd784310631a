"""ETMR (arXiv:2508.11356): a tree of rollouts that forks where the model is uncertain; the majority of leaves decides.

    M roots are written to the end; in each the N tokens of highest entropy become forks, from each of which B more
    completions are written. All M (1 + N B) leaves vote:   y⁺ = argmax_j p_j        R_i = [a_i = y⁺]

If forks fall evenly, that takes (1 + N B / 2) / (1 + N B) of the tokens of as many separate completions: 60 % at
N = B = 2.

The paper's second part, advantages reshaped by entropy, is not here: in the SCRL paper's table the row ETMR has the
numbers of the tree alone, although its text names both. No code was published. What is uncertain:

* which leaves are trained on (here by `which_trained`, as everywhere; tokens that leaves share are trained on in each
  of them), how far apart forks must be (here any two tokens can be forks), and whether the token at a fork is drawn
  anew (here it is).

A missing answer earns 0, as in TTRL.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from scrl.credit.method import CreditSettings, Tree
from scrl.credit.methods.ttrl import TTRL
from scrl.errors import ConfigError


class EtmrSettings(CreditSettings):
    """The shape of the tree."""

    forks: int = Field(2, ge=1, description="N: places of highest entropy in each root at which it forks.")
    branches: int = Field(2, ge=1, description="B: completions written from each fork, besides the root itself.")


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


ETMR = replace(
    TTRL,
    name="etmr",
    idea="completions share their beginnings and fork where the model is uncertain; the majority is rewarded",
    equation="R = [a = argmax p]",
    paper="arXiv:2508.11356",
    settings=EtmrSettings,
    plan=plan,
    run={"completions": 30},
)
