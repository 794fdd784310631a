"""Drawing tokens in two kernels: one pass over the logits, then a second read of few of them.

Blocks of 4,096 tokens are summed in parallel: with z = logits / T and m the block's highest,

    s = Σ e^(z−m),  t = Σ (z−m) e^(z−m),   and over all blocks   log Z = m + ln s,  H = ln s − t / s.

H in this form does not cancel where it is small. A token is then drawn as in `sampling.draw`: the first one in the
order of the vocabulary at which the cumulative probability exceeds u · total. The sums say in which block that is, and
only that block is read again. Each logit is read once.

Top-p keeps the fewest likeliest tokens that reach the mass p. With d = m − z ≥ 0, whose bits are ordered as d is, the
largest x with mass(d < x) < p · total is found three bits at a time, in eleven passes that skip every block whose
highest logit is too low to count; no sort, no atomics, always the same sums in the same order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from scrl.sampling.gpu.decode_step import ALIVE, COMPLETION, LENGTH, LIMIT, SUFFIX, TOKEN, Completions, DecodeState
from scrl.sampling.settings import SamplingSettings

BLOCK = 4096
# A kernel argument must not be called `params` or `options`: Triton's launcher uses these names itself.


def draw_tokens(
    logits_RV: Tensor, state: DecodeState, completions: Completions, settings: SamplingSettings, block: int = BLOCK
) -> None:
    """Draw and store a token for each living row; `settings` without top-k."""
    rows, vocabulary = logits_RV.shape
    blocks = triton.cdiv(vocabulary, block)
    sums = torch.empty(rows, blocks, 5, dtype=torch.float32, device=logits_RV.device)
    _sum_blocks[(rows, blocks)](logits_RV, state.draw_params, sums, vocabulary, blocks, BLOCK=block, num_warps=4)
    margin = completions.facts_CT.get("margin")
    _draw_tokens[(rows,)](
        logits_RV, state.draw_params, sums, state.fields, state.end_tokens, completions.tokens_CT,
        completions.logprobs_CT, completions.entropies_CT, completions.lengths_C, completions.uniforms_CT,
        completions.logprobs_CT if margin is None else margin,
        vocabulary, blocks, state.fields.shape[1], completions.tokens_CT.shape[1],
        BLOCK=block, BLOCKS=triton.next_power_of_2(blocks), ENDS=len(state.end_tokens),
        GREEDY=settings.temperature == 0, NUCLEUS=settings.temperature > 0 and settings.top_p < 1,
        MARGIN=margin is not None, TOKEN_ROW=TOKEN, LENGTH_ROW=LENGTH,
        SUFFIX_ROW=SUFFIX, ALIVE_ROW=ALIVE, LIMIT_ROW=LIMIT, COMPLETION_ROW=COMPLETION,
        num_warps=16 if settings.top_p < 1 else 8,
    )  # fmt: skip


@triton.jit
def _sum_blocks(logits, drawing, sums, vocabulary, blocks, BLOCK: tl.constexpr):
    """(row, block): m, s, t, the place of m, the second highest."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    place = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * vocabulary + place, mask=place < vocabulary, other=float("-inf")).to(tl.float32)
    z /= tl.load(drawing)
    top = tl.max(z, axis=0)
    where = tl.min(tl.where(z == top, place, vocabulary - 1), axis=0)
    # A block may hold nothing but −∞: then s = t = 0, and e^(−∞ + ∞) must not be computed.
    base = tl.where(top == float("-inf"), 0.0, top)
    centred = tl.where(z == float("-inf"), 0.0, z - base)
    p = tl.where(z == float("-inf"), 0.0, tl.exp(centred))
    to = sums + (row * blocks + block) * 5
    tl.store(to, top)
    tl.store(to + 1, tl.sum(p, axis=0))
    tl.store(to + 2, tl.sum(p * centred, axis=0))
    tl.store(to + 3, where.to(tl.float32))
    tl.store(to + 4, tl.max(tl.where(place == where, float("-inf"), z), axis=0))


@triton.jit
def _read_block(logits, temperature, top, block, vocabulary, BLOCK: tl.constexpr):
    """e^−d and d = m − z of a block; 0 and ∞ beyond the vocabulary."""
    place = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + place, mask=place < vocabulary, other=float("-inf")).to(tl.float32) / temperature
    d = tl.maximum(top - z, 0.0)
    return place, tl.exp(-d), d


