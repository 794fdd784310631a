"""All numbers of one GPU in one command: all samplers and all ways to update.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --what ours,vllm       # fewer samplers
    python benchmarks/gpu.py --ways none            # without the updates

Random weights in the shape of Qwen2.5-3B. Each sampler runs in a separate process, because vLLM does not free all its
memory; the numbers are those of `gpu_sampling.py` and `gpu_update.py`, which explain them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
CASES = ("4x64x128", "8x64x512", "16x64x2048/700")
"""Prompts × completions × tokens; the last with ends, after 700 tokens on average."""
APART = "-apart"
"""vLLM with its engine in a separate process, as in its server; without the suffix in one process, as in a trainer."""
AS_A_SERVER = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
"""Spawned, not forked: torch has initialized the GPU by then, and a forked process could not use it."""
NEVER_REFILLED = ("dynamic", "static")
"""`generate` is measured only on completions of one length: it does not replace rows that have ended."""


def results_of(engine: str) -> Iterator[dict[str, Any]]:
    """The results of one sampler, case by case."""
    what = engine.removesuffix(APART)
    cases = [case for case in CASES if engine not in NEVER_REFILLED or "/" not in case]
    apart = AS_A_SERVER if engine.endswith(APART) else {}
    command = [sys.executable, str(HERE / "gpu_sampling.py"), *cases, "--what", what, "--json"]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | apart) as process,
    ):
        assert process.stdout is not None
        yield from (json.loads(text) for text in process.stdout if text.startswith('{"engine"'))
        if process.wait():
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no output"])[-1]
            yield {"engine": engine, "skipped": f"exit code {process.returncode}: {last}"}


def line(engine: str, result: dict[str, Any]) -> str:
    """A row of the table."""
    if "skipped" in result:
        return f"| {engine} | | skipped: {result['skipped']} | | | |"
    speed, start = result["tokens_per_second"], result["seconds_start_up"]
    return (
        f"| {engine} | {result['case']} | {speed:,.0f} | {min(result['all']):,} to {max(result['all']):,} | "
        f"{speed / result['limit']:.0%} | {f'{start:.1f}' if start else ''} |"
    )


def main() -> None:
    """The table of samplers, then that of updates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--what", default="ours,static,dynamic,vllm,vllm-apart", help="samplers, by commas")
    parser.add_argument("--ways", default="ours,ours-packed,naive,liger,trl", help="ways to update, by commas, or none")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu: there is no GPU here")
    print("| sampler | completions | tokens/s | runs | of the limit | seconds to start |\n|---|---|---|---|---|---|")
    for engine in options.what.split(","):
        for result in results_of(engine):
            print(line(engine, result), flush=True)
    print(flush=True)
    if options.ways != "none":
        subprocess.run([sys.executable, str(HERE / "gpu_update.py"), "--ways", options.ways], check=True)


if __name__ == "__main__":
    main()
