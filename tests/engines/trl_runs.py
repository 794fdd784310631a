"""TRL's trainer around small groups and small runs."""

import os
import subprocess
import sys
from pathlib import Path

from scrl.config import read_config

SMALL = (
    "engine=trl", "model=embedded", "questions=arithmetic:easy:train:4", "steps=2", "questions_per_step=2",
    "completions=7", "trained=4", "sampling.max_tokens=40", "optimizer.learning_rate=1e-4", "evaluation.completions=2",
    "compute.threads=1", "compute.device=cpu", "checkpoint_every=1",
)  # fmt: skip


def small(*changes):
    return read_config(None, [*SMALL, *changes])


def make_trainer(language_model, rollouts, folder, questions, **settings):
    """A stock GRPOTrainer whose dataset has the ids of `questions` as its prompts."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    plain = {
        "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True, "gradient_checkpointing": False,
        "scale_rewards": "none", "use_bias_correction_kl": False,
    }  # fmt: skip
    args = GRPOConfig(output_dir=str(folder), **plain | settings)
    return GRPOTrainer(
        model=language_model.model,
        reward_funcs=rollouts.reward,
        rollout_func=rollouts,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": question.id} for question in questions]),
        processing_class=language_model.tokenizer,
    )


def command(*words, processes=1):
    """`scrl train` in processes of its own, as (exit code, what it said)."""
    start = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)] if processes > 1 else []
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    called = [sys.executable, *start, *map(str, words)]
    done = subprocess.run(called, capture_output=True, text=True, env=environment, cwd=Path.cwd(), timeout=280)
    return done.returncode, done.stdout + done.stderr
