"""The loop with captured steps, here without a GPU and in plain torch: the same completions as by the slower path."""

import inspect
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from tiny_models import (
    END,
    GROUPED,
    SHAPE,
    assert_scored_as_by_plain_forward,
    prompts,
    set_ends,
    tiny_model,
    tiny_tokenizer,
    tokens_of,
)
from transformers import LlamaConfig, LlamaForCausalLM

from scrl.credit.method import Tree
from scrl.data.arithmetic import arithmetic_questions
from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.policy.model import load_model
from scrl.policy.settings import ComputeSettings
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.gpu import cuda_graphs as stepper
from scrl.sampling.gpu import graph_engine as graph_writer
from scrl.sampling.gpu import reference_ops as twins
from scrl.sampling.gpu import scheduler as row_plan
from scrl.sampling.gpu.cuda_graphs import rows_bucket, step_size
from scrl.sampling.gpu.fused_weights import Shape, fuse, why_not_fused
from scrl.sampling.gpu.graph_engine import GraphWriter
from scrl.sampling.gpu.kv_cache import PREFILL_TOKENS, Size, affordable_pages, padded_ends, prefill_parts, teams_of
from scrl.sampling.gpu.scheduler import ENOUGH_FINISHED, Row, RowPlan, Source, smallest_pool, whole_pool
from scrl.sampling.local import LocalSampler, fast_writer, tasks_of
from scrl.sampling.sampler import Prompt
from scrl.sampling.tree import sample_tree

TOKENIZER = tiny_tokenizer()
LENGTHS = (1, 5, 40, 3)


def fast(model, *, max_rows=512, page=16, record=(), tokenizer=TOKENIZER):
    sampler = LocalSampler(model, tokenizer, max_rows=max_rows, record=record)
    sampler._writer = GraphWriter(model, sampler._ends, twins, page=page)
    return sampler


def assert_same(found, expected):
    assert tokens_of(found) == tokens_of(expected)
    for found_G, expected_G in zip(found, expected, strict=True):
        for one, other in zip(found_G, expected_G, strict=True):
            assert (one.text, one.is_finished, one.num_drawn) == (other.text, other.is_finished, other.num_drawn)
            np.testing.assert_allclose(one.logprobs_T, other.logprobs_T, atol=1e-5)
            np.testing.assert_allclose(one.entropies_T, other.entropies_T, atol=1e-5)
            if other.margins_T is not None:
                np.testing.assert_allclose(one.margins_T, other.margins_T, atol=1e-5)


# The same completions


KINDS = [
    SamplingSettings(max_tokens=60),
    SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=30),
    SamplingSettings(temperature=0, max_tokens=30),
    SamplingSettings(top_k=5, max_tokens=30),
    SamplingSettings(stop=("ab", "the"), max_tokens=60),
]


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, KINDS[0]) for name in GROUPED), *(("qwen3", kind) for kind in KINDS[1:])]
)
def test_rows_are_those_of_the_slower_path(name, kind):
    model = set_ends(tiny_model(name), END, 7, 9)
    prompts_B = prompts(*LENGTHS)
    slow = LocalSampler(model, TOKENIZER, max_rows=512, record=("margin",))
    expected = slow.sample(prompts_B, kind, num_samples=5, seed=0, step=1)
    for max_rows in (512, 6):  # all at once, and entering as others leave
        sampler = fast(model, max_rows=max_rows, record=("margin",))
        assert_same(sampler.sample(prompts_B, kind, num_samples=5, seed=0, step=1), expected)


def test_completions_may_end_where_a_page_does():
    model = set_ends(tiny_model("qwen2"), END, 7)
    prompts_B, kind = prompts(16, 33, 1), SamplingSettings(max_tokens=16)  # one page each, filled to the last place
    expected = LocalSampler(model, TOKENIZER, max_rows=512).sample(prompts_B, kind, num_samples=7, seed=0, step=0)
    for max_rows in (512, 5):
        assert_same(fast(model, max_rows=max_rows).sample(prompts_B, kind, num_samples=7, seed=0, step=0), expected)


def test_the_embedded_model_writes_the_same():
    loaded = load_model("embedded", ComputeSettings(device="cpu"))
    asking = PromptSettings(instruction="")
    questions = arithmetic_questions("medium", 6)
    prompts_B = [Prompt(q.id, prompt_tokens(q, loaded.tokenizer, asking)) for q in questions]
    settings, how = SamplingSettings(max_tokens=72), {"num_samples": 8, "seed": 3, "step": 2}
    slow = LocalSampler(loaded.model, loaded.tokenizer, max_rows=512).sample(prompts_B, settings, **how)
    sampler = fast(loaded.model, max_rows=16, page=32, tokenizer=loaded.tokenizer)
    assert_same(sampler.sample(prompts_B, settings, **how), slow)


