"""Which rows run, on which pages, and in steps of which sizes."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scrl.sampling.gpu.cuda_graphs import bucket_rows, step_size
from scrl.sampling.gpu.fused_weights import Shape
from scrl.sampling.gpu.graph_engine import reads_alone
from scrl.sampling.gpu.scheduler import ENOUGH_LENGTHS, Prefix, Row, Scheduler, max_pages, min_pages
from scrl.sampling.gpu.step_memory import (
    MemorySize,
    affordable_pages,
    prompt_teams,
)


def prefix(length, table_row=-1):
    return Prefix(np.zeros(length, dtype=np.int64), table_row=table_row)


def rows_of(*prefixes, limit):
    return [Row(completion, each, 3, limit) for completion, each in enumerate(prefixes)]


@settings(max_examples=200)
@example(  # four prompts by turns, and two slots
    lengths=[(1, 1), (17, 0), (1, 3), (1, 2), (1, 3), (1, 1)], prompt_lengths=[0] * 4, slots=2, spare=7
)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3)), min_size=1, max_size=90),
    prompt_lengths=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    slots=st.integers(1, 12),
    spare=st.integers(0, 12),
)
def test_every_row_is_decoded_once_and_no_page_is_lost_or_shared(lengths, prompt_lengths, slots, spare):
    prefixes = [prefix(length) for length in prompt_lengths]
    rows = rows_of(*(prefixes[group] for _, group in lengths), limit=60)
    pages = min(min_pages(rows, 8) + spare, max_pages(rows, slots, 8))
    scheduler = Scheduler(slots, pages, 8)
    scheduler.add(rows)
    done = dict.fromkeys(range(len(lengths)), 0)
    for _ in range(10_000):
        if not (scheduler.running or scheduler.waiting):
            break
        scheduler.admit()
        steps = scheduler.num_steps(8)
        for row in scheduler.allocate(steps):
            written = min(row.start + row.steps, lengths[row.completion][0]) - row.start
            if row.start + written < lengths[row.completion][0]:
                scheduler.requeue(row, np.zeros(written, dtype=np.int64))
            else:
                done[row.completion] += 1
        running = scheduler.running
        assert 0 < len(running) <= slots
        held = [page for row in running for page in row.pages]
        held += [page for each in {id(row.prefix): row.prefix for row in running}.values() for page in each.pages]
        assert len(set(held)) == len(held)
        assert 0 not in held
        for row in running:
            assert 8 * len(row.pages) >= min(row.steps + steps, 60 - row.start)
            assert row.prefix.is_prefilled
            assert 8 * len(row.prefix.pages) >= len(row.prefix.tokens_P)
        scheduler.advance(steps)
        ended = {row.completion for row in running if row.start + row.steps >= lengths[row.completion][0]}
        for completion in ended:
            done[completion] += 1
        scheduler.retire({completion: lengths[completion][0] for completion in ended})
    assert set(done.values()) == {1}
    assert sorted(scheduler._free_pages) == list(range(1, pages))
    assert len(scheduler._free_table_rows) == slots + 1


def test_rows_are_admitted_by_what_completions_have_needed():
    scheduler = Scheduler(100, 101, 8)  # 100 pages: one for the prompt, ten per row while nothing is known
    scheduler.add(rows_of(*[prefix(8)] * 200, limit=80))
    scheduler.admit()
    assert len(scheduler.running) == 9
    scheduler.retire(dict.fromkeys(range(ENOUGH_LENGTHS - 1), 16))
    scheduler.retire(dict.fromkeys(range(ENOUGH_LENGTHS - 1), 80))  # named again: they count once
    assert scheduler._typical_length > 80
    scheduler.retire({ENOUGH_LENGTHS - 1: 16})
    scheduler.admit()
    assert len(scheduler.running) == 33  # 99 pages, three per row: completions have 16 tokens, and one page to spare


def test_steps_come_in_few_sizes():
    assert [bucket_rows(rows) for rows in (1, 3, 65, 256, 257, 513)] == [1, 4, 96, 256, 320, 640]
    assert step_size(200, 5, 0, 0, team_size=8) == (256, 8, 0, 0)
    assert step_size(200, 1, 3, 30, team_size=8) == (256, 1, 4, 64)  # teams mostly full
    assert step_size(200, 1, 3, 200, team_size=8) == (256, 1, 4, 256)  # every row has another prompt


def test_prompts_are_read_alone_where_they_are_short_or_rows_few():
    assert [reads_alone([length, 3], 1, page_size=32) for length in (32, 33)] == [True, False]  # of one page
    assert [reads_alone([length] * 1000, 1, page_size=256) for length in (64, 65)] == [True, False]
    assert [reads_alone([length] * 1000, 2, page_size=256) for length in (64, 65)] == [True, False]
    assert [reads_alone([512] * rows, 2, page_size=256) for rows in (64, 65)] == [True, False]  # 64 · 512 = 2¹⁵


def test_a_team_has_one_prompt():
    prefixes = [prefix(4, table_row=1), prefix(0, table_row=2), prefix(9, table_row=3)]
    rows = rows_of(*(prefixes[group] for group in (0, 2, 0, 0, 1, 2)), limit=5)
    for slot, row in enumerate(rows):
        row.slot = slot
    assert prompt_teams(rows, 2) == [[0, 2], [3], [1, 5]]


def test_pages_are_planned_from_free_memory():
    shape = Shape(36, 32, 8, 128, 2560, 9728, 151_936, 128**-0.5, 1e-6)  # Qwen3-4B: 144 KiB per token
    size = MemorySize(slots=64, pages=0, page_size=256, completions=512, max_tokens=10_240, prompt_tokens=512)
    gib = 2**30
    pages = affordable_pages(120 * gib, 140 * gib, shape, size, 2)
    # 36 MiB per page; about 10 GiB are left to steps, prompts, completions and others
    assert 3000 < pages < 120 * gib / (36 * 2**20)
    assert pages // 40 > 64  # this many rows of 10,240 tokens fit, 40 pages each
    assert affordable_pages(gib, 140 * gib, shape, size, 2) < 0