@triton.jit
def _nucleus_edge(logits, sums, temperature, top, limit, vocabulary, blocks, BLOCK: tl.constexpr):
    """The largest x for which the tokens with bits(d) < x weigh less than `limit`; their weight."""
    edge = tl.full([], 0, tl.int32)
    below = tl.full([], 0.0, tl.float32)
    step = tl.full([], 1 << 28, tl.int32)
    for _pass in range(11):
        i = tl.arange(0, 8)
        bound = tl.where(i < 7, edge + (i + 1) * step, 0x7FFFFFFF)
        parts = tl.zeros([BLOCK, 8], tl.float32)
        for block in range(blocks):
            nearest = tl.maximum(top - tl.load(sums + block * 5), 0.0).to(tl.int32, bitcast=True)
            if nearest < tl.max(tl.where(i < 7, bound, 0), axis=0):
                _place, p, d = _read_block(logits, temperature, top, block, vocabulary, BLOCK)
                bits = d.to(tl.int32, bitcast=True)
                parts += tl.where(bits[:, None] < bound[None, :], p[:, None], 0.0)
        mass = tl.sum(parts, axis=0)
        fits = (mass < limit) & (i < 7)
        number = tl.sum(fits.to(tl.int32), axis=0)
        below = tl.where(number > 0, tl.max(tl.where(fits, mass, 0.0), axis=0), below)
        edge += number * step
        step = tl.maximum(step >> 3, 1)
    return edge, below


@triton.jit
def _draw_from_nucleus(logits, sums, temperature, top, u, limit, vocabulary, blocks, BLOCK: tl.constexpr):
    """Inverse CDF over the fewest likeliest tokens that weigh `limit`; of equal ones at the edge the first are kept."""
    edge, below = _nucleus_edge(logits, sums, temperature, top, limit, vocabulary, blocks, BLOCK)
    weight = tl.exp(-edge.to(tl.float32, bitcast=True))
    ties = tl.maximum(tl.ceil((limit - below) / weight), 1.0)
    ties = tl.where(weight > 0, tl.minimum(ties, 1e9), 1e9).to(tl.int32)
    # There may be fewer ties than that: the kept tokens are summed first, then drawn from.
    kept = tl.full([], 0.0, tl.float32)
    seen = tl.full([], 0, tl.int32)
    for block in range(blocks):
        nearest = tl.maximum(top - tl.load(sums + block * 5), 0.0).to(tl.int32, bitcast=True)
        if nearest <= edge:
            _place, p, d = _read_block(logits, temperature, top, block, vocabulary, BLOCK)
            p, equal = _kept(p, d, edge, seen, ties)
            kept += tl.sum(p, axis=0)
            seen += equal
    target = tl.minimum(u * kept, kept * 0.99999994)
    sofar = tl.full([], 0.0, tl.float32)
    seen = tl.full([], 0, tl.int32)
    token = tl.full([], -1, tl.int32)
    last = tl.full([], 0, tl.int32)
    for block in range(blocks):
        nearest = tl.maximum(top - tl.load(sums + block * 5), 0.0).to(tl.int32, bitcast=True)
        if (nearest <= edge) & (token < 0):
            place, p, d = _read_block(logits, temperature, top, block, vocabulary, BLOCK)
            p, equal = _kept(p, d, edge, seen, ties)
            mass = tl.sum(p, axis=0)
            if mass > 0:
                last = tl.max(tl.where(p > 0, place, 0), axis=0)
                if sofar + mass > target:
                    hit = (sofar + tl.cumsum(p, axis=0) > target) & (p > 0)
                    token = tl.minimum(tl.min(tl.where(hit, place, vocabulary), axis=0), last)
            sofar += mass
            seen += equal
    return tl.where(token < 0, last, token)


@triton.jit
def _kept(p, d, edge, seen, ties):
    """Weights of the tokens nearer than the edge and of the first `ties` at it; how many are at the edge."""
    bits = d.to(tl.int32, bitcast=True)
    equal = (bits == edge).to(tl.int32)
    rank = seen + tl.cumsum(equal, axis=0) - equal
    return tl.where((bits < edge) | ((equal > 0) & (rank < ties)), p, 0.0), tl.sum(equal, axis=0)


