"""A group of completions → credit: read, classify, tally, label, reward, normalise.

credit = assign_credit(Group.from_texts(texts, entropies), method="scrl")
credit.labels.positive, credit.labels.negatives, credit.rewards, credit.advantages
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from scrl.answers.classes import MISSING, Classes, classify
from scrl.answers.forms import check_digits
from scrl.answers.readers import Reader, get_reader, read_answers
from scrl.credit.advantages import is_constant, reward_advantages, split_by_sign
from scrl.credit.elsewhere import LastVotes
from scrl.credit.labels import count_votes, with_votes
from scrl.credit.method import (
    GROUP_NEEDS,
    NEEDS,
    CreditSettings,
    Evidence,
    Method,
    Shaped,
    SplitAdvantage,
    Tree,
)
from scrl.credit.methods import find_method
from scrl.errors import ConfigError, InputError, did_you_mean
from scrl.records import UNREAD, Credit, Elsewhere, Floats, Group, Labels, Sampled, Tally, Unread
from scrl.seeds import generator_for
from scrl.setting_names import validated


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

    @property
    def needs(self) -> frozenset[str]:
        """What every group must provide besides its votes."""
        return self.method.needs(self.settings)

    @property
    def token_facts(self) -> tuple[str, ...]:
        """What the sampler must record of every token besides log-probability and entropy."""
        return ("margin",) if self.needs & {"margin_std", "decisiveness"} else ()

    def classify(self, group: Group) -> Classes:
        """The answers of a group, grouped by meaning."""
        read = iter(read_answers(self.reader, [(c.text, c.is_cut) for c in group.completions if c.answer is UNREAD]))
        answers_G = [next(read) if isinstance(c.answer, Unread) else c.answer for c in group.completions]
        return classify(answers_G, significant_digits=self.significant_digits)

    @property
    def is_silent_without_label(self) -> bool:
        """Whether no completion of a question without a positive label can have an advantage."""
        return self.method.is_silent_without_label and self.method.advantage is None

    def evidence(
        self, group: Group, classes: Classes | None = None, votes: Sequence[str | None] | None = None, **more: Any
    ) -> Evidence:
        """The votes of a group, or others in their place, and what else methods may ask for (`more`: of Evidence)."""
        if not group.completions:
            raise InputError(f"question {group.question_id!r}: a group needs at least one completion")
        classes = classes or self.classify(group)
        entropies = [c.entropy for c in group.completions if c.entropy is not None and math.isfinite(c.entropy)]
        tally = count_votes(classes, entropies if len(entropies) == len(group.completions) else None)
        tally = tally if votes is None else with_votes(tally, votes)
        return Evidence(group, classes, tally, seed=self.seed, **more)

    def credit(self, group: Group, classes: Classes | None = None, **more: Any) -> Credit:
        """`assign` for a group, with the same arguments as `evidence`."""
        return self.assign(self.evidence(group, classes, **more))

    def assign(self, evidence: Evidence) -> Credit:
        """Labels and rewards from all N completions, advantages over the M trained on.

        Refused without what the method needs. What it has not declared a need for, above all gold, is hidden from it.
        """
        classes, size = evidence.classes, len(evidence.group.completions)
        stock = evidence.elsewhere.stock if evidence.elsewhere else ()  # for metrics; many methods may not see it
        evidence = self._declared(evidence)
        labels = self._labels(evidence)
        shaped = self._shaped(evidence, labels)
        trained = self._trained(evidence.group)
        split = self._split_advantage(evidence, labels, shaped, trained)
        positive_G, negative_G = np.full(size, np.nan), np.full(size, np.nan)
        positive_G[trained], negative_G[trained] = split.positive_part_M, split.negative_part_M
        return Credit(
            answers=tuple(
                None if j == MISSING else a for a, j in zip(classes.answers_G, classes.class_of_G, strict=True)
            ),
            tally=evidence.present,
            labels=labels,
            rewards=shaped.rewards_G,
            split_advantages=(positive_G, negative_G),
            trained=tuple(trained),
            is_entropy_only=is_entropy_only(shaped, trained),
            stock=stock,
        )

    def labels(self, evidence: Evidence) -> Labels:
        """Which answer to trust, and which to rule out; a label that a question has been given stays."""
        return self._labels(self._declared(evidence))

    def _labels(self, evidence: Evidence) -> Labels:
        kept = evidence.kept_label
        labels = checked_labels(self.method, self.method.label(evidence, self.settings), evidence.tally)
        return labels if kept is None else Labels(kept, labels.negatives - {kept})

    def _declared(self, evidence: Evidence) -> Evidence:
        """What the method declared a need for, without the rest; refused where some of it is missing."""
        evidence.check(self.needs, self.method.name)
        undeclared: dict[str, Any] = dict.fromkeys(GROUP_NEEDS - self.needs)
        return replace(evidence, **undeclared)

    def _shaped(self, evidence: Evidence, labels: Labels) -> Shaped:
        """The rewards of all N completions."""
        size = len(evidence.group.completions)
        of = "completions (`spread` makes them from one per class)"
        shaped = of_kind(self.method, Shaped, "reward", self.method.reward(evidence, labels, self.settings))
        shaped = replace(shaped, rewards_G=finite_numbers(self.method, "reward", shaped.rewards_G, size, of))
        if shaped.label_part_G is not None:
            shaped = replace(shaped, label_part_G=finite_numbers(self.method, "reward", shaped.label_part_G, size, of))
        return shaped

    def _split_advantage(
        self, evidence: Evidence, labels: Labels, shaped: Shaped, rows: Sequence[int]
    ) -> SplitAdvantage:
        """The advantages of the M completions trained on: by the method, or from their rewards."""
        if self.method.advantage is None:
            return split_by_sign(reward_advantages(shaped.rewards_G[list(rows)], self.settings))
        given = self.method.advantage(evidence, labels, shaped, rows, self.settings)
        split, of = of_kind(self.method, SplitAdvantage, "advantage", given), "completions trained on, as"
        positive, negative = (f"{of} {part}_part_M" for part in ("positive", "negative"))
        return SplitAdvantage(
            finite_numbers(self.method, "advantage", split.positive_part_M, len(rows), positive, sign=1),
            finite_numbers(self.method, "advantage", split.negative_part_M, len(rows), negative, sign=-1),
        )

    def _trained(self, group: Group) -> list[int]:
        """The M completions to train on: the first, or a random M, the same for the same (seed, step, question)."""
        size, number = len(group.completions), self.num_trained
        if number is None:
            return list(range(size))
        if not 1 <= number <= size:
            raise ConfigError(
                f"num_trained (--trained): question {group.question_id!r} has {size} completions, "
                f"so 1 to {size} of them can be trained on; got {number}. Sample more completions or train on fewer."
            )
        if self.settings.which_trained == "first":
            return list(range(number))
        generator = generator_for(self.seed, "trained", group.step, group.question_id)
        return sorted(generator.choice(size, number, replace=False).tolist())

    def check_plan(self, completions: int) -> None:
        """Refuse a method whose `plan` does not draw this many completions per question."""
        if self.method.plan is None:
            return
        tree = of_kind(self.method, Tree, "plan", self.method.plan(completions, self.settings))
        if tree.leaves != completions:
            raise ConfigError(
                f"method {self.method.name!r}: its `plan` must give a Tree with as many leaves as completions, "
                f"{completions}; got {tree}, which has {tree.leaves}"
            )


def is_entropy_only(shaped: Shaped, rows: list[int] | slice) -> bool:
    """Whether labels and missing answers fail to tell these completions apart, but what is added to them does."""
    if shaped.label_part_G is None:
        return False
    return is_constant(shaped.label_part_G[rows]) and not is_constant(shaped.rewards_G[rows])


def credit_rule(
    method: str | Method = "scrl",
    *,
    preset: str = "paper",
    reader: str | Reader = "boxed",
    num_trained: int | None = None,
    seed: int = 0,
    significant_digits: int | None = None,
    **settings: Any,
) -> CreditRule:
    """A method, by name, by `module:NAME` or as an object, with a preset and single settings on top."""
    chosen = find_method(method)
    if preset not in PRESETS:
        raise ConfigError(f"preset: unknown preset {preset!r}.{did_you_mean(preset, PRESETS)}")
    check_digits(significant_digits)
    if num_trained is not None and num_trained < 1:
        raise ConfigError(f"num_trained (--trained): at least one completion must be trained on; got {num_trained}")
    checked = _settings(chosen, PRESETS[preset], settings)
    for name in sorted(chosen.needs(checked) - NEEDS.keys()):
        raise ConfigError(f"method {chosen.name!r} needs {name!r}, which does not exist.{did_you_mean(name, NEEDS)}")
    return CreditRule(
        method=chosen,
        preset=preset,
        settings=checked,
        reader=get_reader(reader) if isinstance(reader, str) else reader,
        num_trained=num_trained,
        seed=seed,
        significant_digits=significant_digits,
    )


def _settings(method: Method, preset: dict[str, Any], given: dict[str, Any]) -> CreditSettings:
    """The settings of a method: those given, then those of the preset that it has."""
    known = method.settings.model_fields
    for name in given:
        if name not in known:
            raise ConfigError(f"{name}: method {method.name!r} has no such setting.{did_you_mean(name, known)}")
    return validated(method.settings, {name: value for name, value in preset.items() if name in known} | given)


def assign_credit(
    group: Group, method: str | Method = "scrl", *, elsewhere: Elsewhere | Sequence[Group] | None = None, **choices: Any
) -> Credit:
    """Credit for one group; `choices` are those of `credit_rule`, e.g. preset="official", min_share=0.5.

    `elsewhere`, for methods that need it: the groups of other questions at their last visit, or their mean shares.
    """
    rule = credit_rule(method, **choices)
    if elsewhere is None or isinstance(elsewhere, Elsewhere):
        return rule.credit(group, elsewhere=elsewhere)
    counts = Counter(each.question_id for each in (group, *elsewhere))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InputError(
            f"elsewhere: question {twice[0]!r} appears twice; give every group its own question_id, and one "
            "group per other question, its last"
        )
    classes = rule.classify(group)
    others = LastVotes().after((other.question_id, count_votes(rule.classify(other), None)) for other in elsewhere)
    return rule.credit(group, classes, elsewhere=others.elsewhere(group.question_id, classes.keys_K))


def too_few_to_rule_out(rule: CreditRule, sizes: Mapping[int, int]) -> Iterator[str]:
    """What to know where groups are too small for an answer to be rare; `sizes`: completions → questions."""
    limit = getattr(rule.settings, "max_negative_share", None)
    if limit is None or not rule.method.has_negatives:
        return
    of = f"of {sum(sizes.values())} questions"
    if small := sum(count for size, count in sizes.items() if size * limit <= 1):
        needed = f"below {limit:.1%} needs more than {1 / limit if limit else math.inf:.0f} completions"
        yield f"On {small} {of} no answer can be rare enough to be ruled out: {needed}."
    if once := sum(count for size, count in sizes.items() if 1 < size * limit <= 2):
        yield f"On {once} {of} only answers seen once can be ruled out."


Kind = TypeVar("Kind")


def of_kind(method: Method, kind: type[Kind], part: str, value: object) -> Kind:
    """What a part of a method returned, which must be of this type."""
    if not isinstance(value, kind):
        raise ConfigError(
            f"method {method.name!r}: its `{part}` must return {kind.__name__}, got {type(value).__name__}"
        )
    return value


def checked_labels(method: Method, value: object, tally: Tally) -> Labels:
    """Labels, which must be answers of the group; none can be both right and ruled out."""
    labels = of_kind(method, Labels, "label", value)
    positive = set() if labels.positive is None else {labels.positive}
    unknown, both = (positive | labels.negatives) - set(tally.keys_K), positive & labels.negatives
    if unknown or both:
        named = f"names {min(unknown)!r}, which nobody answered" if unknown else ""
        why = named or f"rules out {min(both)!r}, which it calls right"
        raise ConfigError(f"method {method.name!r}: its `label` {why}; labels are keys of evidence.tally.keys_K")
    return labels


def finite_numbers(method: Method, part: str, values: Any, number: int, of: str, sign: Literal[-1, 0, 1] = 0) -> Floats:
    """What a part of a method returned, which must be one finite number for each of `of`; `sign`: ≥ 0 or ≤ 0."""
    try:
        values_n = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # a user's own method may return anything
        values_n = np.array(np.nan)
    is_fit = values_n.shape == (number,) and np.isfinite(values_n).all() and (sign * values_n >= 0).all()
    if not is_fit:
        bound = {-1: " ≤ 0", 0: "", 1: " ≥ 0"}[sign]
        raise ConfigError(
            f"method {method.name!r}: its `{part}` must give one finite number{bound} for each of the "
            f"{number} {of}; got {values!r:.200}"
        )
    return values_n