@pytest.mark.parametrize("spare", [0, 3, 10])
@pytest.mark.parametrize("seed", [0, 2])
def test_rows_that_have_to_make_room_are_read_again_and_go_on(monkeypatch, spare, seed):
    """A row may get just the pages that another gives up: as many as before, and not the same."""
    model = set_ends(tiny_model("qwen3"), END, 7)
    prompts_B, kind = prompts(1, 20, 9), SamplingSettings(max_tokens=60)
    expected = LocalSampler(model, TOKENIZER, max_rows=512).sample(prompts_B, kind, num_samples=12, seed=seed, step=0)
    monkeypatch.setattr(row_plan, "ENOUGH_FINISHED", 1)
    monkeypatch.setattr(row_plan, "TYPICAL", 0.0)  # so that far too many rows are let in
    monkeypatch.setattr(graph_writer, "whole_pool", lambda rows, slots, page: smallest_pool(rows, page) + spare)
    sampler = fast(model, max_rows=24)
    assert_same(sampler.sample(prompts_B, kind, num_samples=12, seed=seed, step=0), expected)
    assert sampler._writer.interrupted > 0


def test_trees_have_prompts_and_limits_of_many_lengths():
    model = set_ends(tiny_model("qwen2"), END, 7)
    prompts_B, kind, tree = prompts(3, 8), SamplingSettings(max_tokens=40), Tree(roots=2, forks=2, branches=2)
    slow, quick = (
        sample_tree(sampler, prompts_B, kind, tree, seed=1, step=0)
        for sampler in (LocalSampler(model, TOKENIZER, max_rows=512), fast(model, max_rows=5))
    )
    assert_same(quick, slow)


def test_memory_is_kept_between_calls_until_it_is_released():
    model = tiny_model("llama")
    sampler, kind = fast(model), SamplingSettings(max_tokens=20)
    how = {"num_samples": 3, "seed": 0, "step": 0}
    first = sampler.sample(prompts(4, 6), kind, **how)
    arena = sampler._writer._arena
    sampler.sample(prompts(2), kind, **how)  # needs less
    assert sampler._writer._arena is arena
    assert_same(sampler.sample(prompts(4, 6), kind, **how), first)
    sampler.sample(prompts(5, 7), kind, **how)  # longer prompts, as many pages
    assert sampler._writer._arena is arena
    sampler.sample(prompts(4, 6), kind, num_samples=9, seed=0, step=0)  # needs more
    assert sampler._writer._arena is not arena
    sampler.release()
    assert sampler._writer._arena is None
    assert_same(sampler.sample(prompts(4, 6), kind, **how), first)


def test_no_prompts_give_no_completions():
    assert fast(tiny_model("llama")).sample([], KINDS[0], num_samples=3, seed=0, step=0) == []


# Weights


@pytest.mark.parametrize("name", GROUPED)
def test_weights_laid_together_compute_the_same_train_and_save(name, tmp_path):
    model = tiny_model(name)
    tokens = torch.tensor([[3, 4, 5, 6]])
    before = model(tokens).logits
    weights = fuse(model)
    torch.testing.assert_close(model(tokens).logits, before)
    assert fuse(model).addresses == weights.addresses  # nothing moves twice
    model(tokens).logits.sum().backward()
    torch.optim.AdamW(model.parameters(), lr=0.1).step()
    attention = model.model.layers[1].self_attn
    torch.testing.assert_close(
        weights.layers[1].qkv.weight,
        torch.cat([p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)]),
    )
    model.save_pretrained(tmp_path)
    read = type(model).from_pretrained(tmp_path)
    for (_, one), (_, other) in zip(sorted(model.named_parameters()), sorted(read.named_parameters()), strict=True):
        assert torch.equal(one, other)


