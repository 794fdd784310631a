"""scrl: test-time reinforcement learning of language models on questions without answers.

    group = scrl.Group.from_texts(texts, entropies, question_id="amc-17")
    credit = scrl.assign_credit(group, method="scrl")
    credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages

    result = scrl.train({"model": "my-model", "steps": 50}, questions=["What is 2 + 2?", "What is 3 · 4?"])
    result.checkpoint, result.metrics

Importing this package loads neither torch nor transformers nor a plotting library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrl.answers.classes import Classes, classify, same_answer
from scrl.answers.forms import Explanation, explain_answer
from scrl.answers.readers import get_reader
from scrl.api import TrainingResult, audit, evaluate, label, resume, sample, sweep, train
from scrl.credit.method import Evidence, Method
from scrl.credit.methods import METHODS
from scrl.credit.rule import PRESETS, CreditRule, assign_credit, credit_rule
from scrl.errors import ConfigError, DataError, InputError, ReaderError, ScrlError
from scrl.records import Completion, Credit, Elsewhere, Group, Labels, Question, Tally

if TYPE_CHECKING:
    from scrl.config import RunConfig

__version__ = "0.2.0"

__all__ = [
    "METHODS", "PRESETS", "Classes", "Completion", "ConfigError", "Credit", "CreditRule", "DataError", "Elsewhere",
    "Evidence", "Explanation", "Group", "InputError", "Labels", "Method", "Question", "ReaderError", "RunConfig",
    "ScrlError", "Tally", "TrainingResult", "assign_credit", "audit", "classify", "credit_rule", "evaluate",
    "explain_answer", "get_reader", "label", "resume", "same_answer", "sample", "sweep", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "RunConfig":  # importing it loads torch
        from scrl.config import RunConfig

        return RunConfig
    raise AttributeError(f"module 'scrl' has no attribute {name!r}")
