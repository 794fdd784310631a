"""verl's own trainer, queue and FSDP2 engine, on a CPU: what reaches the update is our credit."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import verl_on_cpu
import yaml
from listeners import Listener
from verl_on_cpu import (
    EAGER,
    PROMPTS,
    TEMPERATURE,
    TEXTS,
    Writer,
    compose,
    open_trainer,
    open_whole_trainer,
    open_workers,
    run_config,
    sampled_by_transformers,
    take_step,
    take_whole_step,
    verl_config,
    write_tiny_model,
)

from scrl.config import override
from scrl.credit.elsewhere import LastVotes
from scrl.engines.verl import run as verl_run
from scrl.engines.verl.settings import check_options
from scrl.errors import ConfigError
from scrl.policy.model import load_model
from scrl.policy.policy import Policy
from scrl.settings import merged
from scrl.training.crediting import Crediting

pytestmark = [
    pytest.mark.verl,
    pytest.mark.skipif(not importlib.util.find_spec("verl"), reason="verl is not installed"),
    pytest.mark.filterwarnings("default"),  # verl and Ray have many
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_model(folder)
    return folder


@pytest.fixture(scope="module")
def ray():
    """Local, and started before this process says that it has a CPU platform: its workers have none."""
    import ray

    verl_on_cpu.start_ray()
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def queue(ray, model):
    """verl's queue, and verl with a CPU platform."""
    import transfer_queue

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_PLATFORM", "cpu")
        for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
            patch.setenv(name, value)
        verl_on_cpu.register_cpu()
        transfer_queue.init(verl_config(model).transfer_queue)
        yield transfer_queue
        transfer_queue.close()


def rows_left(queue):
    return len((queue.kv_list("train") or {}).get("train", {}))


def local_credit(folder, config, entropies, texts=TEXTS, *, step=1, last_votes=None):
    """The groups of a step, and what the local engine makes of them; entropies are those that verl has measured.

    They equal those of transformers to 1e-5; but where entropies alone tell completions apart, advantages magnify that.
    """
    sampled_B = []
    for n, texts_G in enumerate(texts):
        sampled = sampled_by_transformers(folder, f"q{n}", PROMPTS[n], texts_G, step - 1)
        measured_G = [entropies[f"s{step}u{n}_{row}_0"] for row in range(8)]
        pairs = list(zip(sampled.samples_G, measured_G, strict=True))
        for sample, measured_T in pairs if step == 1 else ():  # before the weights change
            np.testing.assert_allclose(measured_T, sample.entropies_T, atol=1e-5)
        samples_G = tuple(replace(sample, entropies_T=measured_T) for sample, measured_T in pairs)
        sampled_B.append(replace(sampled, samples_G=samples_G))
    crediting = Crediting(config.rule(), last_votes=last_votes or LastVotes())
    return sampled_B, [group.credit for group in crediting.credit(sampled_B)]


METHODS = [
    {"method": "scrl"}, {"method": "scrl", "preset": "official", "loss": {"mean": "token", "kl_weight": 0.0}},
    {"method": "ttrl"}, {"method": "scrl", "loss_variant": "dr-grpo"}, {"method": "scrl-without-shaping"},
    {"method": "contrast"},
]  # fmt: skip


