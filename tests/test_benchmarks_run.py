"""Benchmarks of the GPU in a tiny shape on a CPU: their code must not fall behind the package's."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_an_update_is_measured():
    words = "--shape tiny --rows 2 --tokens 16 --device cpu --ways ours --runs 1".split()
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "gpu_update.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    heads, row = done.stdout.splitlines()[-2:]
    measured = dict(zip(heads.split()[:3], row.split()[:3], strict=True))
    assert (measured["way"], measured["layers"]) == ("ours", "ours")
    assert float(measured["tok/s"].replace(",", "")) > 0
