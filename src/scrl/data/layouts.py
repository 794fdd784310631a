"""Completions as other tools write them → the fields of a rollout.

A file's layout is recognised by the columns of its first row. What a tool does not record is left out, except the
entropy: where there are log-probabilities it is estimated from them, and marked as an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scrl.data.jsonl import kind

Fields = dict[str, Any]
ESTIMATE = "entropy_is_estimate"
"""Set in the fields of a rollout whose entropy is an estimate."""
_TEXTS = ("completions", "responses", "outputs", "samples", "generations")
_TEXT = ("completion", "response", "output", "generation", "generated_text", "model_output")
_PROMPT = ("prompt", "question", "problem", "query", "input", "messages")
_GOLD = ("gold", "answer", "ground_truth", "gts", "target", "solution")


class Columns(NamedTuple):
    """Columns that the user named; None: found by name."""

    completion: str | None = None
    question: str | None = None
    id: str | None = None
    gold: str | None = None
    entropy: str | None = None


ANY = Columns()


@dataclass(frozen=True, slots=True)
class Layout:
    """How one tool writes completions."""

    name: str
    fits: Callable[[Mapping[str, Any]], bool]
    """Whether a row looks like it."""
    convert: Callable[[Fields, Columns], Iterator[Fields]]
    """A row → its completions, with `prompt` for a question that has no id; ValueError where it cannot be read."""


# One converter per layout


def _rollout(row: Fields, columns: Columns) -> Iterator[Fields]:  # noqa: ARG001 - a layout's signature
    yield row | _estimated(row)


def _trl(row: Fields, columns: Columns) -> Iterator[Fields]:
    texts = {name: _message(row[name], name) for name in ("prompt", "completion")}
    yield texts | {"step": row["step"], "gold": row.get(columns.gold or _first_of(row, _GOLD) or "")}


def _verl(row: Fields, columns: Columns) -> Iterator[Fields]:
    gold = row.get(columns.gold or "gts")
    yield {"prompt": row["input"], "completion": row["output"], "step": row["step"], "gold": _only(gold)}


def _lm_eval(row: Fields, columns: Columns) -> Iterator[Fields]:
    """One line per document and filter; `resps` is the same for all filters, so only the first filter's are read."""
    doc = row["doc"] if isinstance(row["doc"], dict) else {}
    gold = doc.get(columns.gold) if columns.gold else row["target"]
    for number, text in enumerate(row["resps"][0] if isinstance(row["resps"][0], list) else row["resps"]):
        yield {"question_id": row["doc_id"], "sample": number, "completion": text, "gold": _only(gold)}


def _openai(row: Fields, columns: Columns) -> Iterator[Fields]:
    """A line of a batch's output, or a bare response; each of its choices is a completion."""
    failed = row.get("error") or (row.get("response") or {}).get("status_code", 200) != 200
    body = row["response"].get("body") if row.get("response") else row
    if failed or not isinstance(body, dict) or "choices" not in body:
        raise ValueError("this request failed and has no completions; remove the line, or ask for it again")
    question = row.get(columns.id or "custom_id") or body.get("id")
    gold = row.get(columns.gold or "gold")
    for choice in body["choices"]:
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        fields = {"question_id": question, "completion": text or "", "gold": gold}
        if choice.get("finish_reason"):
            fields["finished"] = choice["finish_reason"] != "length"
        yield fields | _estimated({"logprobs": choice.get("logprobs")})


def _grouped(row: Fields, columns: Columns) -> Iterator[Fields]:
    name = columns.completion or _first_of(row, _TEXTS)
    assert name is not None
    entropies = row.get(columns.entropy or "entropies")
    if entropies is not None and len(entropies) != len(row[name]):
        raise ValueError(f"field {name!r} has {len(row[name])} completions, but there are {len(entropies)} entropies")
    shared = _about_the_question(row, columns)
    for number, item in enumerate(row[name]):
        fields = dict(shared)
        if isinstance(item, dict):
            text = item.get(_first_of(item, ("text", *_TEXT)) or "")
            fields |= {"completion": text, "entropy": item.get("entropy")} | _estimated(item)
        else:
            fields |= {"completion": item, "entropy": None if entropies is None else entropies[number]}
        yield fields


def _flat(row: Fields, columns: Columns) -> Iterator[Fields]:
    name = columns.completion or _first_of(row, _TEXT)
    assert name is not None
    fields = _about_the_question(row, columns) | {"completion": _message(row.get(name), name)}
    entropy = row.get(columns.entropy or "entropy")
    fields["entropy"] = float(entropy) if isinstance(entropy, str) and entropy.strip() else entropy or None
    yield fields | _estimated(row)


