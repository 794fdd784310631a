"""The same groups through TRL and through the embedded engine; whole runs on TRL, in one process and in two."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from listeners import Listener

from scrl.answers.judge import MathVerifyJudge
from scrl.credit.methods import METHODS
from scrl.credit.rule import credit_rule
from scrl.data.arithmetic import arithmetic_questions
from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.errors import ConfigError, InputError, TrainingError
from scrl.metrics import STEP_METRICS
from scrl.policy.model import load_model
from scrl.policy.policy import Policy, totals
from scrl.policy.settings import LOSS_VARIANTS, ComputeSettings, OptimizerSettings
from scrl.records import Group, Sampled
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.training.crediting import Crediting
from scrl.training.run_folder import RunFolder
from scrl.training.stream import QuestionStream

pytest.importorskip("trl")
from trl_runs import SMALL, command, make_trainer, small

from scrl.engines.trl.rollouts import Asked, Rollouts
from scrl.engines.trl.rollouts import run as trl_run
from scrl.engines.trl.settings import check_config, grpo_settings

pytestmark = [pytest.mark.trl, pytest.mark.filterwarnings("ignore")]  # TRL's and its libraries' own
CPU = ComputeSettings(device="cpu")
N, M, TEMPERATURE, MAX_TOKENS = 10, 4, 1.3, 40
OURS = {"temperature": TEMPERATURE, "max_completion_length": MAX_TOKENS, "num_generations": M}
QUESTIONS = arithmetic_questions("medium", 2)
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
    """Drawn by the embedded engine's sampler, with its log-probabilities and entropies."""
    tokenizer = language_model.tokenizer
    prompts = [Prompt(question.id, prompt_tokens(question, tokenizer, PROMPT)) for question in QUESTIONS]
    sampling = SamplingSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS)
    sampler = LocalSampler(language_model.model, tokenizer, max_rows=N)
    samples_B = sampler.sample(prompts, sampling, num_samples=N, seed=3, step=0)
    triples = zip(QUESTIONS, prompts, samples_B, strict=True)
    return [Sampled(question, prompt.tokens_P, samples, 0) for question, prompt, samples in triples]


def through_trl(language_model, groups, crediting, folder, by_sampler=None, **settings):
    """What TRL makes of the groups when its own sampler happens to draw them: (our steps, its batch, its trainer).

    `by_sampler` is the log-probability of every token by a sampler that is not the policy, as vLLM gives them.
    """

    def credit(sampled):
        return crediting.credit([sampled], crediting.classify([sampled]))[0]

    steps = []
    asked = {sampled.question.id: Asked(sampled.question, sampled.prompt_P) for sampled in groups}
    rollouts = Rollouts(crediting.rule, N, credit=credit, asked=lambda prompt, _: asked[prompt], on_step=steps.append)
    rows = {"per_device_train_batch_size": M, "gradient_accumulation_steps": 1, "steps_per_generation": len(groups)}
    trainer = make_trainer(language_model, rollouts, folder, QUESTIONS, **OURS | rows | settings)
    drawn = iter([sample.tokens_T.tolist() for sampled in groups for sample in sampled.samples_G])

    def generate(prompts, *_):
        written = [next(drawn) for _ in prompts]
        return written, None if by_sampler is None else [[by_sampler] * len(tokens) for tokens in written]

    trainer._generate_single_turn = generate
    trainer.model.train()
    batch = trainer._generate_and_score_completions(
        [{"prompt": sampled.question.id} for sampled in groups for _ in range(M)]
    )
    return steps, batch, trainer


def scores_of(groups):
    """The embedded sampler's scores, to the last digit: without labels the advantage divides by their tiny spread."""
    samples = [sample for sampled in groups for sample in sampled.samples_G]

    def score_rows(_trainer, _prompts, written):
        assert written == [sample.tokens_T.tolist() for sample in samples]
        found = np.zeros((2, len(samples), MAX_TOKENS))
        for row, sample in enumerate(samples):
            found[:, row, : len(sample.tokens_T)] = sample.logprobs_T, sample.entropies_T
        return tuple(found)

    return score_rows


