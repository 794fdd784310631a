"""Running decode steps: captured in CUDA graphs where they can be, one graph for each size of step that comes up.

The first step of a size runs as it is, which compiles what is not yet compiled; the second is captured. Graphs share
one pool of memory: none keeps anything there between two replays. A graph knows addresses, not values: temperature,
rows and pages may change under it, weights and memory may not move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scrl.sampling.draw import SamplingSettings
from scrl.sampling.gpu import reference_ops as twins
from scrl.sampling.gpu.decode_step import Parts, next_logits
from scrl.sampling.gpu.fused_weights import FusedWeights
from scrl.sampling.gpu.kv_cache import Arena

ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512)
"""Rows of a step; beyond them multiples of 128."""


class StepSize(NamedTuple):
    """What a captured step is for."""

    rows: int
    suffix_pages: int
    prompt_pages: int
    teams: int


class _Kind(NamedTuple):
    """How the token is drawn."""

    is_greedy: bool
    is_nucleus: bool
    is_sorted: bool


class Stepper:
    """Steps of all sizes."""

    def __init__(self, parts: Parts, on_note: Callable[[str], None] | None = None) -> None:
        """`on_note` hears when steps are slower than they could be, and why."""
        self._parts = parts
        self._on_note = on_note
        self._graphs: dict[tuple[StepSize, _Kind], Any] = {}
        self._seen: set[tuple[StepSize, _Kind]] = set()
        self._noted: set[str] = set()
        self._pool: Any = None
        self._logits_SV: Tensor | None = None
        """What tokens are drawn from outside of a graph: what lies in the graphs' pool may be overwritten."""
        self._can_capture = True
        self.captures = 0

    def forget(self) -> None:
        """Drop all graphs and their memory; what is captured next runs once as it is before, like the first time."""
        self._graphs.clear()
        self._seen.clear()
        self._pool = self._logits_SV = None

    def step(self, arena: Arena, weights: FusedWeights, size: StepSize, settings: SamplingSettings) -> None:
        """One more token for every row."""
        key = (size, _kind(settings))
        if self._can_capture and is_on_gpu(arena):
            if key not in self._graphs and key in self._seen:
                self._capture(key, arena, weights, settings)
            self._seen.add(key)
        if key in self._graphs:
            self._graphs[key].replay()
        else:
            self._run(key, arena, weights, settings)
        if key[1].is_sorted and self._logits_SV is not None:
            self._note("sampling.top_k: likeliest tokens are found by sorting, outside of the captured step: slower")
            twins.choose(self._logits_SV[: size.rows], arena.desk, arena.written, settings)

    def _run(
        self, key: tuple[StepSize, _Kind], arena: Arena, weights: FusedWeights, settings: SamplingSettings
    ) -> None:
        """All that can be captured."""
        size, kind = key
        cache = (arena.keys, arena.values)
        logits_RV = next_logits(self._parts, weights, size.rows, arena.desk, arena.pages(*size[1:]), cache)
        if not kind.is_sorted:
            self._parts.choose(logits_RV, arena.desk, arena.written, settings)
            return
        if self._logits_SV is None:
            self._logits_SV = logits_RV.new_empty(arena.size.slots, logits_RV.shape[1])
        self._logits_SV[: size.rows] = logits_RV

    def _capture(
        self, key: tuple[StepSize, _Kind], arena: Arena, weights: FusedWeights, settings: SamplingSettings
    ) -> None:
        """Record a step, while those before it still run; where that fails, all run as they are from now on."""
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        failure: BaseException | None = None
        try:
            self._run(key, arena, weights, settings)
        except BaseException as error:  # whatever it is, the stream must stop recording
            failure = error
        try:
            graph.capture_end()
        except RuntimeError as error:
            failure = failure or error
        if isinstance(failure, torch.OutOfMemoryError) or not isinstance(failure, Exception | None):
            raise failure  # memory is the caller's to find, and Ctrl-C goes where it always goes
        if failure is not None:
            self._can_capture = False
            self._graphs.clear()
            said = str(failure).partition("\n")[0] or type(failure).__name__
            self._note(f"decode steps cannot be captured in CUDA graphs, which is slower: {said}")
            return
        self.captures += 1
        self._graphs[key] = graph

    def _note(self, text: str) -> None:
        """Once each."""
        if text not in self._noted and self._on_note is not None:
            self._on_note(text)
        self._noted.add(text)


def is_on_gpu(arena: Arena) -> bool:
    """Whether there are graphs at all."""
    return arena.keys.is_cuda


def _kind(settings: SamplingSettings) -> _Kind:
    is_greedy = settings.temperature == 0
    is_sorted = settings.top_k > 0 and not is_greedy
    return _Kind(is_greedy, settings.top_p < 1 and not is_greedy and not is_sorted, is_sorted)


def rows_bucket(rows: int) -> int:
    """The size of a step that has room for so many rows."""
    return next((size for size in ROWS if size >= rows), -(-rows // 128) * 128)


def power_of_two(number: int) -> int:
    """The next one that is not smaller; 0 for 0."""
    return 1 << (number - 1).bit_length() if number else 0


def step_size(rows: int, suffix_pages: int, prompt_pages: int, teams: int, team: int) -> StepSize:
    """The few sizes that steps come in: powers of two of pages; teams that are mostly full, or one a row."""
    bucket = rows_bucket(rows)
    few = min(bucket, max(1, 2 * bucket // team))
    most_teams = 0 if teams == 0 else few if teams <= few else bucket
    return StepSize(bucket, power_of_two(suffix_pages), power_of_two(prompt_pages), most_teams)
