"""verl's settings and ours, both ways; verl itself is not needed."""

import json
import os
import sys
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError

import pytest
from listeners import Listener

from scrl.config import build_config
from scrl.engines.requirements import require_engine
from scrl.engines.verl import run as verl_run
from scrl.engines.verl.run import link_last, move_log, resume, write_metrics
from scrl.engines.verl.score import compute_score
from scrl.engines.verl.settings import (
    CREDIT_SETTINGS,
    RunFacts,
    check_options,
    read_settings,
    unknown_options,
    verl_settings,
)
from scrl.errors import ConfigError, InputError, TrainingError
from scrl.settings import merged
from scrl.training.run_folder import RunFolder

FACTS = RunFacts("/runs/001", questions=30, prompt_tokens=200)
DEFAULTS = {
    "algorithm": {"norm_adv_by_std_in_grpo": True, "use_kl_in_reward": False},
    "actor_rollout_ref": {"rollout": {"response_length": 64, "do_sample": True}},
}
"""Some of verl's own, which lie under all settings."""


def config(**changes):
    return build_config({"model": "org/model", "questions": "mine.txt", "method": "scrl", "engine": "verl"} | changes)


def back(settings):
    """What the trainer reads in verl's configuration."""
    return read_settings(merged(DEFAULTS, settings))


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"method": "ttrl", "trained": 8, "completions": 64, "seed": 5},
        {"preset": "official", "loss": {"mean": "token"}, "credit": {"min_share": 0.5}},
        {"reader": "regex:=(\\d+)$", "significant_digits": 3}, {"loss_variant": "dr-grpo"},
        {"method": "contrast-label", "label_votes": "round", "label_completions": 48},
    ],
)  # fmt: skip
def test_credit_survives_the_way_to_verl_and_back(changes):
    ours = config(**changes)
    read = back(verl_settings(ours, FACTS))
    names = (*CREDIT_SETTINGS, "trained")
    assert [getattr(read, name) for name in names] == [getattr(ours, name) for name in names]
    assert read.rule().settings == ours.rule().settings


