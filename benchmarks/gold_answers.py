"""Does every gold answer survive the round trip, and are different gold answers kept apart?

    python benchmarks/gold_answers.py FOLDER

FOLDER holds JSONL files with a field `answer`. For each file: every gold answer is written as \\boxed{gold} into a
sentence, read back, and compared with itself; every pair of differently spelled gold answers is compared, and the pairs
found equal are listed; the slowest question put to the judge is timed against its limit.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from scrl.answers.classes import same_answer
from scrl.answers.forms import canonical_form, may_be_equal
from scrl.answers.judge import MathVerifyJudge, Pair, Verdicts
from scrl.answers.readers import read_boxed

PROSE = "Note that $\\frac{1}{x}$ is defined, so $x \\ne 0$ {as claimed}. The answer is $\\boxed{%s}$. Done."


class TimedJudge:
    """The ordinary judge with a stopwatch."""

    def __init__(self) -> None:
        self.judge = MathVerifyJudge()
        self.slowest = 0.0

    def compare(self, pairs: Iterable[Pair]) -> Verdicts:
        start = time.monotonic()
        verdicts = self.judge.compare(pairs)
        self.slowest = max(self.slowest, time.monotonic() - start)
        return verdicts


def check(path: Path) -> bool:
    """One file; prints its line and the pairs found equal."""
    with path.open(encoding="utf-8") as lines:
        golds = [str(json.loads(line)["answer"]) for line in lines if line.strip()]
    judge = TimedJudge()
    judge.compare([("\\sin x", "\\cos x")])  # start the worker outside the stopwatch
    judge.slowest = 0.0
    lost = [gold for gold in golds if not same_answer(read_boxed(PROSE % gold) or "", gold, judge=judge)]
    spellings = sorted(set(golds))
    forms = {gold: canonical_form(gold) for gold in spellings}
    equal, undecided, asked = [], 0, 0
    for a, b in itertools.combinations(spellings, 2):
        first, second = forms[a], forms[b]
        assert first is not None
        assert second is not None
        if first.key == second.key:
            equal.append((a, b, "form"))
        elif may_be_equal(first, second):
            verdicts = judge.compare([(a, b)])
            asked += 1
            undecided += len(verdicts.undecided)
            equal += [(a, b, "judge")] * len(verdicts.equal)
    pairs = len(spellings) * (len(spellings) - 1) // 2
    print(
        f"{path.stem:14} golds {len(golds):5}  read back and equal {len(golds) - len(lost):5}"
        f"  spellings {len(spellings):4}  pairs {pairs:7,}  equal {len(equal):3}"
        f"  asked the judge {asked:5}  undecided {undecided}"
        f"  slowest {judge.slowest:.2f} s of {judge.judge.seconds_per_group:.0f} s"
    )
    for gold in lost:
        print(f"    LOST  {gold}")
    for a, b, by in equal:
        print(f"    equal by {by:5}  {a}  =  {b}")
    judge.judge.close()
    return not lost and not undecided


def main() -> int:
    """Exit code 1 when a gold answer is lost or a pair stays undecided."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__)
        return 2
    files = sorted(Path(sys.argv[1]).glob("*.jsonl"))
    return 0 if all(check(path) for path in files) else 1


if __name__ == "__main__":
    sys.exit(main())
