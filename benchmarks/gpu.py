"""Everything that is said of one GPU, in one command: all samplers and all ways to update, in one run.

    python benchmarks/gpu.py                        # about 15 minutes on an H200, of which vLLM starts for 6
    python benchmarks/gpu.py --what ours,vllm       # fewer engines

Random weights in the shape of Qwen2.5-3B. Each engine has a process of its own, because vLLM does not give back all
it takes; the numbers are those of `gpu_sampling.py` and `gpu_update.py`, which explain them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
CASES = {
    "4 × 64 × 128 tokens": (),
    "8 × 64 × 512": ("--prompts", "8", "--samples", "64", "--tokens", "512"),
    "16 × 64 × 2,048, ended after 700 on average": (
        "--prompts", "16", "--samples", "64", "--tokens", "2048", "--mean-length", "700",
    ),
}  # fmt: skip
APART = "-apart"
"""vLLM with its engine in a process of its own, as its server has it; without, in one process, as a trainer has it."""
SHORT_ONLY = ("dynamic", "static")
"""`generate` is measured with the first case alone: it is slow, and does not fill rows again."""


def sampled(engine: str, options: tuple[str, ...]) -> dict[str, Any]:
    """What one engine does in one case, and the limit by arithmetic."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        what, is_apart = engine.removesuffix(APART), engine.endswith(APART)
        command = [sys.executable, str(HERE / "gpu_sampling.py"), "--what", what, *options, "--json", str(found)]
        apart = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"} if is_apart else {}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | apart)
        if done.returncode or not found.is_file():
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return {"skipped": f"exit code {done.returncode}: {last}"}
        written = json.loads(found.read_text(encoding="utf-8"))
    return {"limit": written["limit"], **written["results"][0]}


def line(case: str, engine: str, result: dict[str, Any]) -> str:
    """A row of the table."""
    if "skipped" in result:
        return f"| {case} | {engine} | skipped: {result['skipped']} | | | |"
    speed = result["tokens_per_second"]
    start = result["seconds_to_build"] + result["seconds_start_up"]
    return (
        f"| {case} | {engine} | {speed:,.0f} | {min(result['all']):,} to {max(result['all']):,} | "
        f"{speed / result['limit']:.0%} | {start:.1f} |"
    )


def main() -> None:
    """The table of samplers, then that of updates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--what", default="ours,dynamic,static,vllm,vllm-apart", help="samplers, by commas")
    parser.add_argument("--ways", default="ours,ours-padded,naive,liger,trl", help="ways to update, by commas")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu: there is no GPU here")
    print("| completions | sampler | tokens/s | runs | of the limit | seconds to start |\n|---|---|---|---|---|---|")
    for case, sizes in CASES.items():
        for engine in options.what.split(","):
            if not sizes or engine not in SHORT_ONLY:
                print(line(case, engine, sampled(engine, sizes)), flush=True)
    print(flush=True)
    subprocess.run([sys.executable, str(HERE / "gpu_update.py"), "--ways", options.ways], check=True)


if __name__ == "__main__":
    main()
