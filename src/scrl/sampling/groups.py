"""Questions → groups of completions, drawn by whichever sampler is open."""

from __future__ import annotations

from collections.abc import Sequence

from scrl.credit.method import Tree
from scrl.errors import TrainingError
from scrl.records import Question, Sample, Sampled, Tokens
from scrl.sampling.sampler import Prompt, Sampler
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.tree import sample_tree


def sample_groups(
    sampler: Sampler,
    asked_B: Sequence[tuple[Question, Tokens]],
    settings: SamplingSettings,
    num_samples: int,
    *,
    seed: int,
    step: int | str,
    at: int = 0,
    tree: Tree | None = None,
) -> list[Sampled]:
    """This many completions of each question with its prompt, drawn after step `at`.

    Random numbers depend on `seed`, `step` and the question's id. With a tree completions share their beginnings.
    """
    prompts_B = [Prompt(question.id, tokens_P) for question, tokens_P in asked_B]
    if tree is None:
        samples_B = sampler.sample(prompts_B, settings, num_samples=num_samples, seed=seed, step=step)
        if (sizes := [len(samples) for samples in samples_B]) != [num_samples] * len(prompts_B):
            wanted = f"{num_samples} completions of each of {len(prompts_B)} prompts"
            raise TrainingError(f"compute.sampler: sample must give {wanted}; it gave {sizes or 'none'}")
        for sample in (sample for samples in samples_B for sample in samples if not isinstance(sample, Sample)):
            kind = type(sample).__name__
            raise TrainingError(f"compute.sampler: sample must give scrl.records.Sample objects; it gave {kind}")
    else:
        samples_B = sample_tree(sampler, prompts_B, settings, tree, seed=seed, step=step)
    return [Sampled(*asked, samples_G, at) for asked, samples_G in zip(asked_B, samples_B, strict=True)]
