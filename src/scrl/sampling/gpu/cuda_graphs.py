"""Decode steps captured in CUDA graphs, one graph for each size of step that comes up.

The first step of a size runs eagerly, which compiles its kernels; the second is captured. Graphs share one memory pool:
none keeps anything there between two replays. A graph holds addresses, not values: temperature, rows and pages may
change between replays, weights and memory may not move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scrl.sampling.gpu.decode_step import Ops, draw_tokens, next_logits
from scrl.sampling.gpu.fused_weights import FusedWeights
from scrl.sampling.gpu.step_memory import StepMemory
from scrl.sampling.settings import SamplingSettings

ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512)
"""Sizes of a step in rows; beyond them multiples of 128."""


class StepSize(NamedTuple):
    """The size that a step is captured for."""

    rows: int
    suffix_pages: int
    prompt_pages: int
    num_teams: int


GraphKey = tuple[StepSize, str]
"""The size of a step, and how tokens are drawn: greedy, all, nucleus or sorted."""


class CudaGraphs:
    """Runs decode steps, captured where possible."""

    def __init__(self, ops: Ops, on_note: Callable[[str], None] | None = None) -> None:
        """`on_note` is told why steps are slower than they could be."""
        self.ops = ops
        self._on_note = on_note
        self._graphs: dict[GraphKey, Any] = {}
        self._seen: set[GraphKey] = set()
        self._notes: set[str] = set()
        self._pool: Any = None
        self._logits: Tensor | None = None
        """[slots, V], for draws outside of a graph: the graphs' pool may be overwritten by then."""
        self._can_capture = True
        self.captures = 0

    def clear(self) -> None:
        """Drop all graphs and their memory; sizes run eagerly once again before they are captured."""
        self._graphs.clear()
        self._seen.clear()
        self._pool = self._logits = None

    def step(self, memory: StepMemory, weights: FusedWeights, size: StepSize, settings: SamplingSettings) -> None:
        """One more token for every row."""
        if settings.temperature == 0:
            kind = "greedy"
        else:
            kind = "sorted" if settings.top_k > 0 else "nucleus" if settings.top_p < 1 else "all"
        key = (size, kind)
        if self._can_capture and is_on_gpu(memory):
            if key not in self._graphs and key in self._seen:
                self._capture(key, memory, weights, settings)
            self._seen.add(key)
        if key in self._graphs:
            self._graphs[key].replay()
        else:
            self._run(key, memory, weights, settings)
        if kind == "sorted" and self._logits is not None:
            self._note("sampling.top_k: likeliest tokens are found by sorting, outside of the captured step: slower")
            draw_tokens(self._logits[: size.rows], memory.state, memory.completions, settings)

    def _run(self, key: GraphKey, memory: StepMemory, weights: FusedWeights, settings: SamplingSettings) -> None:
        """The part of a step that can be captured."""
        size, kind = key
        _, suffix_pages, prompt_pages, num_teams = size
        tables = replace(memory.tables, suffix_pages=suffix_pages, prompt_pages=prompt_pages, num_teams=num_teams)
        logits_RV = next_logits(self.ops, weights, size.rows, memory.state, tables, memory.keys, memory.values)
        if kind != "sorted":
            self.ops.draw_tokens(logits_RV, memory.state, memory.completions, settings)
            return
        if self._logits is None:
            self._logits = logits_RV.new_empty(memory.size.slots, logits_RV.shape[1])
        self._logits[: size.rows] = logits_RV

    def _capture(self, key: GraphKey, memory: StepMemory, weights: FusedWeights, settings: SamplingSettings) -> None:
        """Capture a step while earlier ones still run; if that fails, all steps run eagerly from now on."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        failure: BaseException | None = None
        try:
            self._run(key, memory, weights, settings)
        except BaseException as error:  # whatever it is, the capture must end
            failure = error
        try:
            graph.capture_end()
        except RuntimeError as error:
            failure = failure or error
        if isinstance(failure, torch.OutOfMemoryError) or not isinstance(failure, Exception | None):
            raise failure  # the caller frees memory; Ctrl-C is passed on
        if failure is not None:
            self._can_capture = False
            self._graphs.clear()
            reason = str(failure).partition("\n")[0] or type(failure).__name__
            self._note(f"decode steps cannot be captured in CUDA graphs, which is slower: {reason}")
            return
        self.captures += 1
        self._graphs[key] = graph

    def _note(self, text: str) -> None:
        """Pass on each note once."""
        if text not in self._notes and self._on_note is not None:
            self._on_note(text)
        self._notes.add(text)


def is_on_gpu(memory: StepMemory) -> bool:
    """Whether steps can be captured at all."""
    return memory.keys.is_cuda


def bucket_rows(rows: int) -> int:
    """The smallest number of rows of a step that has room for these."""
    return next((size for size in ROWS if size >= rows), -(-rows // 128) * 128)


def step_size(rows: int, suffix_pages: int, prompt_pages: int, num_teams: int, team_size: int) -> StepSize:
    """The few sizes of steps: pages in powers of two; teams that are mostly full, or one per row."""

    def power_of_two(number: int) -> int:
        return 1 << (number - 1).bit_length() if number else 0

    bucket = bucket_rows(rows)
    few = min(bucket, max(1, 2 * bucket // team_size))
    most_teams = 0 if num_teams == 0 else few if num_teams <= few else bucket
    return StepSize(bucket, power_of_two(suffix_pages), power_of_two(prompt_pages), most_teams)