def test_weights_changed_or_moved_are_seen_by_the_next_call():
    model = tiny_model("llama")
    sampler, prompts_B, kind = fast(model), prompts(*LENGTHS), SamplingSettings(max_tokens=16)
    before = sampler.sample(prompts_B, kind, num_samples=3, seed=0, step=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    after = sampler.sample(prompts_B, kind, num_samples=3, seed=0, step=0)
    assert tokens_of(after) != tokens_of(before)
    assert_scored_as_by_plain_forward(model, prompts_B, after, 1.0)
    for weight in model.parameters():
        weight.data = weight.data.clone() * 1.1  # other memory: laid together anew
    moved = sampler.sample(prompts_B, kind, num_samples=3, seed=0, step=0)
    assert_scored_as_by_plain_forward(model, prompts_B, moved, 1.0)


def test_a_model_can_train_after_it_was_sampled_from():
    model = tiny_model("qwen2").train()
    fast(model).sample(prompts(3, 4), SamplingSettings(max_tokens=4), num_samples=2, seed=0, step=0)
    assert model.training
    model(torch.tensor([[3, 4, 5]])).logits.sum().backward()
    assert model.model.layers[0].self_attn.q_proj.weight.grad is not None


def test_why_a_model_is_left_to_the_slower_path():
    assert why_not_fused(tiny_model("qwen3")) is None
    assert "GPT2LMHeadModel" in why_not_fused(tiny_model("gpt2"))
    assert "heads have 8 numbers" in why_not_fused(tiny_model("llama"))
    base = tiny_model("qwen3")
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert why_not_fused(adapted) == "an adapter is on it"
    odd = LlamaForCausalLM(
        LlamaConfig(**{**SHAPE, "num_attention_heads": 2, "num_key_value_heads": 2}, hidden_act="gelu")
    )
    assert "'gelu'" in why_not_fused(odd)
    writer, note = fast_writer(adapted, [END], None)
    assert writer is None
    assert note == "sampling token by token without captured steps, which is slower: an adapter is on it"


# The plan


def rows_in(plan_rows):
    return [Row(job, source, 3, limit) for job, (source, limit) in enumerate(plan_rows)]


@settings(max_examples=200)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=90),
    prompt_lengths=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    slots=st.integers(1, 12),
    spare=st.integers(0, 12),
)
def test_every_row_is_written_once_and_no_page_is_lost_or_shared(lengths, prompt_lengths, slots, spare):
    sources = [Source(np.zeros(length, dtype=np.int64)) for length in prompt_lengths]
    rows = [Row(job, sources[group], 3, 60) for job, (_, group) in enumerate(lengths)]
    pages = min(smallest_pool(rows, 8) + spare, whole_pool(rows, slots, 8))
    plan = RowPlan(slots, pages, 8)
    plan.add(rows)
    done = {}
    for _ in range(10_000):
        if not (plan.live or plan.waiting):
            break
        plan.admit()
        steps = plan.window(8)
        for row in plan.grow(steps):
            written = min(row.written + row.steps, lengths[row.job][0]) - row.written
            if row.written + written < lengths[row.job][0]:
                plan.come_back(row, np.zeros(written, dtype=np.int64))
            else:
                done[row.job] = done.get(row.job, 0) + 1
        assert 0 < len(plan.live) <= slots
        held = [page for row in plan.live for page in row.pages]
        held += [page for source in {id(row.source): row.source for row in plan.live}.values() for page in source.pages]
        assert len(set(held)) == len(held)
        assert 0 not in held
        for row in plan.live:
            assert 8 * len(row.pages) >= min(row.steps + steps, 60 - row.written)
            assert row.source.is_read
            assert 8 * len(row.source.pages) >= len(row.source.tokens_P)
        plan.stepped(steps)
        ended = {row.job for row in plan.live if row.written + row.steps >= lengths[row.job][0]}
        done |= {job: done.get(job, 0) + 1 for job in ended}
        plan.leave({job: lengths[job][0] for job in ended})
    assert done == dict.fromkeys(range(len(lengths)), 1)
    assert sorted(plan._free) == list(range(1, pages))
    assert len(plan._places) == slots + 1


def test_rows_are_promised_what_completions_have_needed():
    source = Source(np.zeros(8, dtype=np.int64))
    rows = rows_in([(source, 80)] * 200)
    plan = RowPlan(100, 101, 8)  # 100 pages: one for the prompt, ten a row while nothing is known
    plan.add(rows)
    plan.admit()
    assert len(plan.live) == 9
    plan.leave(dict.fromkeys(range(ENOUGH_FINISHED - 1), 16))
    plan.leave(dict.fromkeys(range(ENOUGH_FINISHED - 1), 80))  # told of again: they count once
    assert plan._typical > 80
    plan.leave({ENOUGH_FINISHED - 1: 16})
    plan.admit()
    assert len(plan.live) == 33  # 99 pages, three a row: completions have 16 tokens, and one more page to be sure


