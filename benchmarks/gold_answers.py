"""Does every gold answer survive the round trip, and are different gold answers kept apart?

    python benchmarks/gold_answers.py FOLDER

FOLDER holds JSONL files with a field `answer`. For each file: every gold answer is written as \\boxed{gold} into a
sentence, read back, and compared with itself; the pairs of differently spelled gold answers that are found equal are
listed; and the slowest call is timed.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path

from scrl.answers.classes import classify, same_answer
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
    lost, slowest = [], 0.0
    for gold in golds:
        start = time.perf_counter()
        if not same_answer(read_boxed(PROSE % gold) or "", gold):
            lost.append(gold)
        slowest = max(slowest, time.perf_counter() - start)
    spellings = sorted(set(golds))
    pairs = len(spellings) * (len(spellings) - 1) // 2
    merged = classify(spellings).audit().values()
    equal = [pair for each in merged for pair in itertools.combinations([spelling.text for spelling in each], 2)]
    print(
        f"{path.stem:14} golds {len(golds):5}  read back and equal {len(golds) - len(lost):5}"
        f"  spellings {len(spellings):4}  pairs {pairs:7,}  equal {len(equal):3}  slowest call {slowest:.3f} s"
    )
    for gold in lost:
        print(f"    LOST  {gold}")
    for a, b in equal:
        print(f"    equal  {a}  =  {b}")
    total.update(
        {"golds": len(golds), "equal to themselves": len(golds) - len(lost), "pairs": pairs, "equal": len(equal)}
    )
    return not lost


def main() -> int:
    """Exit code 1 when a gold answer is lost."""
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
