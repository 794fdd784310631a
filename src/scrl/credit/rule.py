"""A group of completions → credit: read, classify, tally, label, reward, normalise.

credit = assign_credit(Group.from_texts(texts, entropies), method="scrl")
credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from scrl.answers.classes import Classes, classify
from scrl.answers.readers import Reader, get_reader
from scrl.credit.advantages import reward_advantages, split_by_sign
from scrl.credit.elsewhere import LastVotes
from scrl.credit.labels import SLACK
from scrl.credit.method import NEEDS, CreditSettings, Evidence, Method, Shaped, SplitAdvantage
from scrl.credit.methods import find_method
from scrl.credit.needs import GROUP_NEEDS, check_needs
from scrl.credit.rewards import overlong_penalties
from scrl.credit.subsample import check_number, rows_by_setting
from scrl.credit.tally import count_votes
from scrl.errors import ConfigError, InputError, did_you_mean
from scrl.records import (
    Credit,
    Elsewhere,
    Floats,
    Group,
    Labels,
    Question,
    Sampled,
    Unread,
    base_question,
    rephrasing,
)  # fmt: skip

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, eq=False)
class CreditedGroup:
    """One question of a step: what was sampled, how its answers are classed, and what they earned."""

    sampled: Sampled
    classes: Classes
    credit: Credit


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "official": {"missing_reward": -1.0, "std": "sample", "ties": "first-seen", "which_trained": "first"},
}
"""Settings in which the authors' released code differs from the paper; `paper` is the defaults."""


