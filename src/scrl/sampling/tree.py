"""Completions that share their beginnings: a tree of rollouts, which costs fewer tokens than as many apart.

From each prompt some roots are written to the end. In each root the places of highest entropy become forks: what stands
before such a place is kept, and more completions are written from there on, the token at the fork drawn anew. Every
root and every branch is a leaf, a whole completion with the log-probabilities and entropies of all its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scrl.credit.method import Tree
from scrl.records import Floats, Sample
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.sampler import Prompt, Sampler
from scrl.sampling.stop_texts import StopTexts


def sample_tree(
    sampler: Sampler,
    prompts_B: Sequence[Prompt],
    settings: SamplingSettings,
    tree: Tree,
    *,
    seed: int,
    step: int | str,
) -> list[tuple[Sample, ...]]:
    """M (1 + N B) completions for each prompt: each root, followed by its branches."""
    roots_BM = sampler.sample(prompts_B, settings, num_samples=tree.roots, seed=seed, step=step)
    forks = [
        _fork(prompt, f"root {number} fork {order}", root, place, settings.max_tokens)
        for prompt, roots_M in zip(prompts_B, roots_BM, strict=True)
        for number, root in enumerate(roots_M)
        for order, place in enumerate(fork_places(root.entropies_T, tree.forks))
    ]
    grown = iter(sampler.sample(forks, settings, num_samples=tree.branches, seed=seed, step=step))
    stops = sampler.stop_texts(settings.stop)
    return [
        tuple(leaf for root in roots_M for leaf in _leaves(sampler, root, tree, grown, stops)) for roots_M in roots_BM
    ]


def fork_places(entropies_T: Floats, forks: int) -> list[int]:
    """The `forks` places of highest entropy, in order; of equal ones the first.

    A completion shorter than that forks at its beginning for the rest, so that all trees have as many leaves.
    """
    highest = np.argsort(-entropies_T, kind="stable")[:forks]
    return sorted([*(int(place) for place in highest), *[0] * (forks - len(highest))])


def _fork(prompt: Prompt, name: str, root: Sample, place: int, max_tokens: int) -> Prompt:
    """A prompt that ends just before a place in a root; its random numbers are its own."""
    begun = prompt.continued(root.tokens_T[:place])
    return Prompt(f"{prompt.question_id} {name}", begun.tokens_P, (prompt.max_tokens or max_tokens) - place)


def _leaves(
    sampler: Sampler, root: Sample, tree: Tree, grown: Iterator[tuple[Sample, ...]], stops: StopTexts | None
) -> list[Sample]:
    """A root and all its branches, as whole completions."""
    leaves = [root]
    for place in fork_places(root.entropies_T, tree.forks):
        leaves += [_leaf(root, place, branch) for branch in next(grown)]
    if stops is not None:
        texts = sampler.texts([leaf.tokens_T for leaf in leaves], None)
        is_over = [leaf.is_finished and stops.cut(text) == text for leaf, text in zip(leaves, texts, strict=True)]
        leaves = [leaf if over else cut_at_stop(leaf, stops) for leaf, over in zip(leaves, is_over, strict=True)]
    texts = sampler.texts([leaf.tokens_T for leaf in leaves], stops)
    return [replace(leaf, text=text) for leaf, text in zip(leaves, texts, strict=True)]


def _leaf(root: Sample, place: int, branch: Sample) -> Sample:
    """The root up to a place, and a branch from there."""
    return Sample(
        text="",
        tokens_T=_joined(root.tokens_T, place, branch.tokens_T),
        logprobs_T=_joined(root.logprobs_T, place, branch.logprobs_T),
        entropies_T=_joined(root.entropies_T, place, branch.entropies_T),
        is_finished=branch.is_finished,
        margins_T=_joined_if_there(root.margins_T, place, branch.margins_T),
        certainties_T=_joined_if_there(root.certainties_T, place, branch.certainties_T),
        num_drawn=branch.tokens_drawn,
    )


def cut_at_stop(leaf: Sample, stops: StopTexts) -> Sample:
    """A stop text may begin before a fork and end behind it: what was drawn after it is let go of."""
    length = stops.first_end(torch.from_numpy(leaf.tokens_T))
    return leaf if length is None else _beginning(leaf, length)


def _beginning(leaf: Sample, length: int) -> Sample:
    """A leaf's first tokens, as a completion that has ended; what was drawn for it stays drawn."""
    return replace(
        leaf,
        tokens_T=leaf.tokens_T[:length],
        logprobs_T=leaf.logprobs_T[:length],
        entropies_T=leaf.entropies_T[:length],
        is_finished=True,
        margins_T=None if leaf.margins_T is None else leaf.margins_T[:length],
        certainties_T=None if leaf.certainties_T is None else leaf.certainties_T[:length],
        num_drawn=leaf.tokens_drawn,
    )


def _joined(root_T: NDArray[Any], place: int, branch_T: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate((root_T[:place], branch_T))


def _joined_if_there(root_T: Floats | None, place: int, branch_T: Floats | None) -> Floats | None:
    return None if root_T is None or branch_T is None else _joined(root_T, place, branch_T)
