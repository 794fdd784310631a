"""The records that the stages pass to each other: frozen, and known to every layer.

Question → Sampled (its drawn completions) → Group → Tally (votes) → Labels → Credit. A new fact is a new record,
never an overwrite. Shapes are in the names: G completions of a group, K classes of answers, T tokens of a completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from scrl.errors import InputError

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]
T = TypeVar("T")


class Unread(Enum):
    """The answer of a completion that has not been read yet."""

    UNREAD = "unread"


UNREAD = Unread.UNREAD


@dataclass(frozen=True, slots=True)
class Question:
    """What the model is asked."""

    id: str
    text: str
    gold: str | None = None
    """The right answer, if known. Only for measuring: only `evaluation/` looks at it."""
    level: str | None = None
    """How hard it is, if the source grades its questions."""
    system: str | None = None
    """Its own system message, in place of the prompt style's."""


FACTS: dict[str, str] = {
    "length": "T: tokens of the completion",
    "margin_std": "standard deviation over tokens of π(likeliest) − π(second likeliest)",
    "decisiveness": "mean over tokens of π(likeliest) − π(second likeliest), weighted by the entropy",
}
"""Numbers about a completion, besides its entropy, that some methods look at; also fields of a rollout."""


class Completion(NamedTuple):
    """One sampled text."""

    text: str = ""
    entropy: float | None = None
    """h̄: mean over its tokens of the full-vocabulary entropy, in nats."""
    answer: str | Unread | None = UNREAD
    """The answer as read elsewhere, None for no answer; it wins over `text`."""
    facts: Mapping[str, float] = MappingProxyType({})
    is_cut: bool = False
    """Whether it was cut at the most tokens allowed."""


@dataclass(frozen=True, slots=True)
class Group:
    """The N completions of one question at one step."""

    completions: tuple[Completion, ...]
    question_id: str = ""
    step: int = 0

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], entropies: Sequence[float] | None = None, *, question_id: str = "", step: int = 0
    ) -> Group:
        """A group of sampled texts; their answers are read when credit is assigned."""
        if isinstance(texts, str):
            raise InputError(f"question {question_id!r}: texts must be a list of texts, found one text")
        paired = _with_entropies(texts, entropies, question_id)
        return cls(tuple(Completion(text, entropy) for text, entropy in paired), question_id, step)

    @classmethod
    def from_answers(
        cls,
        answers: Sequence[str | None],
        entropies: Sequence[float] | None = None,
        *,
        question_id: str = "",
        step: int = 0,
    ) -> Group:
        """A group whose answers were read elsewhere; None is a missing answer."""
        for place, answer in enumerate(answers):
            if answer is not None and not isinstance(answer, str):
                kind = type(answer).__name__
                raise InputError(f"question {question_id!r}: answer {place} must be text or None, found {kind}")
        paired = _with_entropies(answers, entropies, question_id)
        return cls(tuple(Completion("", entropy, answer) for answer, entropy in paired), question_id, step)


