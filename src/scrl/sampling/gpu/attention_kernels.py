"""Attention of one new token per row over pages: shared pages once for a team of rows, own pages row by row, merged.

Queries and the new key get their rotary positions on the way. The program of the page that the new token belongs to
stores its key and value, and takes them into account before it reads the page: no program waits for another.

For every page and key head one program computes, for the M query heads that attend to it,

    s = q Kᵀ · scale · log₂e,   l = log₂ Σ 2^s,   o = Σ 2^(s − l) V

and the merge is exact: out = Σ_pages 2^(l − L) o with L = log₂ Σ_pages 2^l. A page is always the same 256 tokens of
one row or one prompt, so a row's result does not depend on the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from scrl.sampling.gpu.decode_step import PREFIX, PROMPT, SUFFIX, DecodeState, PageTables
from scrl.sampling.gpu.fused_weights import Layer, Shape

LOG2_E = 1.4426950408889634
MERGED_PAGES = 16
"""Partial results of a query head merged at a time; a fixed number, so that all batches add up alike."""


class Tile(NamedTuple):
    """How a program reads a page: tokens at a time, warps, and stages of the load pipeline."""

    tokens: int
    warps: int
    stages: int


def tile_of(dtype: torch.dtype, is_team: bool) -> Tile:
    """The fastest of 56 on an H200 (benchmarks/LOG.md): many small programs wait for memory in parallel."""
    if dtype == torch.float32:
        return Tile(16, 8, 2)
    return Tile(64, 4, 3) if is_team else Tile(16, 1, 3)


def attend(
    qkv: Tensor, layer: Layer, shape: Shape, state: DecodeState, tables: PageTables, keys: Tensor, values: Tensor
) -> Tensor:
    """softmax(q Kᵀ · scale) V, [R, H · D], over the prompt's pages and the row's own, where the new token is stored.

    While no row has more than one own page, there is nothing to merge: the program of that page starts from the
    result over the prompt. Without teams every row reads its prompt itself: before its only page, or beside its pages.
    """
    rows, device, dtype, has_norm = len(qkv), qkv.device, qkv.dtype, layer.q_norm is not None
    is_last = tables.suffix_pages == 1
    splits = tables.shared_pages if is_last else tables.prompt_pages + tables.suffix_pages
    parts = torch.empty(rows, shape.heads, splits, shape.head_size, dtype=torch.float32, device=device)
    sums = torch.empty(rows, shape.heads, splits, dtype=torch.float32, device=device)
    out = torch.empty(rows, shape.heads * shape.head_size, dtype=dtype, device=device)
    slots, prompt_width = state.fields.shape[1], tables.prompt.shape[1]
    is_beside = tables.is_alone and not is_last

    def attend_pages(grid: tuple[int, int, int], table: Tensor, team: int, last: bool, first: int) -> None:
        """One launch over all pages of a kind: prompts for teams of rows, or, with team 0, each row's own."""
        tile = tile_of(dtype, bool(team))
        _attend_page[grid](
            qkv, layer.q_norm if has_norm else qkv, layer.k_norm if has_norm else qkv, state.cos_LD, state.sin_LD,
            keys, values, state.fields, table, tables.prompt, tables.teams, parts, sums, out,
            shape.scale * LOG2_E, shape.eps, slots, table.shape[1], prompt_width, splits, first,
            HEADS=shape.heads, KV=shape.kv_heads, G=shape.group, D=shape.head_size, PAGE=keys.shape[2], TEAM=team,
            M=max(16, triton.next_power_of_2(shape.group * max(1, team))), N=min(keys.shape[2], tile.tokens),
            LAST=last, ALONE=tables.is_alone and last, BESIDE=is_beside, NORM=has_norm,
            PRECISION="ieee" if dtype == torch.float32 else "tf32",
            PROMPT_ROW=PROMPT, PREFIX_ROW=PREFIX, SUFFIX_ROW=SUFFIX, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    if tables.shared_pages:
        grid = (tables.num_teams, shape.kv_heads, tables.shared_pages)
        attend_pages(grid, tables.prompt, tables.teams.shape[1], last=False, first=0)
    grid = (rows, shape.kv_heads, tables.suffix_pages + tables.prompt_pages * is_beside)
    attend_pages(grid, tables.suffix, 0, is_last, first=tables.prompt_pages)
    if not is_last:
        _merge_pages[(rows, shape.heads)](
            parts, sums, state.fields, out, slots, splits, tables.prompt_pages,
            HEADS=shape.heads, D=shape.head_size, PAGE=keys.shape[2], N=MERGED_PAGES,
            PREFIX_ROW=PREFIX, SUFFIX_ROW=SUFFIX, num_warps=4,
        )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["slots", "width", "prompt_width", "splits", "first"])
