"""scrl: test-time reinforcement learning of language models on questions without answers.

    group = scrl.Group.from_texts(texts, entropies, question_id="amc-17")
    credit = scrl.assign_credit(group, method="scrl")
    credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages

    scrl.train({"model": "embedded", "questions": "arithmetic:medium", "prompt": {"instruction": ""}}, out="my-run")

Importing this package loads neither torch nor transformers nor a plotting library.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrl.answers.classes import Classes, classify, same_answer
from scrl.answers.judge import Judge, MathVerifyJudge, NoJudge
from scrl.answers.readers import get_reader
from scrl.credit.methods import METHODS
from scrl.credit.rule import PRESETS, CreditRule, assign_credit, credit_rule
from scrl.errors import ConfigError, DataError, InputError, JudgeError, ReaderError, ScrlError
from scrl.lab.label import label_file
from scrl.records import Completion, Credit, Group, Labels, Tally

if TYPE_CHECKING:
    from scrl.config import RunConfig
    from scrl.training.run import Run

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PRESETS",
    "Classes",
    "Completion",
    "ConfigError",
    "Credit",
    "CreditRule",
    "DataError",
    "Group",
    "InputError",
    "Judge",
    "JudgeError",
    "Labels",
    "MathVerifyJudge",
    "NoJudge",
    "ReaderError",
    "ScrlError",
    "Tally",
    "assign_credit",
    "classify",
    "credit_rule",
    "get_reader",
    "label_file",
    "same_answer",
    "train",
]


def train(config: RunConfig | Mapping[str, Any] | str | Path, out: str | Path | None = None) -> Run:
    """Adapt a model to questions without answers, with the settings of `scrl train`, in a new folder (under runs/).

    Settings are given by name, as the YAML file that holds them, or as they were built.
    """
    from scrl.config import build_config, read_config
    from scrl.training.listeners import Silent
    from scrl.training.loop import train as run_training
    from scrl.training.run_folder import new_run_folder

    if isinstance(config, str | Path):
        settings = read_config(Path(config))
    else:
        settings = build_config(config) if isinstance(config, Mapping) else config
    return run_training(settings, new_run_folder(None if out is None else Path(out)), Silent())
