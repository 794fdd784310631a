"""TRL: our votes and advantages in a stock GRPOTrainer, through its `rollout_func` and one reward.

    rollouts = Rollouts(credit_rule("scrl", num_trained=16), completions=32)
    args = GRPOConfig(..., num_generations=16, scale_rewards="none")
    GRPOTrainer(model, rollouts.reward, args, train_dataset, rollout_func=rollouts).train()

TRL asks every process for the rows that it will train on: M for each of B questions, one question after the other, cut
into equal slices, so that a group may straddle processes. Instead, each process samples its share of the N · B
completions that vote, wherever a group begins or ends. All processes exchange what they sampled, each group is
classified and credited by one of them, and each hands back its slice of the M rows per question that credit chose.

TRL takes the mean reward of the M rows from each of them and, with scale_rewards="none", does nothing else. Our
advantages have mean 0: given as rewards, they come out as they went in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from scrl.credit.elsewhere import LastVotes
from scrl.credit.group_metrics import group_metrics, most_frequent, positive_labels
from scrl.credit.label_votes import LabelVotes
from scrl.credit.labels import count_votes
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.engines.requirements import require_engine
from scrl.errors import ConfigError
from scrl.records import Floats, Question, Sample, Sampled, Tokens
from scrl.training.crediting import Crediting

require_engine("trl")
from accelerate.utils import gather_object  # noqa: E402 - comes with the engine

Item = TypeVar("Item")
Result = TypeVar("Result")


class QuestionPrompt(NamedTuple):
    """The question of a `prompt` in the trainer's dataset, and its tokens."""

    question: Question
    prompt_P: Tokens


class TrlSample(NamedTuple):
    """A completion, and the sampler's own log-probabilities if it is not the policy (vLLM)."""

    sample: Sample
    sampler_logprobs_T: Floats | None


