"""The same groups through TRL and through the local engine; whole runs on TRL, in one process and in two."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from listeners import Listener
from packaging.version import Version

from scrl.credit.methods import METHODS
from scrl.credit.rule import credit_rule
from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.errors import ConfigError, InputError, TrainingError
from scrl.files.run_state import ENGINE_STATE, guard_stop_of
from scrl.policy.model import load_model
from scrl.policy.policy import Policy, total
from scrl.policy.settings import LOSS_VARIANTS, ComputeSettings, OptimizerSettings
from scrl.records import Sampled
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings
from scrl.training import guard

pytest.importorskip("trl")
from trl_runs import (
    MAX_TOKENS,
    QUESTIONS,
    SMALL,
    TEMPERATURE,
    M,
    N,
    check_run,
    command,
    left_behind,
    lines,
    local_credit,
    scores_of,
    small,
    through_trl,
    words,
)

from scrl.engines.trl import run as trl_run
from scrl.engines.trl.rollouts import Rollouts
from scrl.engines.trl.settings import check_config, grpo_settings
from scrl.reporting.rollout_votes import read_votes

pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]  # TRL's and its libraries' own
CPU = ComputeSettings(device="cpu")
PROMPT = PromptSettings(instruction="")


def is_expressible(name):
    try:
        check_config(small(f"method={name}", "completions=15"))
    except ConfigError:
        return False
    return True


# The same groups


@pytest.fixture(scope="module")
def language_model():
    return load_model("embedded", CPU)


@pytest.fixture(scope="module")
def groups(language_model):
    """Drawn by the local engine's sampler, with its log-probabilities and entropies."""
    tokenizer = language_model.tokenizer
    prompts = [Prompt(question.id, prompt_tokens(question, tokenizer, PROMPT)) for question in QUESTIONS]
    sampling = SamplingSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS)
    sampler = LocalSampler(language_model.model, tokenizer, max_rows=N)
    samples_B = sampler.sample(prompts, sampling, num_samples=N, seed=3, step=0)
    triples = zip(QUESTIONS, prompts, samples_B, strict=True)
    return [Sampled(question, prompt.tokens_P, samples, 0) for question, prompt, samples in triples]


@pytest.mark.parametrize("preset", ["paper", "official"])
@pytest.mark.parametrize("method", [name for name in METHODS if is_expressible(name)])
def test_labels_rewards_and_advantages_are_those_of_the_local_engine(
    method, preset, language_model, groups, tmp_path, monkeypatch
):
    monkeypatch.setattr("scrl.engines.trl.rollouts.score_rows", scores_of(groups))
    rule = credit_rule(method, preset=preset, num_trained=M, seed=5)
    wanted_B = local_credit(rule, groups)
    [groups_B], batch, _ = through_trl(language_model, groups, rule, tmp_path)
    assert [len(credit.tally.keys_K) > 1 for credit in wanted_B] == [True, True]  # something to tell apart
    for place, (group, wanted) in enumerate(zip(groups_B, wanted_B, strict=True)):
        found = group.credit
        assert found.labels == wanted.labels
        assert found.trained == wanted.trained
        np.testing.assert_allclose(found.rewards, wanted.rewards, atol=1e-6)
        rows = list(wanted.trained)
        np.testing.assert_allclose(found.advantages[rows], wanted.advantages[rows], atol=1e-6)
        of_trl = batch["advantages"][place * M : (place + 1) * M].double().numpy()
        np.testing.assert_allclose(of_trl, wanted.advantages[rows], atol=1e-6)
        lengths = batch["completion_mask"][place * M : (place + 1) * M].sum(dim=1).tolist()
        assert lengths == [len(group.sampled.samples_G[row].tokens_T) for row in rows]


def test_entropies_and_log_probabilities_are_those_of_the_policy_that_sampled(language_model, groups, tmp_path):
    [groups_B], _, _ = through_trl(language_model, groups, credit_rule("scrl", num_trained=M), tmp_path)
    for found, wanted in zip(groups_B, groups, strict=True):
        for one, other in zip(found.sampled.samples_G, wanted.samples_G, strict=True):
            assert (one.text, one.is_finished) == (other.text, other.is_finished)
            # float32 sums in another order: 1.1e-5 apart at most on ARM, 0.9e-5 on x86
            np.testing.assert_allclose(one.entropies_T, other.entropies_T, atol=3e-5)
            np.testing.assert_allclose(one.logprobs_T, other.logprobs_T, atol=3e-5)