def test_every_setting_of_the_loss_and_the_optimizer_has_its_place():
    settings = verl_settings(
        config(
            loss={
                "clip_low": 0.1, "clip_high": 0.3, "dual_clip": 3.0, "mean": "constant", "kl_weight": 0.001,
                "kl": "k3-capped",
            },
            optimizer={"learning_rate": 1e-6, "warmup": 0.1, "schedule": "constant", "max_grad_norm": 0.5},
            sampling={"temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_tokens": 3072},
            evaluation={"completions": 4, "top_p": 0.95, "every": 10},
            lora={"rank": 8},
            questions_per_update=2,
            steps=50,
            nodes=2,
            gpus=8,
        ),
        FACTS,
    )  # fmt: skip
    actor, rollout = settings["actor_rollout_ref"]["actor"], settings["actor_rollout_ref"]["rollout"]
    places = {
        "clip_ratio_low": 0.1, "clip_ratio_high": 0.3, "clip_ratio_c": 3.0, "loss_agg_mode": "seq-mean-token-sum-norm",
        "loss_scale_factor": 3072, "use_kl_loss": True, "kl_loss_coef": 0.001, "kl_loss_type": "k3", "grad_clip": 0.5,
        "ppo_mini_batch_size": 2,
    }  # fmt: skip
    assert {name: actor[name] for name in places} == places
    assert actor["optim"]["lr"] == 1e-6
    assert (actor["optim"]["lr_warmup_steps_ratio"], actor["optim"]["lr_scheduler_type"]) == (0.1, "constant")
    assert (rollout["temperature"], rollout["top_p"], rollout["top_k"], rollout["n"]) == (0.6, 0.9, 20, 16)
    assert rollout["val_kwargs"] == {"n": 4, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": True}
    assert settings["actor_rollout_ref"]["model"]["lora_rank"] == 8
    assert settings["actor_rollout_ref"]["model"]["lora_alpha"] == 16
    trainer = settings["trainer"]
    assert (trainer["nnodes"], trainer["n_gpus_per_node"]) == (2, 8)
    assert (trainer["total_training_steps"], trainer["test_freq"]) == (50, 10)
    assert trainer["v1"] == {"trainer_mode": "scrl"}


def test_without_gold_verl_does_not_validate_and_without_a_dual_clip_none_binds():
    assert verl_settings(config(), FACTS)["actor_rollout_ref"]["actor"]["clip_ratio_c"] >= 1e6
    trainer = verl_settings(config(), FACTS._replace(has_gold=False))["trainer"]
    assert (trainer["val_before_train"], trainer["test_freq"]) == (False, -1)


def test_options_of_verl_lie_on_top_but_not_on_settings_of_ours():
    options = {"actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 4, "gpu_memory_utilization": 0.8}}}
    rollout = verl_settings(config(engine_options=options), FACTS)["actor_rollout_ref"]["rollout"]
    assert (rollout["tensor_model_parallel_size"], rollout["gpu_memory_utilization"], rollout["n"]) == (4, 0.8, 16)
    assert verl_settings(config(), FACTS)["actor_rollout_ref"]["rollout"]["tensor_model_parallel_size"] == 1
    ours = {"actor_rollout_ref": {"rollout": {"n": 4}}}
    with pytest.raises(ConfigError, match=r"engine_options\.actor_rollout_ref\.rollout\.n"):
        verl_settings(config(engine_options=ours), FACTS)


def test_options_that_verl_does_not_have_are_found():
    known = {
        "trainer": {"total_epochs": 1, "logger": None, "v1": {}},
        "ray_kwargs": {"ray_init": {"num_cpus": None}},
        "reward": {"_target_": "some.Class", "n": 1},
    }
    right = {
        "trainer": {"total_epochs": 2, "logger": {"any": "thing"}, "v1": {"any": {"thing": 1}}},
        "ray_kwargs": {"ray_init": {"_temp_dir": "/tmp"}},  # Ray's own
        "reward": {"n": 2},
    }
    assert list(unknown_options(right, known)) == []
    wrong = {"trainer": {"totl_epochs": 2, "total_epochs": 3}, "trainr": 1, "ray_kwargs": {"ray_int": {"num_cpus": 2}}}
    assert list(unknown_options(wrong, known)) == [
        ("trainer.totl_epochs", ["total_epochs", "logger", "v1"]),
        ("trainr", ["trainer", "ray_kwargs", "reward"]),
        ("ray_kwargs.ray_int", ["ray_init"]),
    ]
    check_options({})  # without verl


def test_tokens_a_pass_are_verls_own_and_at_least_a_whole_row():
    longest = FACTS.prompt_tokens + config().sampling.max_tokens

    def most(**compute):
        return verl_settings(config(compute=compute), FACTS)["actor_rollout_ref"]["actor"]["ppo_max_token_len_per_gpu"]

    assert most() == 16 * longest
    assert most(micro_batch=1) == longest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "scrl", "label_votes": "start"}, r"label_votes: method 'scrl' needs the entropies"),
        ({"sampling": {"stop": "###"}}, r"sampling\.stop"),
        ({"sampling": {"temperature": 0}}, r"sampling\.temperature"),
        ({"preset": "official"}, r"loss\.mean"),
        ({"loss": {"ratio": "completion", "dual_clip": 3.0}}, r"loss\.dual_clip"),
        ({"compute": {"sampler": "my:SAMPLER"}}, r"compute\.sampler"),
        ({"compute": {"device": "cpu"}}, r"compute\.device"),
        ({"optimizer": {"state": "bfloat16"}}, r"optimizer\.state"),
        ({"trained": 6, "gpus": 4}, "4 GPUs"),
        ({"method": "etmr", "completions": 33}, "beginnings|completions"),
        ({"method": "compass"}, "needs 'decisiveness'"),
    ],
)
def test_what_verl_cannot_do_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        verl_settings(config(**changes), FACTS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"adv_estimator": "gae"}}, r"algorithm\.adv_estimator"),
        ({"algorithm": {"rollout_correction": {"bypass_mode": True}}}, "bypass_mode"),
        ({"algorithm": {"norm_adv_by_std_in_grpo": False}}, r"\+scrl\.credit\.advantage=centred"),
        ({"algorithm": {"filter_groups": {"enable": True}}}, "filter_groups"),
        ({"skip": {"rollout_tq": {"enable": True}}}, r"skip\.rollout_tq\.enable"),
        ({"reward": {"reward_model": {"enable": True}}}, r"reward\.reward_model\.enable"),
        ({"custom_reward_function": {"path": "x.py", "name": None}}, r"reward_function\.path"),
        ({"reward_model": {"model": {"path": "org/reward"}}}, r"reward_model\.model\.path"),
        ({"algorithm": {"use_kl_in_reward": True}}, "use_kl_loss"),
        ({"reward_model": {"reward_manager": "naive"}}, r"reward_model\.reward_manager"),
        ({"scrl": {"min_share": 0.5}}, r"scrl\.min_share"),
        ({"scrl": {"method": "scrl", "label_votes": "round"}}, r"label_votes: method 'scrl' needs the entropies"),
        ({"scrl": {"trained": 4}}, r"scrl\.trained.*verl's own"),
        ({"scrl": {"credit": {"min_shares": 0.5}}}, "min_shares"),
        ({"scrl": {"method": "oracle"}}, "needs 'truth'"),
        ({"scrl": {"metod": "scrl"}}, r"scrl\.metod.*'method'"),
        ({"scrl": {"method": "scrll"}}, "'scrl'"),
        ({"scrl": {"completions": 4}}, r"trained \(16\)"),
    ],
)
def test_what_verl_would_pass_over_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        back(merged(verl_settings(config(), FACTS), changes))


