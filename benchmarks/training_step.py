"""Seconds of a whole training step, against TRL's GRPOTrainer doing the same work, in the same run.

    pip install 'scrl[trl]'
    python benchmarks/training_step.py [--steps 7]

A step: sample 8 questions x 16 completions of at most 72 tokens with the embedded model, reward the majority, train on
all of them. Float32 on the CPU, micro-batches of 16 completions, GRPO loss, no KL, AdamW, the same prompts and the same
reward code (`credit_rule("ttrl")`) in both; TRL writes no logs, checkpoints or evaluations, and uses its default AdamW,
the fused one. Ours runs between TRL's steps, so that both see the same machine; the first step of each is left out.

Two lines: an optimizer step for every 16 completions, as scrl does it, and one for the whole batch. In the first, TRL
needs another pass over the completions for the log-probabilities that ours records while sampling; in the second it
does not.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch

from scrl.credit.rule import CreditedGroup, credit_rule
from scrl.data.arithmetic import arithmetic_questions
from scrl.data.prompts import PromptSettings, prompt_text, prompt_tokens
from scrl.policy.model import load_model
from scrl.policy.model_paths import EMBEDDED
from scrl.policy.policy import Policy
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.records import Group, Question, Sampled
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings
from scrl.training.loop import step_metrics

QUESTIONS, COMPLETIONS = 8, 16
SAMPLING = SamplingSettings(temperature=1.0, max_tokens=72)
COMPUTE = ComputeSettings(device="cpu", dtype="float32", micro_batch=COMPLETIONS)
ASKING = PromptSettings(instruction="")
LEARNING_RATE = 1e-6
RULE = credit_rule("ttrl")


def our_step(questions: Sequence[Question], questions_per_update: int) -> Callable[[], None]:
    """A function that takes one step as scrl.training.loop does, but writes no files."""
    language_model = load_model(EMBEDDED, COMPUTE)
    sampler = LocalSampler(language_model.model, language_model.tokenizer, max_rows=COMPUTE.sampler_rows)
    optimizer = OptimizerSettings(learning_rate=LEARNING_RATE, schedule="constant", warmup=0, weight_decay=0)
    policy = Policy(
        language_model, LossSettings(), optimizer, COMPUTE, updates=1, temperature=SAMPLING.temperature,
        max_tokens=SAMPLING.max_tokens,
    )  # fmt: skip
    steps = iter(range(10**9))

    def take() -> None:
        step = next(steps)
        prompts = [Prompt(q.id, prompt_tokens(q, language_model.tokenizer, ASKING)) for q in questions]
        samples_B = sampler.sample(prompts, SAMPLING, num_samples=COMPLETIONS, seed=0, step=step)
        groups = []
        for question, prompt, samples in zip(questions, prompts, samples_B, strict=True):
            sampled = Sampled(question, prompt.tokens_P, samples, step)
            classes = RULE.classify(sampled.group)
            groups.append(CreditedGroup(sampled, classes, RULE.credit(sampled.group, classes)))
        update = policy.update([g.sampled for g in groups], [g.credit for g in groups], questions_per_update)
        step_metrics(groups, update, {})

    return take


def majority_reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """TRL's reward function: 1 for the most frequent answer of a question. TRL keeps a question's rows together."""
    rewards: list[float] = []
    for first in range(0, len(completions), COMPLETIONS):
        assert len(set(prompts[first : first + COMPLETIONS])) == 1
        group = Group.from_texts(completions[first : first + COMPLETIONS])
        rewards += RULE.credit(group).rewards.tolist()
    return rewards


def measure(questions: Sequence[Question], questions_per_update: int, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of our steps and of TRL's, which alternate."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found, unused-ignore]

    take = our_step(questions, questions_per_update)
    ours: list[float] = []
    theirs: list[float] = []
    updates_per_step = QUESTIONS // questions_per_update
    language_model = load_model(EMBEDDED, COMPUTE)

    class Alternate(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Stops TRL's clock after its step, takes one of ours, and starts TRL's clock again."""

        started = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step % updates_per_step == 0:
                ended = time.perf_counter()
                theirs.append(ended - self.started)
                take()
                self.started = time.perf_counter()
                ours.append(self.started - ended)

    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            num_generations=COMPLETIONS,
            per_device_train_batch_size=COMPLETIONS,
            gradient_accumulation_steps=questions_per_update,
            steps_per_generation=QUESTIONS,
            max_completion_length=SAMPLING.max_tokens,
            temperature=SAMPLING.temperature,
            max_steps=(1 + steps) * updates_per_step,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=1.0,
            loss_type="grpo",
            beta=0.0,
            epsilon=0.2,
            shuffle_dataset=False,
            use_vllm=False,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            eval_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        texts = [prompt_text(question, language_model.tokenizer, ASKING) for question in questions]
        trainer = GRPOTrainer(
            model=language_model.model,
            reward_funcs=majority_reward,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": text} for text in texts * (1 + steps)]),
            processing_class=language_model.tokenizer,
            callbacks=[Alternate()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return ours[1:], theirs[1:]


def main() -> int:
    """One line for each number of optimizer steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=7)
    options = parser.parse_args()
    if find_spec("trl") is None:
        print("training step: skipped, because trl is not installed. Install it with: pip install 'scrl[trl]'")
        return 0
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    questions = arithmetic_questions("medium", QUESTIONS)
    for questions_per_update in (1, QUESTIONS):
        ours, theirs = measure(questions, questions_per_update, options.steps)
        print(
            f"training step, {QUESTIONS} questions x {COMPLETIONS} completions, optimizer steps: "
            f"{QUESTIONS // questions_per_update}, {torch.get_num_threads()} threads: ours {median(ours):.2f} s, "
            f"TRL {median(theirs):.2f} s, ratio {median(theirs) / median(ours):.1f}x "
            f"(medians of {len(ours)}; best {min(ours):.2f} and {min(theirs):.2f} s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
