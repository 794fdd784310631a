"""The demo: a small model that lies as large ones do, on generated arithmetic, with no answers given.

Model, level and the settings below were chosen on seeds 0–4; what the documentation reports are seeds 10–12. All
methods get all of them, `std_floor` too: without it a question on which SCRL abstains is trained on its entropy at full
strength (docs/deviations.md, "two traps").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scrl.policy.model_paths import HASTY

if TYPE_CHECKING:
    from scrl.config import RunConfig

SEED = 10
"""The default of `scrl demo` and of everything at demo scale."""
STEPS = 24
METHODS = ("ttrl", "scrl", "contrast")
"""All from the same start, on the same stream, with the same settings."""
TOY_STEPS = 40
"""Of a run at demo scale, whose model, EMBEDDED, slips but does not guess."""


def demo_config(
    method: str, *, seed: int, steps: int, model: str = HASTY, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """A run of the demo, about a minute on a laptop, with `changes` on top."""
    from scrl.config import build_config
    from scrl.settings import merged

    settings = {
        "model": model,
        "questions": "arithmetic:medium:train:64",
        "method": method,
        "credit": {"std_floor": 0.18},
        "probe": 0,
        "seed": seed,
        "steps": steps,
        "prompt": {"instruction": ""},
        "sampling": {"max_tokens": 72},
        "optimizer": {"learning_rate": 2e-5, "weight_decay": 0.0},
        "evaluation": {"completions": 16, "held_out": "arithmetic:medium:held-out:64"},
        "guard": {"mode": "observe"},
        "checkpoint_every": 20,
    }
    return build_config(merged(settings, changes or {}))
