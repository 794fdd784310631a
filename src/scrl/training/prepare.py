"""Settings → what every engine trains with: the model, the questions it can be asked, the method.

Nothing is written before all of it is found to be usable.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from scrl.config import RunConfig
from scrl.credit.elsewhere import require_others
from scrl.credit.rule import CreditRule
from scrl.data.prompts import filter_overlong, no_room, prompt_text, prompt_tokens
from scrl.errors import InputError
from scrl.evaluation.gold import require_gold
from scrl.policy.identity import model_identity
from scrl.policy.model import LanguageModel, load_model
from scrl.policy.savable import check_savable
from scrl.policy.settings import ComputeSettings
from scrl.records import Question
from scrl.training.stream import QuestionStream


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What a run starts with."""

    rule: CreditRule
    language_model: LanguageModel
    stream: QuestionStream
    held_out: Sequence[Question]
    notes: Sequence[str]
    """What a user should know about the questions."""
    model_identity: str
    """A fingerprint of the start model."""

    @property
    def fingerprint(self) -> str:
        """The same for the same questions, whatever is known about their answers."""
        return _fingerprint(self.rule.question_forms(self.stream.questions))

    @property
    def held_out_fingerprint(self) -> str:
        """The same of the questions held out; empty where there are none."""
        return _fingerprint(self.held_out) if self.held_out else ""


def _fingerprint(questions: Sequence[Question]) -> str:
    texts = "\x1f".join(part for question in questions for part in (question.id, question.text))
    return hashlib.blake2b(texts.encode(), digest_size=16).hexdigest()


def prepare(config: RunConfig, rule: CreditRule, compute: ComputeSettings) -> Prepared:
    """Load questions and model; `compute` says where the model goes."""
    if config.compute.threads is not None:
        torch.set_num_threads(config.compute.threads)
    loaded, held_out = config.load_questions(), config.load_held_out()
    require_gold(rule, loaded.questions)
    if "elsewhere" in rule.needs:
        require_others([question.id for question in loaded.questions], rule.method.name)
    seed_everything(config.seed)
    model = load_model(config.model, compute, lora=config.lora, trust_remote_code=config.trust_remote_code)
    check_savable(config.model, model.model)
    questions, notes = usable_questions(config, model.tokenizer, model.model.config, loaded.questions)
    held_out_questions: Sequence[Question] = ()
    if held_out is not None:
        held_out_questions, more = usable_questions(config, model.tokenizer, model.model.config, held_out.questions)
        notes = [*notes, *more]
    stream = QuestionStream(questions, config.questions_per_step, config.seed, config.drop_last)
    return Prepared(rule, model, stream, held_out_questions, notes, model_identity(model.model))


def usable_questions(
    config: RunConfig, tokenizer: Any, model_config: Any, questions: Sequence[Question]
) -> tuple[list[Question], list[str]]:
    """The questions whose prompts are not too long, and notes about the others; every prompt left can be used."""
    kept, notes = filter_overlong(questions, tokenizer, config.prompt)
    forms = config.rule().question_forms(kept)
    lengths = {question.id: len(prompt_tokens(question, tokenizer, config.prompt)) for question in forms}
    name, longest = max(lengths.items(), key=lambda pair: pair[1])
    problem = no_room(longest, config.sampling.max_tokens, model_config)
    if problem is not None:
        raise InputError(f"sampling.max_tokens: question {name!r} has the longest prompt, {longest} tokens; {problem}")
    _check_vocabulary(config, tokenizer, forms[0])
    return kept, notes


def _check_vocabulary(config: RunConfig, tokenizer: Any, first: Question) -> None:
    """A prompt of words that the tokenizer does not know is no prompt."""
    if tokenizer.unk_token_id is None:
        return
    unknown = sum(token == tokenizer.unk_token_id for token in prompt_tokens(first, tokenizer, config.prompt))
    if unknown:
        text = prompt_text(first, tokenizer, config.prompt)
        raise InputError(
            f"prompt: the tokenizer does not know {unknown} tokens of the first prompt, {text[:200]!r}. The "
            "embedded model reads only its own arithmetic (questions: arithmetic:medium, prompt.instruction: '')."
        )


def seed_everything(seed: int) -> None:
    """Seed what libraries draw from; everything of our own is derived from names instead (scrl.seeds)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
