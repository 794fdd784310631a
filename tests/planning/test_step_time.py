"""The seconds of a step, held to what was measured on one H200 (benchmarks/RESULTS.md, h200.txt)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_memory import OURS, PAPER, SMALL, W, works

from scrl.errors import ConfigError
from scrl.planning.fit import best_fit, layouts
from scrl.planning.memory import GIB, Fit, Layout, fit
from scrl.planning.shapes import SHAPES
from scrl.planning.step_time import (
    ASSUMED,
    GPUS,
    efficiency,
    ending_rate,
    make_cluster,
    occupancy,
    rollout,
    scoring,
    step_seconds,
    sync,
    update,
)

ONE = make_cluster("H200", gpus=1, nodes=1, memory_gib=None)
LARGE = SHAPES["meta-llama/Llama-3.1-70B-Instruct"]


def test_a_rollout_and_an_update_of_1_5b_were_measured():
    work = replace(PAPER, sampled_rows=512, trained_rows=256, update_rows=32, length=728, micro_tokens=16384)
    shape = SHAPES["Qwen/Qwen2.5-1.5B"]
    found = fit(shape, work, OURS, ONE.memory)
    # gpu_step.py: 9.35 s; 372,624 tokens in 512 completions
    assert rollout(shape, found, ONE).seconds == pytest.approx(9.35, rel=0.1)
    # 194,526 tokens of 256 completions took 6.13 s, when each still had its prompt of 150 tokens for itself
    planned = scoring(shape, found, ONE).seconds + update(shape, found, ONE).seconds
    computed = OURS.computed_tokens(work)
    assert planned * (194_526 + 256 * 150) / computed == pytest.approx(6.13, rel=0.1)


@pytest.mark.parametrize(("tokens", "seconds"), [(303_818, 13.5), (391_071, 14.7), (393_242, 14.5), (344_877, 13.4)])
def test_whole_steps_of_1_5b_were_measured(tokens, seconds):
    work = replace(PAPER, sampled_rows=512, trained_rows=256, update_rows=32, length=tokens / 512, micro_tokens=16384)
    shape = SHAPES["Qwen/Qwen2.5-1.5B"]
    assert step_seconds(shape, fit(shape, work, OURS, ONE.memory), ONE) == pytest.approx(seconds, rel=0.1)


def test_where_the_plan_is_known_to_be_off():
    # 0.5B, 8 × 32 completions of at most 512 tokens: 1.8 s; the host launches such small kernels too slowly
    tiny = SHAPES["Qwen/Qwen2.5-0.5B"]
    step = fit(tiny, replace(PAPER, length=256, max_tokens=512), OURS, ONE.memory)
    assert 0.35 * 1.8 < step_seconds(tiny, step, ONE) < 0.6 * 1.8
    # Qwen3-4B, 32 completions of 10,240 tokens: 3,139 tokens per second; long rows come nearer to the roof
    work = replace(PAPER, sampled_rows=32, prompt=64, length=10_240, max_tokens=10_240)
    seconds = rollout(SHAPES["Qwen/Qwen3-4B"], Fit(OURS, work, 32, ()), ONE).seconds
    assert 0.6 * 3139 < 32 * 10_240 / seconds < 0.7 * 3139


@pytest.mark.parametrize(
    ("vllm_memory", "completions", "longest", "mean", "tokens_per_second", "off"),
    [
        (None, 256, 128, 128, 59_832, 0.01),  # from which the efficiency is
        (None, 512, 512, 512, 65_545, 0.25),  # larger batches come nearer to the roof
        (None, 1024, 2048, 700, 40_760, 0.2),
        (0.4, 256, 128, 128, 34_103, 0.02),  # vLLM; from which the efficiency is
        (0.4, 512, 512, 512, 32_497, 0.15),
        (0.4, 1024, 2048, 700, 16_288, 0.25),
    ],
)
def test_samplers_were_measured(vllm_memory, completions, longest, mean, tokens_per_second, off):
    work = replace(PAPER, sampled_rows=completions, prompt=64, length=mean, max_tokens=longest, vllm_memory=vllm_memory)
    seconds = rollout(SMALL, Fit(OURS, work, min(completions, 512), ()), ONE).seconds
    assert completions * mean / seconds == pytest.approx(tokens_per_second, rel=off)


@pytest.mark.parametrize(
    ("model", "rows", "is_checkpointed", "seconds", "off"),
    [
        ("Qwen/Qwen2.5-3B", 16, True, 2.71, 0.01),  # from which the efficiency is
        ("Qwen/Qwen2.5-3B", 16, False, 2.47, 0.2),
        ("Qwen/Qwen2.5-Math-7B", 16, True, 7.00, 0.05),
        ("Qwen/Qwen2.5-Math-7B", 8, True, 3.54, 0.06),
    ],
)
def test_updates_were_measured(model, rows, is_checkpointed, seconds, off):
    work = replace(PAPER, trained_rows=rows, updates=1, prompt=64, length=3072, is_checkpointed=is_checkpointed)
    assert update(SHAPES[model], Fit(OURS, work, 1, ()), ONE).seconds == pytest.approx(seconds, rel=off)


def test_other_engines_and_gpus_were_not_measured():
    verl = Fit(Layout("verl", "FSDP2", 1), PAPER, 1, ())
    vllm = Fit(OURS, replace(PAPER, vllm_memory=0.4), 1, ())
    for found, kind in ((verl, "H200"), (Fit(OURS, PAPER, 1, ()), "H100"), (vllm, "A100")):
        assert efficiency(found, kind, "decode") == efficiency(found, kind, "mfu") == ASSUMED


def test_traffic_can_be_what_an_update_waits_for():
    work = replace(PAPER, trained_rows=512, sampled_rows=1024, update_rows=64, is_checkpointed=True, micro_batch=1)
    machines, within = (make_cluster("H100", gpus=64 // n, nodes=n, memory_gib=80) for n in (8, 1))
    found = fit(LARGE, work, Layout("verl", "FSDP2", 64, 8), machines.memory)
    # 8 updates of one micro-batch: 8 bytes · 70.55e9 · 63/64 / 50e9 = 11.11 s each;
    # FLOPs: 8 · 70.55e9 · 512 · 1736 / (64 · 0.35 · 989e12) = 22.6 s
    seconds = pytest.approx(8 * 11.112, rel=1e-3)
    assert update(LARGE, found, machines)[1:] == (seconds, "FSDP2's traffic between machines")
    assert update(LARGE, found, within)[1:] == (pytest.approx(22.65, rel=1e-3), "FLOPs")
    # all weights to every GPU, 2 · 70.55e9 · 63/64 / 50e9, and an eighth written, 2 · 70.55e9 / 8 / 3.35e12
    assert sync(LARGE, found, machines).seconds == pytest.approx(2.7781 + 0.0053, rel=1e-3)
    # DDP sums gradients once per update: 8 · 2 · 4 W · 7/8 / 450e9
    ddp = Fit(Layout("trl", "DDP", 8), replace(work, length=1, prompt=1), 1, ())
    assert update(SMALL, ddp, within)[1:] == (pytest.approx(56 * W / 450e9), "DDP's traffic between GPUs")


def test_what_vllm_draws_is_scored_and_vllm_given_weights():
    ours, vllm = (Fit(OURS, replace(PAPER, vllm_memory=share), 1, ()) for share in (None, 0.4))
    # 256 completions are scored after they are drawn, and 7/8 of the 128 trained again, all but the first update's:
    # 1,536 tokens and a prompt of 200, which 16 rows of a pass share when they are trained
    drawn, trained = 256 * (1536 + 200), 112 * (1536 + 200 / 16)
    assert scoring(SMALL, vllm, ONE).seconds == pytest.approx(
        (drawn + trained) / trained * scoring(SMALL, ours, ONE).seconds
    )
    assert (sync(SMALL, ours, ONE).seconds, sync(SMALL, vllm, ONE).seconds) == (0, pytest.approx(2 * W / 4.8e12))


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 16384), st.floats(0.01, 1))
def test_every_completion_is_written(completions, at_once, longest, share):
    at_once, mean = min(completions, at_once), share * longest
    tokens_S, rows_S, _ = occupancy(completions, at_once, mean, longest)
    assert tokens_S @ rows_S == pytest.approx(completions * mean)
    assert (tokens_S >= 0).all()
    assert rows_S.max() <= at_once * 1.01


def test_a_rollout_ends_with_its_longest_completion():
    # the longest of 256 that end after 100 tokens on average: 100 (1 + 1/2 + … + 1/256) = 612 tokens, not 3,072
    assert occupancy(256, 256, 100, 3072)[0].sum() == pytest.approx(612, rel=0.01)
    assert occupancy(1, 1, 100, 3072)[0].sum() == pytest.approx(100)
    # (1 − e^−x) / x = 1536 / 3072 at x = 1.59362; ∫ S t dt = (1 − e^−x (1 + x)) · 3072² / x² = 1,757,600 in 1,536 tokens
    assert ending_rate(1536, 3072) == pytest.approx(1.59362 / 3072, rel=1e-5)
    assert occupancy(64, 64, 1536, 3072)[2][0] == pytest.approx(1_757_600 / 1536, rel=1e-3)


@given(works(), st.integers(0, 3), st.sampled_from(sorted(GPUS)), st.floats(0, 2000))
def test_longer_completions_never_take_less_time(work, place, kind, more):
    cluster = make_cluster(kind, gpus=4, nodes=1, memory_gib=None)
    layout = layouts(cluster)[place]
    before, after = (
        best_fit(SMALL, replace(work, max_tokens=9000, length=length), cluster, layout).seconds
        for length in (work.length, work.length + more)
    )
    assert after >= before * (1 - 1e-12)


def test_a_kind_that_is_not_given_follows_from_the_memory():
    kinds = {None: "H200", 141: "H200", 139: "H200", 80: "H100", 79: "H100", 96: "H100", 40: "A100-40", 24: "A100-40"}
    for memory, kind in kinds.items():
        found = make_cluster(None, gpus=8, nodes=1, memory_gib=memory)
        assert (found.kind, found.is_kind_assumed, found.memory) == (kind, True, (memory or 139) * GIB)
        named = make_cluster("a100", gpus=8, nodes=1, memory_gib=memory)
        assert (named.kind, named.is_kind_assumed, named.memory) == ("A100", False, (memory or 79) * GIB)
    for memory in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="--gpu-memory: is GiB of one GPU"):
            make_cluster("H100", gpus=1, nodes=1, memory_gib=memory)