def _attend_page(
    qkv, q_norm, k_norm, cos, sin, keys, values, state, table, prompts, teams, parts, sums, out,
    scale, eps, slots, width, prompt_width, splits, first,
    HEADS: tl.constexpr, KV: tl.constexpr, G: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, TEAM: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, LAST: tl.constexpr, ALONE: tl.constexpr, BESIDE: tl.constexpr,
    NORM: tl.constexpr, PRECISION: tl.constexpr,
    PROMPT_ROW: tl.constexpr, PREFIX_ROW: tl.constexpr, SUFFIX_ROW: tl.constexpr,
):  # fmt: skip
    """(team or row, key head, page): o and l of the page for every query head of the key head.

    ALONE: the row's prompt, of one page, is read first. BESIDE: the first `first` pages are those of its prompt.
    """
    item, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m, d = tl.arange(0, M), tl.arange(0, D)
    if TEAM > 0:
        row = tl.load(teams + item * TEAM + m // G, mask=m < TEAM * G, other=-1)
        leader = tl.load(teams + item * TEAM)
        owner = tl.load(state + PROMPT_ROW * slots + tl.maximum(leader, 0))
        length = tl.where(leader < 0, 0, tl.load(state + PREFIX_ROW * slots + tl.maximum(leader, 0)))
        prefix = tl.load(state + PREFIX_ROW * slots + tl.maximum(row, 0))
        position = prefix + tl.load(state + SUFFIX_ROW * slots + tl.maximum(row, 0))
    else:
        row = tl.where(m < G, item, -1)
        owner = item
        prefix = tl.load(state + PREFIX_ROW * slots + item)
        suffix = tl.load(state + SUFFIX_ROW * slots + item)
        length = suffix + 1
        position = prefix + suffix + tl.zeros([1], tl.int32)
    number = split
    if BESIDE:
        is_prompt = split < first
        number = tl.where(is_prompt, split, split - first)
        length = tl.where(is_prompt, prefix, length)
    count = tl.minimum(length - number * PAGE, PAGE)
    if count <= 0:
        return
    if BESIDE:
        of_prompt = tl.load(state + PROMPT_ROW * slots + item) * prompt_width + number
        page = tl.load(prompts + of_prompt, mask=is_prompt, other=0)
        page += tl.load(table + owner * width + number, mask=split >= first, other=0)
    else:
        page = tl.load(table + owner * width + number)
    there = row >= 0
    angle = position.to(tl.int64)[:, None] * D + tl.arange(0, D // 2)[None, :]
    c, s = tl.load(cos + angle), tl.load(sin + angle)
    source = qkv + tl.where(there, row, 0).to(tl.int64) * (HEADS + 2 * KV) * D + (head * G + m % G) * D
    q = _turned(source, there, q_norm, c, s, eps, M, D, NORM)
    query = (tl.where(there, row, 0) * HEADS + head * G + m % G).to(tl.int64)
    base = (page.to(tl.int64) * KV + head) * PAGE * D
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    mixed = tl.zeros([M, D], tl.float32)
    if TEAM == 0:
        is_newest = number == suffix // PAGE
        if BESIDE:
            is_newest = is_newest & (split >= first)
        if is_newest:
            count -= 1  # stored by this step, which may not read it back
            own = qkv + item.to(tl.int64) * (HEADS + 2 * KV) * D + (HEADS + head) * D
            place = base + suffix % PAGE * D
            k, v = _store_newest(own, keys + place, values + place, k_norm, c, s, eps, KV, D, NORM)
            top = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale
            total += 1.0
            mixed += v.to(tl.float32)
    if ALONE:
        prompt = tl.load(prompts + tl.load(state + PROMPT_ROW * slots + item) * prompt_width).to(tl.int64)
        shared = (prompt * KV + head) * PAGE * D
        top, total, mixed = _tiles(q, keys + shared, values + shared, prefix, scale, top, total, mixed, D, N, PRECISION)
    elif LAST:
        for shared in range(tl.cdiv(prefix, PAGE)):
            top, total, mixed = _add_page(parts, sums, query * splits + shared, there, top, total, mixed, D)
    top, total, mixed = _tiles(q, keys + base, values + base, count, scale, top, total, mixed, D, N, PRECISION)
    mixed = mixed / total[:, None]
    if LAST:
        tl.store(out + query[:, None] * D + d[None, :], mixed.to(out.dtype.element_ty), mask=there[:, None])
    else:
        place = query * splits + (split if BESIDE else first + split)
        tl.store(parts + place[:, None] * D + d[None, :], mixed, mask=there[:, None])
        tl.store(sums + place, top + tl.log2(total), mask=there)


@triton.jit
def _store_newest(own, key, value, k_norm, c, s, eps, KV: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr):
    """The key and value [1, D] of a row's newest token, which are written to its page."""
    d = tl.arange(0, D)[None, :]
    k = _turned(own + tl.zeros([1], tl.int32), tl.full([1], True, tl.int1), k_norm, c, s, eps, 1, D, NORM)
    v = tl.load(own + KV * D + d)
    tl.store(key + d, k)
    tl.store(value + d, v)
    return k, v


@triton.jit
def _add_page(parts, sums, place, there, top, total, mixed, D: tl.constexpr):
    """A page of the prompt, attended to by another program: its o, weighed by 2^(l − top)."""
    logsum = tl.load(sums + place, mask=there, other=0.0)
    o = tl.load(parts + place[:, None] * D + tl.arange(0, D)[None, :], mask=there[:, None], other=0.0)
    higher = tl.maximum(top, logsum)
    shrink, weight = tl.exp2(top - higher), tl.exp2(logsum - higher)
    return higher, total * shrink + weight, mixed * shrink[:, None] + o * weight[:, None]


@triton.jit
def _turned(source, there, norm, c, s, eps, M: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr):
    """M heads [M, D] with rotary positions: (x₁ cos − x₂ sin, x₂ cos + x₁ sin), products rounded as in transformers.

    NORM: normed first, in float32, and rounded before they are multiplied by the norm's weight.
    """
    half = tl.arange(0, D // 2)
    one = tl.load(source[:, None] + half[None, :], mask=there[:, None], other=0.0)
    two = tl.load(source[:, None] + D // 2 + half[None, :], mask=there[:, None], other=0.0)
    kind = one.dtype
    x, y, c, s = one.to(tl.float32), two.to(tl.float32), c.to(tl.float32), s.to(tl.float32)
    if NORM:
        scale = tl.rsqrt((tl.sum(x * x, axis=1) + tl.sum(y * y, axis=1)) / D + eps)[:, None]
        weight_one = tl.load(norm + half).to(tl.float32)[None, :]
        weight_two = tl.load(norm + D // 2 + half).to(tl.float32)[None, :]
        x = ((x * scale).to(kind).to(tl.float32) * weight_one).to(kind).to(tl.float32)
        y = ((y * scale).to(kind).to(tl.float32) * weight_two).to(kind).to(tl.float32)
    first = ((x * c).to(kind).to(tl.float32) - (y * s).to(kind).to(tl.float32)).to(kind)
    second = ((y * c).to(kind).to(tl.float32) + (x * s).to(kind).to(tl.float32)).to(kind)
    return tl.reshape(tl.permute(tl.join(first, second), (0, 2, 1)), (M, D))


@triton.jit
def _tiles(
    q, keys, values, count, scale, top, total, mixed, D: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """`count` more tokens, N at a time: the highest score so far, Σ 2^(s − top), Σ 2^(s − top) V."""
    d = tl.arange(0, D)
    for start in range(0, count, N):
        n = start + tl.arange(0, N)
        inside = n < count
        k = tl.load(keys + n[None, :] * D + d[:, None], mask=inside[None, :], other=0.0)
        s = tl.where(inside[None, :], tl.dot(q, k, input_precision=PRECISION) * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1))
        shrink = tl.exp2(top - higher)
        p = tl.exp2(s - higher[:, None])
        v = tl.load(values + n[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        mixed = tl.dot(p.to(v.dtype), v, mixed * shrink[:, None], input_precision=PRECISION)
        top, total = higher, total * shrink + tl.sum(p, axis=1)
    return top, total, mixed


@triton.jit(do_not_specialize=["slots", "splits", "first"])
def _merge_pages(
    parts, sums, state, out, slots, splits, first,
    HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, N: tl.constexpr,
    PREFIX_ROW: tl.constexpr, SUFFIX_ROW: tl.constexpr,
):  # fmt: skip
    """(row, query head): Σ 2^(l − L) o over the prompt's pages and the row's (from split `first` on), N at a time."""
    row = tl.program_id(0)
    query = (row * HEADS + tl.program_id(1)).to(tl.int64)
    d = tl.arange(0, D)
    shared = tl.cdiv(tl.load(state + PREFIX_ROW * slots + row), PAGE)
    pages = shared + tl.cdiv(tl.load(state + SUFFIX_ROW * slots + row) + 1, PAGE)
    top = tl.full([], float("-inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    mixed = tl.zeros([D], tl.float32)
    for start in range(0, pages, N):
        number = start + tl.arange(0, N)
        place = query * splits + tl.where(number < shared, number, first + number - shared)
        logsum = tl.load(sums + place, mask=number < pages, other=float("-inf"))
        o = tl.load(parts + place[:, None] * D + d[None, :], mask=(number < pages)[:, None], other=0.0)
        higher = tl.maximum(top, tl.max(logsum, axis=0))
        shrink, weight = tl.exp2(top - higher), tl.exp2(logsum - higher)
        total = total * shrink + tl.sum(weight, axis=0)
        mixed = mixed * shrink + tl.sum(o * weight[:, None], axis=0)
        top = higher
    tl.store(out + query * D + d, (mixed / total).to(out.dtype.element_ty))