@pytest.mark.parametrize("changes", METHODS, ids=lambda changes: " ".join(map(str, changes.values())))
def test_the_update_is_given_the_credit_of_the_local_engine(queue, model, changes, monkeypatch):
    monkeypatch.setattr("scrl.credit.elsewhere.MIN_OTHERS", 1)  # of the two questions here, one is the other
    config = verl_config(model, **changes)
    workers = open_workers(config, model)
    trainer = open_trainer(config, workers, model)
    batch, metrics = take_step(trainer)
    ours = run_config(model, **changes)
    sampled_B, credit_B = local_credit(model, ours, workers.entropies)

    [seen] = workers.seen
    trained = {f"s1u{n}_{row}_0" for n, credit in enumerate(credit_B) for row in credit.trained}
    assert set(seen["advantages"]) == set(batch.keys) == trained
    for n, credit in enumerate(credit_B):
        for row in credit.trained:
            key, length = f"s1u{n}_{row}_0", len(sampled_B[n].samples_G[row].tokens_T)
            expected_T = np.full(length, credit.advantages[row])
            np.testing.assert_allclose(seen["advantages"][key], expected_T, atol=1e-6, rtol=1e-6)
            assert seen["scores"][key] == pytest.approx(credit.rewards[row], abs=1e-6)
    assert trainer.labels == {f"q{n}": credit.labels.positive for n, credit in enumerate(credit_B)}
    assert metrics["scrl/reward_mean"] == pytest.approx(np.mean([c.rewards.mean() for c in credit_B]), abs=1e-6)
    assert metrics["scrl/no_answer_share"] == 1 / 8

    # and so is the gradient: verl's engine and loss against ours, by the gradient's norm over all weights
    language_model = load_model(str(model), ours.compute)
    sizes = {"temperature": TEMPERATURE, "max_tokens": ours.sampling.max_tokens}
    policy = Policy(language_model, ours.loss, ours.optimizer, ours.compute, updates=10, **sizes)
    report = policy.update(sampled_B, credit_B, ours.questions_per_update)
    assert float(seen["metrics"][0]["grad_norm"]) == pytest.approx(report.grad_norm, rel=1e-4)
    assert report.grad_norm > 0

    queue.kv_clear(keys=batch.keys, partition_id="train")
    assert rows_left(queue) == 0  # those that were not trained on are gone already


def test_the_votes_of_a_file_decide(queue, model, tmp_path):
    votes = tmp_path / "votes.jsonl"
    rows = [
        {"question_id": f"q{n}", "step": 0, "sample": g, "completion": r"\boxed{6}"} for n in range(2) for g in range(4)
    ]
    votes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = verl_config(model, method="ttrl", label_votes=str(votes))
    trainer = open_trainer(config, open_workers(config, model), model)
    batch, metrics = take_step(trainer)
    assert trainer.labels == {"q0": "6", "q1": "6"}  # by their own votes q0 would have 5
    assert metrics["scrl/reward_mean"] == pytest.approx((2 / 8 + 1 / 8) / 2)
    queue.kv_clear(keys=batch.keys, partition_id="train")


QUESTIONS = {"q0": "two and three", "q1": "one and four", "q2": "nothing", "q3": "everything"}
SCRIPT = {  # six votes, six more where those gave no label, then the completions that are paid
    "two and three": ["5", "5", "5", "6", "6", None, *(["6"] * 6 + ["5"] * 2) * 4],
    "one and four": [*[None] * 6, "9", "9", "9", "9", "6", "6", *(["9"] * 2 + ["6"] * 6) * 4],
    "nothing": ["7", "7", "7", "7", None, None, *(["7"] * 4 + ["8"] * 4) * 4],
    "everything": [None] * 12,
}
OPTIONS = {
    "actor_rollout_ref": {"rollout": {"agent": {"num_workers": 1}}},
    "data": {"dataloader_num_workers": 0},
}


@pytest.fixture
def voting(queue, model, tmp_path, monkeypatch):
    """A trainer as a run's files describe it; verl's agent loops write from the script."""
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    lines = (json.dumps({"id": name, "question": text}) for name, text in QUESTIONS.items())
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    writer, agent_loops = Writer(model, SCRIPT, tmp_path / "log.jsonl"), []

    def open_one(**changes):
        folder = tmp_path / "run"
        if not folder.exists():
            rest = {"questions_per_step": 2, "label_completions": 6, "evaluation": {"temperature": 0.1}}
            options = {"engine_options": merged(EAGER, OPTIONS)}
            ours = run_config(model, questions=str(tmp_path / "mine.jsonl"), **rest, **options, **changes)
            verl_run.prepare(ours.with_steps(), folder, Listener())
        config = compose(yaml.safe_load((folder / "verl.yaml").read_text()))
        workers = open_workers(config, model)
        workers.save_checkpoint = workers.load_checkpoint = lambda *_, **__: None
        agent_loops[:] = agent_loops or [AgentLoopManagerTQ.create(config, writer)]
        trainer = open_whole_trainer(config, workers, model, *agent_loops)
        trainer._load_checkpoint()
        return trainer

    return open_one


