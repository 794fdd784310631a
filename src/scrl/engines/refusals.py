"""What neither TRL nor verl can follow, with the reason: each of them adds its own."""

from __future__ import annotations

from collections.abc import Iterator

from scrl.config import RunConfig


def shared_refusals(config: RunConfig, engine: str) -> Iterator[tuple[str, str]]:
    """(setting, reason) for every setting that is the embedded engine's alone; `engine` is the other's name."""
    if config.dynamic_sampling.rounds:
        yield "dynamic_sampling.rounds", f"{engine} asks the questions of a step once"
    if config.sampling.stop:
        yield "sampling.stop", f"{engine} ends completions at end-of-text tokens alone"
    if config.compute.credit_workers:
        yield "compute.credit_workers", f"{engine} hands over all completions of a step at once"
    for name in ("state", "masters"):
        if getattr(config.optimizer, name) != "float32":
            yield f"optimizer.{name}", f"{engine}'s optimizer has float32 alone"