@pytest.mark.parametrize("preset", ["paper", "official"])
@pytest.mark.parametrize("method", [name for name in METHODS if is_expressible(name)])
def test_labels_rewards_and_advantages_are_those_of_the_embedded_engine(
    method, preset, language_model, groups, tmp_path, monkeypatch
):
    monkeypatch.setattr("scrl.engines.trl.rollouts.score_rows", scores_of(groups))
    rule = credit_rule(method, preset=preset, num_trained=M, seed=5, max_tokens=MAX_TOKENS)
    crediting = Crediting(rule, MathVerifyJudge(), {})
    wanted_B = [group.credit for group in crediting.credit(groups, crediting.classify(groups))]
    [step], batch, _ = through_trl(language_model, groups, crediting, tmp_path)
    assert [len(credit.tally.keys_K) > 1 for credit in wanted_B] == [True, True]  # something to tell apart
    for place, (group, wanted) in enumerate(zip(step.groups_B, wanted_B, strict=True)):
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
    crediting = Crediting(credit_rule("scrl", num_trained=M), MathVerifyJudge(), {})
    [step], _, _ = through_trl(language_model, groups, crediting, tmp_path)
    for found, wanted in zip(step.groups_B, groups, strict=True):
        for one, other in zip(found.sampled.samples_G, wanted.samples_G, strict=True):
            assert (one.text, one.is_finished) == (other.text, other.is_finished)
            # float32 sums in another order: 1.1e-5 apart at most on ARM, 0.9e-5 on x86
            np.testing.assert_allclose(one.entropies_T, other.entropies_T, atol=3e-5)
            np.testing.assert_allclose(one.logprobs_T, other.logprobs_T, atol=3e-5)


@pytest.mark.parametrize("by_sampler", [-0.5, None])
def test_the_log_probabilities_of_another_sampler_reach_trl(by_sampler, language_model, groups, tmp_path):
    crediting = Crediting(credit_rule("scrl", num_trained=M), MathVerifyJudge(), {})
    _, batch, _ = through_trl(language_model, groups, crediting, tmp_path, by_sampler)
    if by_sampler is None:
        assert "sampling_per_token_logps" not in batch
    else:
        assert torch.equal(batch["sampling_per_token_logps"], by_sampler * batch["completion_mask"])