@pytest.mark.parametrize("logprob", [-0.5, None])
def test_the_log_probabilities_of_another_sampler_reach_trl(logprob, language_model, groups, tmp_path):
    _, batch, _ = through_trl(language_model, groups, credit_rule("scrl", num_trained=M), tmp_path, logprob)
    if logprob is None:
        assert "sampling_per_token_logps" not in batch
    else:
        assert torch.equal(batch["sampling_per_token_logps"], logprob * batch["completion_mask"])


LOSSES = {name: {"loss_variant": name} for name in LOSS_VARIANTS} | {
    "kl": {"loss.kl_weight": 0.3},
    "dual-clip": {"loss.dual_clip": 3.0},
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_the_local_engine(name, groups, tmp_path, monkeypatch):
    monkeypatch.setattr("scrl.engines.trl.rollouts.score_rows", scores_of(groups))
    config = small(*(f"{key}={value}" for key, value in LOSSES[name].items()), f"sampling.temperature={TEMPERATURE}")
    language_model = load_model("embedded", CPU)
    policy = Policy(
        language_model, config.loss, OptimizerSettings(), CPU, updates=1, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
    )
    rule = credit_rule("scrl", num_trained=M, **config.credit)  # with the advantage that belongs to the loss
    translated = grpo_settings(config, questions=2, processes=1, is_cpu=True)
    loss = {
        key: translated[key]
        for key in ("loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta", "beta")
    }
    _, batch, trainer = through_trl(language_model, groups, rule, tmp_path, **loss)
    assert "old_per_token_logps" in batch
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():  # so that some ratios are clipped
        for weight in language_model.model.parameters():
            weight.add_(0.01 * torch.randn(weight.shape, generator=random))
    language_model.model.zero_grad()
    found = trainer._compute_loss(trainer.model.eval(), batch)
    found.backward()
    of_trl = torch.cat([weight.grad.flatten() for weight in language_model.model.parameters()])
    language_model.model.zero_grad()
    credit_B = local_credit(rule, groups)
    measured = total(policy.gradient(policy.rows(list(zip(groups, credit_B, strict=True)))))
    ours = torch.cat([weight.grad.flatten() for weight in language_model.model.parameters()])
    assert measured.clipped > 0
    assert float((ours - of_trl).norm()) <= 3e-5 * float(ours.norm())  # float32, by two ways to the logits
    assert measured.loss == pytest.approx(float(found.detach()), abs=1e-5)


# A trainer of one's own


@pytest.mark.parametrize("changes", [{"scale_rewards": "group"}, {"num_generations": 2}, {"reward_weights": [0.5]}])
def test_a_trainer_that_would_change_the_advantages_is_refused(changes, language_model, groups, tmp_path):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        through_trl(language_model, groups, credit_rule("scrl", num_trained=M), tmp_path, **changes)


def test_a_stock_trainer_with_its_own_prompts(tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    language_model = load_model("embedded", CPU)
    rollouts = Rollouts(credit_rule("scrl", num_trained=4), completions=6)
    args = GRPOConfig(
        output_dir=str(tmp_path), num_generations=4, scale_rewards="none", per_device_train_batch_size=4, max_steps=2,
        max_completion_length=40, use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=1,
    )  # fmt: skip
    dataset = Dataset.from_list([{"prompt": f"{question.text}\n"} for question in QUESTIONS])
    trainer = GRPOTrainer(
        language_model.model, rollouts.reward, args, dataset,
        rollout_func=rollouts, processing_class=language_model.tokenizer,
    )  # fmt: skip
    trainer.train()
    logged = [line for line in trainer.state.log_history if "loss" in line]
    assert [line["scrl/length_mean"] > 0 for line in logged] == [True, True]
    assert set(rollouts.labels) == {f"{question.text}\n" for question in QUESTIONS}


# Whole runs


def test_a_run(tmp_path):
    config, listener = small(), Listener()
    trl_run.train(config, tmp_path, listener)
    check_run(tmp_path, config)
    assert [record["step"] for record in listener.evaluations] == [0, 2]
    assert any("mixes questions" in note for note in listener.notes)
    assert (tmp_path / "report.html").is_file()
    state = json.loads((tmp_path / "checkpoints/last/trainer_state.json").read_text())
    assert state["global_step"] == 4  # 2 steps × 2 questions, an update each
    with pytest.raises(InputError, match="2 steps"):
        trl_run.resume(tmp_path, Listener())


ELSEWHERE = (
    "method=contrast", "questions=arithmetic:easy:train:12", "questions_per_step=6", "steps=3",
    "sampling.temperature=1.5", "evaluation.completions=0",
)  # fmt: skip
"""The second step needs the votes of the first: the shares of fewer than 8 other questions count as 0."""


FEW_LABELS = (
    "method=contrast-label", "label_votes=round", "questions=arithmetic:medium:train:8", "questions_per_step=4",
    "credit.min_contrast=0.75",
)  # fmt: skip
"""Fewer than a step has questions."""


@pytest.mark.parametrize(
    ("changes", "signal"),
    [
        (("questions_per_update=2", "trained=3"), False), (("questions_per_update=2", "trained=3"), True),
        (ELSEWHERE, False), (FEW_LABELS, False),
    ],
    ids=["dies", "is stopped", "with the votes of other questions", "with votes drawn apart"],
)  # fmt: skip
def test_a_run_goes_on_as_if_nothing_had_happened(changes, signal, tmp_path, monkeypatch):
    config = small("evaluation.completions=0", "steps=3", *changes)
    trl_run.train(config, tmp_path / "whole", Listener())
    if config.label_votes == "present":
        check_run(tmp_path / "whole", config)
    else:
        asked = read_votes(tmp_path / "whole" / "rollouts.jsonl", pytest.fail)  # refuses a sample that is there twice
        first = [each.visits[0].votes.values() for each in asked.values() if each.visits[0].step == 0]
        assert len(first) == 4
        assert 0 < sum(any(votes.label for votes in each) for each in first) < 4
    as_it_is = trl_run.TrlRun.on_step

    def on_step(self, groups_B, metrics):
        as_it_is(self, groups_B, metrics)
        step = groups_B[0].sampled.step
        if step == 1 and signal:
            self.signals.append(2)
        elif step == 1:
            raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(trl_run.TrlRun, "on_step", on_step)
        with pytest.raises(KeyboardInterrupt if signal else RuntimeError):
            trl_run.train(config, tmp_path / "parts", Listener())
    assert len(lines(tmp_path / "parts" / "metrics.jsonl")) == 1 + signal
    listener = Listener()
    trl_run.resume(tmp_path / "parts", listener)
    assert f"resuming after step {1 + signal}" in listener.notes
    assert left_behind(tmp_path / "parts") == left_behind(tmp_path / "whole")


def test_the_guard_ends_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(guard.FLOORS, "length_mean", (0.9999, "completions have become short"))
    monkeypatch.setattr(guard, "LONGEST", 1.0001)
    trl_run.train(small("evaluation.completions=0", "guard.window=1", "steps=4"), tmp_path, Listener())
    assert "after step 2" in guard_stop_of(tmp_path)
    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    with pytest.raises(InputError, match=r"the guard.* step 2"):
        trl_run.resume(tmp_path, Listener())


def test_a_loss_that_is_no_number_ends_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Rollouts, "reward", lambda self, scrl_advantage, **_: [1e30 * a for a in scrl_advantage])
    config = small("evaluation.completions=0", "loss.mean=constant", "optimizer.learning_rate=1e30")
    with pytest.raises(TrainingError, match=r"optimizer\.learning_rate"):
        trl_run.train(config, tmp_path, Listener())


@pytest.mark.parametrize(
    "changes", [("lora=true", "loss.kl_weight=0.1"), ("preset=official",)], ids=["adapter", "official"]
)
def test_an_adapter_and_the_authors_settings(changes, tmp_path):
    trl_run.train(small("evaluation.completions=0", *changes), tmp_path, Listener())
    checkpoint = tmp_path / "checkpoints" / "last"
    assert (checkpoint / ("adapter_model.safetensors" if "lora=true" in changes else "model.safetensors")).is_file()
    assert all(line["kl"] >= 0 for line in lines(tmp_path / "metrics.jsonl"))


STRADDLED = (*SMALL, "questions_per_step=1", "completions=13", "sampling.temperature=1.5", "evaluation.completions=0")
"""4 rows of one question, 2 to a process, and 13 completions, 6 to one process and 7 to the other."""


@pytest.mark.parametrize("settings", [STRADDLED, (*SMALL, *ELSEWHERE)], ids=["a group", "the votes of other questions"])
def test_two_processes_share_and_a_killed_run_goes_on(settings, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    code, said = command("-m", "scrl", "train", *words(settings), "--out", whole, processes=2)
    assert code == 0, said
    assert said.count("writing to") == 1
    check_run(whole, small(*settings))
    first = [line["completion"] for line in lines(whole / "rollouts.jsonl") if line["step"] == 0]
    assert first[: len(first) // 2] != first[len(first) // 2 :][: len(first) // 2]  # each process draws its own
    script = Path(__file__).parent / "dies_in_step.py"
    code, said = command(script, "train", *words(settings), "--out", parts, processes=2)
    assert code != 0
    assert "the power is gone" in said
    if settings == STRADDLED:
        code, said = command("-m", "scrl", "train", "--resume", parts)
        assert code == 2, said
    code, said = command("-m", "scrl", "train", "--resume", parts, processes=2)
    if Version(transformers.__version__) < Version("5.22"):
        pytest.skip(f"transformers {transformers.__version__} cannot read a checkpoint back on several CPUs")
    assert code == 0, said
    assert "resuming after step 1" in said
    assert left_behind(parts) == left_behind(whole)


def test_a_table_of_the_paper_is_reproduced_and_gone_on_with(tmp_path):
    out = tmp_path / "ablation"
    few = (
        "--scale demo --engine trl --steps 1 --limit 2 --completions 4 --trained 2 --max-tokens 8 --device cpu".split()
    )
    code, said = command("-m", "scrl", "reproduce", "table-ablation", "--run", *few, "--out", out)
    assert code == 0, said
    assert "trained with trl" in said
    rows = (out / "table-ablation.md").read_text(encoding="utf-8").splitlines()[-5:]
    assert [row.split("|")[2].strip() for row in rows] == [
        "SCRL", "w/o Selective Labeling", "w/o Negative Labeling", "w/o Entropy Gate", "w/o Dynamic Reward",
    ]  # fmt: skip
    assert not [row for row in rows if "–" in row]
    assert len(list(out.rglob("checkpoints/last/scrl_state.json"))) == 2 * 5
    code, said = command("-m", "scrl", "reproduce", "table-ablation", "--run", *few, "--resume", "--out", out)
    assert (code, "step 1/1" in said) == (0, False)


@pytest.mark.parametrize("votes", ["start", "round"])
def test_votes_that_decide_are_drawn_and_kept_and_only_labelled_questions_asked(votes, tmp_path):
    settings = (
        "model=embedded-hasty", "questions=arithmetic:hard:train:8", "method=contrast-label", f"label_votes={votes}",
        "questions_per_step=4", "completions=8", "steps=4", "evaluation.completions=0", "sampling.max_tokens=72",
    )  # fmt: skip
    trl_run.train(small(*settings), tmp_path, Listener())
    labels = json.loads((tmp_path / "checkpoints/last" / ENGINE_STATE).read_text())["label_votes"]["labels"]
    rows = lines(tmp_path / "rollouts.jsonl")
    assert {row["question_id"] for row in rows} <= labels.keys()
    assert {(row["question_id"], row["answer_class"]) for row in rows if row["label"]} <= set(labels.items())
    drawn = [line.get("votes_drawn") for line in lines(tmp_path / "metrics.jsonl")]
    assert drawn[:2] == [8 * 8, None]
    assert drawn[2] is None if votes == "start" else drawn[2] < 8 * 8
