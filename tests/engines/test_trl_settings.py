"""Every setting of ours has its place in TRL, stays ours, or is refused."""

import importlib.metadata

import pytest

from scrl.config import RunConfig, read_config
from scrl.credit.methods import METHODS
from scrl.engines.choice import check_engine
from scrl.engines.requirements import require_engine
from scrl.engines.trl.settings import batch_sizes, check_config, grpo_settings, step_size, with_options
from scrl.errors import ConfigError
from scrl.optional_deps import supported
from scrl.settings import setting_rows

BARE = ("engine=trl", "model=embedded", "questions=arithmetic:easy")


def config(*changes):
    return read_config(None, [*BARE, *changes])


def translated(*changes, questions=8, processes=1):
    steps = [] if any(change.startswith("steps=") for change in changes) else ["steps=100"]
    return grpo_settings(config(*steps, *changes), questions=questions, processes=processes, is_cpu=True)


KEPT = {
    "model", "questions", "question_column", "gold_column", "id_column", "limit", "data_dir",
    "method", "preset", "credit", "reader", "significant_digits", "completions", "label_votes", "label_completions",
    "drop_last", "prompt", "loss_variant",
    "lora", "guard", "engine", "engine_options", "evaluation",
    "compute.sampler_rows",
}  # fmt: skip
"""What engines/trl/run.py and engines/trl/rollouts.py follow themselves, with all that lies below."""
TRANSLATED = {
    "seed=3": ("seed", 3),
    "steps=5": ("max_steps", 40),
    "trained=8": ("num_generations", 8),
    "questions_per_step=4": None,  # the caller's `questions`: below
    "questions_per_update=8": ("max_steps", 100),
    "checkpoint_every=2": ("save_steps", 16),
    "trackers=[tensorboard]": ("report_to", ["tensorboard"]),
    "trust_remote_code=true": ("trust_remote_code", True),
    "sampling.temperature=0.7": ("temperature", 0.7),
    "sampling.top_p=0.9": ("top_p", 0.9),
    "sampling.top_k=5": ("top_k", 5),
    "sampling.max_tokens=77": ("max_completion_length", 77),
    "loss.ratio=completion": ("importance_sampling_level", "sequence"),
    "loss.clip_low=0.1": ("epsilon", 0.1),
    "loss.clip_high=0.3": ("epsilon_high", 0.3),
    "loss.dual_clip=3.0": ("delta", 3.0),
    "loss.mean=token": ("loss_type", "dapo"),
    "loss.kl_weight=0.01": ("beta", 0.01),
    "optimizer.learning_rate=1e-3": ("learning_rate", 1e-3),
    "optimizer.warmup=0.5": ("warmup_steps", 400),
    "optimizer.schedule=constant": ("lr_scheduler_type", "constant_with_warmup"),
    "optimizer.weight_decay=0.5": ("weight_decay", 0.5),
    "optimizer.max_grad_norm=2.0": ("max_grad_norm", 2.0),
    "compute.dtype=bfloat16": ("bf16", True),
    "compute.micro_batch=4": ("per_device_train_batch_size", 4),
    "compute.gradient_checkpointing=true": ("gradient_checkpointing", True),
}
"""A change of each → TRL's setting; without it 100 steps of 8 questions, an update each."""
REFUSED = (
    "sampling.stop=[x]", "sampling.temperature=0", "loss.entropy_bonus=0.1",
    "loss.dual_clip=1.1", "compute.device=cuda:1", "compute.sampler=my:SAMPLER", "optimizer.state=bfloat16",
    "evaluation.temperature=0.6",
)  # fmt: skip
NEVER_ALONE = {
    "loss.kl", "nodes", "gpus", "probe",
}  # fmt: skip
"""Without effect unless another setting is on, which is then refused or translated; nodes and gpus are verl's. There
is no probe before a run of TRL, as the plan says."""


@pytest.mark.parametrize("change", [change for change, wanted in TRANSLATED.items() if wanted])
def test_a_setting_is_translated(change):
    name, value = TRANSLATED[change]
    assert translated(change)[name] == value
    assert translated()[name] != value


@pytest.mark.parametrize("change", REFUSED)
def test_a_setting_is_refused(change):
    with pytest.raises(ConfigError, match=f"^{change.partition('.')[0]}.*engine: local"):
        check_config(config(change))


