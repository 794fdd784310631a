"""What a run takes of GPUs: weights, memory by part, seconds by phase, and which engine fits."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from scrl.config import build_config
from scrl.errors import ConfigError, DataError
from scrl.planning import step_time
from scrl.planning.capacity import (
    GIB,
    Fit,
    Layout,
    Work,
    activation_bytes,
    fit,
    least_memory,
    logit_bytes,
    needed,
    parts,
    row_bytes,
    smaller,
    trained_bytes,
)
from scrl.planning.occupancy import ending_rate, occupancy
from scrl.planning.shapes import SHAPES, read_shape, shape_of
from scrl.planning.sizing import ON_MANY, Way, fits_of, make_sizing, num_questions, recommended, work_of
from scrl.planning.step_time import (
    GPUS,
    Efficiency,
    basis,
    make_cluster,
    provenance,
    rollout,
    scoring,
    step_seconds,
    sync,
    update,
)
from scrl.planning.ways_out import larger_clusters, ways_out
from scrl.policy.fused_token_scores import CHUNK_ELEMENTS, block_rows
from scrl.recipes.catalogue import EXPERIMENTS
from scrl.recipes.paper_cells import MODELS

SMALL = SHAPES["Qwen/Qwen2.5-3B"]
W = 3_085_938_688
PAPER = Work(
    questions=8, sampled=256, trained=128, updates=8, prompt=200, length=1536, max_tokens=3072, micro_batch=16,
    sampler_rows=512,
)  # fmt: skip
EVEN = replace(PAPER, max_tokens=1536)
"""All completions are as long as they may be."""
ONE = make_cluster("H200", gpus=1, nodes=1, memory_gib=None)
EIGHT = make_cluster("H200", gpus=8, nodes=1, memory_gib=80)


MEASURED = dict(step_time.MEASURED)


@pytest.fixture(scope="module", autouse=True)
def assumed_efficiencies():
    """What is measured one day must not change what is worked out by hand here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_time, "MEASURED", {})
        yield


def config(**changes):
    base = {"model": "Qwen/Qwen2.5-3B", "questions": "minerva", "sampling": {"max_tokens": 3072}}
    return build_config(base | changes)


def run_by(engine, **changes):
    return Fit(Layout(engine, "none", 1), replace(PAPER, **changes), 1, ())


def sizes(found):
    return {part.name: part.bytes for part in found}


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_weights_of_a_3b_model_by_hand():
    # Q, K, V: 2048 · (16 + 2 · 2) · 128 and as many biases as columns; O: 2048 · 2048; MLP: 3 · 2048 · 11008; 2 norms
    layer = 2048 * 2560 + 2560 + 2048 * 2048 + 3 * 2048 * 11008 + 2 * 2048
    assert (SMALL.layer_weights, layer) == (77_076_992, 77_076_992)
    # 36 layers, one embedding of 151,936 words, the last norm
    assert SMALL.num_weights == 36 * layer + 151_936 * 2048 + 2048 == W
    assert SMALL.cache_bytes(2) == 2 * 36 * 2 * 128 * 2 == 36_864  # keys and values, 36 layers, 2 heads of 128
    # r = 16: Q, O 2 · (2048 + 2048), K, V 2 · (2048 + 256), MLP 3 · (2048 + 11008)
    assert SMALL.adapter_weights(16) == 36 * 16 * (8192 + 4608 + 39_168) == 29_933_568


def test_weights_are_those_that_are_published():
    counts = {name: shape.num_weights for name, shape in SHAPES.items()}
    assert counts == {
        "Qwen/Qwen2.5-0.5B": 494_032_768,
        "Qwen/Qwen2.5-1.5B": 1_543_714_304,
        "Qwen/Qwen2.5-3B": W,
        "Qwen/Qwen2.5-Math-7B": 7_615_616_512,
        "Qwen/Qwen2.5-72B": 72_706_203_648,
        "Qwen/Qwen3-4B": 4_022_468_096,
        "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
        "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
        "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
    }
    assert set(MODELS.values()) <= SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_weights_are_those_that_transformers_counts(name, tmp_path):
    shape = replace(SHAPES[name], layers=2)  # all layers are alike
    kind = Qwen2Config if "Qwen2" in name else Qwen3Config if "Qwen3" in name else LlamaConfig
    described = kind(
        num_hidden_layers=2,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        intermediate_size=shape.mlp,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.is_tied,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described)
    assert sum(weight.numel() for weight in model.parameters()) == shape.num_weights
    described.save_pretrained(tmp_path)
    assert read_shape(tmp_path / "config.json") == shape


