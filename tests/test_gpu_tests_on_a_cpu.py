"""The helpers of tests/gpu, and those of its tests that a CPU can run: they must not fall behind the package."""

import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

from scrl.sampling.gpu import decode_step
from scrl.sampling.local import LocalSampler
from scrl.sampling.settings import SamplingSettings

FEW = SamplingSettings(max_tokens=4)


@pytest.fixture
def on_cpu(monkeypatch):
    """One of the files, its tensors on the CPU."""

    def load(name):
        monkeypatch.syspath_prepend(Path(__file__).parent / "gpu")
        module = import_module(name)
        monkeypatch.setattr(module, "CUDA", "cpu")
        return module

    return load


@pytest.fixture
def updates(on_cpu, monkeypatch):
    """With a smaller model and shorter rows."""
    updates = on_cpu("test_update")
    model = partial(updates.random_model, heads=4, kv_heads=2, size=8, layers=1, mlp=16)
    monkeypatch.setattr(updates, "random_model", lambda dtype=torch.float32, **config: model(dtype, **config))
    monkeypatch.setattr(updates, "random_rows", partial(updates.random_rows, (30, 5, 1)))
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return updates


@pytest.mark.parametrize("is_split", [False, True])
def test_an_update(updates, is_split):
    updates.test_an_update_of_packed_rows_is_queued_without_waiting_for_the_gpu(is_split)
    updates.test_a_whole_update_moves_the_masters()
    updates.test_a_gradient_that_is_no_number_changes_nothing(is_split)
    updates.test_the_kernel_steps_as_plain_torch_does(torch.float32, is_split, "float32")


def test_gradients(updates):
    updates.test_packed_fp32_gradients_are_those_of_padded_rows()
    updates.test_activations_of_packed_rows_can_be_computed_again()
    updates.test_bf16_log_probabilities_are_near_those_of_fp32()
    updates.test_a_model_gives_packed_rows_what_it_gives_each_alone({})
    updates.test_flash_attention_within_rows_is_sdpa_row_by_row(2, 64, None, [(4, (6, 1)), (1, ())])


def test_layers(updates):
    updates.test_a_model_with_fused_layers_is_the_same_and_so_is_its_copy(None, "qwen3", True, True)


def test_token_scores(updates, monkeypatch):
    monkeypatch.setattr(updates, "is_fused", lambda hidden_nE: True)
    monkeypatch.setattr(updates, "problem", partial(updates.problem, n=5, E=8, V=50))
    updates.test_scores_and_gradients_are_those_of_the_full_computation(torch.float32, (0, 1), has_bias=True)


@pytest.mark.parametrize("is_adapted", [False, True])
def test_the_gpu_sampler(on_cpu, is_adapted):
    file = on_cpu("test_gpu_sampler")
    model, prompts_B = file.model_of("qwen2.5-0.5b", dtype=torch.float32), file.prompts(1, 7)
    model = file.adapted(model) if is_adapted else model
    samples_BG = LocalSampler(model, file.Silent(), max_rows=4).sample(prompts_B, FEW, num_samples=2, **file.HOW)
    assert [len(tokens_G) for tokens_G in file.tokens_of(samples_BG)] == [2, 2]
    assert max(float(each.max()) for each in file.differences(model, prompts_B, samples_BG)) < 1e-3
    drawn = file.drawn_by(decode_step, torch.tensor([[0.0, 50.0], [50.0, 0.0]]), FEW)
    assert drawn.tokens_CT[:2, 0].tolist() == [1, 0]


# Benchmarks of the GPU in a tiny shape on a CPU

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_an_update_is_measured():
    words = "--shape tiny --rows 2 --tokens 16 --device cpu --ways ours --runs 1".split()
    command = [sys.executable, "-W", "ignore", str(BENCHMARKS / "gpu_update.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    heads, row = done.stdout.splitlines()[-2:]
    measured = dict(zip(heads.split()[:3], row.split()[:3], strict=True))
    assert (measured["way"], measured["layers"]) == ("ours", "plain")
    assert float(measured["tok/s"].replace(",", "")) > 0
