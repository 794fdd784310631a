"""Does every gold answer survive the round trip, and are different gold answers kept apart?

    python benchmarks/gold_answers.py FOLDER

FOLDER holds JSONL files with a field `answer`. For each file: every gold answer is written as \\boxed{gold} into a
sentence, read back, and compared with itself; every pair of differently spelled gold answers is compared, and the pairs
found equal are listed; the slowest call is held against the time limit of a group.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrl.answers.classes import same_answer
from scrl.answers.forms import canonical_form, may_be_equal
from scrl.answers.judge import MathVerifyJudge
from scrl.answers.readers import read_boxed

PROSE = "Note that $\\frac{1}{x}$ is defined, so $x \\ne 0$ {as claimed}. The answer is $\\boxed{%s}$. Done."


def check(path: Path, total: Counter[str]) -> bool:
    """One file; prints its line and the pairs found equal."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if not all("answer" in row for row in rows):
        print(f"{path}: not every line has a field 'answer'; skipped")
        return False
    golds = [str(row["answer"]) for row in rows]
    judge = MathVerifyJudge()
    judge.compare([("\\sin x", "\\cos x")])  # start the worker outside the stopwatch
    watch = Stopwatch()
    lost = [gold for gold in golds if not watch.time(same_answer, read_boxed(PROSE % gold) or "", gold, judge=judge)]
    spellings = sorted(set(golds))
    forms = {gold: watch.time(canonical_form, gold) for gold in spellings}
    equal, undecided, asked = [], 0, 0
    for a, b in itertools.combinations(spellings, 2):
        first, second = forms[a], forms[b]
        if first.key == second.key:
            equal.append((a, b, "form"))
        elif watch.time(may_be_equal, first, second):
            verdicts = watch.time(judge.compare, [(a, b)])
            asked += 1
            undecided += len(verdicts.undecided)
            equal += [(a, b, "judge")] * len(verdicts.equal)
    pairs = len(spellings) * (len(spellings) - 1) // 2
    print(
        f"{path.stem:14} golds {len(golds):5}  read back and equal {len(golds) - len(lost):5}"
        f"  spellings {len(spellings):4}  pairs {pairs:7,}  equal {len(equal):3}  asked the judge {asked:3}"
        f"  undecided {undecided}  slowest call {watch.slowest:.3f} s (limit {judge.seconds_per_group:.0f} s)"
    )
    for gold in lost:
        print(f"    LOST  {gold}")
    for a, b, by in equal:
        print(f"    equal by {by:5}  {a}  =  {b}")
    judge.close()
    total.update(
        {"golds": len(golds), "equal to themselves": len(golds) - len(lost), "pairs": pairs, "equal": len(equal)}
    )
    return not lost and not undecided and watch.slowest <= judge.seconds_per_group


class Stopwatch:
    """The slowest of the calls made through it."""

    def __init__(self) -> None:
        self.slowest = 0.0

    def time(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **options)
        self.slowest = max(self.slowest, time.perf_counter() - start)
        return result


def main() -> int:
    """Exit code 1 when a gold answer is lost, a pair stays undecided, or a call exceeds its limit."""
    files = sorted(Path(sys.argv[1]).glob("*.jsonl")) if len(sys.argv) == 2 else []
    if not files:
        print(f"no .jsonl files in {' '.join(sys.argv[1:]) or 'FOLDER'}\n\n{__doc__}")
        return 2
    total: Counter[str] = Counter()
    results = [check(path, total) for path in files]
    print("total: " + ", ".join(f"{name} {count:,}" for name, count in total.items()))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