class Rollouts:
    """A `rollout_func`, with the reward that belongs to it."""

    def __init__(
        self,
        rule: CreditRule,
        completions: int,
        *,
        prompt_of: Callable[[Any, Any], QuestionPrompt] | None = None,
        sampler_rows: int = 512,
        on_step: Callable[[list[CreditedGroup], dict[str, float]], None] | None = None,
    ) -> None:
        """`completions` is N; without `prompt_of`, TRL tokenizes the prompts; `on_step` receives groups and metrics."""
        self._rule, self._completions, self._sampler_rows = rule, completions, sampler_rows
        self._prompt_of, self._on_step = prompt_of or trl_prompt, on_step
        self._metrics: dict[str, float] = {}
        self.labels: dict[str, str | None] = {}
        """The positive label of each question at its last visit; None where the rule abstained."""
        self.last_votes = LastVotes()
        """The votes of each question at its last visit."""
        self.first_answers: dict[str, str | None] = {}
        """The most frequent answer of each question at its first visit, or among the votes that decide."""
        self.label_votes: LabelVotes | None = None
        """The votes that decide; None: those of the completions themselves."""

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """The rows this process trains on, each with its advantage."""
        self._check(trainer)
        start = perf_counter()
        args, num_trained = trainer.args, trainer.num_generations
        prompts_B = one_per_group([self._prompt_of(prompt, trainer) for prompt in prompts], num_trained)
        samples_BG = self.sample(trainer, prompts_B, self._completions)
        updates = args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps
        step = trainer.state.global_step // max(1, updates)
        sampled_B = [
            Sampled(*prompt, tuple(each.sample for each in samples_G), step)
            for prompt, samples_G in zip(prompts_B, samples_BG, strict=True)
        ]
        seconds = {"seconds_rollout": perf_counter() - start}
        groups_B = self._credit(trainer, sampled_B)
        seconds["seconds_credit"] = perf_counter() - start - seconds["seconds_rollout"]
        self._metrics = group_metrics(groups_B, self.labels, self.first_answers) | seconds
        self.labels |= positive_labels(groups_B)
        self.first_answers = most_frequent(groups_B) | self.first_answers
        if self._on_step is not None:
            self._on_step(groups_B, self._metrics)
        first = trainer.accelerator.process_index * len(prompts)
        places = [divmod(row, num_trained) for row in range(first, first + len(prompts))]
        chosen = [(b, groups_B[b].credit.trained[m]) for b, m in places]
        samples = [samples_BG[b][g] for b, g in chosen]
        has_logprobs = samples[0].sampler_logprobs_T is not None
        return {
            "prompt_ids": [prompts_B[b].prompt_P.tolist() for b, _ in chosen],
            "completion_ids": [each.sample.tokens_T.tolist() for each in samples],
            "logprobs": [each.sampler_logprobs_T for each in samples] if has_logprobs else None,
            "scrl_advantage": [float(groups_B[b].credit.advantages[g]) for b, g in chosen],
        }

    def reward(self, scrl_advantage: list[float], log_metric: Callable[[str, float], None], **_: Any) -> list[float]:
        """The advantages, as rewards; the metrics of the step go into TRL's log."""
        for name, value in self._metrics.items():
            log_metric(f"scrl/{name}", value)
        return scrl_advantage

    def sample(self, trainer: Any, prompts_B: Sequence[QuestionPrompt], number: int) -> list[list[TrlSample]]:
        """`number` completions of each question; each process samples its share, and all of them get all."""
        processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
        total = len(prompts_B) * number
        first, end = (total * p // processes for p in (process, process + 1))
        # Every process makes equally many calls of equal size, which sharded models and servers count on.
        rows = [min(first + row, total - 1) for row in range(-(-total // processes))]
        prompts = [prompts_B[row // number].prompt_P.tolist() for row in rows]
        parts = [prompts[row : row + self._sampler_rows] for row in range(0, len(prompts), self._sampler_rows)]
        own = [each for part in parts for each in sample_rows(trainer, part)]
        samples: list[TrlSample] = gather_object(own[: end - first])
        return [samples[row : row + number] for row in range(0, total, number)]

    def _credit(self, trainer: Any, sampled_B: Sequence[Sampled]) -> list[CreditedGroup]:
        """What the groups of a step earn; each is classified and credited by one process."""
        classes_B = spread_over_processes(trainer, sampled_B, lambda sampled: self._rule.classify(sampled.group))
        pairs_B = list(zip(sampled_B, classes_B, strict=True))
        votes = ((sampled.question.id, count_votes(classes, None)) for sampled, classes in pairs_B)
        self.last_votes = self.last_votes.after(votes)
        crediting = Crediting(self._rule, last_votes=self.last_votes, label_votes=self.label_votes)
        credit_B = spread_over_processes(
            trainer, pairs_B, lambda pair: crediting.credit([pair[0]], [pair[1]])[0].credit
        )
        return [CreditedGroup(*pair, credit) for pair, credit in zip(pairs_B, credit_B, strict=True)]

    def _check(self, trainer: Any) -> None:
        """Refuse a trainer that would change the advantages, or train on other rows than credit chose."""
        required = {
            "num_generations": self._rule.num_trained or self._completions,
            "scale_rewards": "none",
            "multi_objective_aggregation": "sum_then_normalize",
            "reward_weights": None,
        }
        for name, value in required.items():
            if getattr(trainer.args, name) != value:
                raise ConfigError(f"GRPOConfig: {name} is {getattr(trainer.args, name)!r}; set it to {value!r}")
        if len(trainer.reward_funcs) != 1:
            raise ConfigError("GRPOTrainer: reward_funcs must hold the reward of these rollouts and no other")
        if not trainer.model.training:
            raise ConfigError("GRPOConfig: eval_strategy must be 'no'; measure a checkpoint with scrl evaluate")


def spread_over_processes(trainer: Any, items: Sequence[Item], do: Callable[[Item], Result]) -> list[Result]:
    """The results of all items on every process, each computed by one of them."""
    processes, process = trainer.accelerator.num_processes, trainer.accelerator.process_index
    own = [(place, do(items[place])) for place in range(process, len(items), processes)]
    return [result for _, result in sorted(gather_object(own), key=itemgetter(0))]


def trl_prompt(prompt: Any, trainer: Any) -> QuestionPrompt:
    """A prompt as TRL renders it; its text is the question's name."""
    [tokens_P], _, _ = trainer._tokenize_prompts([prompt])  # private: trl is pinned, here and below
    text = prompt if isinstance(prompt, str) else str(prompt[-1]["content"])
    return QuestionPrompt(Question(text, text), np.asarray(tokens_P, dtype=np.int64))


def one_per_group(own: Sequence[QuestionPrompt], size: int) -> list[QuestionPrompt]:
    """The questions of all processes, each once, from the rows that each process has."""
    prompts: list[QuestionPrompt] = gather_object(list(own))
    groups = [prompts[first : first + size] for first in range(0, len(prompts), size)]
    if any(len({each.question.id for each in group}) > 1 or len(group) < size for group in groups):
        raise ConfigError("GRPOTrainer: the rows of a question must follow each other, as its own sampler has them")
    return [group[0] for group in groups]


def sample_rows(trainer: Any, prompts: list[list[int]]) -> list[TrlSample]:
    """One completion for each prompt, with log π and H of its tokens by the policy that is trained."""
    completions, logprobs = trainer._generate_single_turn(prompts, None, {}, 1)
    logprobs_RT, entropies_RT = score_rows(trainer, prompts, completions)
    texts = trainer.processing_class.batch_decode(completions, skip_special_tokens=True)
    samples = []
    for row, (text, tokens) in enumerate(zip(texts, completions, strict=True)):
        scores = logprobs_RT[row, : len(tokens)], entropies_RT[row, : len(tokens)]
        is_finished = tokens[-1] in trainer.eos_token_ids
        sample = Sample(text, np.asarray(tokens, dtype=np.int64), *scores, is_finished=is_finished)
        own = None if logprobs is None else np.asarray(logprobs[row], dtype=np.float64)
        samples.append(TrlSample(sample, own))
    return samples


@torch.no_grad()
def score_rows(trainer: Any, prompts: list[list[int]], completions: list[list[int]]) -> tuple[Floats, Floats]:
    """log π and H = −Σ π log π of every token, π = softmax(logits / temperature), by TRL's own forward pass."""
    prompt_columns, completion_columns = max(map(len, prompts)), max(map(len, completions))
    tokens_RL = torch.full((len(prompts), prompt_columns + completion_columns), trainer._tokenizer.pad_token_id)
    mask_RL = torch.zeros_like(tokens_RL)
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        where = slice(prompt_columns - len(prompt), prompt_columns + len(completion))
        tokens_RL[row, where], mask_RL[row, where] = torch.tensor(prompt + completion), 1
    device = trainer.accelerator.device
    scores = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        tokens_RL.to(device),
        mask_RL.to(device),
        completion_columns,
        batch_size=trainer.args.per_device_train_batch_size,
        compute_entropy=True,
    )
    logprobs_RT, entropies_RT = (score_RT.double().cpu().numpy() for score_RT in scores[:2])
    return logprobs_RT, entropies_RT
