"""Presets and named losses on a recipe, whose resolved settings give every value."""

import pytest

from scrl.cli.train import run_config
from scrl.config import read_config, write_config
from scrl.policy.settings import LossSettings
from scrl.recipes import reproduce
from scrl.recipes.catalogue import config_of, find
from scrl.recipes.jobs import jobs, select
from scrl.recipes.reproduce import Choices

RECIPE = "qwen2.5-math-7b/aime25/64-32/scrl/max_negative_share=0.0625"
PAPER = {
    "ratio": "token", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "mean": "completion", "kl_weight": 0.0,
    "kl": "k3", "entropy_bonus": 0.0,
}  # fmt: skip
OFFICIAL = PAPER | {"dual_clip": 3.0, "mean": "pairs", "kl_weight": 0.001, "kl": "k3-capped"}
DAPO, GSPO = {"clip_high": 0.28}, {"ratio": "completion", "clip_low": 0.0003, "clip_high": 0.0004}
CREDIT = {"missing_reward": "negative", "std": "population", "ties": "smallest", "which_trained": "random"}
OFFICIAL_CREDIT = {"missing_reward": -1.0, "std": "sample", "ties": "first-seen", "which_trained": "first"}
GOLDEN = {
    "paper grpo": (PAPER, "normalised"), "paper dapo": (PAPER | DAPO | {"mean": "token"}, "normalised"),
    "paper dr-grpo": (PAPER | {"mean": "constant"}, "centred"), "paper gspo": (PAPER | GSPO, "normalised"),
    "paper rloo": (PAPER, "leave-one-out"), "official grpo": (OFFICIAL, "normalised"),
    "official dapo": (OFFICIAL | DAPO | {"mean": "token"}, "normalised"),
    "official dr-grpo": (OFFICIAL | {"mean": "constant"}, "centred"), "official gspo": (OFFICIAL | GSPO, "normalised"),
    "official rloo": (OFFICIAL, "leave-one-out"),
}  # fmt: skip
"""Preset and loss → the loss in full, and the advantage."""


def reproduced(words):
    (job,) = (job for job in jobs(select([RECIPE]), "paper") if job.is_run)
    pairs = [word.removeprefix("--").replace("-", "_", 1).split("=") for word in words]
    return reproduce.settings_of(job.experiment, Choices(overrides=dict(pairs)), 0)


@pytest.fixture
def trained(tmp_path):
    """The words of a command → the settings of a run of the recipe, from a file."""
    write_config(config_of(find(RECIPE)), tmp_path / "recipe.yaml")
    return lambda *words: run_config([str(tmp_path / "recipe.yaml"), *words])


@pytest.mark.parametrize("names", GOLDEN)
def test_a_preset_and_a_loss_decide_their_settings_of_a_recipe(names, trained):
    preset, variant = names.split()
    loss, advantage = GOLDEN[names]
    words = [f"--preset={preset}", f"--loss-variant={variant}"]
    config = trained(*words)
    assert config == reproduced(words)
    assert config.loss.model_dump() == loss
    assert set(loss) == set(LossSettings.model_fields)
    assert config.drop_last is (preset == "official")
    rule = config.rule().settings.model_dump()
    assert rule["advantage"] == advantage
    assert {name: rule[name] for name in CREDIT} == (OFFICIAL_CREDIT if preset == "official" else CREDIT)
    # what neither decides stays the recipe's
    plain = trained()
    decided = {"preset", "loss_variant", "loss", "credit", "drop_last"}
    assert config.model_dump(exclude=decided) == plain.model_dump(exclude=decided)
    assert rule["max_negative_share"] == 0.0625


def test_a_single_setting_wins_over_both_wherever_it_stands(trained):
    words = ["--loss.mean", "token", "--preset", "official", "--credit.std", "population", "--loss-variant", "gspo"]
    config = trained(*words)
    assert (config.loss.mean, config.loss.kl_weight, config.loss.ratio) == ("token", 0.001, "completion")
    assert (config.rule().settings.std, config.rule().settings.ties) == ("population", "first-seen")


def test_there_is_a_way_back(trained, tmp_path):
    """From a file of `official` and `dr-grpo` to the defaults, one or both."""
    file = tmp_path / "run.yaml"
    plain = trained()
    changed = trained("--preset=official", "--loss-variant=dr-grpo")
    write_config(changed, file)
    assert read_config(file) == changed.resolved()
    assert read_config(file, ["preset=paper", "loss_variant=grpo"]).resolved() == plain.resolved()
    one = read_config(file, ["loss_variant=grpo"])
    assert one.resolved() == trained("--preset=official").resolved()
