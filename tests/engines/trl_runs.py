"""TRL's trainer around small groups and small runs, and what the local engine would have made of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scrl.config import read_config
from scrl.credit.elsewhere import LastVotes
from scrl.credit.group_metrics import group_metrics
from scrl.credit.rule import CreditedGroup
from scrl.data.arithmetic import arithmetic_questions
from scrl.engines.trl.rollouts import QuestionPrompt, Rollouts
from scrl.metrics import STEP_METRICS
from scrl.records import Sample, Sampled
from scrl.training.crediting import Crediting
from scrl.training.stream import QuestionStream

SMALL = (
    "engine=trl", "model=embedded", "questions=arithmetic:easy:train:4", "method=scrl", "steps=2",
    "questions_per_step=2", "completions=7", "trained=4", "sampling.max_tokens=40", "optimizer.learning_rate=1e-4", "evaluation.completions=2",
    "compute.device=cpu", "checkpoint_every=1",
)  # fmt: skip
N, M, TEMPERATURE, MAX_TOKENS = 10, 4, 1.3, 40
QUESTIONS = arithmetic_questions("medium", 2)


def small(*changes):
    return read_config(None, [*SMALL, *changes])


def through_trl(language_model, groups, rule, folder, sampler_logprob=None, **settings):
    """What TRL makes of the groups when its own sampler happens to draw them: (our steps, its batch, its trainer).

    `sampler_logprob` is that of every token by a sampler that is not the policy, as vLLM gives them.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    steps = []
    prompts = {sampled.question.id: QuestionPrompt(sampled.question, sampled.prompt_P) for sampled in groups}
    rollouts = Rollouts(
        rule, N, prompt_of=lambda prompt, _: prompts[prompt], on_step=lambda groups_B, _: steps.append(groups_B)
    )
    plain = {
        "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True, "gradient_checkpointing": False,
        "scale_rewards": "none", "use_bias_correction_kl": False, "temperature": TEMPERATURE,
        "max_completion_length": MAX_TOKENS, "num_generations": M, "per_device_train_batch_size": M,
        "gradient_accumulation_steps": 1, "steps_per_generation": len(groups),
    }  # fmt: skip
    trainer = GRPOTrainer(
        model=language_model.model, reward_funcs=rollouts.reward, rollout_func=rollouts,
        args=GRPOConfig(output_dir=str(folder), **plain | settings),
        train_dataset=Dataset.from_list([{"prompt": sampled.question.id} for sampled in groups]),
        processing_class=language_model.tokenizer,
    )  # fmt: skip
    tokens = iter([sample.tokens_T.tolist() for sampled in groups for sample in sampled.samples_G])

    def generate(prompts, *_):
        completions = [next(tokens) for _ in prompts]
        return completions, None if sampler_logprob is None else [[sampler_logprob] * len(each) for each in completions]

    trainer._generate_single_turn = generate
    trainer.model.train()
    batch = trainer._generate_and_score_completions(
        [{"prompt": sampled.question.id} for sampled in groups for _ in range(M)]
    )
    return steps, batch, trainer


def scores_of(groups):
    """The embedded sampler's scores, to the last digit: without labels the advantage divides by their tiny spread."""
    samples = [sample for sampled in groups for sample in sampled.samples_G]

    def score_rows(_trainer, _prompts, completions):
        assert completions == [sample.tokens_T.tolist() for sample in samples]
        found = np.zeros((2, len(samples), MAX_TOKENS))
        for row, sample in enumerate(samples):
            found[:, row, : len(sample.tokens_T)] = sample.logprobs_T, sample.entropies_T
        return tuple(found)

    return score_rows


def command(*words, processes=1):
    """`scrl train` in processes of its own, as (exit code, what it said)."""
    start = ["-m", "torch.distributed.run", "--nproc_per_node", str(processes)] if processes > 1 else []
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    called = [sys.executable, *start, *map(str, words)]
    done = subprocess.run(called, capture_output=True, text=True, env=environment, cwd=Path.cwd())
    return done.returncode, done.stdout + done.stderr


