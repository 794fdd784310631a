"""A group of completions → credit: read, classify, tally, label, reward, normalise.

credit = assign_credit(Group.from_texts(texts, entropies), method="scrl")
credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from scrl.answers.classes import Classes, classify
from scrl.answers.judge import Judge
from scrl.answers.readers import Reader, get_reader
from scrl.credit.advantages import centred_advantages, group_advantages, leave_one_out_advantages
from scrl.credit.labels import SLACK
from scrl.credit.method import CreditSettings, Evidence, Method
from scrl.credit.methods import METHODS
from scrl.credit.tally import count_votes
from scrl.credit.trained import first_rows, random_rows
from scrl.errors import ConfigError, InputError, did_you_mean
from scrl.records import Credit, Floats, Group, Truth, Unread

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "official": {"missing_reward": -1.0, "std": "sample", "ties": "first-seen", "which_trained": "first"},
}
"""Settings in which the authors' released code differs from the paper; `paper` is the defaults."""


@dataclass(frozen=True, slots=True)
class CreditRule:
    """A method with all its choices made: `rule.assign(group)`."""

    method: Method
    preset: str
    settings: CreditSettings
    reader: Reader
    num_trained: int | None = None
    """M: how many of the N completions are trained on; None for all."""
    seed: int = 0
    judge: Judge | None = None
    significant_digits: int | None = None

    @property
    def needs_entropy(self) -> bool:
        """Whether every completion must carry an entropy."""
        return self.method.needs_entropy(self.settings)

    def classify(self, group: Group) -> Classes:
        """The answers of a group, grouped by meaning."""
        answers_G = [self.reader(c.text) if isinstance(c.answer, Unread) else c.answer for c in group.completions]
        return classify(answers_G, judge=self.judge, significant_digits=self.significant_digits)

    def assign(self, group: Group, classes: Classes | None = None, truth: Truth | None = None) -> Credit:
        """Labels and rewards from all N completions, advantages over the M trained on.

        `truth` is for a method that says it `needs_truth`; no other method sees it.
        """
        if not group.completions:
            raise InputError(f"question {group.question_id!r}: a group needs at least one completion")
        classes = classes or self.classify(group)
        tally = count_votes(classes, self._entropies(group))
        evidence = Evidence(tally, self._truth(group, truth), self.seed, (group.step, group.question_id))
        labels = self.method.label(evidence, self.settings)
        shaped = self.method.reward(evidence, labels, self.settings)
        trained = self._trained(group)
        rows = list(trained)
        return Credit(
            answers=tuple(None if j < 0 else a for a, j in zip(classes.answers_G, classes.class_of_G, strict=True)),
            tally=tally,
            labels=labels,
            rewards=shaped.rewards_G,
            advantages=self._advantages(shaped.rewards_G, rows),
            trained=trained,
            is_entropy_only=_is_constant(shaped.label_part_G[rows]) and not _is_constant(shaped.rewards_G[rows]),
            undecided_pairs=classes.undecided_pairs,
        )

    def _entropies(self, group: Group) -> list[float] | None:
        found = [c.entropy for c in group.completions]
        given = [h for h in found if h is not None and math.isfinite(h)]
        if len(given) == len(found):
            return given
        if self.needs_entropy:
            sample = next(i for i, h in enumerate(found) if h is None or not math.isfinite(h))
            raise InputError(
                f"question {group.question_id!r}, completion {sample}: method {self.method.name!r} needs an entropy "
                f"for every completion, found {found[sample]}. Record entropies while sampling, or use method 'ttrl'."
            )
        return None

    def _truth(self, group: Group, truth: Truth | None) -> Truth | None:
        if not self.method.needs_truth:
            return None
        if truth is None:
            raise InputError(
                f"question {group.question_id!r}: method {self.method.name!r} is told the right answers, and this "
                "question has none. Give every question a gold answer, or use a method that needs none."
            )
        return truth

    def _trained(self, group: Group) -> tuple[int, ...]:
        size = len(group.completions)
        if self.num_trained is None:
            return tuple(range(size))
        if self.settings.which_trained == "first":
            return first_rows(size, self.num_trained, question_id=group.question_id)
        return random_rows(size, self.num_trained, seed=self.seed, step=group.step, question_id=group.question_id)

    def _advantages(self, rewards_G: Floats, rows: list[int]) -> Floats:
        advantages_G = np.full(len(rewards_G), np.nan)
        advantages_G[rows] = _group_advantages(rewards_G[rows], self.settings)
        return advantages_G


def _group_advantages(rewards_M: Floats, settings: CreditSettings) -> Floats:
    if settings.advantage == "centred":
        return centred_advantages(rewards_M)
    if settings.advantage == "leave-one-out":
        return leave_one_out_advantages(rewards_M)
    sample_std = settings.std == "sample"
    return group_advantages(rewards_M, sample_std=sample_std, eps=settings.eps, std_floor=settings.std_floor)


def _is_constant(values_G: Floats) -> bool:
    """Equal up to rounding: the mean of equal entropies may miss them by a last digit."""
    values: list[float] = values_G.tolist()
    return max(values) - min(values) <= SLACK


def credit_rule(
    method: str = "scrl",
    *,
    preset: str = "paper",
    reader: str | Reader = "boxed",
    num_trained: int | None = None,
    seed: int = 0,
    judge: Judge | None = None,
    significant_digits: int | None = None,
    **settings: Any,
) -> CreditRule:
    """A method by name, with a preset and single settings on top of it; unknown names and bad values are refused."""
    if method not in METHODS:
        raise ConfigError(f"method: unknown method {method!r}.{did_you_mean(method, METHODS)}")
    if preset not in PRESETS:
        raise ConfigError(f"preset: unknown preset {preset!r}.{did_you_mean(preset, PRESETS)}")
    if significant_digits is not None and not 1 <= significant_digits <= 15:
        raise ConfigError(f"significant_digits: must lie in 1 … 15 or be left out; got {significant_digits}")
    if num_trained is not None and num_trained < 1:
        raise ConfigError(f"num_trained (--trained): at least one completion must be trained on; got {num_trained}")
    chosen = METHODS[method]
    return CreditRule(
        method=chosen,
        preset=preset,
        settings=_settings(chosen, PRESETS[preset], settings),
        reader=get_reader(reader) if isinstance(reader, str) else reader,
        num_trained=num_trained,
        seed=seed,
        judge=judge,
        significant_digits=significant_digits,
    )


def assign_credit(group: Group, method: str = "scrl", **choices: Any) -> Credit:
    """Credit for one group; `choices` are those of `credit_rule`, e.g. preset="official", min_share=0.5."""
    return credit_rule(method, **choices).assign(group)


def _settings(method: Method, preset: dict[str, Any], given: dict[str, Any]) -> CreditSettings:
    known = method.settings.model_fields
    for name in given:
        if name not in known:
            raise ConfigError(f"{name}: method {method.name!r} has no such setting.{did_you_mean(name, known)}")
    try:
        return method.settings(**{k: v for k, v in preset.items() if k in known} | given)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        hint = known[name].description if name in known else ""
        raise ConfigError(f"{name}: {problem['msg']}; got {problem['input']!r}. {hint}") from error
