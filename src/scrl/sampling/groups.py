"""Questions → groups of completions, drawn by whichever sampler is open: each alone, or as a tree.

Completions of a tree share their beginnings and cost fewer tokens than as many drawn separately. Some roots are decoded
from each prompt to their ends. In each root the places of highest entropy become forks: the tokens before a fork are
kept, and further completions are decoded from there, starting with a new draw of the token at the fork. Every root and
every branch is a leaf: a whole completion with log-probabilities and entropies of all tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scrl.credit.method import Tree
from scrl.errors import TrainingError
from scrl.records import Floats, Question, Sample, Sampled, Tokens
from scrl.sampling.sampler import Prompt, Sampler, StopTexts
from scrl.sampling.settings import SamplingSettings

PER_TOKEN = ("tokens_T", "logprobs_T", "entropies_T", "margins_T")
"""The fields of a Sample with one value per token; the last may be None."""


def sample_groups(
    sampler: Sampler,
    asked_B: Sequence[tuple[Question, Tokens]],
    settings: SamplingSettings,
    num_samples: int,
    *,
    seed: int,
    draw: int | str,
    step: int = 0,
    tree: Tree | None = None,
) -> list[Sampled]:
    """This many completions of each question with its prompt, drawn after this many steps.

    Random numbers depend on `seed`, `draw` and the question's id. With a tree completions share their beginnings.
    """
    prompts_B = [Prompt(question.id, tokens_P) for question, tokens_P in asked_B]
    if tree is None:
        samples_B = drawn(sampler, prompts_B, settings, num_samples, seed=seed, step=draw)
    else:
        samples_B = sample_tree(sampler, prompts_B, settings, tree, seed=seed, step=draw)
    return [Sampled(*asked, samples_G, step) for asked, samples_G in zip(asked_B, samples_B, strict=True)]


def drawn(
    sampler: Sampler,
    prompts_B: Sequence[Prompt],
    settings: SamplingSettings,
    num_samples: int,
    *,
    seed: int,
    step: int | str,
) -> list[tuple[Sample, ...]]:
    """This many completions of each prompt; what a sampler of a user's own gives instead is refused."""
    samples_B = sampler.sample(prompts_B, settings, num_samples=num_samples, seed=seed, step=step)
    if (sizes := [len(samples) for samples in samples_B]) != [num_samples] * len(prompts_B):
        wanted = f"{num_samples} completions of each of {len(prompts_B)} prompts"
        raise TrainingError(f"compute.sampler: sample must give {wanted}; it gave {sizes or 'none'}")
    for sample in (sample for samples in samples_B for sample in samples if not isinstance(sample, Sample)):
        kind = type(sample).__name__
        raise TrainingError(f"compute.sampler: sample must give scrl.records.Sample objects; it gave {kind}")
    return samples_B


def sample_tree(
    sampler: Sampler, prompts_B: Sequence[Prompt], settings: SamplingSettings, tree: Tree, *, seed: int, step: int | str
) -> list[tuple[Sample, ...]]:
    """M (1 + N B) completions for each prompt: each root, followed by its branches."""
    roots_BM = drawn(sampler, prompts_B, settings, tree.roots, seed=seed, step=step)
    forks = [
        Prompt(  # ends just before the fork; its name gives it its own random numbers
            f"{prompt.question_id} root {number} fork {order}",
            np.concatenate((prompt.tokens_P, root.tokens_T[:place])),
            (prompt.max_tokens or settings.max_tokens) - place,
        )
        for prompt, roots_M in zip(prompts_B, roots_BM, strict=True)
        for number, root in enumerate(roots_M)
        for order, place in enumerate(fork_places(root.entropies_T, tree.forks))
    ]
    branches = iter(drawn(sampler, forks, settings, tree.branches, seed=seed, step=step))
    stops = sampler.stop_texts(settings.stop)
    leaves_BG = []
    for roots_M in roots_BM:
        leaves: list[Sample] = []
        for root in roots_M:
            places = fork_places(root.entropies_T, tree.forks)
            family = [root, *(_leaf(root, place, branch) for place in places for branch in next(branches))]
            leaves += _with_texts(sampler, family, stops)
        leaves_BG.append(tuple(leaves))
    return leaves_BG


def fork_places(entropies_T: Floats, forks: int) -> list[int]:
    """The `forks` places of highest entropy, in order; ties go to the first.

    A completion shorter than that forks at its beginning for the rest, so that all trees have as many leaves.
    """
    highest = np.argsort(-entropies_T, kind="stable")[:forks]
    return sorted([*(int(place) for place in highest), *[0] * (forks - len(highest))])


def _leaf(root: Sample, place: int, branch: Sample) -> Sample:
    """The root up to a place, continued by a branch."""

    def join(name: str) -> NDArray[Any] | None:
        first_T, rest_T = getattr(root, name), getattr(branch, name)
        return None if first_T is None or rest_T is None else np.concatenate((first_T[:place], rest_T))

    values: dict[str, Any] = {name: join(name) for name in PER_TOKEN}
    return replace(branch, **values, num_drawn=branch.tokens_drawn)


def _with_texts(sampler: Sampler, leaves: list[Sample], stops: StopTexts | None) -> list[Sample]:
    """Leaves with the texts of all their tokens, cut after the first stop text."""
    if stops is not None:
        texts = sampler.texts([leaf.tokens_T for leaf in leaves], None)
        is_whole = [leaf.is_finished and stops.cut(text) == text for leaf, text in zip(leaves, texts, strict=True)]
        leaves = [leaf if whole else cut_at_stop(leaf, stops) for leaf, whole in zip(leaves, is_whole, strict=True)]
    texts = sampler.texts([leaf.tokens_T for leaf in leaves], stops)
    return [replace(leaf, text=text) for leaf, text in zip(leaves, texts, strict=True)]


def cut_at_stop(leaf: Sample, stops: StopTexts) -> Sample:
    """The leaf up to its first stop text, which may begin before a fork and end after it; all drawn tokens count."""
    length = stops.first_end(torch.from_numpy(leaf.tokens_T))
    if length is None:
        return leaf
    values: dict[str, Any] = {name: getattr(leaf, name) for name in PER_TOKEN}
    values = {name: None if values_T is None else values_T[:length] for name, values_T in values.items()}
    return replace(leaf, **values, is_finished=True, num_drawn=leaf.tokens_drawn)
