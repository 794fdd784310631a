"""`scrl export`: a run's model as a standalone folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from scrl.cli.terminal import plain_console, say


def export(
    run: Path,
    /,
    *,
    out: Path,
    merge: Annotated[bool, Parameter(negative="")] = False,
    checkpoint: Literal["best", "last"] | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
) -> None:
    """Write a run's model to a standalone folder: weights, tokenizer, and a card that says how to use it.

    Example: scrl export runs/001 --out my-model
    Example: scrl export runs/002 --checkpoint last --merge --out my-model

    Parameters
    ----------
    run
        The folder of a run, or one of its checkpoints.
    out
        The new folder.
    merge
        For a run with --lora: full weights with the adapter merged in, instead of the adapter.
    checkpoint
        Which of the run's checkpoints; by default best, or last where there is no best.
    dtype
        The type of the weights; by default that of the model the run started from.
    """
    from scrl.training.export import export_model, find_checkpoint, remarks

    console = plain_console()
    source = find_checkpoint(run, checkpoint)
    exported = export_model(source, out, merge=merge, dtype=dtype)
    step = "an unknown step" if source.step is None else f"step {source.step}"
    console.print(f"took {source.folder}, of {step}", soft_wrap=True)
    say(console, *remarks(source))
    kind = "an adapter" if exported.adapter_of else "full weights"
    console.print(f"wrote {out}: {kind} in {exported.dtype}; {out / 'README.md'} says how to use it", soft_wrap=True)
