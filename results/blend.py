"""Weights between two models of the same shape: (1 − α) · START + α · TRAINED, in the type of START.

python results/blend.py START TRAINED OUT 0.5
"""

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

WEIGHTS = "model.safetensors"


def blend(start: Path, trained: Path, out: Path, alpha: float) -> None:
    """Write a model folder; all but the weights is that of START."""
    ours, theirs = load_file(start / WEIGHTS), load_file(trained / WEIGHTS)
    if ours.keys() != theirs.keys():
        raise ValueError(f"{trained}: has other weights than {start}: {sorted(ours.keys() ^ theirs.keys())[:3]}")
    shutil.copytree(start, out, ignore=shutil.ignore_patterns("*.safetensors", "*.gguf"))
    between = {name: torch.lerp(ours[name].float(), theirs[name].float(), alpha).to(ours[name].dtype) for name in ours}
    save_file(between, out / WEIGHTS, metadata={"format": "pt"})


if __name__ == "__main__":
    blend(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
