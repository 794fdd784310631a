"""TRL: our votes and advantages in a stock GRPOTrainer, through its `rollout_func` and one reward.

    rollouts = Rollouts(credit_rule("scrl", num_trained=16), completions=32)
    args = GRPOConfig(..., num_generations=16, scale_rewards="none")
    GRPOTrainer(model, rollouts.reward, args, train_dataset, rollout_func=rollouts).train()

TRL asks every process for the rows that it will train on: M for each of B questions, one question after the other, cut
into equal slices, so that a group may straddle processes. Instead, each draws its share of the N · B completions that
vote, wherever a group begins or ends. They show each other what they drew, every group is credited by one of them, and
each hands back its slice of the M rows a question that credit chose.

TRL takes the mean reward of the M rows from each of them and, with scale_rewards="none", does nothing else. Our
advantages have mean 0: given as rewards, they come out as they went in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch

from scrl.credit.group_metrics import group_metrics
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.engines.versions import require_engine
from scrl.errors import ConfigError
from scrl.records import Floats, Question, Sample, Sampled, Tokens

require_engine("trl")
from accelerate.utils import gather_object  # noqa: E402 - comes with the engine

CreditOne = Callable[[Sampled], CreditedGroup]


class Asked(NamedTuple):
    """What stands behind a `prompt` of the trainer's dataset."""

    question: Question
    prompt_P: Tokens


class Drawn(NamedTuple):
    """A completion, and the sampler's own log-probabilities where it is not the policy (vLLM)."""

    sample: Sample
    sampler_T: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One generation of TRL's, on every process the same."""

    number: int
    groups_B: list[CreditedGroup]
    metrics: dict[str, float]


