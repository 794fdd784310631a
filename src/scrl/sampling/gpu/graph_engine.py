"""The engine of the local sampler on a GPU: continuous batching over decode steps captured in CUDA graphs.

The host queues some steps and, while they run, looks at which rows had ended before them: those leave, waiting ones
enter, and the host never waits for the device on the way. A captured step is for a number of rows and of pages; both
come in few sizes, so a rollout of 3,072 tokens needs about twenty captures.

A prompt is prefilled without its last token, which is the first that its rows run: they all draw their first token in
an ordinary step, at the cost of one more step per completion (0.8 % at 128 tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scrl.device import HostCopy, copy_to_host
from scrl.policy.memory import RESERVED_SHARE
from scrl.records import Floats, Tokens
from scrl.sampling.decoders import DecodedRows
from scrl.sampling.gpu.cuda_graphs import CudaGraphs, StepSize, bucket_rows, step_size
from scrl.sampling.gpu.decode_step import ALIVE, COMPLETION, LENGTH, Completions, Ops
from scrl.sampling.gpu.fused_weights import FusedWeights, fuse
from scrl.sampling.gpu.scheduler import Prefix, Row, Scheduler, max_pages, min_pages
from scrl.sampling.gpu.step_memory import MemorySize, StepMemory, affordable_pages, prompt_teams
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.stop_texts import StopTexts

PAGE_SIZE = 256
"""Tokens of a page, which one program of the attention kernel reads: results do not depend on the batch."""
SHORT_PROMPT = 64
"""Prompts of at most this many tokens are read by each row itself: from L2 that should cost less than a launch
for them. A guess (benchmarks/LOG.md)."""
FEW_PROMPT_TOKENS = 2**15
"""Longer prompts too are read by each row itself once rows have several own pages, while all rows together
read at most this many prompt tokens. A guess."""
PROMPT_STEP = 1024
"""Room for prompts is a multiple of this many tokens, so that slightly longer ones do not need new memory."""
ENOUGH_PAGES = 0.98
"""Memory with this share of the pages that could be needed is not replaced by a larger one: a row is preempted only if
nearly all rows reach their limits."""
CHECK_EVERY = 8
"""Steps between two looks at which rows have ended."""


class Request(NamedTuple):
    """One completion to decode; requests of the same `group` have the same prompt."""

    group: int
    tokens_P: Tokens
    limit: int
    uniforms_T: Floats


class GraphEngine:
    """Decodes from a model's own weights; keeps its memory between calls until it is released."""

    def __init__(
        self,
        model: nn.Module,
        end_tokens: Sequence[int],
        ops: Ops,
        *,
        page_size: int = PAGE_SIZE,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        """`ops` is `kernels`, or a module with the same functions; `on_note` is told what makes steps slower."""
        self._model = model
        self._end_tokens = tuple(end_tokens)
        self._page_size = page_size
        self._graphs = CudaGraphs(ops, on_note)
        self._memory: StepMemory | None = None
        self._wanted_pages = 0
        self._weights: FusedWeights | None = None
        self._stream: Any = None
        self.preemptions = 0

    @property
    def captures(self) -> int:
        """Graphs captured so far."""
        return self._graphs.captures

    def release(self) -> None:
        """Free all memory; the next call allocates and captures again."""
        self._graphs.clear()
        self._memory = None
        if self._stream is not None:
            torch.cuda.empty_cache()

    def generate(
        self,
        requests: Sequence[Request],
        settings: SamplingSettings,
        record: Sequence[str],
        max_rows: int,
        stops: StopTexts | None,
    ) -> DecodedRows:
        """All requests, at most `max_rows` in parallel."""
        with self._own_stream(next(self._model.parameters()).device):
            weights = fuse(self._model, self._weights)
            if self._weights is None or self._weights.addresses != weights.addresses:
                self._graphs.clear()
            self._weights = weights
            prefixes = {request.group: Prefix(request.tokens_P[:-1]) for request in requests}
            rows = [
                Row(number, prefixes[request.group], int(request.tokens_P[-1]), request.limit)
                for number, request in enumerate(requests)
            ]
            self._memory = memory = self._memory_for(rows, requests, record, max_rows, weights)
            memory.reset([request.uniforms_T for request in requests], settings.temperature, settings.top_p)
            scheduler = Scheduler(min(max_rows, memory.size.slots), memory.size.pages, self._page_size)
            scheduler.add(rows)
            scanner = StopScanner(stops, self._end_tokens)
            self._run(memory, weights, scheduler, settings, scanner)
            return scanner.results(memory.completions, len(requests), max(request.limit for request in requests))

    @contextmanager
    def _own_stream(self, device: torch.device) -> Iterator[None]:
        """On a GPU run on a stream that can be captured; release everything when memory runs out."""
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

    def _memory_for(
        self,
        rows: Sequence[Row],
        requests: Sequence[Request],
        record: Sequence[str],
        max_rows: int,
        weights: FusedWeights,
    ) -> StepMemory:
        """The current memory if it suffices, else new with all pages that could be needed, or that fit."""
        slots = bucket_rows(min(max_rows, len(rows)))
        size = MemorySize(
            slots=slots,
            pages=max_pages(rows, slots, self._page_size),
            page_size=self._page_size,
            completions=len(requests),
            max_tokens=max(request.limit for request in requests),
            prompt_tokens=-(-max(len(request.tokens_P) for request in requests) // PROMPT_STEP) * PROMPT_STEP,
            record=tuple(record),
        )
        device = weights.embedding.device
        least = min_pages(rows, self._page_size)
        if self._memory is not None and self._memory.size.holds(size):
            pages = self._memory.size.pages
            is_enough = pages >= ENOUGH_PAGES * size.pages or pages < self._wanted_pages  # memory had no more
            if pages >= least and is_enough:
                if device.type == "cuda":
                    free, total = torch.cuda.mem_get_info(device)
                    if free < RESERVED_SHARE * total:  # torch cannot free what it caches while a step is captured
                        torch.cuda.empty_cache()
                return self._memory
        self.release()
        self._wanted_pages = size.pages
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            affordable = affordable_pages(free, total, weights.shape, size, weights.embedding.itemsize)
            if affordable < least:
                raise torch.OutOfMemoryError(f"{least} pages are needed for one completion, {affordable} fit")
            size = replace(size, pages=min(size.pages, affordable))
        return StepMemory.build(self._model, weights.shape, size, self._end_tokens)

    def _run(
        self,
        memory: StepMemory,
        weights: FusedWeights,
        scheduler: Scheduler,
        settings: SamplingSettings,
        scanner: StopScanner,
    ) -> None:
        """Admit, allocate, step; then retire the rows that had ended before these steps."""
        snapshot: _Snapshot | None = None
        is_changed = True
        while scheduler.running or scheduler.waiting:
            num_rows = len(scheduler.running)
            memory.prefill(self._graphs.ops, weights, scheduler.admit())
            steps = scheduler.num_steps(CHECK_EVERY)
            is_changed |= len(scheduler.running) > num_rows
            is_changed |= self._allocate(memory, scheduler, steps)
            if is_changed:
                memory.assign_slots(scheduler.running)
            size = self._step_size(memory, scheduler.running)
            for _ in range(steps):
                self._graphs.step(memory, weights, size, settings)
            scheduler.advance(steps)
            num_rows = len(scheduler.running)
            before, snapshot = snapshot, _Snapshot.start(memory, num_rows, scanner.stops is not None)
            scheduler.retire({} if before is None else before.ended(scanner))
            is_changed = len(scheduler.running) < num_rows

    def _allocate(self, memory: StepMemory, scheduler: Scheduler, steps: int) -> bool:
        """Pages for the next steps, and whether any changed hands; preempted rows are queued unless they have ended."""
        num_pages = sum(len(row.pages) for row in scheduler.running)
        preempted = scheduler.allocate(steps)
        for row in preempted:
            length = int(memory.completions.lengths_C[row.completion])  # waits for the device, which is rare
            written_T = memory.completions.tokens_CT[row.completion, row.start : length].cpu().numpy().astype(np.int64)
            if length < row.limit and not (len(written_T) and written_T[-1] in self._end_tokens):
                scheduler.requeue(row, written_T)
                self.preemptions += 1
        return bool(preempted) or sum(len(row.pages) for row in scheduler.running) != num_pages

    def _step_size(self, memory: StepMemory, running: Sequence[Row]) -> StepSize:
        team_size = memory.tables.teams.shape[1]
        suffix_pages = max(len(row.pages) for row in running)
        prompts = [len(row.prefix.tokens_P) for row in running]
        is_alone = reads_alone(prompts, suffix_pages, self._page_size)
        return step_size(
            rows=len(running),
            suffix_pages=suffix_pages,
            prompt_pages=max(len(row.prefix.pages) for row in running),
            num_teams=0 if is_alone else len(prompt_teams(running, team_size)),
            team_size=team_size,
        )


def reads_alone(prompts: Sequence[int], suffix_pages: int, page_size: int) -> bool:
    """Whether rows read prompts of these lengths by themselves; beside one own page they can read only one."""
    if suffix_pages == 1:
        return max(prompts) <= min(SHORT_PROMPT, page_size)
    return max(prompts) <= SHORT_PROMPT or sum(prompts) <= FEW_PROMPT_TOKENS


class StopScanner:
    """Finds out which completions contain a stop text, and where it ends.

    Rows run ahead of the search: tokens after a stop text are dropped.
    """

    def __init__(self, stops: StopTexts | None, end_tokens: Sequence[int]) -> None:
        """Without stop texts only end tokens end a completion."""
        self.stops = stops
        self._end_tokens = tuple(end_tokens)
        self._scan_ends: dict[int, int] = {}
        self._stop_lengths: dict[int, int] = {}

    def scan(self, completions_R: Tensor, lengths_R: Tensor, tokens_RT: Tensor | None) -> dict[int, int]:
        """The completions whose new tokens complete a stop text, and their lengths up to its end."""
        if self.stops is None or tokens_RT is None:
            return {}
        lengths = {}
        may_end_RT = self.stops.may_end(tokens_RT.long())
        for row, (completion, length) in enumerate(zip(completions_R.tolist(), lengths_R.tolist(), strict=True)):
            first = self._scan_ends.get(completion, 0)
            self._scan_ends[completion] = max(first, length)
            for t in first + may_end_RT[row, first:length].nonzero().flatten():
                so_far_1T = tokens_RT[row : row + 1, : t + 1].long()
                if completion not in self._stop_lengths and self.stops.reached(so_far_1T, so_far_1T[:, -1]):
                    self._stop_lengths[completion] = lengths[completion] = int(t) + 1
        return lengths

    def results(self, completions: Completions, number: int, max_tokens: int) -> DecodedRows:
        """The first `number` completions, cut after their stop texts."""
        tokens_RT = completions.tokens_CT[:number, :max_tokens].cpu().long()
        lengths_R = completions.lengths_C[:number].cpu().long()
        self.scan(torch.arange(number), lengths_R, tokens_RT)
        last_R = tokens_RT.gather(1, (lengths_R[:, None] - 1).clamp(min=0)).squeeze(1)
        finished_R = torch.isin(last_R, torch.tensor(self._end_tokens, dtype=torch.int64))
        for completion, length in self._stop_lengths.items():
            lengths_R[completion], finished_R[completion] = length, True
        return DecodedRows(
            tokens_RT=tokens_RT,
            logprobs_RT=completions.logprobs_CT[:number, :max_tokens],
            entropies_RT=completions.entropies_CT[:number, :max_tokens],
            facts_RT={name: values_CT[:number, :max_tokens] for name, values_CT in completions.facts_CT.items()},
            lengths_R=lengths_R,
            finished_R=finished_R,
        )


class _Snapshot(NamedTuple):
    """The rows' state after some steps, on its way to the host; with their tokens if stop texts are looked for."""

    fields: HostCopy
    tokens_RT: HostCopy | None

    @classmethod
    def start(cls, memory: StepMemory, rows: int, with_tokens: bool) -> _Snapshot:
        """Queue the copies; they arrive while the next steps run."""
        fields = memory.state.fields[:, :rows].contiguous()
        tokens_RT = memory.completions.tokens_CT[fields[COMPLETION].long()] if with_tokens else None
        return cls(copy_to_host(fields), None if tokens_RT is None else copy_to_host(tokens_RT))

    def ended(self, scanner: StopScanner) -> dict[int, int]:
        """The completions that have ended, and their lengths."""
        fields = self.fields.wait()
        completions_R, lengths_R, is_dead_R = fields[COMPLETION], fields[LENGTH], fields[ALIVE] == 0
        tokens_RT = None if self.tokens_RT is None else self.tokens_RT.wait()
        cut = scanner.scan(completions_R, lengths_R, tokens_RT)
        return dict(zip(completions_R[is_dead_R].tolist(), lengths_R[is_dead_R].tolist(), strict=True)) | cut
