"""Many completions at once, with the step captured in CUDA graphs: the decoding loop of the local sampler on a GPU.

The host starts some steps and, while they run, looks at what had ended before them: rows that have ended leave, waiting
ones enter, and it does not wait for the device on the way. A captured step belongs to a number of rows and of pages
they may look at; both come in few sizes, so a rollout of 3,072 tokens needs about twenty captures.

A prompt is read but for its last token, which is the first that its rows run: they all draw their own first token in
an ordinary step, for one step more a completion (0.8 % at 128 tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from scrl.device_copy import HostCopy, host_copy
from scrl.records import Floats, Tokens
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.gpu.completion_events import Endings, OnEnded
from scrl.sampling.gpu.cuda_graphs import Stepper, StepSize, rows_bucket, step_size
from scrl.sampling.gpu.decode_state import ALIVE, JOB, PLACE
from scrl.sampling.gpu.decode_step import Parts
from scrl.sampling.gpu.fused_weights import FusedWeights, fuse
from scrl.sampling.gpu.kv_cache import KEPT_FREE, Arena, Size, affordable_pages, teams_of
from scrl.sampling.gpu.scheduler import Row, RowPlan, Source, smallest_pool, whole_pool
from scrl.sampling.gpu.stop_scanner import Results, StopWatch
from scrl.sampling.stop_texts import StopTexts

PAGE = 256
"""Tokens of a page, which is also what one program of the attention kernel reads: results do not hang on the batch."""
READ_ALONE = 64
"""Prompts of at most so many tokens are read by each row itself: from L2 that should cost less than a launch
for them. A guess (benchmarks/LOG.md)."""
PROMPTS_TO = 1024
"""Room for prompts is made in steps of so many tokens, so that the next, longer ones do not need memory anew."""
GOOD_ENOUGH = 0.98
"""A pool with this share of the pages that could be needed is not given up for a larger one: only if nearly all rows
were to reach their limits would one have to make room."""
WINDOW = 8
"""Steps between two looks at what has ended."""


class Task(NamedTuple):
    """One completion to write; tasks of the same `group` have the same prompt."""

    group: int
    tokens_P: Tokens
    limit: int
    uniforms_T: Floats


class _News(NamedTuple):
    """The rows' state after a window, and what they have written where that is looked at."""

    state: HostCopy
    tokens_RT: HostCopy | None


