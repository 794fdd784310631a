"""Each Triton kernel against plain torch: on a GPU where there is one, else interpreted (make test-kernels).

Triton decides whether to interpret when it is first imported, so that is set before Python starts.
"""

# ruff: noqa: E402
import os
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

ON_GPU = torch.cuda.is_available()
if not ON_GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU, and kernels are not interpreted: make test-kernels", allow_module_level=True)
pytest.importorskip("triton")

import reference_ops

from scrl.sampling.gpu import attention_kernels, kernels
from scrl.sampling.gpu.decode_step import (
    ALIVE,
    COMPLETION,
    FIELDS,
    LENGTH,
    LIMIT,
    PREFIX,
    PROMPT,
    SUFFIX,
    Completions,
    DecodeState,
    PageTables,
)
from scrl.sampling.gpu.draw_kernels import draw_tokens
from scrl.sampling.gpu.fused_weights import Layer, Linear, Shape
from scrl.sampling.settings import SamplingSettings

pytestmark = [  # Triton's interpreter
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]
DEVICE = "cuda" if ON_GPU else "cpu"
TYPES = [torch.float32, torch.bfloat16]
DOT_TYPES = [torch.float32, torch.bfloat16 if ON_GPU else torch.float16]  # the interpreter cannot multiply bfloat16


def assert_alike(found, expected):
    if expected.dtype == torch.float32:
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        return
    error = (found.float() - expected.float()).abs()  # bfloat16 keeps 8 bits, and the interpreter rounds otherwise
    assert error.mean() < 0.02 * expected.float().abs().mean()
    assert (error <= 0.06 * expected.float().abs().clamp(min=1)).all()


def numbers(*sizes, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize(("rows", "size", "rank"), [(1, 8, 16), (5, 300, 64), (33, 128, 16)])
def test_add_low_rank(rows, size, rank, dtype):
    outputs, lora_B = numbers(rows, size + rank, dtype=dtype), numbers(size, rank, seed=1, dtype=dtype)
    assert_alike(kernels.add_low_rank(outputs, lora_B), reference_ops.add_low_rank(outputs, lora_B))
    assert_alike(
        kernels.silu_and_mul(outputs, lora_B), reference_ops.silu_and_mul(outputs, lora_B)
    )  # half of it is the gate


def shape_of(heads, kv_heads, head_size):
    return Shape(1, heads, kv_heads, head_size, heads * head_size, 48, 50, head_size**-0.5, 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 8), (3, 96), (5, 1000)])
def test_add_rms_norm(rows, size, dtype):
    hidden, residual, weight = (numbers(*s, seed=n, dtype=dtype) for n, s in enumerate([(rows, size)] * 2 + [(size,)]))
    for before in (None, residual):
        results = (ops.add_rms_norm(hidden, before, weight, 1e-6) for ops in (kernels, reference_ops))
        for found, expected in zip(*results, strict=True):
            assert_alike(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 8), (3, 1030)])
def test_silu_and_mul(rows, size, dtype):
    gate_up = numbers(rows, 2 * size, dtype=dtype)
    assert_alike(kernels.silu_and_mul(gate_up), reference_ops.silu_and_mul(gate_up))