def test_votes_are_drawn_by_verl_before_each_pass(queue, voting, tmp_path, monkeypatch):
    monkeypatch.setattr("scrl.credit.elsewhere.MIN_OTHERS", 1)
    changes = {"method": "contrast-label", "label_votes": "round"}
    trainer = voting(**changes)
    asked, metrics = {}, {}
    asked[1], metrics[1] = take_whole_step(trainer, 1)
    votes = {name: Counter(keys) for name, keys in trainer.label_votes.votes.items()}
    assert votes == {"q0": {"5": 3, "6": 2, None: 1}, "q1": {None: 6}, "q2": {"7": 4, None: 2}, "q3": {None: 6}}
    assert trainer.label_votes.labels == {"q0": "5", "q2": "7"}
    asked[2], metrics[2] = take_whole_step(trainer, 2)
    trainer._save_checkpoint()

    trainer = voting(**changes)
    assert trainer.label_votes.labels == {"q0": "5", "q2": "7"}
    asked[3], metrics[3] = take_whole_step(trainer, 3)
    assert trainer.label_votes.labels == {"q0": "5", "q2": "7", "q1": "9"}
    assert Counter(trainer.label_votes.votes["q1"]) == {"9": 4, "6": 2}
    trainer._save_checkpoint()

    trainer = voting(**changes)
    asked[4], metrics[4] = take_whole_step(trainer, 4)
    assert [step for step in asked if "scrl/votes_drawn" in metrics[step]] == [1, 3]
    assert [metrics[step]["scrl/votes_drawn"] for step in (1, 3)] == [24, 12]
    # 13 bytes of an answer with its end, 14 of none: 5 + 0 + 4 + 0 answers of 24, then 6 of 12
    assert [metrics[step]["scrl/tokens_votes"] for step in (1, 3)] == [9 * 13 + 15 * 14, 6 * 13 + 6 * 14]
    assert [set(asked[step]) for step in (1, 2)] == [{"q0", "q2"}] * 2
    assert set(asked[3]) | set(asked[4]) == {"q0", "q1", "q2"}
    assert [metrics[step]["scrl/reward_mean"] for step in (1, 2)] == [(2 / 8 + 4 / 8) / 2] * 2  # 6 would earn 6 / 8
    written = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert Counter(line["asked"] for line in written)["everything"] == 12
    assert {line["temperature"] for line in written} == {TEMPERATURE}
    assert rows_left(queue) == 0


def test_all_questions_are_sampled_where_a_label_is_not_all_that_teaches(queue, voting, monkeypatch):
    monkeypatch.setattr("scrl.credit.elsewhere.MIN_OTHERS", 1)
    trainer = voting(method="contrast", label_votes="start")
    asked, metrics = zip(*(take_whole_step(trainer, step) for step in (1, 2, 3)), strict=True)
    assert {*asked[0], *asked[1]} == set(QUESTIONS)
    assert [each.get("scrl/votes_drawn") for each in metrics] == [24, None, None]
    assert trainer.votes_pass == 0


def test_a_question_whose_votes_could_not_be_sampled_has_no_answer(queue, voting, monkeypatch):
    monkeypatch.setattr("scrl.credit.elsewhere.MIN_OTHERS", 1)
    monkeypatch.setitem(SCRIPT, "everything", [*[RuntimeError("the server is gone")] * 6, *[None] * 32])
    trainer = voting(method="contrast", label_votes="start")
    asked, metrics = zip(*(take_whole_step(trainer, step) for step in (1, 2)), strict=True)
    assert {*asked[0], *asked[1]} == set(QUESTIONS)
    assert metrics[0]["scrl/votes_drawn"] == 18
    assert trainer.label_votes.votes["q3"] == (None,)