@triton.jit
def _draw_from_all(logits, masses, temperature, top, u, total, vocabulary, b, BLOCK: tl.constexpr):
    """Inverse CDF over the whole vocabulary: the block by its sums, then the token in it."""
    target = tl.minimum(u * total, total * 0.99999994)
    ends = tl.cumsum(masses, axis=0)
    last = tl.max(tl.where(masses > 0, b, 0), axis=0)
    block = tl.minimum(tl.min(tl.where((ends > target) & (masses > 0), b, 1 << 30), axis=0), last)
    before = tl.sum(tl.where(b < block, masses, 0.0), axis=0)
    place, p, _d = _read_block(logits, temperature, top, block, vocabulary, BLOCK)
    hit = (before + tl.cumsum(p, axis=0) > target) & (p > 0)
    return tl.minimum(tl.min(tl.where(hit, place, vocabulary), axis=0), tl.max(tl.where(p > 0, place, 0), axis=0))


@triton.jit(do_not_specialize=["slots", "max_tokens"])
def _draw_tokens(
    all_logits, drawing, all_sums, state, ends, tokens, logprobs, entropies, lengths, uniforms, margins,
    vocabulary, blocks, slots, max_tokens,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, ENDS: tl.constexpr, GREEDY: tl.constexpr, NUCLEUS: tl.constexpr,
    MARGIN: tl.constexpr, TOKEN_ROW: tl.constexpr, LENGTH_ROW: tl.constexpr,
    SUFFIX_ROW: tl.constexpr, ALIVE_ROW: tl.constexpr, LIMIT_ROW: tl.constexpr, COMPLETION_ROW: tl.constexpr,
):  # fmt: skip
    """(row): the token, its log-probability, the entropy, and the row's new state. Dead rows change nothing."""
    row = tl.program_id(0)
    if tl.load(state + ALIVE_ROW * slots + row) == 0:
        return
    length = tl.load(state + LENGTH_ROW * slots + row)
    to = tl.load(state + COMPLETION_ROW * slots + row).to(tl.int64) * max_tokens + length
    logits, sums = all_logits + row.to(tl.int64) * vocabulary, all_sums + row.to(tl.int64) * blocks * 5
    b = tl.arange(0, BLOCKS)
    here = b < blocks
    tops = tl.load(sums + b * 5, mask=here, other=float("-inf"))
    s = tl.load(sums + b * 5 + 1, mask=here, other=0.0)
    t = tl.load(sums + b * 5 + 2, mask=here, other=0.0)
    top = tl.max(tops, axis=0)
    lower = tl.where(tops == float("-inf"), 0.0, tops - top)
    scale = tl.where(tops == float("-inf"), 0.0, tl.exp(lower))
    masses = s * scale
    total = tl.sum(masses, axis=0)
    temperature = tl.load(drawing)
    if GREEDY:
        best = tl.min(tl.where(tops == top, b, BLOCKS - 1), axis=0)
        token = tl.load(sums + best * 5 + 3).to(tl.int32)
    else:
        u = tl.load(uniforms + to)
        if NUCLEUS:
            limit = tl.load(drawing + 1) * total
            token = _draw_from_nucleus(logits, sums, temperature, top, u, limit, vocabulary, blocks, BLOCK)
        else:
            token = _draw_from_all(logits, masses, temperature, top, u, total, vocabulary, b, BLOCK)
    token = tl.maximum(tl.minimum(token, vocabulary - 1), 0)
    z = tl.load(logits + token).to(tl.float32) / temperature
    spread = tl.sum(scale * (t + lower * s), axis=0) / total
    tl.store(tokens + to, token)
    tl.store(logprobs + to, z - top - tl.log(total))
    tl.store(entropies + to, tl.maximum(tl.log(total) - spread, 0.0))
    if MARGIN:
        best = tl.min(tl.where(tops == top, b, BLOCKS - 1), axis=0)
        seconds = tl.load(sums + b * 5 + 4, mask=here, other=float("-inf"))
        second = tl.maximum(tl.max(seconds, axis=0), tl.max(tl.where(b == best, float("-inf"), tops), axis=0))
        tl.store(margins + to, (1.0 - tl.exp(second - top)) / total)
    ended = tl.max((tl.load(ends + tl.arange(0, ENDS)) == token).to(tl.int32), axis=0)
    length += 1
    goes_on = (ended == 0) & (length < tl.load(state + LIMIT_ROW * slots + row))
    tl.store(lengths + tl.load(state + COMPLETION_ROW * slots + row), length)
    tl.store(state + TOKEN_ROW * slots + row, token)
    tl.store(state + LENGTH_ROW * slots + row, length)
    # A row that has ended stays where it is: its next token might need a page that it does not have.
    tl.store(state + SUFFIX_ROW * slots + row, tl.load(state + SUFFIX_ROW * slots + row) + goes_on.to(tl.int32))
    tl.store(state + ALIVE_ROW * slots + row, goes_on.to(tl.int32))
