"""Trees of completions: what leaves share, what they cost, and that each is as good as a completion drawn alone."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import END, TOKENIZER, WORDS, assert_scored_as_by_plain_forward, prompts, tiny_model, tokens_of

from scrl.credit.method import Tree
from scrl.data.arithmetic import arithmetic_questions
from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.policy.model import load_model
from scrl.policy.policy import Policy
from scrl.policy.settings import ComputeSettings, LossSettings, OptimizerSettings
from scrl.records import Credit, Labels, Question, Sample, Sampled, Tally
from scrl.sampling.groups import cut_at_stop, fork_places, sample_tree
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

TREE = Tree(roots=3, forks=2, branches=2)
SETTINGS = SamplingSettings(max_tokens=30)
LENGTHS = (6, 1, 12)


def grown(model=None, settings=SETTINGS, tree=TREE, *, prompts_B=None, seed=0, step=0, decoder=None, **more):
    sampler = LocalSampler(model or tiny_model("llama"), TOKENIZER, **{"max_rows": 512} | more)
    sampler._decoder = decoder or sampler._decoder
    return sample_tree(sampler, prompts_B or prompts(*LENGTHS), settings, tree, seed=seed, step=step)


@cache
def plain():
    """The trees of most tests."""
    return grown()


def families(leaves_BG, tree=TREE):
    """(root, place of the fork, branch) of every branch."""
    size, leaves, found = 1 + tree.forks * tree.branches, flat(leaves_BG), []
    for first in range(0, len(leaves), size):
        root, *branches = leaves[first : first + size]
        places = np.repeat(fork_places(root.entropies_T, tree.forks), tree.branches)
        found += [(root, int(place), branch) for place, branch in zip(places, branches, strict=True)]
    return found


def flat(leaves_BG):
    return [leaf for leaves_G in leaves_BG for leaf in leaves_G]


# Where a root forks


@given(st.lists(st.floats(0, 3), min_size=1, max_size=30), st.integers(1, 6))
def test_forks_are_the_places_of_highest_entropy(entropies, forks):
    places = fork_places(np.array(entropies), forks)
    assert len(places) == forks
    assert places == sorted(places)
    chosen = {*places[max(0, forks - len(entropies)) :]}
    assert len(chosen) == min(forks, len(entropies))
    others = [h for place, h in enumerate(entropies) if place not in chosen]
    assert min(entropies[place] for place in chosen) >= max(others, default=0)


def test_of_equal_entropies_the_first_are_forks_and_a_short_root_forks_at_its_beginning():
    assert fork_places(np.array([0.1, 0.7, 0.7, 0.2, 0.7]), 2) == [1, 2]
    assert fork_places(np.array([0.4]), 3) == [0, 0, 0]
    assert fork_places(np.array([0.4, 0.5]), 3) == [0, 0, 1]


# Leaves


def test_a_tree_has_as_many_leaves_as_were_planned_roots_first():
    leaves_BG = plain()
    assert [len(leaves) for leaves in leaves_BG] == [15, 15, 15] == [TREE.leaves] * 3
    sampler = LocalSampler(tiny_model("llama"), TOKENIZER, max_rows=512)
    roots = sampler.sample(prompts(*LENGTHS), SETTINGS, num_samples=3, seed=0, step=0)
    assert tokens_of(roots) == [tokens[::5] for tokens in tokens_of(leaves_BG)]  # a root is a plain completion


def test_leaves_of_a_fork_share_what_stands_before_it_bit_by_bit():
    for root, place, branch in families(grown(record=("margin",))):
        for name in ("tokens_T", "logprobs_T", "entropies_T", "margins_T"):
            assert getattr(branch, name)[:place].tolist() == getattr(root, name)[:place].tolist()
            assert len(getattr(branch, name)) == len(branch.tokens_T)


def test_the_token_at_a_fork_is_drawn_anew_from_the_same_distribution():
    found = families(grown(tree=Tree(4, 2, 8)), Tree(4, 2, 8))
    at_fork = [(root.tokens_T[place], branch.tokens_T[place]) for root, place, branch in found]
    assert 0 < sum(one == other for one, other in at_fork) < len(at_fork)
    for root, place, branch in found:
        assert branch.entropies_T[place] == pytest.approx(root.entropies_T[place], abs=1e-5)
        if branch.tokens_T[place] == root.tokens_T[place]:
            assert branch.logprobs_T[place] == pytest.approx(root.logprobs_T[place], abs=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_every_leaf_is_scored_as_by_a_plain_forward(name, temperature):
    model = tiny_model(name)
    leaves_BG = grown(model, SamplingSettings(temperature=temperature, max_tokens=30))
    assert_scored_as_by_plain_forward(model, prompts(*LENGTHS), leaves_BG, temperature)


def test_roots_shorter_than_their_forks_have_all_their_leaves_and_no_two_by_the_same_draws():
    model, tree = tiny_model("llama"), Tree(2, 4, 2)
    leaves_BG = grown(model, SamplingSettings(max_tokens=2), tree)
    assert [len(leaves) for leaves in leaves_BG] == [18] * 3
    forks_at_0 = [leaf.tokens_T.tolist() for leaf in leaves_BG[2][1:7]]  # places 0, 0, 0, 1 or 0, 0, 0, 0
    assert len({tuple(tokens) for tokens in forks_at_0}) > 2  # were draws repeated, there would be no more than two


# Seeds and batches


# Stop texts


def test_a_stop_text_across_a_fork_ends_a_leaf():
    plain_BG = plain()
    roots = [root.text for root, _, _ in families(plain_BG)]
    crossing = {
        TOKENIZER.decode(branch.tokens_T[place - 1 : place + 1]): (place, branch)
        for _, place, branch in families(plain_BG)
        if place > 0 and len(branch.tokens_T) > place + 3 and branch.tokens_T[place] != END
    }
    stops = [stop for stop in crossing if len(stop) == 2 and not any(stop in text for text in roots)]
    assert stops
    for stop in stops[:3]:
        place, branch = crossing[stop]
        leaves = flat(grown(settings=SamplingSettings(max_tokens=30, stop=(stop,))))
        leaf = leaves[flat(plain_BG).index(branch)]
        assert leaf.tokens_T.tolist() == branch.tokens_T[: place + 1].tolist()
        assert leaf.logprobs_T.tolist() == branch.logprobs_T[: place + 1].tolist()
        assert leaf.is_finished
        assert leaf.text == branch.text[: branch.text.index(stop) + 2]
        assert leaf.tokens_drawn >= 1  # what was drawn before the cut is not forgotten
        for other in leaves:
            assert stop not in TOKENIZER.decode(other.tokens_T[:-1], skip_special_tokens=True)


def test_a_stop_text_that_the_last_token_allowed_completes_is_an_end():
    stops = LocalSampler(tiny_model("llama"), TOKENIZER, max_rows=1).stop_texts(("cab",))
    tokens_T = np.array([WORDS.index(word) for word in ("d", "c", "ab", "e")])
    for length, kept, is_finished in ((2, 2, False), (3, 3, True), (4, 3, True)):
        zeros_T = np.zeros(length)
        leaf = cut_at_stop(Sample("", tokens_T[:length], zeros_T, zeros_T, is_finished=False, num_drawn=2), stops)
        assert (len(leaf.tokens_T), len(leaf.logprobs_T), leaf.is_finished) == (kept, kept, is_finished)
        assert leaf.tokens_drawn == 2


# What it costs


def cost(leaves_BG, tree):
    """Whole roots, and of each branch what stands from its fork on; the share of what as many apart would cost."""
    drawn, apart = (sum(map(count, flat(leaves_BG))) for count in (lambda s: s.tokens_drawn, lambda s: len(s.tokens_T)))
    roots = flat(leaves_BG)[:: 1 + tree.forks * tree.branches]
    branches = sum(len(branch.tokens_T) - place for _, place, branch in families(leaves_BG, tree))
    assert drawn == sum(len(root.tokens_T) for root in roots) + branches
    return drawn / apart


@pytest.mark.parametrize("tree", [TREE, Tree(2, 3, 1), Tree(1, 1, 4)])
def test_the_tokens_drawn_are_those_that_the_forks_imply(tree):
    assert cost(grown(tree=tree), tree) < 1


class Evenly:
    """A sampler whose completions all have `length` tokens, with random entropies."""

    def __init__(self, length):
        self._length, self._random = length, np.random.default_rng(0)

    def sample(self, prompts_B, settings, *, num_samples, seed, step):
        del settings, seed, step
        return [tuple(self._one(prompt.max_tokens or self._length) for _ in range(num_samples)) for prompt in prompts_B]

    def _one(self, length):
        return Sample("", np.zeros(length, int), np.zeros(length), self._random.random(length), is_finished=True)

    def stop_texts(self, texts):
        return None

    def texts(self, written, stops):
        return [""] * len(written)


@pytest.mark.parametrize(
    ("forks", "branches", "share"),
    # (1 + N B / 2) / (1 + N B): (1 + 2)/5, (1 + 3)/7, (1 + 0.5)/2; half a token more, as the one at the fork is redrawn
    [(2, 2, 3 / 5), (3, 2, 4 / 7), (1, 1, 3 / 4)],
)
def test_evenly_spread_forks_save_what_the_paper_says(forks, branches, share):
    tree = Tree(roots=400, forks=forks, branches=branches)
    settings = SamplingSettings(max_tokens=200)
    [leaves] = sample_tree(Evenly(200), [Prompt("q", np.zeros(3, int))], settings, tree, seed=0, step=0)
    assert sum(len(leaf.tokens_T) for leaf in leaves) == 200 * tree.leaves
    # 400 places per fork: σ of the mean below 0.29/20 · 0.8
    assert cost([leaves], tree) == pytest.approx(share, abs=0.015)


# The embedded model


@pytest.fixture(scope="module")
def embedded():
    return load_model("embedded", ComputeSettings(device="cpu"))


@pytest.fixture(scope="module")
def embedded_trees(embedded):
    questions = list(arithmetic_questions("easy", 4, seed=0))
    prompts_B = [Prompt(q.id, prompt_tokens(q, embedded.tokenizer, PromptSettings(instruction=""))) for q in questions]
    sampler = LocalSampler(embedded.model, embedded.tokenizer, max_rows=512, record=("margin",))
    leaves_BG = sample_tree(sampler, prompts_B, SamplingSettings(max_tokens=64), TREE, seed=0, step=0)
    return prompts_B, leaves_BG


def test_leaves_are_scored_by_the_update_as_they_were_when_drawn(embedded, embedded_trees):
    policy = Policy(
        embedded, LossSettings(), OptimizerSettings(), ComputeSettings(device="cpu"),
        updates=1, temperature=1.0, max_tokens=64,
    )  # fmt: skip
    for prompt, leaves in zip(*embedded_trees, strict=True):
        size = len(leaves)
        nothing = Credit(
            (None,) * size, Tally((), (), (-1,) * size, None, None, None), Labels(),
            np.zeros(size), np.zeros(size), tuple(range(size)), is_entropy_only=False,
        )  # fmt: skip
        rows = policy.rows([(Sampled(Question("q", ""), prompt.tokens_P, leaves), nothing)])
        with torch.no_grad():
            logprobs_RT, entropies_RT = policy.score(policy._batch(rows))
        for row, leaf in enumerate(leaves):
            length = len(leaf.tokens_T)
            assert logprobs_RT[row, :length].numpy() == pytest.approx(leaf.logprobs_T, abs=1e-4)
            assert entropies_RT[row, :length].numpy() == pytest.approx(leaf.entropies_T, abs=1e-4)


def test_margins_of_leaves_are_those_of_a_plain_forward(embedded, embedded_trees):
    for prompt, leaves in zip(*embedded_trees, strict=True):
        for leaf in leaves[:6]:
            joined = torch.from_numpy(np.concatenate((prompt.tokens_P, leaf.tokens_T)))[None]
            with torch.no_grad():
                logits_TV = embedded.model(input_ids=joined, use_cache=False).logits[0, len(prompt.tokens_P) - 1 : -1]
            top_T2 = logits_TV.softmax(dim=-1).topk(2, dim=-1).values
            assert leaf.margins_T == pytest.approx((top_T2[:, 0] - top_T2[:, 1]).numpy(), abs=1e-4)
            assert leaf.facts["margin_std"] == pytest.approx(float(leaf.margins_T.std()))
