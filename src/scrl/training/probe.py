"""A few completions of the start model before training: can answers be read, are they cut, how long will a run take?

A run whose completions contain hardly any answer learns nothing. The probe finds out before time is spent: it refuses
such a run, says which reader or length would do, and how much time and disk the run will take. Scored again at the end,
the same completions say how far training has moved the model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scrl.answers.readers import get_reader, read_answer
from scrl.config import RunConfig
from scrl.errors import InputError
from scrl.policy.checkpoint import checkpoints_bytes
from scrl.policy.model import LanguageModel
from scrl.policy.policy import Policy
from scrl.policy.token_scores import completion_logprobs
from scrl.records import Sample, Sampled
from scrl.reporting.text import duration

MIN_ANSWERED = 1 / 8
"""Refuse a run below this share of completions with an answer: of 32 votes four would be left."""
FEW_ANSWERED = 1 / 2
MANY_CUT, MOSTLY_CUT = 1 / 4, 1 / 2
"""Warn above the first share of completions that are cut, refuse a run above the second."""
PREFERRED = ("boxed", "choice", "number", "last-number")
"""Readers from strict to lenient: the last finds something in any text with a digit."""
HARDLY_MOVED = 1e-3
"""Nats per token: below this, a run has not changed what the model says."""
LONG = 7200
"""Seconds: a run that takes longer is told what would make it shorter."""
MOVED_FAR = 0.3
"""Nats per token: above this, runs of a 0.5B model had lost most right answers (docs/results.md#learning-rates)."""
FOLLOWED, FOLLOWED_TOKENS = 8, 256
"""Completions, and tokens of each, that are scored again after training."""

ScoredTokens = tuple[list[int], list[int], list[float]]
"""Prompt, tokens and the log-probability of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """What the start model wrote, and how long that took."""

    sampled_B: Sequence[Sampled]
    rollout_seconds: float
    score_seconds: float
    """Seconds of a forward pass over all these completions."""
    rows: list[ScoredTokens]

    @property
    def samples(self) -> list[Sample]:
        return [sample for sampled in self.sampled_B for sample in sampled.samples_G]

    @property
    def num_cut(self) -> int:
        return sum(not sample.is_finished for sample in self.samples)


def score_probe(sampled_B: Sequence[Sampled], rollout_seconds: float, language_model: LanguageModel) -> Probe:
    pairs = [(sampled.prompt_P, sample.tokens_T) for sampled in sampled_B for sample in sampled.samples_G]
    completion_logprobs(language_model.model, pairs[:1])  # the first pass on a GPU compiles kernels
    began = time.perf_counter()
    logprobs_R = completion_logprobs(language_model.model, pairs)
    score_seconds = time.perf_counter() - began
    followed = list(zip(pairs, logprobs_R, strict=True))[:: max(1, len(pairs) // FOLLOWED)][:FOLLOWED]
    rows = [
        (prompt.tolist(), tokens[:FOLLOWED_TOKENS].tolist(), logprobs[:FOLLOWED_TOKENS].tolist())
        for (prompt, tokens), logprobs in followed
    ]
    return Probe(sampled_B, rollout_seconds, score_seconds, rows)


def shift(rows: Sequence[ScoredTokens], language_model: LanguageModel) -> float:
    """mean |log π(token) − log π_start(token)| over the start model's own completions."""
    size = language_model.model.config.get_text_config().vocab_size
    for prompt, tokens, logprobs in rows:
        if not prompt or not 0 < len(tokens) == len(logprobs) or max(*prompt, *tokens) >= size:
            raise InputError("the state of the run is damaged: probe: must hold tokens of the model")
    pairs = [(np.asarray(prompt), np.asarray(tokens)) for prompt, tokens, _ in rows]
    before = np.concatenate([logprobs for _, _, logprobs in rows])
    return float(np.mean(np.abs(np.concatenate(completion_logprobs(language_model.model, pairs)) - before)))


def shift_note(change: float, config: RunConfig, *, had_signal: bool = True) -> str:
    """How far the model has moved, and what to do if that is nothing though there was a signal, or very far."""
    how, rate = "log-probabilities of what it wrote at the start changed by", f"{config.optimizer.learning_rate:g}"
    if change < HARDLY_MOVED and had_signal:
        what = f"raise optimizer.learning_rate (now {rate}) or steps (now {config.steps})"
        return f"WARNING: the model has hardly moved ({how} {change:.1g} per token): {what}"
    if change > MOVED_FAR:
        what = f"look at its answers before you use it, or lower optimizer.learning_rate (now {rate})"
        return f"WARNING: the model has moved far ({how} {change:.2g} per token): {what}"
    return f"the model has moved: {how} {change:.2g} per token"


def probe_notes(probe: Probe, config: RunConfig) -> Iterator[str]:
    """What a user should know before the first step; raises where most completions are cut, or hardly any answers."""
    total, most = len(probe.samples), config.sampling.max_tokens
    answered, counts = count_by_reader(probe.samples, config.reader)
    words = [f"{answered} of {total} completions of the start model have an answer ({config.reader})"]
    if answered < FEW_ANSWERED * total:
        words.append("found by other readers: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    if probe.num_cut:
        words.append(f"{probe.num_cut} cut at {most} tokens")
    words.append(f"{np.mean([len(sample.tokens_T) for sample in probe.samples]):.0f} tokens on average")
    ways = proposals(probe, answered, counts, config)
    is_mostly_cut = probe.num_cut > MOSTLY_CUT * total
    if is_mostly_cut or answered < MIN_ANSWERED * total:
        name = "sampling.max_tokens: too short" if is_mostly_cut else "reader: too few answers"
        fix = f"Try {'; '.join(ways)}." if ways else "Try another prompt.instruction or model."
        end = f"The first completion ends in {probe.samples[0].text[-80:]!r}."
        raise InputError(f"{name}: {'; '.join(words)}. {fix} Or skip this check with --probe 0. {end}")
    yield f"probe: {'; '.join(words)}"
    if ways:
        yield f"{'WARNING: many are cut; ' if probe.num_cut > MANY_CUT * total else ''}consider {'; '.join(ways)}"


def proposals(probe: Probe, answered: int, others: Mapping[str, int], config: RunConfig) -> list[str]:
    """Settings that would let more completions vote, where the reader found `answered` answers and others these."""
    total, ways = len(probe.samples), []
    if probe.num_cut > MANY_CUT * total:
        ways.append(f"--max-tokens {(4 if probe.num_cut == total else 2) * config.sampling.max_tokens}")
    enough = max(2 * answered, math.ceil(FEW_ANSWERED * total))
    for name, count in others.items():
        if answered < FEW_ANSWERED * total and count >= enough:
            return [*ways, f"--reader {name}, which finds {count}"]
    return ways


def count_by_reader(samples: Sequence[Sample], reader: str) -> tuple[int, dict[str, int]]:
    """In how many completions this reader finds an answer, and each of the others does."""
    said = [(sample.text, not sample.is_finished) for sample in samples]
    readers = {name: get_reader(name) for name in (reader, *PREFERRED)}
    counts = {
        name: sum(read_answer(read, text, is_cut=is_cut) is not None for text, is_cut in said)
        for name, read in readers.items()
    }
    return counts.pop(reader), counts


def cost_note(
    probe: Probe, config: RunConfig, policy: Policy, rows: int, num_questions: int, measured: Sequence[int]
) -> str:
    """Seconds per step, hours in all and space on disk, from what the probe took.

    n completions took t seconds. On a CPU k of them take t k / n; on a GPU, where `rows` are written side by side,
    t ⌈k / rows⌉. A pass forward and backward over a completion takes three times the forward pass of its scoring, four
    times where activations are computed twice.
    """
    n, evaluation = len(probe.samples), config.evaluation

    def rollout(questions: int, completions: int) -> float:
        if policy.language_model.device.type == "cpu":
            return probe.rollout_seconds * questions * completions / n
        return probe.rollout_seconds * math.ceil(questions * completions / rows)

    groups = min(config.questions_per_step, num_questions)
    passes = 4 if policy.is_checkpointed else 3
    step = rollout(groups, config.completions) + passes * probe.score_seconds * groups * config.trained / n
    total = config.steps * step
    rounds = config.vote_rounds(config.steps * config.questions_per_step / num_questions)
    total += rounds * rollout(num_questions, config.votes_per_question)
    if not evaluation.is_off:
        times = 2 if not evaluation.every else 1 + math.ceil(config.steps / evaluation.every)
        total += times * sum(rollout(number, evaluation.completions) for number in measured)
    other_fields = 300
    completion_bytes = np.mean([len(sample.text.encode()) for sample in probe.samples]) + other_fields
    rollout_bytes = config.steps * groups * config.completions * completion_bytes
    disk = checkpoints_bytes(policy, is_renewed=config.steps > config.checkpoint_every) + rollout_bytes
    note = f"estimated from the probe: about {duration(step)} per step, {duration(total)} in all with evaluations; "
    note += f"{disk / 1e9:.2g} GB on disk"
    if total < LONG:
        return note
    ways = "--steps, --completions, --trained, --questions-per-step, --max-tokens or --evaluation.completions"
    return f"{note}. To take less, lower {ways}"
