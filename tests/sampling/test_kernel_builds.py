"""The kernels as a Hopper GPU would get them: they compile, and keep their numbers in registers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_every_kernel_compiles_and_spills_next_to_nothing(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = Path(__file__).with_name("hopper_builds.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, used in json.loads(done.stdout).items():
        assert used["stack"] <= 64, (name, used)
        assert used["shared"] <= 227 * 1024, (name, used)