class Rollouts:
    """A `rollout_func`, with the reward that belongs to it."""

    def __init__(
        self,
        rule: CreditRule,
        completions: int,
        *,
        credit: CreditOne | None = None,
        asked: Callable[[Any, Any], Asked] | None = None,
        sampler_rows: int = 512,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        """`completions` is N; `credit` and `asked` stand in for the rule's own credit and for TRL's own tokens."""
        self._rule, self._completions, self._sampler_rows = rule, completions, sampler_rows
        self._credit = credit or self._credit_by_rule
        self._asked = asked or asked_by_trl
        self._on_step = on_step
        self._metrics: dict[str, float] = {}
        self.labels: dict[str, str | None] = {}
        """The last positive label of each question."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """The rows this process trains on, each with its advantage."""
        self._check(trainer)
        start = perf_counter()
        size = trainer.num_generations
        asked_B = groups_of([self._asked(prompt, trainer) for prompt in prompts], size)
        drawn = self.draw(trainer, asked_B, self._completions)
        sampled_B = self._sampled(trainer, asked_B, [each.sample for each in drawn])
        drawn_at = perf_counter()
        groups_B = self._credited(trainer, sampled_B)
        seconds = {"seconds_rollout": drawn_at - start, "seconds_credit": perf_counter() - drawn_at}
        self._note(groups_B, seconds)
        first = trainer.accelerator.process_index * len(prompts)
        places = [divmod(row, size) for row in range(first, first + len(prompts))]
        chosen = [(group, groups_B[group].credit.trained[row]) for group, row in places]
        kept = [drawn[group * self._completions + number] for group, number in chosen]
        return {
            "prompt_ids": [sampled_B[group].prompt_P.tolist() for group, _ in chosen],
            "completion_ids": [each.sample.tokens_T.tolist() for each in kept],
            "logprobs": None if kept[0].sampler_T is None else [each.sampler_T for each in kept],
            "scrl_advantage": [float(groups_B[group].credit.advantages[number]) for group, number in chosen],
        }

    def reward(self, scrl_advantage: list[float], log_metric: Callable[[str, float], None], **_: Any) -> list[float]:
        """The advantages, as rewards; and our numbers of the step, for TRL's log."""
        for name, value in self._metrics.items():
            log_metric(f"scrl/{name}", value)
        return scrl_advantage

    def draw(self, trainer: Any, asked_B: Sequence[Asked], number: int) -> list[Drawn]:
        """`number` completions of each question, shared out among the processes and then seen by all of them."""
        processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
        total = len(asked_B) * number
        first, end = (total * p // processes for p in (process, process + 1))
        # Every process makes equally many calls of equal size, which sharded models and servers count on.
        places = [min(first + place, total - 1) for place in range(-(-total // processes))]
        prompts = [asked_B[place // number].prompt_P.tolist() for place in places]
        parts = [prompts[row : row + self._sampler_rows] for row in range(0, len(prompts), self._sampler_rows)]
        drawn = [each for part in parts for each in draw_rows(trainer, part)]
        gathered: list[Drawn] = gather_object(drawn[: end - first])
        return gathered

    def _sampled(self, trainer: Any, asked_B: Sequence[Asked], samples: Sequence[Sample]) -> list[Sampled]:
        args, size = trainer.args, self._completions
        updates = args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps
        step = trainer.state.global_step // max(1, updates)
        return [
            Sampled(asked.question, asked.prompt_P, tuple(samples[place * size : (place + 1) * size]), step)
            for place, asked in enumerate(asked_B)
        ]

    def _credited(self, trainer: Any, sampled_B: Sequence[Sampled]) -> list[CreditedGroup]:
        """Each group is credited by one process: a judge that is out of time must not split their minds."""
        processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
        mine = [(place, self._credit(sampled_B[place])) for place in range(process, len(sampled_B), processes)]
        return [group for _, group in sorted(gather_object(mine), key=lambda pair: pair[0])]

    def _credit_by_rule(self, sampled: Sampled) -> CreditedGroup:
        classes = self._rule.classify(sampled.group)
        return CreditedGroup(sampled, classes, self._rule.credit(sampled.group, classes))

    def _note(self, groups_B: list[CreditedGroup], seconds: dict[str, float]) -> None:
        sampled_B, credit_B = [group.sampled for group in groups_B], [group.credit for group in groups_B]
        self._metrics = group_metrics(sampled_B, credit_B, self.labels) | seconds
        self.labels |= {group.sampled.question.id: group.credit.labels.positive for group in groups_B}
        if self._on_step is not None:
            self._on_step(Step(sampled_B[0].step, groups_B, self._metrics))

    def _check(self, trainer: Any) -> None:
        """Refuse a trainer that would change the advantages, or ask for other rows than credit chooses."""
        wanted = {
            "num_generations": self._rule.num_trained or self._completions,
            "scale_rewards": "none",
            "multi_objective_aggregation": "sum_then_normalize",
            "reward_weights": None,
        }
        for name, value in wanted.items():
            if getattr(trainer.args, name) != value:
                raise ConfigError(f"GRPOConfig: {name} is {getattr(trainer.args, name)!r}; set it to {value!r}")
        if len(trainer.reward_funcs) != 1:
            raise ConfigError("GRPOTrainer: reward_funcs must hold the reward of these rollouts and no other")
        if not trainer.model.training:
            raise ConfigError("GRPOConfig: eval_strategy must be 'no'; measure a checkpoint with scrl evaluate")


def asked_by_trl(prompt: Any, trainer: Any) -> Asked:
    """A prompt as TRL renders it; its text is the question's name."""
    [tokens_P], _, _ = trainer._tokenize_prompts([prompt])  # private: trl is pinned, here and below
    text = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
    return Asked(Question(text, text), np.asarray(tokens_P, dtype=np.int64))


def groups_of(asked_local: Sequence[Asked], size: int) -> list[Asked]:
    """What all processes ask, each question once, from the rows of each of them."""
    asked: list[Asked] = gather_object(list(asked_local))
    groups = [asked[first : first + size] for first in range(0, len(asked), size)]
    if any(len({each.question.id for each in group}) > 1 or len(group) < size for group in groups):
        raise ConfigError("GRPOTrainer: the rows of a question must follow each other, as its own sampler has them")
    return [group[0] for group in groups]


def draw_rows(trainer: Any, prompts: list[list[int]]) -> list[Drawn]:
    """One completion for each prompt, with log π and H of its tokens by the policy that is trained."""
    written, sampler = trainer._generate_single_turn(prompts, None, {}, 1)
    logprobs_RT, entropies_RT = score_rows(trainer, prompts, written)
    texts = trainer.processing_class.batch_decode(written, skip_special_tokens=True)
    return [
        Drawn(
            Sample(
                text,
                np.asarray(tokens, dtype=np.int64),
                logprobs_RT[row, : len(tokens)],
                entropies_RT[row, : len(tokens)],
                is_finished=tokens[-1] in trainer.eos_token_ids,
            ),
            None if sampler is None else np.asarray(sampler[row], dtype=np.float64),
        )
        for row, (text, tokens) in enumerate(zip(texts, written, strict=True))
    ]


@torch.no_grad()
def score_rows(trainer: Any, prompts: list[list[int]], written: list[list[int]]) -> tuple[Floats, Floats]:
    """log π and H = −Σ π log π of every token, π = softmax(logits / T): TRL's own pass, which divides by T."""
    before, after = max(map(len, prompts)), max(map(len, written))
    tokens_RL = torch.full((len(prompts), before + after), trainer._tokenizer.pad_token_id)
    mask_RL = torch.zeros_like(tokens_RL)
    for row, (prompt, completion) in enumerate(zip(prompts, written, strict=True)):
        where = slice(before - len(prompt), before + len(completion))
        tokens_RL[row, where], mask_RL[row, where] = torch.tensor(prompt + completion), 1
    device = trainer.accelerator.device
    scores = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        tokens_RL.to(device),
        mask_RL.to(device),
        after,
        batch_size=trainer.args.per_device_train_batch_size,
        compute_entropy=True,
    )
    logprobs_RT, entropies_RT = (score_RT.double().cpu().numpy() for score_RT in scores[:2])
    return logprobs_RT, entropies_RT
