"""scrl: test-time reinforcement learning of language models on questions without answers.

    group = scrl.Group.from_texts(texts, entropies, question_id="amc-17")
    credit = scrl.assign_credit(group, method="scrl")
    credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages

Importing this package loads neither torch nor transformers nor a plotting library.
"""

from scrl.answers.classes import Classes, classify, same_answer
from scrl.answers.judge import Judge, MathVerifyJudge, NoJudge
from scrl.answers.readers import get_reader
from scrl.credit.assign import PRESETS, CreditRule, assign_credit, credit_rule
from scrl.credit.methods import METHODS
from scrl.errors import ConfigError, DataError, InputError, JudgeError, ReaderError, ScrlError
from scrl.lab.label import label_file
from scrl.records import Completion, Credit, Group, Labels, Tally

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
]