@pytest.mark.parametrize("stop", [(), ("ab", "the")], ids=["ends", "stop texts"])
@pytest.mark.parametrize("spare", [None, 3])
def test_the_plan_learns_each_length_once(monkeypatch, stop, spare):
    """What has ended is seen in two windows one after the other, and rows run past a stop text."""
    if spare is not None:  # rows have to make room, and are read again
        monkeypatch.setattr(row_plan, "ENOUGH_FINISHED", 1)
        monkeypatch.setattr(row_plan, "TYPICAL", 0.0)
        monkeypatch.setattr(graph_writer, "whole_pool", lambda rows, slots, page: smallest_pool(rows, page) + spare)
    plans, build = [], RowPlan
    monkeypatch.setattr(graph_writer, "RowPlan", lambda *sizes: plans.append(build(*sizes)) or plans[-1])
    sampler, kind = fast(set_ends(tiny_model("qwen3"), END, 7)), SamplingSettings(max_tokens=60, stop=stop)
    tasks = tasks_of(prompts(1, 20, 9), range(30), kind, (0, 0))
    results = sampler._writer.write(tasks, kind, (), 24, sampler.stop_texts(stop))
    assert (sampler._writer.interrupted > 0) == (spare is not None)
    [plan] = plans
    assert len(plan._lengths) > 80  # of 90: those that end last are not heard of
    assert all(length == results.lengths_R[job] for job, length in plan._lengths.items())


def test_prompts_are_read_for_many_rows_at_a_time():
    sources = [Source(np.zeros(4, dtype=np.int64)) for _ in range(40)]
    plan = RowPlan(16, 1000, 8)
    plan.add(rows_in([(source, 8) for source in sources]))
    assert len(plan.admit()) == 16
    plan.leave({0: 8})
    assert plan.admit() == []  # one slot of sixteen
    plan.leave({1: 8})
    assert len(plan.admit()) == 2


# Captured steps, with a graph that is played


@pytest.fixture
def played_graphs(monkeypatch):
    """Graphs without CUDA: what runs while one is captured is undone, and a replay runs it again.

    What a test puts into the list that is returned is raised while a graph is captured.
    """
    fails = []
    ended = []

    class Graph:
        def __init__(self):
            self.owner = None

        def capture_begin(self, pool, capture_error_mode):
            assert (pool, capture_error_mode) == ("pool", "thread_local")

        def capture_end(self):
            ended.append(self)

        def replay(self):
            self.play()

    class Stream:
        def synchronize(self):
            pass

    run = stepper.Stepper._run

    def recorded(self, key, arena, *rest):
        frame = [part for part in inspect.stack()[1:3] if part.function == "_capture"]
        if not frame:
            run(self, key, arena, *rest)
            return
        if fails:
            raise fails[0]
        pages = (arena.desk.state, *vars_of(arena.written), arena.keys, arena.values)
        before = [page.clone() for page in pages]
        run(self, key, arena, *rest)
        for page, was in zip(pages, before, strict=True):
            page.copy_(was)
        frame[0].frame.f_locals["graph"].play = lambda: run(self, key, arena, *rest)

    monkeypatch.setattr(stepper, "is_on_gpu", lambda arena: True)
    monkeypatch.setattr(stepper.Stepper, "_run", recorded)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    yield fails
    assert ended  # whatever happens, no stream is left recording


def vars_of(written):
    tensors = (written.tokens_JT, written.logprobs_JT, written.entropies_JT, written.lengths_J)
    return (*tensors, *written.facts_JT.values())


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=["plain", "top-k"])
def test_captured_steps_are_replayed_with_what_is_then_in_memory(played_graphs, kind):
    model = set_ends(tiny_model("qwen3"), END, 7, 9)
    prompts_B, heard = prompts(*LENGTHS), []
    expected = LocalSampler(model, TOKENIZER, max_rows=512).sample(prompts_B, kind, num_samples=5, seed=0, step=1)
    sampler = fast(model, max_rows=6)
    sampler._writer._stepper._on_note = heard.append
    assert_same(sampler.sample(prompts_B, kind, num_samples=5, seed=0, step=1), expected)
    captures = sampler._writer.captures
    assert captures > 1
    assert_same(sampler.sample(prompts_B, kind, num_samples=5, seed=0, step=1), expected)
    assert sampler._writer.captures == captures  # all sizes are there
    sampler.release()
    assert_same(sampler.sample(prompts_B, kind, num_samples=5, seed=0, step=1), expected)
    assert sampler._writer.captures > captures
    assert len(heard) == (kind.top_k > 0)  # said once


