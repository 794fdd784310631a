"""The README.md of a checkpoint."""

from __future__ import annotations

import yaml

from scrl.reporting.text import counted
from scrl.training.config import RunConfig


def model_card(config: RunConfig, step: int) -> str:
    """What this model is, how it was made, and what to beware of."""
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    rule = config.rule()
    is_told = "truth" in rule.needs
    head = {
        "library_name": "peft" if config.lora else "transformers",
        "base_model": config.model,
        "tags": ["test-time-reinforcement-learning", *([] if is_told else ["label-free"]), "scrl"],
    }
    source = "rewards came from their gold answers: a control" if is_told else "no gold answer was used"
    return f"""---
{yaml.safe_dump(head, sort_keys=False)}---
# {config.model} after {counted(step, "step")} of {rule.method.name}

Adapted with [scrl](https://pypi.org/project/scrl) to the questions of {config.questions}; {source}.
The method, {rule.method.name}: {rule.method.idea}. The model may have become more certain without having become more
right; measure it on questions with known answers before you rely on it.

```yaml
{settings}```
"""