def test_a_resumed_run_knows_the_votes_of_earlier_steps(queue, model, tmp_path, monkeypatch):
    monkeypatch.setattr("scrl.credit.elsewhere.MIN_OTHERS", 1)
    config = verl_config(model, method="contrast")
    config.trainer.default_local_dir = str(tmp_path)
    workers = open_workers(config, model)
    workers.save_checkpoint = workers.load_checkpoint = lambda *_, **__: None
    for step, texts in ((1, TEXTS), (2, TEXTS[:1])):
        config.trainer.v1.trainer_mode = "scrl"
        trainer = open_trainer(config, workers, model)
        trainer.train_dataloader = SimpleNamespace(state_dict=dict, load_state_dict=lambda _: None)
        trainer._load_checkpoint()
        assert trainer.global_steps == step - 1
        batch, metrics = take_step(trainer, texts, step=step)
        queue.kv_clear(keys=batch.keys, partition_id="train")
        trainer._save_checkpoint()
    ours = run_config(model, method="contrast")
    _, first_B = local_credit(model, ours, workers.entropies)
    votes = LastVotes().after((f"q{n}", credit.tally) for n, credit in enumerate(first_B))
    _, [credit] = local_credit(model, ours, workers.entropies, TEXTS[:1], step=2, last_votes=votes)
    _, [alone] = local_credit(model, ours, workers.entropies, TEXTS[:1], step=2)
    assert not np.allclose(credit.rewards, alone.rewards, atol=1e-3)
    for row in credit.trained:
        assert workers.seen[1]["scores"][f"s2u0_{row}_0"] == pytest.approx(credit.rewards[row], abs=1e-6)
        np.testing.assert_allclose(workers.seen[1]["advantages"][f"s2u0_{row}_0"], credit.advantages[row], atol=1e-6)
    assert "scrl/stock_share" in metrics


def test_steps_follow_each_other_and_labels_are_remembered(queue, model):
    config = verl_config(model)
    workers = open_workers(config, model)
    trainer = open_trainer(config, workers, model)
    for step in (1, 2):
        batch, metrics = take_step(trainer, step=step)
        queue.kv_clear(keys=batch.keys, partition_id="train")
    assert metrics["scrl/label_flip_share"] == 0
    assert rows_left(queue) == 0
    first, second = ({key[2:] for key in seen["advantages"]} for seen in workers.seen)
    assert first != second  # another random M at every step


def test_completions_that_failed_are_filled_up_with_padding(queue, model):
    config = verl_config(model)
    workers = open_workers(config, model)
    trainer = open_trainer(config, workers, model)
    batch, _ = take_step(trainer, (TEXTS[0], TEXTS[1][:3]), extra=False)
    [seen] = workers.seen
    padding = [key for key in seen["advantages"] if key.startswith("pad")]
    assert (len(batch), len(padding)) == (8, 1)  # 4 of 8 and 3 of 3, in mini-batches of 8
    assert all(not seen["advantages"][key].any() for key in padding)
    assert math.isfinite(float(seen["metrics"][0]["grad_norm"]))
    assert set(trainer.labels) == {"s1u0", "s1u1"}  # without a name in the table, a question has verl's own
    queue.kv_clear(keys=batch.keys, partition_id="train")


def test_a_completion_that_ends_at_the_limit_is_not_cut(queue, model):
    config = verl_config(model)
    trainer = open_trainer(config, open_workers(config, model), model)
    full, ends = config.actor_rollout_ref.rollout.response_length, (trainer.tokenizer.eos_token_id, 5)
    rows = [{"responses": torch.tensor([5] * (full - 1) + [end]), "response_mask": torch.ones(full)} for end in ends]
    assert [trainer._completion(row).is_cut for row in rows] == [False, True]


def test_questions_without_a_name_cannot_be_compared_with_others(queue, model):
    config = verl_config(model, method="contrast")
    workers = open_workers(config, model)
    with pytest.raises(ConfigError, match=r"data\.train_files"):
        take_step(open_trainer(config, workers, model), extra=False)
    queue.kv_clear(keys=list(queue.kv_list("train")["train"]), partition_id="train")


