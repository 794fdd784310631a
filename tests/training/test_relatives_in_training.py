"""RENT, Intuitor, EMPO, DDRL, SPINE and DARE in a run of two steps, and shaping of long completions."""

import numpy as np
import pytest
from runs import do, lines, metrics, small, weights

from scrl.errors import ConfigError

pytestmark = pytest.mark.usefixtures("no_report")
TINY = (
    "questions=arithmetic:easy:train:4", "steps=2", "completions=8", "trained=4", "sampling.max_tokens=40",
    "evaluation.is_off=true", "checkpoint_every=9",
)  # fmt: skip
METHODS = ("ttrl", "rent", "intuitor", "empo", "ddrl", "spine", "dare")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run of each method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrl.training.run_folder.write_report", lambda folders, out: out.touch())
        found = {name: tmp_path_factory.mktemp("relatives") / name for name in METHODS}
        for name, folder in found.items():
            do(folder, f"method={name}", *TINY)
    return found


def rollouts(folder):
    return lines(folder / "rollouts.jsonl")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(folders, method):
    found = metrics(folders[method])
    assert len(found) == 2
    assert all(np.isfinite(line["loss"]) for line in found)
    assert any(line["grad_norm"] > 0 for line in found)
    assert len(rollouts(folders[method])) == 2 * 2 * 8
    assert len({str(weights(folder)) for folder in folders.values()}) == len(METHODS)  # no two train alike


def test_rewards_are_what_the_methods_say(folders):
    assert all(line["reward"] == -line["entropy"] for line in rollouts(folders["rent"]))
    assert all(line["reward"] == line["certainty"] for line in rollouts(folders["intuitor"]))
    assert {line["advantage"] for line in rollouts(folders["ddrl"])} <= {1.0, -1.0, None}
    assert {line["reward"] for line in rollouts(folders["spine"])} <= {0.0, 1.0}
    assert all(0 <= line["reward"] <= 1 for line in rollouts(folders["empo"]))


def test_spine_sees_the_first_completions_of_ttrl_and_trains_on_fewer_tokens(folders):
    first = [[line for line in rollouts(folders[name]) if line["step"] == 0] for name in ("ttrl", "spine")]
    assert first[0] == first[1]
    assert weights(folders["ttrl"]) != weights(folders["spine"])


def test_long_completions_lose_reward_where_the_run_says_so(folders, tmp_path):
    do(tmp_path / "run", "method=ttrl", *TINY, "credit.overlong_buffer=30", "credit.overlong_weight=0.5")
    plain = [line for line in rollouts(folders["ttrl"]) if line["step"] == 0]
    shaped = [line for line in rollouts(tmp_path / "run") if line["step"] == 0]
    assert any(line["num_tokens"] > 10 for line in plain)
    for before, after in zip(plain, shaped, strict=True):
        lost = 0.5 * max(0, before["num_tokens"] - 10) / 30
        assert after["reward"] == pytest.approx(before["reward"] - lost)


def test_a_buffer_longer_than_a_completion_is_refused():
    with pytest.raises(ConfigError, match=r"overlong_buffer: 41 tokens .* more than the 40 of a completion"):
        small(*TINY, "credit.overlong_buffer=41")