def test_after_a_release_the_first_step_of_a_size_runs_as_it_is(played_graphs, monkeypatch):
    """It makes room for the logits of top-k outside of the graphs' pool."""
    sampler, had_room, capture = fast(tiny_model("qwen3"), max_rows=6), [], stepper.Stepper._capture

    def look(self, key, *rest):
        had_room.append(self._logits_SV is not None)
        capture(self, key, *rest)

    monkeypatch.setattr(stepper.Stepper, "_capture", look)
    for _ in range(2):
        sampler.sample(prompts(*LENGTHS), KINDS[3], num_samples=5, seed=0, step=1)
        captures = len(had_room)
        sampler.sample(prompts(*LENGTHS), KINDS[3], num_samples=5, seed=0, step=1)
        assert len(had_room) == captures  # all sizes are there
        sampler.release()
    assert captures > 1
    assert all(had_room)


def test_steps_that_cannot_be_captured_run_as_they_are(played_graphs):
    played_graphs.append(RuntimeError("operation not permitted\nwhen stream is capturing"))
    model, heard = tiny_model("qwen3"), []
    prompts_B, kind = prompts(*LENGTHS), SamplingSettings(max_tokens=20)
    expected = LocalSampler(model, TOKENIZER, max_rows=512).sample(prompts_B, kind, num_samples=5, seed=0, step=1)
    sampler = fast(model, max_rows=6)
    sampler._writer._stepper._on_note = heard.append
    assert_same(sampler.sample(prompts_B, kind, num_samples=5, seed=0, step=1), expected)
    assert heard == ["decode steps cannot be captured in CUDA graphs, which is slower: operation not permitted"]


# Sizes


def test_steps_come_in_few_sizes():
    assert [rows_bucket(rows) for rows in (1, 3, 65, 256, 257, 513)] == [1, 4, 96, 256, 320, 640]
    assert step_size(200, 5, 0, 0, team=8) == (256, 8, 0, 0)
    assert step_size(200, 1, 3, 30, team=8) == (256, 1, 4, 64)  # teams mostly full
    assert step_size(200, 1, 3, 200, team=8) == (256, 1, 4, 256)  # every row has a prompt of its own


def test_teams_are_of_one_prompt():
    sources = [Source(np.zeros(length, dtype=np.int64), place=place) for place, length in ((1, 4), (2, 0), (3, 9))]
    rows = rows_in([(sources[group], 5) for group in (0, 2, 0, 0, 1, 2)])
    for slot, row in enumerate(rows):
        row.slot = slot
    assert teams_of(rows, 2) == [[0, 2], [3], [1, 5]]