def words(settings):
    return [f"--{setting}" for setting in settings]


def local_credit(rule, groups, last_votes=None):
    """What the local engine makes of the groups of a step."""
    crediting = Crediting(rule, last_votes=last_votes or LastVotes())
    return [group.credit for group in crediting.credit(groups)]


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def left_behind(out):
    """What must be the same in two runs that are the same."""
    from safetensors.torch import load_file

    steps = lines(out / "metrics.jsonl")
    return (
        [{key: value for key, value in step.items() if not key.startswith("seconds_")} for step in steps],
        lines(out / "rollouts.jsonl"),
        lines(out / "evaluations.jsonl"),
        {name: value.tolist() for name, value in load_file(out / "checkpoints/last/model.safetensors").items()},
    )


def check_run(out, config):
    """The files of a run, with credit as the votes in them have it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = out / "checkpoints" / "last"
    AutoModelForCausalLM.from_pretrained(checkpoint)
    AutoTokenizer.from_pretrained(checkpoint)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["last"]
    assert "no gold" in (checkpoint / "README.md").read_text()
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    metrics = lines(out / "metrics.jsonl")
    assert [line["scrl/positive_share"] for line in history if "loss" in line] == [
        pytest.approx(line["positive_share"]) for line in metrics
    ]
    assert [line["step"] for line in metrics] == list(range(config.steps))
    assert all(set(line) <= set(STEP_METRICS) for line in metrics)
    questions = config.load_questions().questions
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    rule, rollouts, labels, last_votes = config.rule(), lines(out / "rollouts.jsonl"), {}, LastVotes()
    is_compared = False
    for step in range(config.steps):
        lines_B = [
            [line for line in rollouts if (line["step"], line["question_id"]) == (step, question.id)]
            for question in stream.batch(step)
        ]
        assert [line for line in rollouts if line["step"] == step] == [line for lines_G in lines_B for line in lines_G]
        sampled_B = [
            Sampled(question, np.zeros(1), tuple(map(sample_of, lines_G)), step)
            for question, lines_G in zip(stream.batch(step), lines_B, strict=True)
        ]
        credit_B = local_credit(rule, sampled_B, last_votes)
        pairs = zip(credit_B, local_credit(rule, sampled_B), strict=True)
        is_compared |= any(not np.array_equal(credit.rewards, alone.rewards) for credit, alone in pairs)
        for lines_G, credit in zip(lines_B, credit_B, strict=True):
            assert [line["sample"] for line in lines_G] == list(range(config.completions))
            assert [line["label"] for line in lines_G] == [
                credit.labels.label_of(line["answer_class"]) for line in lines_G
            ]
            np.testing.assert_allclose([line["reward"] for line in lines_G], credit.rewards, atol=1e-6)
            trained = [line["sample"] for line in lines_G if line["advantage"] is not None]
            assert tuple(trained) == credit.trained
            found = [lines_G[row]["advantage"] for row in trained]
            np.testing.assert_allclose(found, credit.advantages[trained], atol=1e-6)
        groups_B = [CreditedGroup(sampled, None, credit) for sampled, credit in zip(sampled_B, credit_B, strict=True)]
        wanted = group_metrics(groups_B, labels)
        assert {key: metrics[step][key] for key in wanted} == pytest.approx(wanted, abs=1e-6)
        visits = list(zip([question.id for question in stream.batch(step)], credit_B, strict=True))
        labels |= {question: credit.labels.positive for question, credit in visits}
        last_votes = last_votes.after((question, credit.tally) for question, credit in visits)
    assert is_compared == ("elsewhere" in rule.needs)  # with questions of earlier steps


def sample_of(line):
    """A completion as rollouts.jsonl has it: its mean entropy stands for those of its tokens."""
    tokens, entropies = np.zeros(line["num_tokens"]), np.array([line["entropy"]])
    return Sample(line["completion"], tokens, np.zeros(1), entropies, is_finished=line["finished"])