def paged_rows(prefixes, suffixes, groups, shape, page=16, dtype=torch.float32, has_teams=True):
    """Rows with prompts of `prefixes[groups[r]]` tokens and `suffixes[r]` tokens of their own, on shuffled pages."""
    rng = np.random.default_rng(0)
    needed = [-(-length // page) for length in prefixes], [-(-(length + 1) // page) for length in suffixes]
    num_pages = 1 + sum(needed[0]) + sum(needed[1])
    free = list(rng.permutation(np.arange(1, num_pages)))
    slots = len(suffixes) + 2  # the last two slots are empty
    prompt_table, suffix_table = np.zeros((len(prefixes), 8), dtype=np.int32), np.zeros((slots, 8), dtype=np.int32)
    for table, counts in zip((prompt_table, suffix_table), needed, strict=True):
        for row, count in enumerate(counts):
            table[row, :count] = [free.pop() for _ in range(count)]
    fields = np.zeros((len(FIELDS), slots), dtype=np.int32)
    fields[PROMPT, : len(groups)], fields[SUFFIX, : len(suffixes)] = groups, suffixes
    fields[PREFIX, : len(groups)] = [prefixes[group] for group in groups]
    teams = np.full((slots, max(1, 64 // shape.group)), -1, dtype=np.int32)
    members = [[row for row, each in enumerate(groups) if each == group] for group in range(len(prefixes))]
    for team, rows in enumerate(rows for group, rows in enumerate(members) if prefixes[group]):
        teams[team, : len(rows)] = rows
    angles = numbers(200, shape.head_size // 2, seed=1).repeat(1, 2)
    on_device = [torch.from_numpy(array).to(DEVICE) for array in (suffix_table, prompt_table, teams, fields)]
    state = DecodeState(on_device.pop(), angles.cos().to(dtype), angles.sin().to(dtype), None, None)
    tables = PageTables(
        *on_device, suffix_pages=max(needed[1]), prompt_pages=max(needed[0]), num_teams=slots * has_teams
    )
    pools = [
        torch.full((num_pages, shape.kv_heads, page, shape.head_size), float("nan"), dtype=dtype, device=DEVICE)
        for _ in range(2)
    ]  # what no row may attend to is not a number
    for number, pool in enumerate(pools):
        pool[0] = 0
        for table, lengths in ((prompt_table, prefixes), (suffix_table, [length + 1 for length in suffixes])):
            for row, length in enumerate(lengths):
                for place in range(length):
                    pool[table[row, place // page], :, place % page] = numbers(
                        shape.kv_heads, shape.head_size, seed=1000 * number + 7 * row + place, dtype=dtype
                    )
    return state, tables, *pools


SHAPES = [(7, 1, 64), (12, 2, 16), (16, 2, 32), (4, 2, 16), (3, 1, 16), (2, 2, 16)]


SUFFIXES = pytest.mark.parametrize(
    "suffixes", [(0, 16, 5, 40, 15), (0, 9, 5, 14, 15)], ids=["several pages", "one page"]
)


def assert_attends_alike(prefixes, suffixes, shape, dtype, has_norm=False, **options):
    """Also stores alike: page 0 aside, which all empty slots write to."""
    norms = [numbers(shape.head_size, seed=n, dtype=dtype) if has_norm else None for n in (5, 6)]
    nothing = Linear(None, None)
    layer = Layer(None, nothing, norms[0], norms[1], nothing, None, nothing, nothing)
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_size
    qkv = numbers(7, width, dtype=dtype)  # two of the rows are not there
    results = []
    for ops in (kernels, reference_ops):
        cache = paged_rows(prefixes, suffixes, [0, 0, 2, 1, 0], shape, dtype=dtype, **options)
        out = ops.attend(qkv, layer, shape, *cache)
        results.append((out[:5], *(pool[1:].nan_to_num(7.0) for pool in cache[2:])))
    for found, expected in zip(*results, strict=True):
        assert_alike(found, expected)
    assert torch.isfinite(results[0][0]).all()


@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@SUFFIXES
def test_attention_over_shared_and_own_pages(suffixes, sizes, dtype):
    assert_attends_alike([19, 0, 33], suffixes, shape_of(*sizes), dtype)


@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize("sizes", SHAPES[:2], ids=str)
@SUFFIXES
def test_rows_that_read_their_prompts_alone(suffixes, sizes, dtype):
    prompts = [19, 0, 33] if max(suffixes) >= 16 else [9, 0, 16]  # of several pages beside several pages
    assert_attends_alike(prompts, suffixes, shape_of(*sizes), dtype, has_teams=False)


@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize("has_teams", [False, True])
def test_results_over_many_pages_are_merged_some_at_a_time(has_teams, dtype, monkeypatch):
    monkeypatch.setattr(attention_kernels, "MERGED_PAGES", 2)
    assert_attends_alike([19, 0, 33], (0, 16, 5, 40, 115), shape_of(7, 1, 16), dtype, has_teams=has_teams)


@pytest.mark.parametrize("has_teams", [False, True])
@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize("sizes", SHAPES[:3], ids=str)
def test_normed_queries_and_keys(sizes, dtype, has_teams):
    assert_attends_alike([19, 0, 33], (0, 16, 5, 40, 15), shape_of(*sizes), dtype, has_norm=True, has_teams=has_teams)


def rows_to_draw(rows, vocabulary, facts, settings, seed=0):
    """Rows in the middle of their completions, one of them dead."""
    rng = np.random.default_rng(seed)
    fields = np.zeros((len(FIELDS), rows + 1), dtype=np.int32)
    fields[LENGTH, :rows], fields[LIMIT] = rng.integers(0, 4, rows), rng.integers(2, 6, rows + 1)
    fields[ALIVE, :rows] = fields[LENGTH, :rows] < fields[LIMIT, :rows]
    fields[COMPLETION, :rows] = rng.permutation(rows)
    fields[ALIVE, rows // 2] = rows < 2
    ends = torch.arange(vocabulary - vocabulary // 3, vocabulary, dtype=torch.int32)[:4]
    ends = torch.cat((ends, torch.full((4 - len(ends),), -1, dtype=torch.int32)))
    params = torch.tensor([settings.temperature or 1.0, settings.top_p])
    state = DecodeState(torch.from_numpy(fields).to(DEVICE), None, None, ends.to(DEVICE), params.to(DEVICE))

    def blank(dtype=torch.float32):
        return torch.zeros(rows + 1, 6, dtype=dtype, device=DEVICE)

    uniforms = torch.from_numpy(rng.random((rows + 1, 6), dtype=np.float32)).to(DEVICE)
    lengths = torch.zeros(rows + 1, dtype=torch.int32, device=DEVICE)
    facts_CT = {name: blank() for name in facts}
    return state, Completions(blank(torch.int32), blank(), blank(), lengths, uniforms, facts_CT)


def assert_drawn_alike(logits, settings, facts=(), seed=0):
    rows, vocabulary = logits.shape
    results = []
    for draw in (partial(draw_tokens, block=32), reference_ops.draw_tokens):
        state, completions = rows_to_draw(rows, vocabulary, facts, settings, seed)
        draw(logits, state, completions, settings)
        results.append((state.fields, completions))
    (fields, found), (expected_fields, expected) = results
    assert fields.tolist() == expected_fields.tolist()
    assert found.tokens_CT[:rows].tolist() == expected.tokens_CT[:rows].tolist()
    assert found.lengths_C[:rows].tolist() == expected.lengths_C[:rows].tolist()
    pairs = [(found.logprobs_CT, expected.logprobs_CT), (found.entropies_CT, expected.entropies_CT)]
    for one, other in (*pairs, *((found.facts_CT[name], expected.facts_CT[name]) for name in facts)):
        torch.testing.assert_close(one[:rows], other[:rows], atol=2e-5, rtol=1e-4)


KINDS = [
    SamplingSettings(), SamplingSettings(temperature=0.6), SamplingSettings(temperature=0),
    SamplingSettings(temperature=0.6, top_p=0.95), SamplingSettings(top_p=0.3), SamplingSettings(top_p=1e-6),
    SamplingSettings(top_p=0.999999),
]  # fmt: skip


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: f"{s.temperature},{s.top_p}")
@pytest.mark.parametrize(("vocabulary", "spread"), [(1, 1.0), (31, 4.0), (64, 0.01), (150, 3.0)])
def test_drawing(settings, vocabulary, spread):
    assert_drawn_alike(spread * numbers(5, vocabulary, seed=vocabulary), settings, seed=vocabulary)


def test_of_equally_likely_tokens_the_first_are_kept():
    logits = torch.zeros(6, 100, device=DEVICE)
    logits[:, ::7] = 2.0
    for top_p in (0.1, 0.5, 0.65, 0.9):
        assert_drawn_alike(logits, SamplingSettings(top_p=top_p), seed=4)


def test_tokens_that_cannot_be_drawn():
    logits = numbers(6, 100)
    logits[:, 32:96] = -torch.inf  # whole blocks of them
    logits[3] = -torch.inf
    logits[3, 99] = 5.0
    for settings in KINDS:
        assert_drawn_alike(logits.clone(), settings)


def test_facts_are_recorded():
    for vocabulary in (2, 70):
        logits, settings = 3 * numbers(5, vocabulary), SamplingSettings(temperature=0.7)
        assert_drawn_alike(logits, settings, facts=("margin",))


def first_tokens(logits, settings, uniform=None):
    """The completions of rows that have just begun, after one draw."""
    state, completions = rows_to_draw(*logits.shape, facts=(), settings=settings)
    state.fields[ALIVE, : len(logits)], state.fields[LENGTH], state.fields[LIMIT] = 1, 0, 6
    if uniform is not None:
        completions.uniforms_CT.fill_(uniform)
    draw_tokens(logits, state, completions, settings, block=32)
    return completions


def test_a_uniform_number_next_to_1_draws_a_token_that_can_be_drawn():
    logits = numbers(4, 100)
    logits[:, 90:] = -torch.inf
    completions = first_tokens(logits, SamplingSettings(), uniform=1.0)
    assert ((completions.tokens_CT[:4, 0] < 90) & (completions.tokens_CT[:4, 0] > 60)).all()
    assert torch.isfinite(completions.logprobs_CT).all()


def test_logits_that_are_not_numbers_are_recorded_as_such():
    for settings in KINDS:
        completions = first_tokens(torch.full((2, 64), float("nan"), device=DEVICE), settings)
        assert not torch.isfinite(completions.logprobs_CT[:2, 0]).any()
        assert ((completions.tokens_CT >= 0) & (completions.tokens_CT < 64)).all()


@pytest.mark.parametrize("name", ["llama-mqa", "qwen3"])
def test_whole_completions(name):
    """All kernels together, rows entering as others end, against eager decoding."""
    from tiny_models import END, TOKENIZER, prompts, set_ends, tiny_model, tokens_of

    from scrl.sampling.gpu.graph_engine import GraphEngine
    from scrl.sampling.local import LocalSampler

    model = set_ends(tiny_model(name), END, 7, 9).to(DEVICE)
    prompts_B, settings = prompts(1, 20), SamplingSettings(max_tokens=10)
    ops = SimpleNamespace(**{name: getattr(kernels, name) for name in kernels.__all__})
    ops.draw_tokens = partial(draw_tokens, block=32)
    eager, captured = (LocalSampler(model, TOKENIZER, max_rows=3) for _ in range(2))
    eager._engine = None
    captured._engine = GraphEngine(model, captured._end_tokens, ops, page_size=16)
    found, expected = (each.sample(prompts_B, settings, num_samples=2, seed=1, step=0) for each in (captured, eager))
    assert tokens_of(found) == tokens_of(expected)
    for one, other in zip(sum(found, ()), sum(expected, ()), strict=True):
        np.testing.assert_allclose(one.logprobs_T, other.logprobs_T, atol=1e-4)
