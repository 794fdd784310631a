"""scrl: test-time reinforcement learning of language models on questions without answers.

    group = scrl.Group.from_texts(texts, entropies, question_id="amc-17")
    credit = scrl.assign_credit(group, method="scrl")
    credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages

    result = scrl.train({"model": "my-model", "steps": 50}, questions=["What is 2 + 2?", "What is 3 · 4?"])
    result.checkpoint, result.metrics

Importing this package loads nothing; its names are imported when they are used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrl.answers.classes import Classes, classify, same_answer
    from scrl.answers.forms import Explanation, explain_answer
    from scrl.answers.readers import get_reader
    from scrl.api import TrainingResult, audit, evaluate, label, resume, sample, sweep, train
    from scrl.config import RunConfig
    from scrl.credit.method import Evidence, Method
    from scrl.credit.methods import METHODS
    from scrl.credit.rule import PRESETS, CreditRule, assign_credit, credit_rule
    from scrl.errors import ConfigError, DataError, InputError, ReaderError, ScrlError
    from scrl.records import Completion, Credit, Elsewhere, Group, Labels, Question, Tally

__version__ = "0.2.0"

# Set before torch is loaded: spinning threads slow a run down tenfold on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__all__ = [
    "METHODS", "PRESETS", "Classes", "Completion", "ConfigError", "Credit", "CreditRule", "DataError", "Elsewhere",
    "Evidence", "Explanation", "Group", "InputError", "Labels", "Method", "Question", "ReaderError", "RunConfig",
    "ScrlError", "Tally", "TrainingResult", "assign_credit", "audit", "classify", "credit_rule", "evaluate",
    "explain_answer", "get_reader", "label", "resume", "same_answer", "sample", "sweep", "train",
]  # fmt: skip


_PLACES = {
    "scrl.answers.classes": "Classes classify same_answer",
    "scrl.answers.forms": "Explanation explain_answer",
    "scrl.answers.readers": "get_reader",
    "scrl.api": "TrainingResult audit evaluate label resume sample sweep train",
    "scrl.config": "RunConfig",
    "scrl.credit.method": "Evidence Method",
    "scrl.credit.methods": "METHODS",
    "scrl.credit.rule": "PRESETS CreditRule assign_credit credit_rule",
    "scrl.errors": "ConfigError DataError InputError ReaderError ScrlError",
    "scrl.records": "Completion Credit Elsewhere Group Labels Question Tally",
}
"""Where the names come from: imported when they are asked for, so that `import scrl` takes no time."""


def __getattr__(name: str) -> Any:
    place = next((place for place, names in _PLACES.items() if name in names.split()), None)
    if place is None:
        raise AttributeError(f"module 'scrl' has no attribute {name!r}")
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return __all__
