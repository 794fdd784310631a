"""Rewards for answers that checked completions give, to be tried before they may become a method.

    python results/credible.py ROLLOUTS data/credible.json

Of the start model's completions of each question: how many give an answer, and how many of these `sound:boxed` lets
vote. An answer that many give and no checked one is hardly ever right, on hard questions too, where no answer has the
share that a label needs:

    y⁺ = argmax_a v(a) / N  if that is at least τ           R_i = [a_i = y⁺]
    else                                                    R_i = [v(a_i) > 0]       SURVIVING
                                                            R_i = v(a_i) / n(a_i)    CREDIBLE

n(a): completions with this answer, v(a): those of them that vote, both fixed before training.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from scrl.credit.method import CreditSettings, Evidence, Field, Labels, Method, Shaped, spread
from scrl.credit.rule import credit_rule
from scrl.data.completion_files import open_completions
from scrl.lab.stored_groups import stored_groups

FILE = Path("data/credible.json")
Counts = dict[str, list[int]]
"""Answer → n, v."""


class CredibleSettings(CreditSettings):
    """How far an answer must stand out to be a label, as in `contrast-label`."""

    min_share: float = Field(0.4, gt=0, le=2, description="τ: a label needs this share; above 1: none.")


def counts_of(rollouts: Path) -> dict[str, Counts]:
    """Question → answer → n, v."""
    found: dict[str, Counts] = {}
    for place, reader in enumerate(("boxed", "sound:boxed")):
        for group in stored_groups(open_completions(rollouts), credit_rule("ttrl", reader=reader), keep_texts=False):
            counts = found.setdefault(group.question_id, {})
            for key, count in zip(group.tally.keys_K, group.tally.counts_K, strict=True):
                counts.setdefault(key, [0, 0])[place] = count
    return found


@cache
def stored() -> dict[str, Counts]:
    """What this file, as a program, wrote."""
    found: dict[str, Counts] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def best(counts: Counts, min_share: float, size: int) -> str | None:
    """The answer with the most votes of checked completions, if they are enough."""
    votes, key = max(((v, key) for key, (_, v) in sorted(counts.items())), default=(0, ""))
    return key if votes >= min_share * size else None


def label(evidence: Evidence, settings: CredibleSettings) -> Labels:
    """The label that the start model's checked completions give."""
    found = best(stored()[evidence.group.question_id], settings.min_share, SIZE)
    return Labels(found if found in evidence.tally.keys_K else None)


def reward(
    evidence: Evidence, labels: Labels, settings: CredibleSettings, elsewhere: Callable[[int, int], float]
) -> Shaped:
    """What an answer earns; one that the start model never gave earns nothing."""
    counts = stored()[evidence.group.question_id]
    if best(counts, settings.min_share, SIZE) is not None:
        values = [float(key == labels.positive) for key in evidence.tally.keys_K]
    else:
        values = [elsewhere(*counts.get(key, (1, 0))) for key in evidence.tally.keys_K]
    return Shaped(spread(evidence.tally, values, missing=0.0))


def method(name: str, idea: str, equation: str, elsewhere: Callable[[int, int], float]) -> Method:
    """1 for a question's label; without one, `elsewhere` of n and v."""
    pays = partial(reward, elsewhere=elsewhere)
    return Method(name, idea, equation, "ours", CredibleSettings, label, pays, has_negatives=False)


SIZE = 32
"""N."""
SURVIVING = method("surviving", "else any checked answer", "[v(a) > 0]", lambda _, v: float(v > 0))
CREDIBLE = method("credible", "else how often it is checked", "v(a) / n(a)", lambda n, v: v / n)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(counts_of(Path(sys.argv[1]))), encoding="utf-8")