@pytest.mark.parametrize(("trl", "clashes"), [("1.16.0", True), ("0.20.0", False), (None, False)])
def test_verl_is_refused_beside_the_trl_that_it_cannot_import_from(monkeypatch, trl, clashes):
    def version(name):
        if name == "trl" and trl is None:
            raise PackageNotFoundError(name)
        return trl if name == "trl" else "0.9.1"

    monkeypatch.setattr("importlib.metadata.version", version)
    refusal = pytest.raises(ConfigError, match="pip uninstall trl")
    with refusal if clashes else nullcontext():
        require_engine("verl")


def test_completions_are_graded_as_ever():
    assert compute_score("scrl", "so \\boxed{5}", "5") == {"score": 1.0, "acc": 1.0, "answered": 1.0}
    assert compute_score("scrl", "so \\boxed{6}", "#### 5") == {"score": 0.0, "acc": 0.0, "answered": 1.0}
    assert compute_score("scrl", "2 + 2 = 5, so \\boxed{5}", "5", reader="sound:boxed")["score"] == 1.0  # one alone
    assert compute_score("scrl", "so it is 5", "5") == {"score": 0.0, "acc": 0.0, "answered": 0.0}
    assert compute_score("scrl", "so it is 5", "5", {"index": 0}, reader="last-number")["score"] == 1.0
    assert [compute_score("scrl", "\\boxed{3.142}", "3.14", significant_digits=n)["score"] for n in (None, 3)] == [0, 1]
    assert compute_score("scrl", "so \\boxed{5}", "") == {"score": 0.0, "acc": 0.0, "answered": 1.0}  # nobody knows


def test_what_verl_logged_becomes_metrics(tmp_path):
    folder = RunFolder(tmp_path)
    logged = {"scrl/reward_mean": 0.25, "actor/grad_norm": 2.0, "timing_s/gen": 3.0, "perf/mfu": 0.1}
    lines = [
        {"step": 0, "data": {"val-core/scrl/acc/mean@4": 0.5}},  # before the first step
        {"step": 1, "data": logged},
        {"step": 2, "data": logged | {"scrl/reward_mean": 0.5, "note": "no line\u2028ends\x85here\u2029"}},
    ]
    log = tmp_path / "verl.jsonl"
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    log.write_text(text + '{"step": 3, "da', encoding="utf-8")  # killed here
    said = []
    assert write_metrics(folder, said.append) == 2
    assert "verl.jsonl: line 4" in said[0]
    move_log(tmp_path)  # verl writes over its log
    log.write_text(json.dumps({"step": 2, "data": logged | {"scrl/reward_mean": 0.75}}) + "\n")
    move_log(tmp_path)
    assert write_metrics(folder, said.append) == 2
    first, second = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first == {"step": 0, "grad_norm": 2.0, "seconds_rollout": 3.0, "reward_mean": 0.25}
    assert (second["step"], second["reward_mean"]) == (1, 0.75)


