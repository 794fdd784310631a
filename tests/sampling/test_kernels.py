"""Each Triton kernel against its twin in plain torch: on a GPU where there is one, else interpreted (make test-kernels).

Triton asks whether to interpret when it is first imported, by whomever, so that must be said before Python starts.
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

from scrl.sampling.draw import SamplingSettings
from scrl.sampling.gpu import kernels
from scrl.sampling.gpu import reference_ops as twins
from scrl.sampling.gpu.decode_state import (
    ALIVE,
    FIELDS,
    JOB,
    LIMIT,
    PLACE,
    PREFIX,
    PROMPT,
    SUFFIX,
    Desk,
    Pages,
    Written,
)
from scrl.sampling.gpu.draw_kernels import choose
from scrl.sampling.gpu.fused_weights import Layer, Linear, Shape

pytestmark = [  # Triton's interpreter
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]
DEVICE = "cuda" if ON_GPU else "cpu"
TYPES = [torch.float32, torch.bfloat16]
DOT_TYPES = [torch.float32, torch.bfloat16 if ON_GPU else torch.float16]  # the interpreter cannot multiply bfloat16


def close(found, expected):
    if expected.dtype == torch.float32:
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        return
    error = (
        found.float() - expected.float()
    ).abs()  # bfloat16 keeps 8 bits, and the interpreter rounds them its own way
    assert error.mean() < 0.02 * expected.float().abs().mean()
    assert (error <= 0.06 * expected.float().abs().clamp(min=1)).all()


def numbers(*sizes, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator).to(DEVICE, dtype)


def shape_of(heads, kv_heads, head_size, words=50):
    return Shape(1, heads, kv_heads, head_size, heads * head_size, 48, words, head_size**-0.5, 1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 8), (3, 96), (5, 1000)])
def test_add_norm(rows, size, dtype):
    hidden, residual, weight = (numbers(*s, seed=n, dtype=dtype) for n, s in enumerate([(rows, size)] * 2 + [(size,)]))
    for before in (None, residual):
        for found, expected in zip(
            kernels.add_norm(hidden, before, weight, 1e-6), twins.add_norm(hidden, before, weight, 1e-6), strict=True
        ):
            close(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 8), (3, 1030)])
def test_gated(rows, size, dtype):
    gate_up = numbers(rows, 2 * size, dtype=dtype)
    close(kernels.gated(gate_up), twins.gated(gate_up))


def board(prefixes, suffixes, groups, shape, page=16, dtype=torch.float32, seed=0, has_teams=True):
    """Rows with prompts of `prefixes[groups[r]]` tokens and `suffixes[r]` tokens of their own, on shuffled pages."""
    rng = np.random.default_rng(seed)
    needed = [-(-length // page) for length in prefixes], [-(-(length + 1) // page) for length in suffixes]
    free = list(rng.permutation(np.arange(1, 1 + sum(needed[0]) + sum(needed[1]))))
    slots = len(suffixes) + 2  # the last two slots are empty
    prompt_BP, suffix_SP = np.zeros((len(prefixes), 8), dtype=np.int32), np.zeros((slots, 8), dtype=np.int32)
    for table, numbers_of in zip((prompt_BP, suffix_SP), needed, strict=True):
        for row, number in enumerate(numbers_of):
            table[row, :number] = [free.pop() for _ in range(number)]
    state = np.zeros((len(FIELDS), slots), dtype=np.int32)
    state[PROMPT, : len(groups)], state[SUFFIX, : len(suffixes)] = groups, suffixes
    state[PREFIX, : len(groups)] = [prefixes[group] for group in groups]
    teams_SN = np.full((slots, max(1, 64 // shape.group)), -1, dtype=np.int32)
    members = [[row for row, each in enumerate(groups) if each == group] for group in range(len(prefixes))]
    for team, rows in enumerate(rows for group, rows in enumerate(members) if prefixes[group]):
        teams_SN[team, : len(rows)] = rows
    angles = numbers(200, shape.head_size // 2, seed=1).repeat(1, 2)

    def to(array):
        return torch.from_numpy(array).to(DEVICE)

    desk = Desk(to(state), angles.cos().to(dtype), angles.sin().to(dtype), None, None)
    pages = Pages(to(suffix_SP), to(prompt_BP), to(teams_SN), max(needed[1]), max(needed[0]), slots * has_teams)
    pool = (1 + sum(needed[0]) + sum(needed[1]), shape.kv_heads, page, shape.head_size)
    keys, values = (torch.full(pool, float("nan"), dtype=dtype, device=DEVICE) for _ in range(2))
    tables = [(prompt_BP, prefixes), (suffix_SP, [length + 1 for length in suffixes])]
    for number, pool in enumerate((keys, values)):  # what no row may look at is not a number
        pool[0] = 0
        for table, lengths in tables:
            for row, length in enumerate(lengths):
                for place in range(length):
                    pool[table[row, place // page], :, place % page] = numbers(
                        shape.kv_heads, shape.head_size, seed=1000 * number + 7 * row + place, dtype=dtype
                    )
    return desk, pages, keys, values


SHAPES = [(7, 1, 64), (12, 2, 16), (16, 2, 32), (4, 2, 16), (3, 1, 16), (2, 2, 16)]


@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("suffixes", [(0, 16, 5, 40, 15), (0, 9, 5, 14, 15)], ids=["several pages", "one page"])
def test_attention_over_shared_and_own_pages(suffixes, sizes, dtype):
    shape = shape_of(*sizes)
    place = board([19, 0, 33], suffixes, [0, 0, 2, 1, 0], shape, dtype=dtype)
    queries = numbers(7, shape.heads, shape.head_size, dtype=dtype)  # two of the rows are not there
    found, expected = (part.attend(queries, shape, *place) for part in (kernels, twins))
    close(found[:5], expected[:5])
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("dtype", DOT_TYPES)
@pytest.mark.parametrize("suffixes", [(0, 16, 5, 40, 15), (0, 9, 5, 14, 15)], ids=["several pages", "one page"])
def test_rows_that_read_their_prompts_alone(suffixes, dtype):
    shape = shape_of(7, 1, 16)
    place = board([9, 0, 16], suffixes, [0, 0, 2, 1, 0], shape, dtype=dtype, has_teams=False)
    queries = numbers(7, shape.heads, shape.head_size, dtype=dtype)
    found, expected = (part.attend(queries, shape, *place) for part in (kernels, twins))
    close(found[:5], expected[:5])


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", SHAPES[:3], ids=str)
def test_turning_and_storing(sizes, dtype, has_norm):
    shape = shape_of(*sizes)
    norms = [numbers(shape.head_size, seed=n, dtype=dtype) if has_norm else None for n in (5, 6)]
    nothing = Linear(None, None)
    layer = Layer(None, nothing, *norms, nothing, None, nothing, nothing)
    qkv = numbers(5, (shape.heads + 2 * shape.kv_heads) * shape.head_size, dtype=dtype)
    results = []
    for part in (kernels, twins):
        desk, pages, keys, values = board([19, 0, 33], [0, 16, 5, 40, 15], [0, 0, 2, 1, 0], shape, dtype=dtype)
        queries = part.turn_and_store(qkv, layer, shape, desk, pages, keys, values)
        results.append((queries, keys.nan_to_num(7.0), values.nan_to_num(7.0)))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


def draw_board(rows, words, facts, settings, seed=0):
    """Rows in the middle of their completions, one of them dead."""
    rng = np.random.default_rng(seed)
    state = np.zeros((len(FIELDS), rows + 1), dtype=np.int32)
    state[PLACE, :rows], state[LIMIT] = rng.integers(0, 4, rows), rng.integers(2, 6, rows + 1)
    state[ALIVE, :rows], state[JOB, :rows] = state[PLACE, :rows] < state[LIMIT, :rows], rng.permutation(rows)
    state[ALIVE, rows // 2] = rows < 2
    ends = torch.arange(words - words // 3, words, dtype=torch.int32)[:4]
    ends = torch.cat((ends, torch.full((4 - len(ends),), -1, dtype=torch.int32)))
    knobs = torch.tensor([settings.temperature or 1.0, settings.top_p])
    desk = Desk(torch.from_numpy(state).to(DEVICE), None, None, ends.to(DEVICE), knobs.to(DEVICE))

    def blank(dtype=torch.float32):
        return torch.zeros(rows + 1, 6, dtype=dtype, device=DEVICE)

    uniforms = torch.from_numpy(rng.random((rows + 1, 6), dtype=np.float32)).to(DEVICE)
    lengths = torch.zeros(rows + 1, dtype=torch.int32, device=DEVICE)
    return desk, Written(blank(torch.int32), blank(), blank(), lengths, uniforms, {name: blank() for name in facts})


def assert_drawn_alike(logits, settings, facts=(), seed=0, block=32):
    rows, words = logits.shape
    results = []
    for part in (lambda *args: choose(*args, block=block), twins.choose):
        desk, written = draw_board(rows, words, facts, settings, seed)
        part(logits, desk, written, settings)
        results.append((desk.state, written))
    (state, found), (expected_state, expected) = results
    assert state.tolist() == expected_state.tolist()
    assert found.tokens_JT[:rows].tolist() == expected.tokens_JT[:rows].tolist()
    assert found.lengths_J[:rows].tolist() == expected.lengths_J[:rows].tolist()
    pairs = [(found.logprobs_JT, expected.logprobs_JT), (found.entropies_JT, expected.entropies_JT)]
    for one, other in (*pairs, *((found.facts_JT[name], expected.facts_JT[name]) for name in facts)):
        torch.testing.assert_close(one[:rows], other[:rows], atol=2e-5, rtol=1e-4)


KINDS = [
    SamplingSettings(),
    SamplingSettings(temperature=0.6),
    SamplingSettings(temperature=0),
    SamplingSettings(temperature=0.6, top_p=0.95),
    SamplingSettings(top_p=0.3),
    SamplingSettings(top_p=1e-6),
    SamplingSettings(top_p=0.999999),
]


@pytest.mark.parametrize("settings", KINDS, ids=lambda s: f"{s.temperature},{s.top_p}")
@pytest.mark.parametrize(("words", "spread"), [(1, 1.0), (31, 4.0), (64, 0.01), (150, 3.0)])
def test_drawing(settings, words, spread):
    assert_drawn_alike(spread * numbers(5, words, seed=words), settings, seed=words)


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
    for words in (2, 70):
        assert_drawn_alike(3 * numbers(5, words), SamplingSettings(temperature=0.7), facts=("margin", "certainty"))


def test_a_uniform_number_next_to_1_draws_a_token_that_can_be_drawn():
    settings = SamplingSettings()
    logits = numbers(4, 100)
    logits[:, 90:] = -torch.inf
    desk, written = draw_board(4, 100, (), settings)
    desk.state[ALIVE, :4] = 1
    desk.state[PLACE], desk.state[LIMIT] = 0, 6
    written.uniforms_JT.fill_(1.0)
    choose(logits, desk, written, settings, block=32)
    assert ((written.tokens_JT[:4, 0] < 90) & (written.tokens_JT[:4, 0] > 60)).all()
    assert torch.isfinite(written.logprobs_JT).all()


def test_logits_that_are_not_numbers_are_recorded_as_such():
    for settings in KINDS:
        desk, written = draw_board(2, 64, (), settings)
        desk.state[ALIVE, :2], desk.state[PLACE], desk.state[LIMIT] = 1, 0, 6
        choose(torch.full((2, 64), float("nan"), device=DEVICE), desk, written, settings, block=32)
        assert not torch.isfinite(written.logprobs_JT[:2, 0]).any()
        assert ((written.tokens_JT >= 0) & (written.tokens_JT < 64)).all()


@pytest.mark.parametrize("name", ["llama-mqa", "qwen3"])
def test_whole_completions(name):
    """All kernels together, rows entering as others end, against the slower path."""
    from tiny_models import END, prompts, set_ends, tiny_model, tiny_tokenizer, tokens_of

    from scrl.sampling.gpu.graph_engine import GraphWriter
    from scrl.sampling.local import LocalSampler

    model = set_ends(tiny_model(name), END, 7, 9).to(DEVICE)
    prompts_B, settings = prompts(1, 20), SamplingSettings(max_tokens=10)
    parts = SimpleNamespace(**{name: getattr(kernels, name) for name in kernels.__all__})
    parts.choose = partial(choose, block=32)
    slow, fast = (LocalSampler(model, tiny_tokenizer(), max_rows=3) for _ in range(2))
    slow._writer = None
    fast._writer = GraphWriter(model, fast._ends, parts, page=16)
    expected, found = (each.sample(prompts_B, settings, num_samples=2, seed=1, step=0) for each in (slow, fast))
    assert tokens_of(found) == tokens_of(expected)
    for one, other in zip(sum(found, ()), sum(expected, ()), strict=True):
        np.testing.assert_allclose(one.logprobs_T, other.logprobs_T, atol=1e-4)
