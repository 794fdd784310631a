"""Does `scrl answers --check --max-error` keep its word on real completions?

    python benchmarks/trust.py [--splits 200]

Pools from results/trust: per question the share of the answer with most votes and whether it is right. Over random
splits into checked and unchecked questions: how many of the unchecked are answered, their realised error rate, and in
how many splits it is larger than promised (at most 5 % may be).
"""

import argparse
import json
import random
from pathlib import Path

from scrl.evaluation.trust import choose_threshold

POOLS = Path(__file__).parent.parent / "results" / "trust"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--splits", type=int, default=200)
    splits = parser.parse_args().splits
    print("| pool | majority right | checks | at most wrong | answered | realised error | broken |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(POOLS.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        shares, right = [row["share"] for row in rows], [row["right"] for row in rows]
        for checks in (100, 200):
            for level in (0.1, 0.2, 0.3):
                print(line(path.stem, shares, right, checks, level, splits), flush=True)


def line(name: str, shares: list[float], right: list[bool], checks: int, level: float, splits: int) -> str:
    answered = wrong = broken = unchecked = 0
    for seed in range(splits):
        checked = {q: right[q] for q in random.Random(seed).sample(range(len(shares)), checks)}
        chosen = choose_threshold(shares, checked, level).chosen
        unchecked += len(shares) - checks
        if chosen is None:
            continue
        above = [q for q, share in enumerate(shares) if share >= chosen.threshold and q not in checked]
        mistakes = sum(not right[q] for q in above)
        answered, wrong, broken = answered + len(above), wrong + mistakes, broken + (mistakes > level * len(above))
    error = f"{wrong / answered:.1%}" if answered else "–"
    majority = f"{sum(right) / len(right):.1%} of {len(right)}"
    cells = (name, majority, checks, f"{level:.0%}", f"{answered / unchecked:.1%}", error, f"{broken / splits:.1%}")
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
