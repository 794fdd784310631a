"""Each statement of docs/theory.md, over a grid; and the page's figures."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import theory
from numpy.testing import assert_allclose
from theory import contrast_rewards, dynamics, label_chances, least_lead, precision, pushes, sharpened, swap_bound

from scrl.credit.rule import assign_credit, credit_rule
from scrl.data.completion_files import open_completions
from scrl.lab.stored_groups import credit_of, stored_groups
from scrl.records import Group
from scrl.reporting.tables import as_markdown

ROLLOUTS = Path(theory.__file__).parents[1] / "examples" / "qwen_rollouts.jsonl.gz"
VOTES = [table for table in product((1, 2, 3, 5, 8), repeat=3) if table[0] > max(table[1:])]  # the mode comes first
TABLES = [np.array(table) / sum(table) for table in VOTES]
THRESHOLDS = ({}, {"min_margin": 0.125}, {"min_share": 0.375, "min_margin": 0.125}, {"min_share": 0.5})


def test_chances_of_two_votes_by_hand():
    # Two votes over (½, ⅓, ⅙): both alike with chance ¼, 1/9, 1/36; all else is a tie.
    assert_allclose(label_chances(np.array([1 / 2, 1 / 3, 1 / 6]), 2), [1 / 4, 1 / 9, 1 / 36])


def test_chances_are_those_of_the_packages_own_rule():
    rng = np.random.default_rng(0)
    table = np.array([0.5, 0.3, 0.2])
    drawn = rng.choice(3, p=table, size=(2_000, 16))
    groups = [Group.from_answers([str(answer) for answer in votes], [0.0] * 16) for votes in drawn]
    labels = [assign_credit(group, "scrl").labels.positive for group in groups]
    found = [labels.count(str(answer)) / len(labels) for answer in range(3)]
    exact = label_chances(table, 16, min_share=0.375, min_margin=0.125)
    assert_allclose(found, exact, atol=4 * np.sqrt(0.25 / len(labels)))  # four standard deviations


@pytest.mark.parametrize("thresholds", THRESHOLDS)
def test_a_lead_bounds_the_chance_of_every_other_label(thresholds):
    for table, votes in product(TABLES, (8, 16, 32)):
        chances = label_chances(table, votes, **thresholds)
        lead = least_lead(votes, thresholds.get("min_margin", 0.0))
        assert np.all(chances[1:] <= (table[1:] / table[0]) ** lead * chances[0] * (1 + 1e-9))
        assert chances[1:].sum() <= swap_bound(table, votes, min_margin=thresholds.get("min_margin", 0.0)) + 1e-12


def test_a_larger_margin_makes_a_truth_that_is_not_the_mode_rarer_among_two_answers():
    for lie, votes in product((0.55, 0.6, 0.7), (8, 16, 32)):
        table = np.array([lie, 1 - lie])
        odds = [np.divide(*label_chances(table, votes, min_margin=margin)[::-1]) for margin in (0, 0.125, 0.25, 0.5)]
        assert odds == sorted(odds, reverse=True)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 1.5, 2.0])
def test_a_model_that_does_not_read_the_question(weight):
    for table in TABLES:
        push = pushes(table, contrast_rewards(table, table, weight))
        assert_allclose(push, (1 - weight) * table * (table - np.sum(table**2)), atol=1e-15)
        assert np.sign(np.round(push[0], 12)) == np.sign(1 - weight) * (table[0] > np.sum(table**2))


def test_what_ranks_above_what_and_the_price():
    for here, elsewhere in product(TABLES, TABLES):
        rewards = contrast_rewards(here, elsewhere, 1.5)
        above = here[0] - here[1] - 1.5 * (elsewhere[0] - elsewhere[1])
        assert rewards[0] - rewards[1] == pytest.approx(above)
    # A stock answer with 60 % here and 40 % elsewhere earns 0.6 − 1.5 · 0.4 = 0, less than one with 1 % of its own.
    stock, own, rest = contrast_rewards(np.array([0.6, 0.01, 0.39]), np.array([0.4, 0.0, 0.6]), 1.5)
    assert stock == pytest.approx(0.0)
    assert rest < stock < own


def test_the_noise_of_what_others_say():
    rng = np.random.default_rng(1)
    others, votes, weight = 8, 32, 1.5
    means = weight * (rng.binomial(votes, 0.5, (20_000, others)) / votes).mean(axis=1)
    assert means.var() == pytest.approx(weight**2 / (4 * others * votes), rel=0.05)  # p = ½ is the worst case


def test_rules_pay_what_the_package_pays():
    rng, world = np.random.default_rng(0), theory.World(gate=1.0)
    shares = np.array([[[0.5, 0.25, 0.0625, 0.1875]]])
    # SCRL with an open gate: 0.5 for the label, 0.0625 − 0.125 for the rare answer, 0 for the others.
    assert_allclose(theory.selective(shares, shares, rng, world), [[[0.5, 0, -0.0625, 0]]])
    assert_allclose(theory.majority(shares, shares, rng, world), [[[1, 0, 0, 0]]])


def test_rules_without_other_questions_feed_stock_answers_and_contrast_holds_them():
    begin, ttrl = dynamics(theory.RULES["ttrl"], 0.05, steps=60, seeds=2)
    _, contrast = dynamics(theory.RULES["contrast, p − 1.5 p̄"], 0.05, steps=60, seeds=2)
    assert ttrl.stock > 2 * begin.stock
    assert abs(contrast.stock - begin.stock) < 0.1
    assert contrast.right > 1.5 * begin.right


def test_an_abstention_weighs_as_much_as_a_label_under_sigma_and_its_variance_without():
    """On completions of a real model, by the package's own rule; the entropy term is off."""
    groups = stored_groups(open_completions(ROLLOUTS), credit_rule("scrl"), keep_texts=False)
    squares, variances = {}, {}
    for advantage in ("normalised", "centred"):
        rule = credit_rule("scrl", advantage=advantage, entropy_weight=0, eps=0)
        for stored in groups:
            credit = credit_of(rule, stored)
            if np.ptp(credit.rewards) > 1e-12:
                is_silent = credit.labels.positive is None
                squares.setdefault((advantage, is_silent), []).append(np.sum(credit.advantages**2))
                variances.setdefault(is_silent, []).append(np.var(credit.rewards))
                assert not is_silent or np.var(credit.rewards) <= 0.125**2 / 4 + 1e-12
    assert len(squares["normalised", True]) > 2 < len(squares["normalised", False])
    sigma, plain = (
        [np.sum(squares[name, is_silent]) for is_silent in (True, False)] for name in ("normalised", "centred")
    )
    counts = [len(squares["normalised", is_silent]) for is_silent in (True, False)]
    assert_allclose(sigma[0] / sum(sigma), counts[0] / sum(counts))
    spread = [np.sum(variances[is_silent]) for is_silent in (True, False)]
    assert_allclose(plain[0] / sum(plain), spread[0] / sum(spread))
    assert plain[0] / sum(plain) < sigma[0] / sum(sigma) / 4