def test_the_plugin_is_found_inside_a_ray_worker_and_is_light(ray):
    @ray.remote(num_cpus=0)  # the queue has them
    def look():
        import sys

        import verl  # noqa: F401

        is_loaded = "scrl.engines.verl.trainer" in sys.modules or "verl.trainer.ppo.v1" in sys.modules
        from verl.trainer.ppo.v1 import get_trainer_cls

        return is_loaded, get_trainer_cls("scrl").__module__

    assert ray.get(look.remote()) == (False, "scrl.engines.verl.trainer")


def test_a_method_that_pushes_both_ways_is_refused(queue, model):
    config = verl_config(model, method="restrain", credit={"weigh_questions": False})
    workers = open_workers(config, model)
    trainer = open_trainer(config, workers, model)
    with pytest.raises(ConfigError, match="up and down at once"):
        take_step(trainer)
    queue.kv_clear(keys=list(queue.kv_list("train")["train"]), partition_id="train")


def output_of(command):
    """What a command prints in an environment without a CPU platform: verl is asked for there as anywhere."""
    environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_options_that_verl_does_not_have_are_refused():
    rollout = {"tensor_model_parallel_size": 2, "repetition_penalty": 1.1, "agent": {"num_workers": 2}}  # files, class
    check_options(
        {
            "actor_rollout_ref": {"rollout": rollout | {"engine_kwargs": {"vllm": {"max_num_seqs": 8}}}},
            "trainer": {"balance_batch": False},
            "ray_kwargs": {"ray_init": {"num_cpus": 4, "_temp_dir": "/tmp"}},
        }
    )
    wrong = {
        "trainer.totl_epochs": "'total_epochs'",
        "actor_rollout_ref.rollout.gpu_memory_utilisation": "'gpu_memory_utilization'",
        "actor_rolout_ref.rollout.n": "'actor_rollout_ref'",
    }
    for name, near in wrong.items():
        with pytest.raises(ConfigError, match=rf"engine_options\..*{near}"):
            check_options(override(f"{name}=1"))


def test_the_command_of_a_dry_run_is_read_by_stock_verl(tmp_path):
    words = (
        "--engine verl --model embedded --questions arithmetic:easy:train:6 --completions 8 --trained 4 --gpus 2 "
        "--nodes 2 --sampling.max-tokens 40 --credit.min-contrast 0.5 --reader regex:(\\d+)="
    )
    command = [sys.executable, "-m", "scrl", "train", *words.split(), "--out", str(tmp_path / "run"), "--dry-run"]
    refused = subprocess.run([*command, "--trained", "3"], capture_output=True, text=True)
    assert refused.returncode == 2
    unknown = [*command, "--engine_options.trainer.totl_epochs", "3"]
    refused = subprocess.run(unknown, capture_output=True, text=True)
    assert (refused.returncode, "engine_options.trainer.totl_epochs" in refused.stderr) == (2, True)
    assert not (tmp_path / "run").exists()  # else the command put right would be refused too
    shown = output_of(command).splitlines()[-1].split()
    assert shown[1:3] == ["-m", "verl.trainer.main_ppo"]
    found = output_of([*shown, "--cfg", "job", "--resolve"])
    import yaml
    from datasets import load_dataset

    config = yaml.safe_load(found)
    assert config["trainer"]["v1"]["trainer_mode"] == "scrl"
    assert (config["trainer"]["nnodes"], config["trainer"]["n_gpus_per_node"]) == (2, 2)
    assert config["actor_rollout_ref"]["rollout"]["n"] == 4
    assert config["scrl"] | {"credit": None} == {
        "method": "contrast-label", "preset": "paper", "credit": None, "reader": "regex:(\\d+)=", "seed": 0, "completions": 8,
        "label_votes": "round",
    }  # fmt: skip
    assert config["scrl"]["credit"] == {"min_contrast": 0.5}
    table = load_dataset("parquet", data_files=config["data"]["train_files"], cache_dir=str(tmp_path))["train"]
    assert len(table) == 6
    assert table[0]["prompt"][0]["role"] == "user"
    assert table[0]["extra_info"] == {"index": 0, "question_id": table[0]["extra_info"]["question_id"]}