def test_a_folder_needs_no_weights_and_an_unknown_model_is_refused(tmp_path):
    assert shape_of("embedded").num_weights == 757_888
    wrong = {
        "{": "is not JSON",
        "[]": "is of the type None",
        '{"model_type": "gpt2"}': "is of the type 'gpt2'; sizes are known for llama, mistral, qwen2, qwen3",
        '{"model_type": "llama", "attention_bias": true}': "has biases",
        '{"model_type": "llama", "num_attention_heads": 2, "hidden_size": 8}': "does not say 'num_hidden_layers'",
        '{"model_type": "llama", "num_attention_heads": "many"}': "is no number",
    }
    for text, reason in wrong.items():
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DataError, match=reason):
            shape_of(str(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(DataError, match="cannot be read"):
        shape_of(str(tmp_path))
    with pytest.raises(ConfigError, match=r"no shape of that name is known\. Did you mean 'Qwen/Qwen2\.5-3B'\?"):
        shape_of("Qwen/Qwen2.5-3B-it")


def test_defaults_of_a_config_are_filled_in(tmp_path):
    values = {
        "model_type": "mistral", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 10,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    shape = shape_of(str(tmp_path))
    assert (shape.kv_heads, shape.head_size, shape.is_tied) == (2, 4, False)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_of_the_embedded_engine_by_hand():
    layout = Layout("embedded", "none", 1)
    found = sizes(parts(SMALL, PAPER, layout, rows=256))
    assert found["working weights, bfloat16"] == 2 * W
    assert found["master weights, float32"] == 4 * W
    assert found["gradients"] == 6 * W  # float32, and those of the last micro-batch in bfloat16
    assert found["optimizer"] == 8 * W
    assert found["KV cache"] == 256 * (200 + 3072) * 36_864  # room for the longest
    # 16 · 3,072 completion tokens have more than 2²⁹ logits: a block of those in float32, their gradients in bfloat16,
    # and the sum of the head's gradient in float32
    assert found["logits"] == (4 + 2) * 2**29 + 4 * 151_936 * 2048 == 4_465_885_184
    # a layer: 16 · 2048, 2 · (3 · 16 + 2 · 2) · 128, 8 · 11008 bytes a token
    assert activation_bytes(SMALL, is_checkpointed=False) == 36 * (32_768 + 13_312 + 88_064)
    assert activation_bytes(SMALL, is_checkpointed=True) == 36 * 2 * 2048 + (32_768 + 13_312 + 88_064)
    assert found["activations"] == 16 * (200 + 3072) * 36 * 134_144
    assert "start model, for KL" not in found
    # sampling needs no gradients, training no cache
    assert needed(parts(SMALL, PAPER, layout, 256)) == (
        14 * W + found["KV cache"] + 2 * GIB,
        20 * W + found["activations"] + found["logits"] + 2 * GIB,
    )


def test_logits_of_the_embedded_engine_by_hand():
    layout = Layout("embedded", "none", 1)
    head = 4 * 151_936 * 2048
    for changes, scored in (
        ({"micro_batch": 1}, 3072),  # 3,533 tokens would fill a block: prompts have no logits
        ({"micro_batch": 2}, None),
        ({"micro_tokens": 3400}, 3200),  # one completion of 3,272 tokens, or as many of fewer
        ({"micro_batch": 1, "adapter_rank": 16}, 3072),
    ):
        work = replace(PAPER, **changes)
        block = 2**29 if scored is None else scored * 151_936
        expected = 6 * block + (0 if work.adapter_rank else head)  # a frozen head has no gradient
        assert sizes(parts(SMALL, work, layout, rows=1))["logits"] == expected, changes


def test_the_block_of_logits_that_is_counted_is_the_largest_there_is():
    for tokens in (1, 200, 3072, 3533, 49_152):
        rows = min(tokens, block_rows(tokens, SMALL.vocabulary, CHUNK_ELEMENTS))
        work = replace(PAPER, micro_batch=1, max_tokens=tokens, adapter_rank=16)
        assert 6 * rows * SMALL.vocabulary <= logit_bytes(SMALL, work, Layout("embedded", "none", 1))


def test_bytes_of_a_trained_weight():
    table = {
        ("float32", "float32", 2, True): (4, 6, 8),
        ("split", "float32", 2, True): (2, 2, 8),
        ("split", "bfloat16", 2, False): (2, 4, 4),
        ("float32", "bfloat16", 2, True): (4, 2, 4),
        ("float32", "float32", 4, False): (0, 4, 8),  # float32 weights are the masters
        ("split", "bfloat16", 4, True): (0, 4, 4),
    }
    for (*settings, is_one_pass), expected in table.items():
        assert trained_bytes(*settings, is_one_pass=is_one_pass) == expected


def test_a_lean_optimizer_takes_fewer_bytes():
    layout, lean = Layout("embedded", "none", 1), replace(PAPER, masters="split", state="bfloat16")
    found = sizes(parts(SMALL, lean, layout, rows=1))  # 16 completions an update, in one pass
    assert (found["master weights, what bfloat16 lacks"], found["optimizer, bfloat16"]) == (2 * W, 4 * W)
    assert found["gradients"] == 2 * W
    assert "master weights, float32" not in found
    summed = sizes(parts(SMALL, replace(lean, micro_batch=15), layout, rows=1))  # a sum of two passes
    assert summed["gradients"] == 4 * W


def test_tokens_of_a_pass_are_counted_where_they_are_set():
    layout = Layout("embedded", "none", 1)
    a_token = activation_bytes(SMALL, is_checkpointed=False)
    for set_to, tokens, rows in ((10_000, 10_000, 3), (1000, 3272, 1), (10**6, 16 * 3272, 16)):  # 10,000 // 3,272 is 3
        work = replace(PAPER, micro_tokens=set_to)
        assert sizes(parts(SMALL, work, layout, rows=1))["activations"] == tokens * a_token
        assert layout.micro_rows(work) == rows
    tried = [less.micro_tokens for less in smaller(replace(PAPER, micro_tokens=10_000, is_checkpointed=True))]
    assert tried == [10_000, 5000, 2500]  # one completion is taken whole
    # verl has as many in the pass that only looks
    assert Layout("verl", "FSDP2", 8).score_rows(replace(PAPER, micro_tokens=10_000)) == 3


def test_vllm_within_the_embedded_engine_has_weights_and_a_share_of_the_gpu():
    layout, work = Layout("embedded", "none", 1), replace(PAPER, vllm_memory=0.4, micro_batch=4)
    found = fit(SMALL, work, layout, ONE.memory)
    memory = sizes(found.parts)
    assert memory["sampler's weights, bfloat16"] == 2 * W
    assert memory["KV cache"] == pytest.approx(0.4 * 139 * GIB)
    assert found.rows == 256  # 256 · 1,736 tokens · 36,864 bytes are 15.3 GiB
    # it holds the masters and the optimizer at the same time, and gives everything back to train
    sampling, training = needed(found.parts)
    assert sampling == pytest.approx(16 * W + 0.4 * 139 * GIB + 6 * GIB)
    assert training == pytest.approx(20 * W + memory["activations"] + memory["logits"] + 6 * GIB)
    few = fit(SMALL, replace(work, vllm_memory=0.01), layout, ONE.memory)
    assert few.rows == int(0.01 * 139 * GIB // (1736 * 36_864)) == 23
    assert fit(SMALL, replace(work, vllm_memory=0.7), layout, ONE.memory) is None  # 49.4 and 97.3 GiB


def test_memory_of_the_other_engines_by_hand():
    work = replace(PAPER, has_reference=True)
    ddp = sizes(parts(SMALL, work, Layout("trl", "DDP", 8), rows=32))
    assert ddp["master weights, float32"] == ddp["start model, for KL"] == 4 * W
    assert ddp["gradients"] == 8 * W  # and in DDP's buckets
    assert ddp["logits"] == 2 * 3072 * 151_936 * 8  # 16 completions of an update on 8 GPUs
    sharded = sizes(parts(SMALL, work, Layout("verl", "FSDP2", 8, tensor=2), rows=64))
    assert sharded["master weights, float32"] == sharded["start model, for KL"] == sharded["gradients"] == 4 * W / 8
    assert sharded["optimizer"] == 8 * W / 8
    # the embedding with the last norm, two layers and the gradient of one
    assert sharded["working weights, bfloat16"] == 2 * (151_936 * 2048 + 2048 + 3 * 77_076_992)
    assert sharded["sampler's weights, bfloat16"] == 2 * W / 2
    assert sharded["KV cache"] == 64 * (200 + 1536) * 36_864 / 2  # pages for what is written
    assert sharded["logits"] == 16 * 3072 * 151_936 * 8  # π_old is computed 16 completions at a time
    adapter = sizes(parts(SMALL, replace(work, adapter_rank=16), Layout("verl", "FSDP2", 8), rows=1))
    assert "start model, for KL" not in adapter  # the adapter is switched off
    assert adapter["optimizer"] == 8 * 29_933_568 / 8


def test_trl_keeps_its_sampler_while_it_trains_and_verl_does_not():
    for engine, stays in (("trl", True), ("verl", False)):
        found = parts(SMALL, PAPER, Layout(engine, "FSDP2", 8), rows=4)
        assert {part.in_training for part in found if part.name.startswith(("sampler", "KV"))} == {stays}
        assert {part.in_sampling for part in found if part.name.startswith(("sampler", "KV"))} == {True}


def test_rows_are_as_many_as_memory_allows():
    layout = Layout("embedded", "none", 1)
    work = replace(PAPER, micro_batch=1, is_checkpointed=True)
    row = row_bytes(SMALL, work, layout)
    room = 14 * W + 2 * GIB
    most = needed(parts(SMALL, work, layout, 0))[1]
    assert fit(SMALL, work, layout, room + 200.5 * row).rows == 200
    assert fit(SMALL, work, layout, room + 300 * row).rows == 256  # there are no more
    assert fit(SMALL, work, layout, most - 1) is None
    assert fit(SMALL, work, layout, room) is None


def test_less_memory_is_tried_in_an_order_that_costs_least():
    tried = [(less.micro_batch, less.is_checkpointed) for less in smaller(replace(PAPER, micro_batch=5))]
    assert tried == [(5, False), (2, False), (1, False), (5, True), (2, True), (1, True)]
    assert len(smaller(replace(PAPER, micro_batch=5, is_checkpointed=True))) == 3


WORKS = st.builds(
    Work,
    questions=st.just(8),
    sampled=st.integers(1, 4096),
    trained=st.integers(8, 1024),
    updates=st.integers(1, 8),
    prompt=st.integers(1, 512),
    length=st.floats(1, 1000),
    max_tokens=st.integers(1000, 8192),
    micro_batch=st.integers(1, 32),
    sampler_rows=st.integers(1, 512),
    is_checkpointed=st.booleans(),
    has_reference=st.booleans(),
    adapter_rank=st.sampled_from([None, 16]),
    masters=st.sampled_from(["float32", "split"]),
    state=st.sampled_from(["float32", "bfloat16"]),
    micro_tokens=st.none() | st.integers(1, 100_000),
    vllm_memory=st.none() | st.floats(0.01, 0.9),
)


@given(st.sampled_from(sorted(SHAPES)), WORKS, st.sampled_from(ON_MANY[1:]), st.integers(1, 64), st.integers(1, 64))
def test_more_gpus_never_need_more_memory_each(name, work, way, fewer, more):
    few, many = Layout(*way, fewer), Layout(*way, fewer + more)
    before, after = (needed(parts(SHAPES[name], work, layout, layout.rows(work))) for layout in (few, many))
    assert after[0] <= before[0]
    assert after[1] <= before[1]


@given(WORKS, st.sampled_from(ON_MANY))
def test_the_least_memory_is_where_it_begins_to_fit(work, way):
    layout = Layout(*way, 1 if way.engine == "embedded" else 4)
    least = least_memory(SMALL, work, layout)
    assert fit(SMALL, work, layout, least * 1.000001) is not None
    assert fit(SMALL, work, layout, least * 0.999999) is None


# --- time -------------------------------------------------------------------------------------------------------------


def test_seconds_of_the_embedded_engine_by_hand():
    found = fit(SMALL, replace(EVEN, micro_batch=4), Layout("embedded", "none", 1), ONE.memory)
    assert found.rows == 256
    # weights: 2 W / 4.8e12 = 1.286 ms; FLOPs: 2 W · 256 / 989e12 = 1.598 ms, which is more; KV: 256 rows of 200 + 768
    # tokens · 36,864 / 4.8e12 = 1.903 ms. Times 1,536 tokens, over 0.35: (1.598 + 1.903) ms · 1536 / 0.35 = 15.36 s
    phase = rollout(SMALL, found, ONE)
    assert phase.seconds == pytest.approx(15.364, abs=0.001)
    assert phase.limit == "reading the KV cache"
    # 6 W · 128 · 1736 tokens / (0.35 · 989e12) = 11.886 s
    assert update(SMALL, found, ONE).seconds == pytest.approx(11.886, abs=0.001)
    assert update(SMALL, found, ONE).limit == "FLOPs"
    assert sync(SMALL, found, ONE).seconds == 0
    # and a third of the update's for π_old, of 7 updates in 8: 3.962 · 7/8 = 3.467 s
    assert step_seconds(SMALL, found, ONE) == pytest.approx(15.364 + 11.886 + 3.467, abs=0.002)


def test_half_the_rows_at_a_time_read_the_weights_twice():
    layout = Layout("embedded", "none", 1)
    whole, half = (fit(SMALL, replace(EVEN, sampler_rows=n, micro_batch=1), layout, ONE.memory) for n in (256, 128))
    # 128 rows: FLOPs 0.799 ms < weights 1.286 ms; twice (1.286 + 0.951) ms
    assert rollout(SMALL, half, ONE).seconds == pytest.approx(2 * (1.2858 + 0.9516) * 1e-3 * 1536 / 0.35, rel=1e-3)
    assert rollout(SMALL, half, ONE).limit == "reading the weights"
    assert rollout(SMALL, half, ONE).seconds > rollout(SMALL, whole, ONE).seconds


def test_few_rows_are_left_at_the_end():
    work = replace(PAPER, sampled=64, micro_batch=1)
    found = fit(SMALL, work, Layout("embedded", "none", 1), ONE.memory)
    # (1 − e^−x) / x = 1536 / 3072 at x = 1.59362, λ = x / 3072. The weights are read 3,072 times, 1.2858 ms each, and 64
    # rows take no longer to compute: 3.950 s. ∫ S (200 + t) dt = 200 · 1536 + (1 − e^−x (1 + x)) / λ² = 307,200 + 1,757,600
    # tokens are read of each row: · 64 · 36,864 / 4.8e12 = 1.015 s
    phase = rollout(SMALL, found, ONE)
    assert phase.seconds == pytest.approx((3.950 + 1.015) / 0.35, rel=1e-3)
    assert phase.limit == "reading the weights"


def test_a_step_that_was_measured(monkeypatch):
    monkeypatch.setattr(step_time, "MEASURED", MEASURED)
    # benchmarks/h200.txt, gpu_step.py: rollout 9.35 s, update 7.2 s; 372,624 tokens in 512 completions
    work = replace(PAPER, sampled=512, trained=256, length=728, micro_tokens=16384)
    shape = SHAPES["Qwen/Qwen2.5-1.5B"]
    found = fit(shape, work, Layout("embedded", "none", 1), ONE.memory)
    assert rollout(shape, found, ONE).seconds == pytest.approx(9.35, rel=0.1)
    assert scoring(shape, found, ONE).seconds + update(shape, found, ONE).seconds == pytest.approx(7.2, rel=0.2)
    assert step_seconds(shape, found, ONE) == pytest.approx(16.7, rel=0.1)


@given(
    completions=st.integers(1, 4096),
    at_once=st.integers(1, 4096),
    longest=st.integers(1, 16384),
    share=st.floats(0.01, 1),
)
def test_every_completion_is_written(completions, at_once, longest, share):
    at_once, mean = min(completions, at_once), share * longest
    when = occupancy(completions, at_once, mean, longest)
    assert when.tokens_S @ when.rows_S == pytest.approx(completions * mean)
    assert (when.tokens_S >= 0).all()
    assert when.rows_S.max() <= at_once * 1.01
    rate = ending_rate(mean, longest)
    assert -np.expm1(-rate * longest) == pytest.approx(mean * rate, rel=1e-6)


def test_a_rollout_ends_with_its_longest_completion():
    # the longest of 256 that end after 100 tokens on average: 100 (1 + 1/2 + … + 1/256) = 612 tokens, not the 3,072 allowed
    assert occupancy(256, 256, 100, 3072).tokens_S.sum() == pytest.approx(612, rel=0.01)
    assert occupancy(1, 1, 100, 3072).tokens_S.sum() == pytest.approx(100)


def test_traffic_between_machines_can_be_what_an_update_waits_for():
    large = SHAPES["meta-llama/Llama-3.1-70B-Instruct"]
    work = replace(PAPER, trained=512, sampled=1024, is_checkpointed=True)
    cluster = make_cluster("H100", gpus=8, nodes=8, memory_gib=80)
    found = fit(large, replace(work, micro_batch=1), Layout("verl", "FSDP2", 64, 8), cluster.memory)
    # 8 updates of one micro-batch: 8 bytes · 70.55e9 · 63/64 / 50e9 = 11.11 s each;
    # FLOPs: 8 · 70.55e9 · 512 · 1736 / (64 · 0.35 · 989e12) = 22.6 s
    phase = update(large, found, cluster)
    assert phase.seconds == pytest.approx(8 * 11.112, rel=1e-3)
    assert phase.limit == "FSDP2's traffic between machines"
    within = make_cluster("H100", gpus=64, nodes=1, memory_gib=80)
    assert update(large, found, within).limit == "FLOPs"
    assert update(large, found, within).seconds == pytest.approx(22.65, rel=1e-3)
    # all weights to every GPU, 2 · 70.55e9 · 63/64 / 50e9, and an eighth written, 2 · 70.55e9 / 8 / 3.35e12
    assert sync(large, found, cluster).seconds == pytest.approx(2.7781 + 0.0053, rel=1e-3)


def test_gradients_of_ddp_are_summed_once_an_update():
    layout = Layout("trl", "DDP", 8)
    short = replace(PAPER, length=1, prompt=1, micro_batch=1, is_checkpointed=True)
    found = fit(SMALL, short, layout, ONE.memory)
    # 8 updates · 2 · 4 W · 7/8 / 450e9
    assert update(SMALL, found, EIGHT).seconds == pytest.approx(8 * 8 * W * 7 / 8 / 450e9)
    assert update(SMALL, found, EIGHT).limit == "DDP's traffic between GPUs"


@given(WORKS, st.sampled_from(ON_MANY), st.sampled_from(sorted(GPUS)), st.floats(0, 2000))
def test_longer_completions_never_take_less_time(work, way, kind, more):
    cluster = make_cluster(kind, gpus=4, nodes=1, memory_gib=None)
    longer = replace(work, length=work.length + more, max_tokens=9000)
    before, after = (
        min((step_seconds(SMALL, each, cluster) for each in fits_of(SMALL, each_work, cluster, way)[0]), default=1e99)
        for each_work in (replace(work, max_tokens=9000), longer)
    )
    assert after >= before * (1 - 1e-12)


def test_what_was_measured_is_said(monkeypatch):
    whos = {"vllm", *(engine for engine, _ in ON_MANY)}
    assert MEASURED.keys() <= {(who, k, w) for who in whos for k in GPUS for w in ("decode", "mfu")}
    assert all(each.measured_on and 0 < each.share < 1 for each in MEASURED.values())
    decoded, trained = Efficiency(0.7, "0.5B, 512 rows"), Efficiency(0.4, "0.5B, 8 updates")
    monkeypatch.setattr(step_time, "MEASURED", {("embedded", "H200", "decode"): decoded})
    half = "estimated (half assumed efficiencies: decode 0.70, 0.5B, 512 rows; mfu 0.35, assumed)"
    assert provenance(run_by("embedded"), "H200") == half
    both = {("verl", "H100", "decode"): decoded, ("verl", "H100", "mfu"): trained}
    monkeypatch.setattr(step_time, "MEASURED", step_time.MEASURED | both)
    whole = "estimated (measured efficiencies: decode 0.70, 0.5B, 512 rows; mfu 0.40, 0.5B, 8 updates)"
    assert provenance(run_by("verl"), "H100") == whole
    unknown = "estimated (assumed efficiencies)"
    assert provenance(run_by("embedded"), "A100") == provenance(run_by("verl"), "H200") == unknown
    found = fit(SMALL, replace(EVEN, micro_batch=4), Layout("embedded", "none", 1), ONE.memory)
    assert rollout(SMALL, found, ONE).seconds == pytest.approx(15.364 / 2, abs=0.001)


def test_what_vllm_draws_is_scored_and_vllm_given_weights(monkeypatch):
    monkeypatch.setattr(step_time, "MEASURED", MEASURED)
    ours, vllm = (run_by("embedded", **changes) for changes in ({}, {"vllm_memory": 0.4}))
    assert basis(ours, "H200") == basis(vllm, "H200") == "measured"
    assert "decode 0.25, Qwen2.5-3B's shape, 256 completions of 128 tokens; mfu 0.46, " in provenance(vllm, "H200")
    assert basis(vllm, "H100") == "assumed"
    ours, vllm = (
        fit(SMALL, replace(EVEN, micro_batch=4, vllm_memory=share), Layout("embedded", "none", 1), ONE.memory)
        for share in (None, 0.4)
    )
    assert rollout(SMALL, vllm, ONE).seconds == pytest.approx(
        15.364 * 0.35 / 0.25, rel=1e-4
    )  # 0.35 as worked out above
    # 256 completions are scored after they are drawn, and 7/8 of the 128 that are trained again, all but the first update's
    assert scoring(SMALL, vllm, ONE).seconds == pytest.approx((256 + 112) / 112 * scoring(SMALL, ours, ONE).seconds)
    assert sync(SMALL, vllm, ONE).seconds == pytest.approx(2 * W / 4.8e12)


def test_machines_are_checked():
    with pytest.raises(ConfigError, match=r"--kind: there are no numbers for 'H10'\. Did you mean 'H100'\?"):
        make_cluster("h10", gpus=1, nodes=1, memory_gib=None)
    for memory in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="--gpu-memory: is GiB of one GPU"):
            make_cluster("H100", gpus=1, nodes=1, memory_gib=memory)


@pytest.mark.parametrize(
    ("memory", "kind"),
    [
        (None, "H200"),
        (141, "H200"),
        (139, "H200"),
        (80, "H100"),
        (79, "H100"),
        (96, "H100"),
        (40, "A100-40"),
        (24, "A100-40"),
    ],
)
def test_a_kind_that_is_not_given_follows_from_the_memory(memory, kind):
    found = make_cluster(None, gpus=8, nodes=1, memory_gib=memory)
    assert (found.kind, found.is_kind_assumed) == (kind, True)
    assert found.memory == (memory or 139) * GIB
    given = make_cluster("a100", gpus=8, nodes=1, memory_gib=memory)
    assert (given.kind, given.is_kind_assumed, given.memory) == ("A100", False, (memory or 79) * GIB)


# --- the choice -------------------------------------------------------------------------------------------------------


def test_a_step_is_counted_from_the_settings():
    work = work_of(config(completions=32, trained=16), None)
    assert (work.sampled, work.trained, work.updates, work.length) == (256, 128, 8, 1536)
    assert work.tokens_sampled == 256 * 1536
    assert work.tokens_trained == 128 * (200 + 1536)
    both = work_of(config(method="co-rewarding", questions_per_update=3), None)  # each question twice
    assert (both.questions, both.sampled, both.updates) == (16, 512, 6)
    assert work_of(config(dynamic_sampling={"rounds": 2}), None).sampled == 3 * 256
    assert work_of(config(questions_per_step=64), 30).questions == 30
    assert make_sizing(config(questions="aime24", questions_per_step=64), ONE).work.questions == 30
    assert work_of(config(prompt={"max_tokens": 90}), None).prompt == 90
    assert work_of(config(), None, length=3072).length == 3072
    lean = work_of(config(optimizer={"masters": "split", "state": "bfloat16"}, compute={"micro_tokens": 9000}), None)
    assert (lean.masters, lean.state, lean.micro_tokens, lean.vllm_memory) == ("split", "bfloat16", 9000, None)
    assert work_of(config(compute={"sampler": "vllm", "vllm_memory": 0.3}), None).vllm_memory == 0.3


@pytest.mark.parametrize("length", [0, -5, 3073, float("nan")])
def test_a_mean_length_lies_within_the_longest(length):
    with pytest.raises(ConfigError, match="--length: the mean completion has more than 0 and at most 3072 tokens"):
        work_of(config(), None, length=length)


def test_questions_are_counted_without_a_network(tmp_path):
    (tmp_path / "mine.txt").write_text("1 + 1?\n2 + 2?\n")
    assert num_questions(config(questions=str(tmp_path / "mine.txt"))) == 2
    assert num_questions(config(questions="arithmetic:easy:train:7")) == 7
    assert num_questions(config(questions="math500")) == 500
    assert num_questions(config(questions="math500", limit=9)) == 9
    assert num_questions(config(questions="math500:5")) is None  # nobody counted its levels
    assert num_questions(config(questions="owner/name")) is None
    with pytest.raises(DataError, match="there is no such file"):
        num_questions(config(questions="nowhere.txt"))


def test_one_gpu_takes_the_embedded_engine_and_eight_take_another():
    one = make_sizing(config(), ONE)
    assert one.best.way == Way("embedded", "none")
    assert one.best.fit.work.micro_batch == 4  # 16 · 3,272 tokens would not fit
    many = make_sizing(config(), EIGHT)
    assert many.best.way.engine in ("trl", "verl")
    assert many.best.seconds < min(option.seconds for option in one.options)
    assert max(needed(many.best.fit.parts)) <= 80 * GIB


def test_a_simpler_engine_wins_where_it_is_about_as_fast():
    options = make_sizing(config(), EIGHT).options
    ddp, verl = (next(o for o in options if o.way == way) for way in (("trl", "DDP"), ("verl", "FSDP2")))
    assert recommended((replace(ddp, seconds=10.9), replace(verl, seconds=10))).way == ddp.way
    assert recommended((replace(ddp, seconds=11.1), replace(verl, seconds=10))).way == verl.way
    assert recommended((replace(ddp, fit=None, seconds=float("inf")),)) is None


def test_engines_refuse_what_they_would_refuse():
    def refusals(**changes):
        found = make_sizing(config(**changes), EIGHT)
        return {str(option.way): option.refusal for option in found.options}

    assert set(refusals().values()) == {None}
    assert "8 do not divide the 30 questions" in refusals(questions="aime25")["trl, DDP"]
    assert refusals(questions="aime25", drop_last=True)["trl, DDP"] is None
    assert "verl has no mean over pairs" in refusals(preset="official")["verl, FSDP2"]
    assert "cannot be shared out evenly" in refusals(trained=12)["verl, FSDP2"]
    trees = refusals(method="etmr", completions=30)
    assert [way for way, refusal in trees.items() if refusal is None] == ["embedded"]


def test_settings_of_the_embedded_engine_leave_it_alone():
    for changes in (
        {"optimizer": {"masters": "split"}},
        {"optimizer": {"state": "bfloat16"}},
        {"compute": {"sampler": "vllm"}},
    ):
        options = make_sizing(config(**changes), EIGHT).options
        assert [option.way.engine for option in options if option.refusal is None] == ["embedded"], changes
    [alone, *_] = make_sizing(config(method="intuitor", compute={"sampler": "vllm"}), ONE).options
    assert "more of every token (certainty)" in alone.refusal


def test_a_smaller_cache_of_vllm_is_a_way_out():
    sizing = make_sizing(config(compute={"sampler": "vllm", "vllm_memory": 0.7}), ONE)
    assert sizing.best is None
    assert "--compute.vllm-memory 0.35: half the cache would fit (embedded)" in list(ways_out(sizing))


def test_options_of_an_engine_leave_no_choice():
    chosen = config(engine="verl", engine_options={"trainer": {"balance_batch": False}})
    assert [str(option.way) for option in make_sizing(chosen, EIGHT).options] == ["verl, FSDP2"]


def test_what_would_fit_is_said_where_nothing_does():
    large = config(model="meta-llama/Llama-3.1-70B-Instruct")
    cluster = make_cluster("H100", gpus=8, nodes=1, memory_gib=80)
    sizing = make_sizing(large, cluster)
    assert sizing.best is None
    said = list(ways_out(sizing))
    assert "--lora true: an adapter of rank 16 would fit (verl, FSDP2)" in said
    # 16 GPUs: (4 + 4 + 8) · 70.55e9 / 16 bytes are 65.7 GiB already, with 8.7 of gathered layers and 6 of overhead;
    # 16 completions of a question do not divide among 32
    assert "--nodes 4 --questions-per-update 2: 32 such GPUs would hold it (verl, FSDP2)" in said
    # GiB of training: 16 · 70.55e9 / 8 bytes are 131.4; gathered 8.7, activations 5.3, logits 2.9, overhead 6
    assert said[-1] == "GPUs with 155 GiB each (verl, FSDP2)"
    odd = make_sizing(
        config(model=large.model, questions_per_step=32), make_cluster("H100", gpus=8, nodes=8, memory_gib=80)
    )
    assert odd.best is None
    assert next(ways_out(odd)) == "--questions-per-update 4: an update's completions would divide among 64 GPUs"
    none = make_sizing(config(model=large.model), make_cluster("H100", gpus=8, nodes=32, memory_gib=80))
    assert next(ways_out(none)).startswith("more --questions-per-step")


def test_more_gpus_are_first_those_of_one_machine():
    first = make_cluster("H100", gpus=1, nodes=1, memory_gib=24)
    sizes = [(cluster.gpus, cluster.nodes) for cluster in larger_clusters(first)]
    assert sizes == [(2, 1), (4, 1), (8, 1), *((8, nodes) for nodes in (2, 4, 8, 16, 32, 64, 128))]
    assert next(larger_clusters(make_cluster("H100", gpus=6, nodes=2, memory_gib=24))).nodes == 4
    small = make_sizing(config(model="Qwen/Qwen2.5-3B"), first)
    assert [line for line in ways_out(small) if line.startswith("--gpus 4: 4 such GPUs would hold it")]


def test_a_way_out_names_the_engine_that_its_plan_would_choose():
    large = {"model": "meta-llama/Llama-3.1-70B-Instruct", "questions_per_step": 16, "questions_per_update": 8}
    said = list(ways_out(make_sizing(config(**large), make_cluster("H100", gpus=8, nodes=1, memory_gib=80))))
    four = make_sizing(config(**large), make_cluster("H100", gpus=8, nodes=4, memory_gib=80))
    assert four.best.way == Way("verl", "FSDP2")
    assert "--nodes 4: 32 such GPUs would hold it (verl, FSDP2)" in said
    lora = make_sizing(config(**large, lora=True), make_cluster("H100", gpus=8, nodes=1, memory_gib=80))
    assert f"--lora true: an adapter of rank 16 would fit ({lora.best.way})" in said
    sized = make_sizing(config(**large), make_cluster("H100", gpus=8, nodes=1, memory_gib=155))
    assert said[-1] == f"GPUs with 155 GiB each ({sized.best.way})"


def test_a_way_out_goes_with_the_other_settings():
    """Half as many tokens would be fewer than the penalty for long completions begins before their end."""
    long = {"sampling": {"max_tokens": 8192}, "credit": {"overlong_buffer": 5000}}
    tight = make_sizing(config(**long), make_cluster("H100", gpus=1, nodes=1, memory_gib=62), length=6000)
    assert tight.best is None
    assert not [line for line in ways_out(tight) if line.startswith("--sampling.max-tokens")]
    shorter = make_sizing(config(sampling=long["sampling"]), tight.cluster, length=6000)
    assert [line for line in ways_out(shorter) if line.startswith("--sampling.max-tokens 4096")]


def test_long_completions_are_what_does_not_fit():
    tight = make_sizing(config(sampling={"max_tokens": 8192}), make_cluster("H100", gpus=1, nodes=1, memory_gib=62))
    assert tight.best is None
    assert any(line.startswith("--sampling.max-tokens 4096: completions half as long") for line in ways_out(tight))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dtype": "float32"}, "compute.dtype: GPUs' rates"),
        ({"device": "cpu"}, "compute.device: this is a plan for GPUs"),
    ],
)
def test_what_is_no_plan_for_gpus_is_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        make_sizing(config(compute=changes), ONE)


def test_shapes_serve_every_recipe():
    assert {experiment.model for experiment in EXPERIMENTS.values()} <= SHAPES.keys()
