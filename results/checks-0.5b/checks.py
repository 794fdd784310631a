r"""Rewards that check equations: what the runs of this folder, by their names, were paid for (`method: checks:A`, …).

    A   check      [complete]
    AS  sound      [sound]
    B   label      labels of complete votes
    C   both       labels of complete votes, elsewhere [complete]
    CC  half       labels of complete votes, elsewhere [complete] / 2
    E   bothsound  labels of sound votes, elsewhere [sound]

[sound]: there are equations, and all hold; [complete]: besides, they start from every number of the question. The runs
found equations with a forerunner of `scrl.answers.calculations`; of 8,192 completions of the start model the two differ
on 23 (sound) and 8 (complete). This file must be in PYTHONPATH or in the current folder, which has
`data/gsm8k-1-256.jsonl` ("id", "question") and the labels, made of 32 completions a question of the start model:

    python checks.py ROLLOUTS.jsonl complete 0.3 > data/l-complete.json    # 0.3: the least share of all completions
    python checks.py ROLLOUTS.jsonl sound 0.35 > data/l-sound.json
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np

from scrl.answers.calculations import calculations_of
from scrl.credit.method import CreditSettings, Evidence, Labels, Method, Shaped, needing, no_labels
from scrl.files.jsonl import read_json_lines

Check = Callable[[str, str], bool]
"""From a completion and the id of its question."""
DATA = Path("data")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@cache
def given() -> dict[str, frozenset[Fraction]]:
    """The numbers of each question, by its id."""
    rows = (line.fields for line in read_json_lines(DATA / "gsm8k-1-256.jsonl"))
    return {row["id"]: frozenset(map(Fraction, NUMBER.findall(row["question"].replace(",", "")))) for row in rows}


def sound(text: str, _: str) -> bool:
    return calculations_of(text).are_sound


def complete(text: str, question_id: str) -> bool:
    found = calculations_of(text)
    return found.are_sound and all(n in found.used or n / 100 in found.used for n in given()[question_id])


def boxed_number(text: str) -> float | None:
    """The last number of the last box."""
    boxes = re.findall(r"boxed\{([^{}]*)\}", text.replace("{,}", ",").replace("\\!", ""))
    numbers = re.findall(r"-?\d+(?:\.\d+)?", boxes[-1].replace(",", "")) if boxes else []
    return float(numbers[-1]) if numbers else None


@cache
def labels(name: str) -> dict[str, float]:
    """Answers by the id of their question."""
    found: dict[str, float] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found


def method(name: str, check: Check | None, label_file: str | None, pay: float = 1.0) -> Method:
    """1 for a question's label; for questions without one, `pay` for answers of completions that pass the check."""

    def reward(evidence: Evidence, _: Labels, __: CreditSettings) -> Shaped:
        question_id = evidence.group.question_id
        known = labels(label_file) if label_file else {}
        rewards = []
        for completion in evidence.group.completions:
            answer = boxed_number(completion.text)
            if question_id in known:
                rewards.append(float(answer == known[question_id]))
            else:
                is_paid = check is not None and answer is not None and check(completion.text, question_id)
                rewards.append(pay * is_paid)
        return Shaped(np.array(rewards))

    return Method(name, name, name, "ours", CreditSettings, no_labels, reward, needs=needing("text"))


A = method("check", complete, None)
AS = method("sound", sound, None)
B = method("label", None, "l-complete")
C = method("both", complete, "l-complete")
CC = method("both-half", complete, "l-complete", pay=0.5)
E = method("both-sound", sound, "l-sound")


def main() -> None:
    path, check, least = sys.argv[1], {"complete": complete, "sound": sound}[sys.argv[2]], float(sys.argv[3])
    votes: dict[str, Counter[float]] = {}
    drawn: Counter[str] = Counter()
    for line in read_json_lines(Path(path)):
        question_id, text = line.fields["question_id"], line.fields["completion"]
        drawn[question_id] += 1
        if (answer := boxed_number(text)) is not None and check(text, question_id):
            votes.setdefault(question_id, Counter())[answer] += 1
    tops = {question_id: counts.most_common(1)[0] for question_id, counts in votes.items()}
    print(json.dumps({name: answer for name, (answer, count) in tops.items() if count >= least * drawn[name]}))


if __name__ == "__main__":
    main()