def test_prompts_are_read_in_parts_of_like_lengths():
    assert prefill_parts([3, 0, PREFILL_TOKENS * 2, 5]) == [[2], [3, 0]]
    assert prefill_parts([PREFILL_TOKENS // 2] * 3) == [[0, 1], [2]]


def test_ends_are_padded_to_a_power_of_two():
    assert padded_ends([]) == [-1]
    assert padded_ends([5]) == [5]
    assert padded_ends([5, 6, 7]) == [5, 6, 7, -1]


def test_pages_are_planned_from_what_is_free():
    shape = Shape(36, 32, 8, 128, 2560, 9728, 151_936, 128**-0.5, 1e-6)  # Qwen3-4B: 144 KiB a token
    size = Size(slots=64, pages=0, page=256, completions=512, tokens=10_240, prompt_tokens=512)
    gib = 2**30
    pages = affordable_pages(120 * gib, 140 * gib, shape, size, 2)
    # 36 MiB a page; about 10 GiB are left to steps, prompts, written tokens and others
    assert 3000 < pages < 120 * gib / (36 * 2**20)
    assert pages // 40 > 64  # so many rows of 10,240 tokens fit, 40 pages each
    assert affordable_pages(gib, 140 * gib, shape, size, 2) < 0


def test_an_interruption_while_a_step_is_captured_goes_on_its_way(played_graphs):
    played_graphs.append(KeyboardInterrupt())
    sampler = fast(tiny_model("qwen3"), max_rows=6)
    with pytest.raises(KeyboardInterrupt):
        sampler.sample(prompts(*LENGTHS), SamplingSettings(max_tokens=20), num_samples=5, seed=0, step=1)


# Completions told of as they end


def told_by(sampler, prompts_B, kind, **how):
    """Completions, and what a listener heard of each group."""
    told = [[] for _ in prompts_B]
    return sampler.sample(prompts_B, kind, **how, on_group=lambda place, texts: told[place].append(texts)), told


def assert_told(told_B, samples_BG):
    for told, samples_G in zip(told_B, samples_BG, strict=True):
        assert told[-1] == [sample.text for sample in samples_G]
        for some, more in itertools.pairwise(told):
            assert len(some) < len(more)
            assert not Counter(some) - Counter(more)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=["ends", "stop texts"])
@pytest.mark.parametrize("max_rows", [512, 6])
def test_groups_are_told_of_as_they_grow(kind, max_rows):
    model, how = set_ends(tiny_model("qwen3"), END, 7, 9), {"num_samples": 8, "seed": 0, "step": 1}
    expected = fast(model, max_rows=max_rows).sample(prompts(*LENGTHS), kind, **how)
    found, told = told_by(fast(model, max_rows=max_rows), prompts(*LENGTHS), kind, **how)
    assert_same(found, expected)
    assert_told(told, found)
    assert [len(texts) for texts in told[0]] in ([4, 6, 7, 8], [4, 6, 8])
    assert sum(len(each) for each in told) > 2 * len(told)


@settings(max_examples=25, deadline=None)
@given(
    number=st.integers(1, 9),
    max_rows=st.integers(1, 24),
    seed=st.integers(0, 50),
    stop=st.sampled_from([(), ("ab", "the"), ("e",)]),
    spare=st.none() | st.integers(0, 12),
)
def test_texts_and_groups_are_the_same_with_a_listener(number, max_rows, seed, stop, spare):
    """With rows that enter late, that have to make room, and that run past a stop text."""
    model, how = set_ends(tiny_model("qwen3"), END, 7), {"num_samples": number, "seed": seed, "step": 0}
    prompts_B, kind = prompts(1, 20, 9), SamplingSettings(max_tokens=40, stop=stop)
    expected = LocalSampler(model, TOKENIZER, max_rows=512).sample(prompts_B, kind, **how)
    with pytest.MonkeyPatch.context() as patch:
        if spare is not None:
            patch.setattr(row_plan, "ENOUGH_FINISHED", 1)
            patch.setattr(row_plan, "TYPICAL", 0.0)
            patch.setattr(graph_writer, "whole_pool", lambda rows, slots, page: smallest_pool(rows, page) + spare)
        found, told = told_by(fast(model, max_rows=max_rows), prompts_B, kind, **how)
    assert_same(found, expected)
    assert_told(told, found)


def test_each_completion_is_told_of_once_with_the_tokens_it_ends_with(monkeypatch):
    monkeypatch.setattr(row_plan, "ENOUGH_FINISHED", 1)
    monkeypatch.setattr(row_plan, "TYPICAL", 0.0)
    monkeypatch.setattr(graph_writer, "whole_pool", lambda rows, slots, page: smallest_pool(rows, page) + 3)
    sampler = fast(set_ends(tiny_model("qwen3"), END, 7))
    kind, told = SamplingSettings(max_tokens=60, stop=("ab",)), {}

    def hear(job, tokens_T):
        assert job not in told
        told[job] = tokens_T.tolist()

    tasks = tasks_of(prompts(1, 20, 9), range(12), kind, (0, 0))
    results = sampler._writer.write(tasks, kind, (), 24, sampler.stop_texts(kind.stop), hear)
    assert sampler._writer.interrupted > 0
    assert len(told) > 30  # of 36: those that end last are not
    for job, tokens in told.items():
        assert tokens == results.tokens_RT[job, : results.lengths_R[job]].tolist()


def test_texts_are_decoded_once(monkeypatch):
    model, decoded = set_ends(tiny_model("qwen3"), END, 7, 9), []
    sampler, decode = fast(model), LocalSampler.texts
    monkeypatch.setattr(
        LocalSampler, "texts", lambda self, rows, stops: decoded.extend(rows) or decode(self, rows, stops)
    )
    told_by(sampler, prompts(*LENGTHS), KINDS[0], num_samples=8, seed=0, step=1)
    assert len(decoded) == 8 * len(LENGTHS)