def test_no_setting_is_passed_over():
    named = {change.partition("=")[0] for change in (*TRANSLATED, *REFUSED)} | KEPT | NEVER_ALONE
    for name, _, _ in setting_rows(RunConfig):
        places = {name.rsplit(".", depth)[0] for depth in range(name.count(".") + 1)}
        assert places & named, f"{name}: say in engines/trl/settings.py what becomes of it, and here"


@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if method.advantage or method.plan] + ["compass"]
)
def test_methods_that_trl_cannot_express_are_refused(method):
    with pytest.raises(ConfigError, match="method"):
        check_config(config(f"method={method}", "completions=60"))


# Sizes


def test_sizes_of_a_step():
    # 8 questions × 16 rows, 1 question an update: on 4 processes 4 rows each in a pass, 8 updates a step.
    sizes = batch_sizes(config("trained=16"), 8, 4)
    assert sizes == {
        "num_generations": 16, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1,
        "steps_per_generation": 8,
    }  # fmt: skip
    # 2 questions an update = 32 rows, 16 a process, 10 at most in a pass: 8, twice; 4 updates a step.
    sizes = batch_sizes(config("questions_per_update=2", "compute.micro_batch=10"), 8, 2)
    assert sizes["per_device_train_batch_size"] == 8
    assert sizes["gradient_accumulation_steps"] == 2
    assert sizes["steps_per_generation"] == 8


def test_pairs_are_passes_of_two():
    settings = translated("preset=official", "trained=16")
    assert settings["loss_type"] == "bnpo"  # the mean over the tokens of a pass
    assert settings["per_device_train_batch_size"] == 2
    assert settings["gradient_accumulation_steps"] == 8


@pytest.mark.parametrize(
    ("changes", "questions", "processes", "said"),
    [
        (["questions_per_update=3"], 8, 1, "questions_per_update"),
        (["trained=4"], 8, 3, "trained"),
        (["preset=official", "trained=5"], 8, 1, "even number"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(changes, questions, processes, said):
    with pytest.raises(ConfigError, match=said):
        translated(*changes, questions=questions, processes=processes)


# TRL's own settings


def test_options_of_trl_lie_on_top():
    assert with_options({"seed": 0}, {"use_vllm": True}, ["seed", "use_vllm"]) == {"seed": 0, "use_vllm": True}
    with pytest.raises(ConfigError, match=r"engine_options\.use_vlm"):
        with_options({}, {"use_vlm": True}, ["use_vllm"])
    with pytest.raises(ConfigError, match=r"engine_options\.beta"):
        with_options({"beta": 0.0}, {"beta": 0.1}, ["beta"])


def test_the_local_engine_has_no_options():
    with pytest.raises(ConfigError, match="engine_options"):
        config("engine=local", "engine_options.use_vllm=true")


def test_the_local_engine_is_one_process(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="engine: trl"):
        check_engine(config("engine=local"))


def test_verl_does_not_start_from_an_adapter(tmp_path):
    """It would train the model below, without a word."""
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "embedded"}')
    with pytest.raises(ConfigError, match="adapter"):
        check_engine(config("engine=verl", f"model={tmp_path}"))


# Versions


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.15.2", r"1\.15\.2.*scrl\[trl\]"),
        ("1.17.0", r"1\.17\.0"),
        (None, r"scrl\[trl\]"),
    ],
)
def test_other_versions_are_refused(version, said, monkeypatch):
    def found(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    with pytest.raises(ConfigError, match=said):
        require_engine("trl")


def test_the_version_it_was_made_for_is_taken(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.16.3")
    require_engine("trl")
    assert "1.16.3" in supported("trl").specifier


@pytest.mark.parametrize("changes", [(), ("drop_last=true",), ("steps=3",)], ids=["all", "drop_last", "few steps"])
@pytest.mark.parametrize("questions", [5, 8, 24, 30])
def test_steps_must_all_be_of_one_size(changes, questions):
    settings = config("questions_per_step=8", *changes).with_steps(questions)
    if questions == 30 and not changes:  # 8, 8, 8, 6; the fourth is not reached in 3 steps
        with pytest.raises(ConfigError, match="30 questions"):
            step_size(settings, questions)
    else:
        assert step_size(settings, questions) == min(8, questions)
