"""examples/scrl_in_one_file.py imports nothing of the package, and gives the same numbers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.answers.readers import read_boxed
from scrl.credit.rule import credit_rule
from scrl.records import Group

PATH = Path(__file__).parent.parent / "examples" / "scrl_in_one_file.py"
spec = importlib.util.spec_from_file_location("scrl_in_one_file", PATH)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

SCRL = credit_rule("scrl")
TTRL = credit_rule("ttrl")


def test_it_imports_nothing_of_the_package():
    assert "import scrl" not in PATH.read_text()
    assert "from scrl" not in PATH.read_text()


@given(st.lists(st.tuples(st.sampled_from("123456") | st.none(), st.floats(0, 3)), min_size=1, max_size=40))
def test_labels_rewards_and_advantages_equal_the_package(votes):
    texts = ["no answer" if a is None else f"so \\boxed{{{a}}}" for a, _ in votes]
    entropies_G = np.array([h for _, h in votes])
    answers_G = [example.read_answer(text) for text in texts]
    credit = SCRL.credit(Group.from_texts(texts, entropies_G.tolist()))
    assert example.positive_label(answers_G) == credit.labels.positive
    assert example.negative_labels(answers_G, entropies_G) == credit.labels.negatives
    rewards_G = example.shaped_rewards(answers_G, entropies_G)
    assert rewards_G == pytest.approx(credit.rewards, abs=1e-9)
    if np.ptp(credit.rewards) > 1e-6:  # below that, rounding decides
        assert example.advantages(rewards_G) == pytest.approx(credit.advantages, abs=1e-4)
    assert example.majority_rewards(answers_G).tolist() == TTRL.credit(Group.from_texts(texts)).rewards.tolist()


@pytest.mark.parametrize("text", [r"\boxed{5}", r"\boxed{1} \boxed{2}", r"\boxed{}", "none", r"\boxed{3"])
def test_answers_are_read_as_in_the_package(text):
    assert example.read_answer(text) == read_boxed(text)


def test_entropies_by_hand():
    # uniform over 4: log 4 = 1.386294; odds 3 : 1 : 0 : 0 (nearly): −(3/4 log 3/4 + 1/4 log 1/4) = 0.562335
    logits_TV = np.array([[0.0, 0, 0, 0], [np.log(3), 0.0, -50, -50]])
    assert example.token_entropies(logits_TV) == pytest.approx([1.386294, 0.562335], abs=1e-6)
    assert example.completion_entropy(logits_TV) == pytest.approx((1.386294 + 0.562335) / 2, abs=1e-6)


def test_the_objective_by_hand():
    # ρ = e^0.5 = 1.6487 clipped to 1.2 for Â = 2: 2.4; for Â = −1 the minimum keeps −1.6487. Mean: 0.37564
    log_ratios_GT = np.full((2, 3), 0.5)
    assert example.grpo_objective(log_ratios_GT, np.array([2.0, -1.0])) == pytest.approx((2.4 - 1.6487213) / 2)


def test_the_step_is_the_gradient_of_the_objective():
    """Finite differences of eq. 2 against the closed form used in `ascend`."""
    rng = np.random.default_rng(0)
    approach_A, answer_AV = rng.normal(size=2), rng.normal(size=(2, 4))
    old = example.TablePolicy(approach_A, answer_AV)
    completions_GT = old.sample(6, rng)
    advantages_G = rng.normal(size=6)

    def log_probs(approach, answer):
        first, second = np.log(example.softmax(approach)), np.log(example.softmax(answer))
        return np.array([[first[a], second[a, v]] for a, v in completions_GT])

    def objective(approach, answer):
        return example.grpo_objective(log_probs(approach, answer) - log_probs(approach_A, answer_AV), advantages_G)

    moved = example.TablePolicy(approach_A, answer_AV)
    moved.ascend(completions_GT, advantages_G, rate=1.0)
    for place in np.ndindex(answer_AV.shape):
        nudge = np.zeros_like(answer_AV)
        nudge[place] = 1e-5
        slope = (objective(approach_A, answer_AV + nudge) - objective(approach_A, answer_AV - nudge)) / 2e-5
        assert (moved.answer_AV - answer_AV)[place] == pytest.approx(slope, abs=1e-6)
    for place in range(2):
        nudge = np.eye(2)[place] * 1e-5
        slope = (objective(approach_A + nudge, answer_AV) - objective(approach_A - nudge, answer_AV)) / 2e-5
        assert (moved.approach_A - approach_A)[place] == pytest.approx(slope, abs=1e-6)


def test_it_runs_as_a_script(monkeypatch, capsys):
    adapt = example.adapt
    monkeypatch.setattr(example, "adapt", lambda *given, steps, rng: adapt(*given, steps=2, rng=rng))  # of 40
    example.main()
    shown = capsys.readouterr().out
    assert "positive  None" in shown
    assert "scrl: right answer" in shown
