"""The kernels of an update, run by Triton's interpreter in a process of its own, against plain torch."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.policy.fused_token_scores import ROWS, block_rows


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (CUDA builds of torch bring it)")
def test_the_kernels_do_what_plain_torch_does():
    script = Path(__file__).parent / "interpreted_kernels.py"
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read when Triton is imported
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == 8 + 12


@given(st.integers(0, 10_000), st.integers(1, 1000), st.integers(1, 10**6))
def test_blocks_are_few_and_of_about_one_size(tokens, vocabulary, chunk_elements):
    rows = block_rows(tokens, vocabulary, chunk_elements)
    assert rows % ROWS == 0
    if tokens == 0:
        return
    assert rows == ROWS or rows * vocabulary <= chunk_elements
    blocks = -(-tokens // rows)
    assert blocks * rows - tokens < blocks * ROWS  # the last one is short by less than that