@dataclass(frozen=True, slots=True)
class CreditRule:
    """A method with all its choices made: `rule.credit(group)`."""

    method: Method
    preset: str
    settings: CreditSettings
    reader: Reader
    num_trained: int | None = None
    """M: how many of the N completions are trained on; None for all."""
    seed: int = 0
    significant_digits: int | None = None
    max_tokens: int | None = None
    """L_max: where the sampler cuts a completion; only overlong shaping asks for it."""

    @property
    def needs(self) -> frozenset[str]:
        """What every group must come with, besides its votes."""
        needs = self.method.needs(self.settings)
        return needs | {"length"} if self.settings.overlong_buffer else needs

    @property
    def token_facts(self) -> tuple[str, ...]:
        """What the sampler must record of every token besides log-probability and entropy."""
        names = {"margin_std": "margin", "decisiveness": "margin", "certainty": "certainty"}
        return tuple(sorted({names[need] for need in self.needs if need in names}))

    def question_forms(self, questions: Sequence[Question]) -> list[Question]:
        """What is asked: each question, and its rephrasing too where the method needs that."""
        if "partner" not in self.needs:
            return list(questions)
        return [form for question in questions for form in (question, rephrasing(question))]

    def classify(self, group: Group) -> Classes:
        """The answers of a group, grouped by meaning."""
        answers_G = [self.reader(c.text) if isinstance(c.answer, Unread) else c.answer for c in group.completions]
        return classify(answers_G, significant_digits=self.significant_digits)

    def evidence(self, group: Group, classes: Classes | None = None, **known: Any) -> Evidence:
        """All there is to know about a group: its votes, and what methods may ask for besides (fields of Evidence)."""
        if not group.completions:
            raise InputError(f"question {group.question_id!r}: a group needs at least one completion")
        classes = classes or self.classify(group)
        return Evidence(group, classes, count_votes(classes, _entropies(group)), seed=self.seed, **known)

    def credit(self, group: Group, classes: Classes | None = None, **known: Any) -> Credit:
        """`assign` for a group of which this much is known."""
        return self.assign(self.evidence(group, classes, **known))

    def assign(self, evidence: Evidence) -> Credit:
        """Labels and rewards from all N completions, advantages over the M trained on.

        Refused without what the method needs; what it declared no need for, gold above all, it does not see.
        """
        check_needs(self.method.name, self.needs, evidence)
        classes, stock = evidence.classes, evidence.elsewhere.stock if evidence.elsewhere else ()
        undeclared: dict[str, Any] = {field: None for need, field in GROUP_NEEDS.items() if need not in self.needs}
        evidence = replace(evidence, **undeclared)
        labels = self._of_kind(Labels, "label", self.method.label(evidence, self.settings))
        earned = self._of_kind(Shaped, "reward", self.method.reward(evidence, labels, self.settings))
        self._check_rewards(earned, evidence.tally.size)
        shaped = self._overlong(evidence, earned)
        trained = self._trained(evidence, labels)
        rows = list(trained)
        split = self._split_advantages(evidence, labels, shaped, rows)
        return Credit(
            answers=tuple(None if j < 0 else a for a, j in zip(classes.answers_G, classes.class_of_G, strict=True)),
            tally=evidence.tally,
            labels=labels,
            rewards=shaped.rewards_G,
            advantages=_at_rows(split.positive_part_M + split.negative_part_M, rows, evidence.tally.size),
            trained=trained,
            is_entropy_only=is_constant(shaped.label_part_G[rows]) and not is_constant(shaped.rewards_G[rows]),
            stock=stock,
            split_advantages=_split_at_rows(split, rows, evidence.tally.size) if self.method.advantage else None,
        )

    def _of_kind(self, kind: type[Kind], part: str, found: object) -> Kind:
        """What a part of a method gave back, which must be of its kind."""
        if not isinstance(found, kind):
            raise ConfigError(
                f"method {self.method.name!r}: its `{part}` must return {kind.__name__}, got {type(found).__name__}"
            )
        return found

    def _check_rewards(self, shaped: Shaped, size: int) -> None:
        """A method of the user's own may give anything back."""
        for values_G in (shaped.rewards_G, shaped.label_part_G):
            if np.shape(values_G) != (size,) or not np.isfinite(values_G).all():
                raise ConfigError(
                    f"method {self.method.name!r}: its `reward` must give one finite number for each of the {size} "
                    f"completions (`spread` makes them from one per class); got {values_G!r}"
                )

    def _overlong(self, evidence: Evidence, shaped: Shaped) -> Shaped:
        """The rewards less what long completions lose, where that is asked for."""
        if not self.settings.overlong_buffer:
            return shaped
        assert self.max_tokens is not None
        penalties_G = overlong_penalties(
            evidence.fact("length"),
            max_tokens=self.max_tokens,
            buffer=self.settings.overlong_buffer,
            weight=self.settings.overlong_weight,
        )
        return Shaped(shaped.rewards_G + penalties_G, shaped.label_part_G + penalties_G)

    def _trained(self, evidence: Evidence, labels: Labels) -> tuple[int, ...]:
        if self.num_trained is None:
            return tuple(range(evidence.tally.size))
        if self.method.choose is not None:
            check_number(evidence.tally.size, self.num_trained, evidence.group.question_id)
            rows = self.method.choose(evidence, labels, self.num_trained, self.settings)
            size, is_unique = evidence.tally.size, len(rows) == len(set(rows)) == self.num_trained
            if not is_unique or not all(0 <= row < size for row in rows):
                raise ConfigError(
                    f"method {self.method.name!r}: its `choose` must give {self.num_trained} different completions of "
                    f"0 … {size - 1}; got {rows}"
                )
            return tuple(rows)
        return rows_by_setting(evidence, self.num_trained, self.settings)

    def _split_advantages(self, evidence: Evidence, labels: Labels, shaped: Shaped, rows: list[int]) -> SplitAdvantage:
        if self.method.advantage is not None:
            found = self.method.advantage(evidence, labels, shaped, rows, self.settings)
            return self._of_kind(SplitAdvantage, "advantage", found)
        return split_by_sign(reward_advantages(shaped.rewards_G[rows], self.settings))

    def token_weights(self, entropies_G: Sequence[Floats]) -> tuple[Floats, ...] | None:
        """The weights of the tokens of some completions in the loss; None: all the same."""
        weigh = self.method.weigh_tokens
        return None if weigh is None else tuple(weigh(entropies_T, self.settings) for entropies_T in entropies_G)


def _entropies(group: Group) -> list[float] | None:
    """The entropies, where all completions have one."""
    given = [c.entropy for c in group.completions if c.entropy is not None and math.isfinite(c.entropy)]
    return given if len(given) == len(group.completions) else None


def _at_rows(values_M: Floats, rows: list[int], size: int) -> Floats:
    values_G = np.full(size, np.nan)
    values_G[rows] = values_M
    return values_G