def _with_entropies(
    completions: Sequence[T], entropies: Sequence[float] | None, question_id: str
) -> Iterator[tuple[T, float | None]]:
    if entropies is not None and len(entropies) != len(completions):
        raise InputError(f"question {question_id!r}: {len(completions)} completions but {len(entropies)} entropies")
    return zip(completions, [None] * len(completions) if entropies is None else entropies, strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One completion as drawn: its tokens, and how likely the policy found each of them.

    Log-probabilities and entropies are those of softmax(logits / T) over the whole vocabulary, T the sampling
    temperature. An end-of-text token counts as a token.
    """

    text: str
    tokens_T: Tokens
    logprobs_T: Floats
    """log π(token_t | tokens_<t)."""
    entropies_T: Floats
    """Entropy of π(· | tokens_<t), in nats."""
    is_finished: bool
    """Whether it ended by itself; False if it was cut at the most tokens allowed."""
    margins_T: Floats | None = None
    """π(likeliest) − π(second likeliest), if a method asked for it."""
    num_drawn: int | None = None
    """Tokens drawn for this completion alone, if it shares its beginning with another; None: all of them."""

    @property
    def facts(self) -> dict[str, float]:
        """What methods may look at besides the entropy (FACTS), as far as it was recorded."""
        length, total = len(self.tokens_T), self.entropies_T.sum()
        facts = {"length": float(length)}
        if length and self.margins_T is not None:
            weights_T = self.entropies_T / total if total else np.full(length, 1 / length)
            facts["margin_std"] = float(self.margins_T.std())
            facts["decisiveness"] = float((weights_T * self.margins_T).sum())
        return facts

    @property
    def tokens_drawn(self) -> int:
        """Tokens that this completion cost: those it shares with another are counted there."""
        return len(self.tokens_T) if self.num_drawn is None else self.num_drawn

    @property
    def entropy(self) -> float:
        """h̄: the mean entropy of its tokens.                                                      (paper, eq. 6)"""
        return float(self.entropies_T.mean()) if len(self.entropies_T) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """One question with the completions drawn for it at one step."""

    question: Question
    prompt_P: Tokens
    samples_G: tuple[Sample, ...]
    step: int = 0

    @property
    def group(self) -> Group:
        """What credit is assigned to: texts and entropies, no tokens and no gold."""
        completions = (
            Completion(sample.text, sample.entropy, facts=sample.facts, is_cut=not sample.is_finished)
            for sample in self.samples_G
        )
        return Group(tuple(completions), self.question.id, self.step)


@dataclass(frozen=True, slots=True)
class Tally:
    """The votes of one group, counted: what every label rule looks at."""

    keys_K: tuple[str, ...]
    """The classes of answers, in the order of their keys."""
    counts_K: tuple[int, ...]
    """n_j: how many votes this answer has."""
    class_of_G: tuple[int, ...]
    """For each completion the index of its class; for a missing answer MISSING of `answers.classes`, -1."""
    entropies_G: tuple[float, ...] | None
    """h̄_i, if entropies were recorded."""
    class_entropies_K: tuple[float, ...] | None
    """H̄_j: mean of h̄ over the class; NaN for an answer that has votes but that no completion gives."""
    group_entropy: float | None
    """H̄: mean of h̄ over all N completions, missing answers included."""
    class_of_votes: tuple[int, ...] | None = None
    """For each vote the index of its class, where others than these completions voted (`label_votes`)."""

    @property
    def votes(self) -> tuple[int, ...]:
        """For each vote the index of its class: the completions vote unless others did."""
        return self.class_of_G if self.class_of_votes is None else self.class_of_votes

    @property
    def vote_keys(self) -> tuple[str | None, ...]:
        """For each vote the key of its answer; None for no answer."""
        return self._keys(self.votes)

    @property
    def completion_keys(self) -> tuple[str | None, ...]:
        """The same for each completion."""
        return self._keys(self.class_of_G)

    def _keys(self, indices: Iterable[int]) -> tuple[str | None, ...]:
        keys = (*self.keys_K, None)  # the last has the index of a missing answer, MISSING = -1
        return tuple(keys[j] for j in indices)

    @property
    def size(self) -> int:
        """N: all votes, for an answer or for none."""
        return len(self.votes)

    @property
    def num_completions(self) -> int:
        """The completions of the group, which are N too unless others voted."""
        return len(self.class_of_G)

    @property
    def num_missing(self) -> int:
        """N − Σ n_j: votes for no answer."""
        return self.size - sum(self.counts_K)

    @property
    def shares_K(self) -> tuple[float, ...]:
        """p_j = n_j / N."""
        return tuple(count / self.size for count in self.counts_K)


class Truth(NamedTuple):
    """What `evaluation/` tells a method that is trained with gold answers, as a yardstick."""

    key: str | None
    """The key of the right class; None if no completion gave the right answer."""
    gold: str | None = None
    """The key that a class of right answers has, whether or not there is one; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the other questions of the stream answered, each at its last visit."""

    num_questions: int
    shares: Mapping[str, float] = field(default_factory=dict)
    """p̄(a): the mean share of an answer over them, by its key; 0 where it is absent."""
    stock: tuple[str, ...] = ()
    """Stock answers: the keys of the most popular answers over them."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What the votes of one group say about its answers."""

    positive: str | None = None
    """y⁺: the key of the trusted class, or None when the rule abstains."""
    negatives: frozenset[str] = frozenset()
    """𝒩⁻: the keys of the classes ruled out."""

    def label_of(self, key: str | None) -> str | None:
        """`positive`, `negative` or None, as files have it; the key of a missing answer is None."""
        if key is None:
            return None
        return "positive" if key == self.positive else "negative" if key in self.negatives else None


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What each completion of one group earned, and why."""

    answers: tuple[str | None, ...]
    tally: Tally
    """The votes of these completions, also where others decided the labels."""
    labels: Labels
    rewards: Floats
    """R_i, from all N completions."""
    split_advantages: tuple[Floats, Floats]
    """P_i ≥ 0 and Q_i ≤ 0, over the completions trained on; NaN for the others."""
    trained: tuple[int, ...]
    """The M completions to train on."""
    is_entropy_only: bool
    """Whether no label tells the completions apart, so that the entropy term alone, normalised to full strength, is the
    advantage."""
    stock: tuple[str, ...] = ()
    """The stock answers of the other questions; none while too few of them have been seen."""

    @property
    def advantages(self) -> Floats:
        """Â_i = P_i + Q_i; only some methods give a completion both."""
        positive_G, negative_G = self.split_advantages
        return positive_G + negative_G