class GraphWriter:
    """Writes from a model's own weights; keeps its memory between calls until it is released."""

    def __init__(
        self,
        model: nn.Module,
        ends: Sequence[int],
        parts: Parts,
        *,
        page: int = PAGE,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        """`parts` is `twins` or `kernels`; `on_note` hears what makes steps slower."""
        self._model = model
        self._ends = tuple(ends)
        self._page = page
        self._stepper = Stepper(parts, on_note)
        self._arena: Arena | None = None
        self._wanted_pages = 0
        self._weights: FusedWeights | None = None
        self._stream: Any = None
        self.interrupted = 0
        """Rows that had to make room and were read again."""

    @property
    def captures(self) -> int:
        """Graphs captured so far."""
        return self._stepper.captures

    def release(self) -> None:
        """Give all memory back; the next call takes it again and captures anew."""
        self._stepper.forget()
        self._arena = None
        if self._stream is not None:
            torch.cuda.empty_cache()

    def write(
        self,
        tasks: Sequence[Task],
        settings: SamplingSettings,
        record: Sequence[str],
        max_rows: int,
        stops: StopTexts | None,
        on_ended: OnEnded | None = None,
    ) -> Results:
        """All tasks, at most `max_rows` side by side.

        `on_ended` hears of completions that have ended while others are being written: most of them, each once.
        """
        with self._own_stream(next(self._model.parameters()).device):
            weights = fuse(self._model)
            if self._weights is None or self._weights.addresses != weights.addresses:
                self._stepper.forget()
            self._weights = weights
            rows = rows_of(tasks)
            self._arena = arena = self._arena_for(rows, tasks, record, max_rows, weights)
            arena.begin([task.uniforms_T for task in tasks], settings.temperature, settings.top_p)
            plan = RowPlan(min(max_rows, arena.size.slots), arena.size.pages, self._page)
            plan.add(rows)
            watch = StopWatch(stops, self._ends)
            self._run(arena, plan, settings, watch, Endings(arena, on_ended))
            return watch.results(arena.written, len(tasks), max(task.limit for task in tasks))

    @contextmanager
    def _own_stream(self, device: torch.device) -> Iterator[None]:
        """On a GPU a stream that can be captured, after and before all else; where memory ends, all is given back."""
        if device.type != "cuda":
            yield
            return
        self._stream = self._stream or torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.device(device), torch.cuda.stream(self._stream):
                yield
        except torch.OutOfMemoryError:
            self.release()
            raise
        finally:
            torch.cuda.current_stream(device).wait_stream(self._stream)

    def _arena_for(
        self, rows: Sequence[Row], tasks: Sequence[Task], record: Sequence[str], max_rows: int, weights: FusedWeights
    ) -> Arena:
        """The memory at hand where it will do, else new memory: as many pages as could be needed, or as fit."""
        slots = rows_bucket(min(max_rows, len(rows)))
        size = Size(
            slots=slots,
            pages=whole_pool(rows, slots, self._page),
            page=self._page,
            completions=len(tasks),
            tokens=max(task.limit for task in tasks),
            prompt_tokens=-(-max(len(task.tokens_P) for task in tasks) // PROMPTS_TO) * PROMPTS_TO,
            record=tuple(record),
        )
        least = smallest_pool(rows, self._page)
        if self._arena is not None and self._arena.size.holds(size):
            has = self._arena.size.pages
            is_enough = has >= GOOD_ENOUGH * size.pages or has < self._wanted_pages  # memory had no more
            if has >= least and is_enough:
                leave_some(weights.embedding.device)
                return self._arena
        self.release()
        self._wanted_pages = size.pages
        return build_arena(self._model, weights, size, least, self._ends)

    def _run(self, arena: Arena, plan: RowPlan, settings: SamplingSettings, watch: StopWatch, endings: Endings) -> None:
        """The loop: enter, grow, arrange, step; then look at what had ended before these steps."""
        news: _News | None = None
        is_changed = True
        while plan.live or plan.waiting:
            rows = len(plan.live)
            arena.read(plan.admit())
            steps = plan.window(WINDOW)
            is_changed |= len(plan.live) > rows
            is_changed |= self._grow(arena, plan, steps)
            if is_changed:
                arena.arrange(plan.live)
            self._step(arena, plan, settings, steps)
            was, news = news, _ask(arena, len(plan.live), watch.is_on)
            rows = len(plan.live)
            endings.look(_leave(plan, was, watch))
            is_changed = len(plan.live) < rows

    def _grow(self, arena: Arena, plan: RowPlan, steps: int) -> bool:
        """Pages for the next steps; rows that have to go for it come back later, unless they have ended."""
        before = sum(len(row.pages) for row in plan.live)
        gone = plan.grow(steps)
        for row in gone:
            length = int(arena.written.lengths_J[row.job])  # waits for the device, which is rare
            written_T = arena.written.tokens_JT[row.job, row.written : length].cpu().numpy().astype(np.int64)
            if length < row.limit and not (len(written_T) and written_T[-1] in self._ends):
                plan.come_back(row, written_T)
                self.interrupted += 1
        return bool(gone) or sum(len(row.pages) for row in plan.live) != before

    def _step(self, arena: Arena, plan: RowPlan, settings: SamplingSettings, steps: int) -> None:
        assert self._weights is not None
        size = self._step_size(arena, plan.live)
        for _ in range(steps):
            self._stepper.step(arena, self._weights, size, settings)
        plan.stepped(steps)

    def _step_size(self, arena: Arena, live: Sequence[Row]) -> StepSize:
        team = arena.teams_SN.shape[1]
        is_short = max(len(row.source.tokens_P) for row in live) <= min(READ_ALONE, self._page)
        return step_size(
            rows=len(live),
            suffix_pages=max(len(row.pages) for row in live),
            prompt_pages=max(len(row.source.pages) for row in live),
            teams=0 if is_short else len(teams_of(live, team)),
            team=team,
        )


def rows_of(tasks: Sequence[Task]) -> list[Row]:
    """A row for each task; those of a group share what they start from."""
    sources = {task.group: Source(task.tokens_P[:-1]) for task in tasks}
    return [Row(job, sources[task.group], int(task.tokens_P[-1]), task.limit) for job, task in enumerate(tasks)]


def leave_some(device: torch.device) -> None:
    """Where what torch keeps for later fills the GPU, give it back: nothing can be while a step is captured."""
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    if free < KEPT_FREE * total:
        torch.cuda.empty_cache()


def build_arena(model: nn.Module, weights: FusedWeights, size: Size, least: int, ends: Sequence[int]) -> Arena:
    """New memory: as many pages as asked for, or as are affordable; too few for one row is out of memory."""
    device = weights.embedding.device
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        fit = affordable_pages(free, total, weights.shape, size, weights.embedding.itemsize)
        if fit < least:
            raise torch.OutOfMemoryError(f"{least} pages are needed for one completion, {fit} fit")
        size = replace(size, pages=min(size.pages, fit))
    return Arena.build(model, weights.shape, size, ends)


def _ask(arena: Arena, rows: int, with_tokens: bool) -> _News:
    """Ask for the rows' state; the answer comes while the next steps run."""
    state = arena.desk.state[:, :rows].contiguous()
    tokens_RT = arena.written.tokens_JT[state[JOB].long()] if with_tokens else None
    return _News(host_copy(state), None if tokens_RT is None else host_copy(tokens_RT))


def _leave(plan: RowPlan, news: _News | None, watch: StopWatch) -> dict[int, int]:
    """Rows that had ended leave, and those at their limits; how many tokens those have that are known to have ended."""
    if news is None:
        plan.leave({})
        return {}
    state = news.state.get()
    jobs, lengths, dead_R = state[JOB], state[PLACE], state[ALIVE] == 0
    cut = watch.look(jobs, lengths, None if news.tokens_RT is None else news.tokens_RT.get())
    dead = dict(zip(jobs[dead_R].tolist(), lengths[dead_R].tolist(), strict=True))
    ended = dead | cut
    plan.leave(ended)
    return ended