LOSSES = {name: {"loss_variant": name} for name in LOSS_VARIANTS} | {
    "kl": {"loss.kl_weight": 0.3},
    "dual-clip": {"loss.dual_clip": 3.0},
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_the_embedded_engine(name, groups, tmp_path, monkeypatch):
    monkeypatch.setattr("scrl.engines.trl.rollouts.score_rows", scores_of(groups))
    config = small(*(f"{key}={value}" for key, value in LOSSES[name].items()), f"sampling.temperature={TEMPERATURE}")
    language_model = load_model("embedded", CPU)
    policy = Policy(
        language_model, config.loss, OptimizerSettings(), CPU, updates=1, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
    )
    rule = credit_rule("scrl", num_trained=M, **config.credit)  # with the advantage that belongs to the loss
    crediting = Crediting(rule, MathVerifyJudge(), {})
    translated = grpo_settings(config, questions=2, processes=1, is_cpu=True)
    loss = {
        key: translated[key]
        for key in ("loss_type", "importance_sampling_level", "epsilon", "epsilon_high", "delta", "beta")
    }
    _, batch, trainer = through_trl(language_model, groups, crediting, tmp_path, **loss)
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
    credit_B = [group.credit for group in crediting.credit(groups, crediting.classify(groups))]
    measured = totals(policy.gradient(policy.rows(list(zip(groups, credit_B, strict=True)))))
    ours = torch.cat([weight.grad.flatten() for weight in language_model.model.parameters()])
    assert measured["clipped"] > 0
    assert float((ours - of_trl).norm()) <= 3e-5 * float(ours.norm())  # float32, by two ways to the logits
    assert measured["loss"] == pytest.approx(float(found.detach()), abs=1e-5)


# A trainer of one's own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scale_rewards": "group"}, "scale_rewards is 'group'; set it to 'none'"),
        ({"num_generations": 2}, "num_generations is 2; set it to 4"),
        ({"reward_weights": [0.5]}, "reward_weights"),
    ],
)
def test_a_trainer_that_would_change_the_advantages_is_refused(changes, said, language_model, groups, tmp_path):
    crediting = Crediting(credit_rule("scrl", num_trained=M), MathVerifyJudge(), {})
    with pytest.raises(ConfigError, match=said):
        through_trl(language_model, groups, crediting, tmp_path, **changes)


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


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def left_behind(out):
    """What must be the same in two runs that are the same."""
    from safetensors.torch import load_file

    seconds = ("seconds_rollout", "seconds_credit", "seconds_update")
    return (
        [{key: value for key, value in line.items() if key not in seconds} for line in lines(out / "metrics.jsonl")],
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
    assert "no gold answer was used" in (checkpoint / "README.md").read_text()
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    metrics = lines(out / "metrics.jsonl")
    assert [line["scrl/positive_share"] for line in history if "loss" in line] == [
        pytest.approx(line["positive_share"]) for line in metrics
    ]
    assert [line["step"] for line in metrics] == list(range(config.steps))
    assert all(set(line) <= set(STEP_METRICS) for line in metrics)
    questions = config.load_questions().questions
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    rule = config.rule()
    rollouts = lines(out / "rollouts.jsonl")
    for step in range(config.steps):
        asked = list(dict.fromkeys(line["question_id"] for line in rollouts if line["step"] == step))
        assert asked == [question.id for question in stream.batch(step)]
        for name in asked:
            group = [line for line in rollouts if (line["step"], line["question_id"]) == (step, name)]
            assert [line["sample"] for line in group] == list(range(config.completions))
            texts, entropies = zip(*((line["completion"], line["entropy"]) for line in group), strict=True)
            credit = rule.credit(Group.from_texts(texts, entropies, question_id=name, step=step))
            np.testing.assert_allclose([line["reward"] for line in group], credit.rewards, atol=1e-6)
            trained = [line["sample"] for line in group if line["advantage"] is not None]
            assert tuple(trained) == credit.trained
            found = [group[row]["advantage"] for row in trained]
            np.testing.assert_allclose(found, credit.advantages[trained], atol=1e-6)


def test_a_run(tmp_path):
    config, listener = small(), Listener()
    trl_run.train(config, tmp_path, listener)
    check_run(tmp_path, config)
    assert [record["step"] for record in listener.evaluations] == [0, 2]
    assert any("an update mixes questions" in note for note in listener.notes)
    assert (tmp_path / "report.html").is_file()
    state = json.loads((tmp_path / "checkpoints/last/trainer_state.json").read_text())
    assert state["global_step"] == 4  # 2 steps × 2 questions, an update each
    with pytest.raises(InputError, match="has done all its 2 steps"):
        trl_run.resume(tmp_path, Listener())


@pytest.mark.parametrize("signal", [False, True], ids=["dies", "is stopped"])
def test_a_run_goes_on_as_if_nothing_had_happened(signal, tmp_path, monkeypatch):
    config = small("evaluation.is_off=true", "steps=3", "questions_per_update=2", "trained=3")
    trl_run.train(config, tmp_path / "whole", Listener())
    as_it_is = trl_run.Recorder.on_step

    def on_step(self, step):
        as_it_is(self, step)
        if step.number == 1 and signal:
            self.stops.append(2)
        elif step.number == 1:
            raise RuntimeError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(trl_run.Recorder, "on_step", on_step)
        with pytest.raises(KeyboardInterrupt if signal else RuntimeError):
            trl_run.train(config, tmp_path / "parts", Listener())
    assert len(lines(tmp_path / "parts" / "metrics.jsonl")) == 1 + signal
    listener = Listener()
    trl_run.resume(tmp_path / "parts", listener)
    assert f"resuming after step {1 + signal}" in listener.notes
    assert left_behind(tmp_path / "parts") == left_behind(tmp_path / "whole")


def test_completions_may_hold_what_is_a_line_end_elsewhere(tmp_path):
    folder = RunFolder.create(tmp_path, small(), "cpu")
    line = {"question_id": "q", "step": 0, "answer_class": "1", "label": "positive"}
    folder.append("rollouts.jsonl", [line | {"completion": "a\u2028b\x85c\u2029d"}, line | {"question_id": "r"}])
    folder.last.mkdir()
    known = {"step": 1, "questions": "these", "files": folder.lengths()}
    (folder.last / trl_run.STATE).write_text(json.dumps(known))
    about = {"config": small(), "folder": folder, "fingerprint": "these", "args": SimpleNamespace(world_size=1)}
    run = SimpleNamespace(**about, listener=Listener(), is_main=True, done=0, history=[], labels={})
    trl_run.restore(run)
    assert (run.done, run.labels) == (1, {"q": "1", "r": "1"})


def test_the_guard_ends_a_run(tmp_path):
    listener = Listener()
    config = small(
        "evaluation.is_off=true",
        "guard.window=1",
        "guard.max_length_ratio=1.0001",
        "guard.min_length_ratio=0.9999",
        "steps=4",
    )
    trl_run.train(config, tmp_path, listener)
    assert any(note.startswith("the guard ends the run after step 2") for note in listener.notes)
    assert len(lines(tmp_path / "metrics.jsonl")) == 2


def test_a_loss_that_is_no_number_ends_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(Rollouts, "reward", lambda self, scrl_advantage, **_: [1e30 * a for a in scrl_advantage])
    config = small("evaluation.is_off=true", "loss.mean=constant", "optimizer.learning_rate=1e30")
    with pytest.raises(TrainingError, match=r"training cannot go on\. Lower optimizer\.learning_rate"):
        trl_run.train(config, tmp_path, Listener())


@pytest.mark.parametrize(
    "changes", [("lora=true", "loss.kl_weight=0.1"), ("preset=official",)], ids=["adapter", "official"]
)
def test_an_adapter_and_the_authors_settings(changes, tmp_path):
    trl_run.train(small("evaluation.is_off=true", *changes), tmp_path, Listener())
    checkpoint = tmp_path / "checkpoints" / "last"
    assert (checkpoint / ("adapter_model.safetensors" if "lora=true" in changes else "model.safetensors")).is_file()
    assert all(line["kl"] >= 0 for line in lines(tmp_path / "metrics.jsonl"))


STRADDLED = (*SMALL, "questions_per_step=1", "completions=13", "sampling.temperature=1.5", "evaluation.is_off=true")
"""4 rows of one question, 2 to a process, and 13 completions, 6 to one process and 7 to the other."""


def words(settings):
    return [word for setting in settings for word in (f"--{setting}",)]


def test_two_processes_share_a_group_and_a_killed_run_goes_on(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    code, said = command("-m", "scrl", "train", *words(STRADDLED), "--out", whole, processes=2)
    assert code == 0, said
    assert said.count("writing to") == 1
    config = small(*STRADDLED)
    check_run(whole, config)
    first = [line["completion"] for line in lines(whole / "rollouts.jsonl") if line["step"] == 0]
    assert first[:6] != first[6:12]  # the processes draw each their own
    code, said = command(
        Path(__file__).parent / "dies_in_step.py", "train", *words(STRADDLED), "--out", parts, processes=2
    )
    assert code != 0
    assert "the power is gone" in said
    code, said = command("-m", "scrl", "train", "--resume", parts)
    assert (code, "was trained by 2 process(es), and these are 1" in said) == (2, True)
    code, said = command("-m", "scrl", "train", "--resume", parts, processes=2)
    assert code == 0, said
    assert "resuming after step 1" in said
    assert left_behind(parts) == left_behind(whole)


def test_several_processes_must_be_told_the_folder():
    code, said = command("-m", "scrl", "train", *words(SMALL), processes=2)
    assert code != 0
    assert "--out: several processes write to one folder: name it" in said