def _about_the_question(row: Fields, columns: Columns) -> Fields:
    gold = columns.gold or _first_of(row, _GOLD)
    question = columns.question or _first_of(row, _PROMPT)
    identity = columns.id or _first_of(row, ("question_id", "id", "custom_id"))
    if identity is None and question is None:
        raise ValueError(f"no column names the question; there are: {', '.join(row)}. Say which with --question-column")
    step = row.get("step") or 0
    return {
        "question_id": None if identity is None else row[identity],
        "prompt": None if question is None else _message(row[question], question),
        "step": int(step) if isinstance(step, str) and step.isdecimal() else step,
        "gold": None if gold is None else _only(row[gold]),
    }


# Cells


def _first_of(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in row), None)


def _message(value: Any, name: str) -> str:
    """Text, or the last message of a chat."""
    if isinstance(value, list) and value and isinstance(value[-1], dict) and isinstance(value[-1].get("content"), str):
        return str(value[-1]["content"])
    if not isinstance(value, str):
        raise ValueError(f"field {name!r} must be text or chat messages, found {kind(value)}")
    return value


def _only(gold: Any) -> Any:
    """The one right answer of a list; several cannot be measured against."""
    if not isinstance(gold, list):
        return gold
    return gold[0] if len(gold) == 1 else None


# Entropy from log-probabilities


def _estimated(row: Mapping[str, Any]) -> Fields:
    """The entropy of a completion from its tokens' log-probabilities, where it is not given."""
    if row.get("entropy") is not None or row.get("logprobs") is None:
        return {}
    entropies = [_token_entropy(*token) for token in _tokens(row["logprobs"])]
    return {"entropy": math.fsum(entropies) / len(entropies), ESTIMATE: True} if entropies else {}


def _tokens(logprobs: Any) -> Iterator[tuple[float, list[float]]]:
    """(log-probability of the token drawn, those of the likeliest ones), from each of the shapes that servers write."""
    try:
        if isinstance(logprobs, dict) and "content" in logprobs:  # chat completions
            for token in logprobs["content"] or ():
                yield token["logprob"], [top["logprob"] for top in token.get("top_logprobs") or ()]
        elif isinstance(logprobs, dict):  # completions
            tops = logprobs.get("top_logprobs") or [{}] * len(logprobs["token_logprobs"])
            for logprob, top in zip(logprobs["token_logprobs"], tops, strict=True):
                if logprob is not None:  # of the first token of an echoed prompt
                    yield logprob, list((top or {}).values())
        else:  # a list of numbers
            yield from ((logprob, []) for logprob in logprobs)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"field 'logprobs' cannot be read: {error!r}") from error


def _token_entropy(drawn: float, tops: Sequence[float]) -> float:
    """−Σ p log p over the likeliest tokens and all others as one, a lower bound; or −log p of the token drawn.

    The latter is right on average, for tokens drawn at temperature 1 without top-p.
    """
    if len(tops) < 2:
        return -drawn
    shares = [math.exp(top) for top in tops]
    rest = max(0.0, 1.0 - math.fsum(shares))
    return math.fsum(-share * math.log(share) for share in (*shares, rest) if share > 0)


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: set(names) <= row.keys()


def _has_list(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get(_first_of(row, _TEXTS) or ""), list)


def _is_rollout(row: Mapping[str, Any]) -> bool:
    return "question_id" in row and ("completion" in row or ("answer" in row and not _has_list(row)))


ROLLOUTS = Layout("rollouts", _is_rollout, _rollout)
GROUPED = Layout("completions in lists, one a question", _has_list, _grouped)
FLAT = Layout("one completion a row", lambda row: _first_of(row, _TEXT) is not None, _flat)
LM_EVAL = Layout("lm-eval samples", _has("doc_id", "doc", "target", "resps"), _lm_eval)
OPENAI = Layout("OpenAI responses", _has("choices"), _openai)
LAYOUTS = (
    ROLLOUTS,
    LM_EVAL,
    Layout("verl rollout dump", _has("input", "output", "gts", "score", "step"), _verl),
    Layout("TRL completions", _has("step", "prompt", "completion", "advantage"), _trl),
    Layout("OpenAI batch output", _has("custom_id", "response"), _openai),
    OPENAI,
    GROUPED,
    FLAT,
)
