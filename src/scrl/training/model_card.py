"""The README.md of a checkpoint."""

from __future__ import annotations

import yaml

from scrl.training.config import RunConfig


def model_card(config: RunConfig, step: int) -> str:
    """What this model is, how it was made, and what to beware of."""
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    head = {
        "library_name": "peft" if config.lora else "transformers",
        "base_model": config.model,
        "tags": ["test-time-reinforcement-learning", "label-free", "scrl"],
    }
    return f"""---
{yaml.safe_dump(head, sort_keys=False)}---
# {config.model} after {step} steps of {config.method.upper()}

Adapted with [scrl](https://pypi.org/project/scrl) to questions without answers ({config.questions}): rewards came from
the agreement of the model's own completions, no gold answer was used. It may have become more certain without having
become more right; measure it on questions with known answers before you rely on it.

```yaml
{settings}```
"""