def _split_at_rows(split: SplitAdvantage, rows: list[int], size: int) -> tuple[Floats, Floats]:
    return _at_rows(split.positive_part_M, rows, size), _at_rows(split.negative_part_M, rows, size)


def is_constant(values_G: Floats) -> bool:
    """Equal up to rounding: the mean of equal entropies may miss them by a last digit."""
    values: list[float] = values_G.tolist()
    return max(values) - min(values) <= SLACK


def credit_rule(
    method: str | Method = "scrl",
    *,
    preset: str = "paper",
    reader: str | Reader = "boxed",
    num_trained: int | None = None,
    seed: int = 0,
    significant_digits: int | None = None,
    max_tokens: int | None = None,
    **settings: Any,
) -> CreditRule:
    """A method, by name, by `module:NAME` or as it is, with a preset and single settings on top of it."""
    chosen = find_method(method)
    if preset not in PRESETS:
        raise ConfigError(f"preset: unknown preset {preset!r}.{did_you_mean(preset, PRESETS)}")
    if significant_digits is not None and not 1 <= significant_digits <= 15:
        raise ConfigError(f"significant_digits: must lie in 1 … 15 or be left out; got {significant_digits}")
    if num_trained is not None and num_trained < 1:
        raise ConfigError(f"num_trained (--trained): at least one completion must be trained on; got {num_trained}")
    checked = _settings(chosen, PRESETS[preset], settings)
    _check_needs_are_known(chosen, checked)
    _check_overlong(checked, max_tokens)
    return CreditRule(
        method=chosen,
        preset=preset,
        settings=checked,
        reader=get_reader(reader) if isinstance(reader, str) else reader,
        num_trained=num_trained,
        seed=seed,
        significant_digits=significant_digits,
        max_tokens=max_tokens,
    )


def _check_needs_are_known(method: Method, settings: CreditSettings) -> None:
    for name in sorted(method.needs(settings) - NEEDS.keys()):
        raise ConfigError(f"method {method.name!r} needs {name!r}, which nobody can give.{did_you_mean(name, NEEDS)}")
    if "embedding" in method.needs(settings) and not hasattr(settings, "embedding"):
        raise ConfigError(f"method {method.name!r} needs a model that embeds: give its settings a field `embedding`.")


def _check_overlong(settings: CreditSettings, max_tokens: int | None) -> None:
    """Overlong shaping must know where completions are cut, and its buffer lies before that."""
    if settings.overlong_buffer and max_tokens is None:
        raise ConfigError(
            "overlong_buffer: needs to know at how many tokens completions are cut (max_tokens), which a run takes "
            "from sampling.max_tokens. Give it, or leave overlong_buffer at 0."
        )
    if max_tokens is not None and settings.overlong_buffer > max_tokens:
        raise ConfigError(
            f"overlong_buffer: {settings.overlong_buffer} tokens before the end are more than the {max_tokens} of a "
            "completion (sampling.max_tokens). Lower it, or allow more tokens."
        )


def assign_credit(
    group: Group, method: str | Method = "scrl", *, elsewhere: Elsewhere | Sequence[Group] | None = None, **choices: Any
) -> Credit:
    """Credit for one group; `choices` are those of `credit_rule`, e.g. preset="official", min_share=0.5.

    `elsewhere`, for methods that need it: the groups of other questions at their last visit, or their mean shares.
    """
    rule = credit_rule(method, **choices)
    if elsewhere is None or isinstance(elsewhere, Elsewhere):
        return rule.credit(group, elsewhere=elsewhere)
    classes = rule.classify(group)
    visits = [(other.question_id, count_votes(rule.classify(other), None)) for other in elsewhere]
    _check_others(group.question_id, [question_id for question_id, _ in visits])
    others = LastVotes().after(visits)
    return rule.credit(group, classes, elsewhere=others.elsewhere(group.question_id, classes.keys_K))


def _check_others(question_id: str, others: Sequence[str]) -> None:
    """Each group of another question counts once, by its id."""
    twice = [name for name, count in Counter(map(base_question, [question_id, *others])).items() if count > 1]
    if twice:
        raise InputError(
            f"elsewhere: question {twice[0]!r} is there twice; give every group a question_id of its own, and one "
            "group per other question, its last"
        )


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
