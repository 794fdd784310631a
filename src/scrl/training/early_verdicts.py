"""Drawing a question's completions a few at a time, until the verdict stands.

All M that are trained on are drawn first, then CHUNK more of every question that is still open, at most N. Completion i
is the same however many are drawn with it, so that the label, the completions trained on and what a 0-or-1 reward makes
of them are those of all N. Figures about votes (agreement, distinct answers) are those of the completions drawn. In
every round the open questions' prompts are read again and fewer rows are written side by side: tokens are saved for
sure, time only where the sampler was full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from scrl.records import Question, Sampled

CHUNK = 8
"""Completions drawn a round for every question that is still open."""
Draw = Callable[[Sequence[Question], int, int], list[Sampled]]
"""(questions, number of the first completion, how many) → their groups."""


def draw_until_decided(
    draw: Draw, is_decided: Callable[[Sampled], bool], questions: Sequence[Question], *, least: int, most: int
) -> list[Sampled]:
    """The groups of some questions, `least` to `most` completions each."""
    groups, number = draw(questions, 0, least), least
    still_open = list(range(len(questions)))
    while number < most and (still_open := [place for place in still_open if not is_decided(groups[place])]):
        more = draw([questions[place] for place in still_open], number, min(CHUNK, most - number))
        for place, drawn in zip(still_open, more, strict=True):
            groups[place] = replace(groups[place], samples_G=(*groups[place].samples_G, *drawn.samples_G))
        number = min(number + CHUNK, most)
    return groups


def saved(groups: Sequence[Sampled], most: int) -> dict[str, float]:
    """What was not drawn: completions, exactly, and tokens, taken to be as many as the question's others have."""
    missing_B = [most - len(sampled.samples_G) for sampled in groups]
    tokens_B = [sum(sample.tokens_drawn for sample in sampled.samples_G) for sampled in groups]
    lengths_B = [tokens / len(sampled.samples_G) for tokens, sampled in zip(tokens_B, groups, strict=True)]
    tokens = sum(missing * length for missing, length in zip(missing_B, lengths_B, strict=True))
    return {"completions_saved_share": sum(missing_B) / (most * len(groups)), "tokens_saved": tokens}