def test_the_variance_of_a_label():
    rule = credit_rule("scrl", entropy_weight=0, max_negative_share=0)
    for votes in (15, 20, 32):  # of 40: share p earns p, all others 0: p² p (1 − p)
        others = [str(100 + n) for n in range(40 - votes)]
        credit = rule.credit(Group.from_answers(["1"] * votes + others, [0.0] * 40))
        assert credit.labels.positive == "1"
        share = votes / 40
        assert_allclose(np.var(credit.rewards), share**3 * (1 - share))


@pytest.mark.parametrize("skill", [0.5, 1, 2])
@pytest.mark.parametrize("spread", [(1, 1), (2, 5), (0.5, 0.5)])
def test_sharpened_shares_label_more_and_less_rightly_and_never_better_than_the_start(skill, spread):
    shares = np.sort(np.random.default_rng(1).beta(spread[0], spread[1], 4_000))
    chance = shares**skill  # of being right: increasing in the share
    before = None
    for power in (1, 1.5, 2, 4, 8):
        covered, right = precision(sharpened(shares, power), chance, 0.6)
        assert_allclose(right, chance[-round(covered * len(shares)) :].mean())  # as many of the start's
        if before is not None:
            assert covered >= before[0]
            assert right <= before[1] + 1e-12
        before = covered, right


def test_published_runs_are_no_more_right_than_the_start_at_their_coverage():
    rows = [[float(cell) for cell in row[1:]] for row in theory.drift_table().rows]
    assert len(rows) >= 8
    assert all(right <= start + 2 for _, right, start in rows)  # points; a run's last quarter has some 100 labels


def test_the_page_shows_what_is_computed():
    page = Path(theory.__file__).with_suffix(".md").read_text(encoding="utf-8")
    for name, shown in (("theory", theory.dynamics_table()), ("drift", theory.drift_table())):
        table = page.split(f"<!-- {name} -->\n")[1].split("\n<!-- end -->")[0]
        assert table == as_markdown(shown)
    (chances,) = (row for row in theory.labels_table().rows if row[:2] == ("50 30 20", 32))
    text = " ".join(page.split())
    _, _, majority, selective, bound, labelled = chances
    assert f"is not the mode on {majority} % of the questions" in text
    assert f"SCRL's on {selective} % (bound: {bound} %)" in text
    assert f"SCRL labels only {float(selective) + float(labelled):.0f} % of them" in text
