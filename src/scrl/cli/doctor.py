"""`scrl doctor`: what this machine can run."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from scrl.errors import ConfigError
from scrl.optional_deps import installed_version, require_extra

OPTIONAL = {
    "peft": "LoRA: pip install 'scrl[train]'",
    "datasets": "questions from the hub: pip install 'scrl[hub]'",
    "pyarrow": "questions from .parquet files: pip install pyarrow",
    "tensorboard": "tensorboard logs: pip install 'scrl[trackers]'",
    "triton": "the fast sampler on an NVIDIA GPU: part of torch's CUDA builds",
    "liger_kernel": "faster updates on an NVIDIA GPU: pip install 'scrl[gpu]'",
}
PINNED = {
    "vllm": "engine: trl with engine_options.use_vllm",
    "trl": "engine: trl, several GPUs",
    "verl": "engine: verl; not beside trl",
}
"""Packages of which only the versions in our extras are supported."""


def doctor() -> None:
    """Say what this machine can run: versions, devices, memory, disk, and a test of the embedded model.

    Example: scrl doctor
    """
    for line in _lines():
        print(line)


def _lines() -> Iterator[str]:
    import torch

    from scrl import __version__

    yield f"scrl {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    versions = {name: installed_version(name) for name in ("torch", "transformers", "numpy", *OPTIONAL, *PINNED)}
    for name, version in versions.items():
        try:
            if version is not None and name in PINNED:
                require_extra(name, PINNED[name])
        except ConfigError as error:
            yield f"BAD   {error}"
            continue
        how = OPTIONAL.get(name) or f"{PINNED.get(name)}: pip install 'scrl[{name}]'"
        yield f"none  {name} ({how})" if version is None else f"ok    {name} {version}"
    yield f"ok    {os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()}"
    yield from _devices()
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    yield f"{'ok   ' if free > 5 else 'low  '} {free:.0f} GiB free here; a checkpoint needs 12 bytes per trained weight"
    yield _self_test()


def _devices() -> Iterator[str]:
    import torch

    if not torch.cuda.is_available():
        yield "none  GPU (training runs on the CPU, for models up to about 100 million weights)"
        return
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        total = properties.total_memory / 2**30
        # bfloat16 takes 2 + 2 + 4 + 8 bytes per weight, as in planning/memory.py; a fifth is left for activations
        weights = 0.8 * properties.total_memory / 16 / 1e9
        yield f"ok    cuda:{number} {properties.name}, {total:.0f} GiB: trains up to {weights:.1f} billion weights"


def _self_test() -> str:
    """Draw two completions with the embedded model and check what was recorded against a plain forward pass."""
    import numpy as np

    from scrl.policy.model import load_model
    from scrl.policy.model_paths import EMBEDDED
    from scrl.policy.settings import ComputeSettings
    from scrl.policy.token_scores import completion_logprobs
    from scrl.sampling.local import LocalSampler
    from scrl.sampling.sampler import Prompt
    from scrl.sampling.settings import SamplingSettings

    compute = ComputeSettings(dtype="float32")
    loaded = load_model(EMBEDDED, compute)
    prompt = Prompt("doctor", np.asarray(loaded.tokenizer.encode("Compute 2+3*4.\n"), dtype=np.int64))
    sampler = LocalSampler(loaded.model, loaded.tokenizer, max_rows=compute.sampler_rows)
    (samples,) = sampler.sample([prompt], SamplingSettings(max_tokens=48), num_samples=2, seed=0, step=0)
    (expected_T,) = completion_logprobs(loaded.model, [(prompt.tokens_P, samples[0].tokens_T)])
    error = float(np.abs(expected_T - samples[0].logprobs_T).max())
    verdict = "ok   " if error < 1e-3 else "BAD  "
    return f"{verdict} sampler and forward pass on {loaded.device}: log-probabilities within {error:.1e}"