def test_the_newest_checkpoint_is_last(tmp_path):
    for step in (9, 10):
        (tmp_path / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface").mkdir(parents=True)
    folder = RunFolder(tmp_path)
    for _ in range(2):
        link_last(folder)
        assert folder.last.resolve().parts[-3] == "global_step_10"


def test_what_verl_cannot_be_started_with_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has no verl\.yaml"):
        resume(tmp_path, None)
    alone = config(model="embedded", questions="arithmetic:easy:train:1", method="contrast", max_tokens=40)
    with pytest.raises(InputError, match="one question"):
        verl_run.prepare(alone, tmp_path / "run", Listener())


def test_overlong_prompts_are_left_out_of_the_held_out_questions_too(tmp_path, monkeypatch):
    for name in ("trained", "held-out"):
        (tmp_path / f"{name}.txt").write_text("Compute 1+1.\nCompute 1+1+1+1+1+1.\nCompute 2+1.\n")
    tables = {}
    monkeypatch.setattr(verl_run, "_write_table", lambda path, questions, *_: tables.update({path.stem: questions}))
    changes = {
        "model": "embedded", "questions": str(tmp_path / "trained.txt"), "questions_per_step": 2,
        "prompt": {"instruction": "", "max_tokens": 12, "overlong": "drop"}, "sampling": {"max_tokens": 40},
        "evaluation": {"held_out": str(tmp_path / "held-out.txt")},
    }  # fmt: skip
    listener = Listener()
    verl_run.prepare(config(**changes), tmp_path / "run", listener)
    for name in ("train", "validation"):
        assert [question.text for question in tables[name]] == ["Compute 1+1.", "Compute 2+1."]
    changes["sampling"] = {"max_tokens": 255}  # 256 are all that the model can read
    with pytest.raises(InputError, match=r"sampling\.max_tokens"):
        verl_run.prepare(config(**changes), tmp_path / "other", Listener())


def test_questions_that_a_file_of_votes_leaves_without_a_label_are_not_sampled(tmp_path, monkeypatch):
    (tmp_path / "mine.jsonl").write_text("".join(f'{{"id": "q{n}", "question": "Compute {n}+1."}}\n' for n in range(3)))
    votes = tmp_path / "votes.jsonl"
    tables = {}
    monkeypatch.setattr(verl_run, "_write_table", lambda path, questions, *_: tables.update({path.stem: questions}))

    def prepare(answers, method, out):
        rows = [
            {"question_id": f"q{n}", "step": 0, "sample": g, "completion": f"\\boxed{{{answer}}}" if answer else "?"}
            | {"entropy": 1.0}
            for n, given in enumerate(answers)
            for g, answer in enumerate(given)
        ]
        votes.write_text("".join(json.dumps(row) + "\n" for row in rows))
        ours = {"model": "embedded", "questions": str(tmp_path / "mine.jsonl"), "questions_per_step": 2}
        rest = {"sampling": {"max_tokens": 40}, "label_votes": str(votes), "method": method}
        verl_run.prepare(config(**ours, **rest), tmp_path / out, listener := Listener())
        return listener.notes, {name: [each.id for each in questions] for name, questions in tables.items()}

    notes, ids = prepare(["112", [None] * 3, "333"], "ttrl", "silent")
    assert ids == {"train": ["q0", "q2"], "validation": ["q0", "q1", "q2"]}
    assert "2 of 3 questions have a label; the others teach nothing and are not sampled" in notes
    assert not any("smaller batch" in note for note in notes)
    notes, ids = prepare(["112", [None] * 3, "333"], "scrl", "all")
    assert ids["train"] == ["q0", "q1", "q2"]
    assert any("smaller batch" in note for note in notes)
    with pytest.raises(TrainingError, match="no question has a label"):
        prepare([[None] * 3] * 3, "ttrl", "none")
    assert not (tmp_path / "none").exists()


def test_a_failure_of_verl_is_a_failure(tmp_path, monkeypatch):
    (tmp_path / "verl.yaml").write_text("{}")
    monkeypatch.setattr(verl_run, "command_for", lambda out: ["false"])
    with pytest.raises(TrainingError, match="exit code 1"):
        resume(tmp_path, Listener())


VERL = """
import json, os, signal, sys, time
from pathlib import Path

out = Path(sys.argv[1])

def take(step):
    (out / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface").mkdir(parents=True)
    with (out / "verl.jsonl").open("a") as log:
        log.write(json.dumps({"step": step, "data": {"scrl/reward_mean": 0.5}}) + "\\n")

(out / "pid").write_text(str(os.getpid()))
take(1)
"""
"""A step of a trainer that can send signals to whoever has started it."""
ENDS = {
    # a terminal sends it to both; half a second is more than subprocess.run would wait
    "Ctrl-C": "os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5); take(2); sys.exit(1)",
    # to the parent alone, of which the child must hear
    "SIGTERM": """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getppid(), signal.SIGTERM)
if signal.sigtimedwait([signal.SIGTERM], 20) is not None:
    take(2)
""",
    # it hangs, and the second one, after the first was heard, ends it
    "twice": """
take(2)
os.kill(os.getppid(), signal.SIGINT)
while not (out / "heard").exists():
    time.sleep(0.01)
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_what_verl_did_until_it_was_stopped_is_written_down(end, tmp_path, monkeypatch):
    class Hearing(Listener):
        def note(self, text):
            super().note(text)
            if "a second Ctrl-C kills it" in text:
                (tmp_path / "heard").touch()

    (tmp_path / "verl.yaml").write_text("{}")
    command = [sys.executable, "-c", VERL + ENDS[end], str(tmp_path)]
    monkeypatch.setattr(verl_run, "command_for", lambda out: command)
    monkeypatch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())
    listener = Hearing()
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path, listener)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [0, 1]
    assert RunFolder(tmp_path).last.resolve().parts[-3] == "global_step_2"
    assert (tmp_path / "report.html").exists()
    assert f"scrl train --resume {tmp_path}" in listener.notes[-1]
