"""Does `scrl answers --check --max-error` keep its word on real completions?

    python benchmarks/trust.py [--draws 200] [--picture docs/trust.svg]
    python benchmarks/trust.py --worst

Pools from results/trust: per question the share of the answer with most votes and whether it is right. Over random
draws of the checked questions: in how many anything is answered, how many of the unchecked are, their realised error
rate, and in how many draws it is larger than promised (at most 5 % may be). --worst searches for the places of wrong
answers that break the promise most often.
"""

import argparse
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from scrl.evaluation.trust import TEST_LEVEL, _begin, _p_value, choose_threshold

POOLS = Path(__file__).parent.parent / "results" / "trust"
CHECKS = {"gsm8k-0.5b": (20, 50, 100, 150, 200), "math500-1.5b": (20, 50, 100, 200, 300, 400)}
LIMITS = (0.1, 0.2, 0.3)


class Draws(NamedTuple):
    """Draws of checks from a pool, at one limit, as shares of all draws or of all unchecked questions."""

    commits: float
    answered: float
    error: float
    broken: float


def pools() -> dict[str, tuple[list[float], list[bool]]]:
    read = {}
    for path in sorted(POOLS.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        read[path.stem] = ([row["share"] for row in rows], [row["right"] for row in rows])
    return read


def draws(shares: list[float], right: list[bool], checks: int, limit: float, number: int) -> Draws:
    total = Counter[str]()
    for seed in range(number):
        order = random.Random(seed).sample(range(len(shares)), len(shares))
        choice = choose_threshold(shares, {q: right[q] for q in order[:checks]}, limit)
        if choice.chosen is None:
            continue
        above = [q for q in order[checks:] if shares[q] >= choice.chosen.threshold]
        wrong = sum(not right[q] for q in above)
        total.update(commits=1, answered=len(above), wrong=wrong, broken=wrong > limit * len(above))
    unchecked, answered = number * (len(shares) - checks), total["answered"]
    error = total["wrong"] / answered if answered else math.nan
    return Draws(total["commits"] / number, answered / unchecked, error, total["broken"] / number)


def draw_picture(found: dict[tuple[str, float, int], Draws], path: Path) -> None:
    """Draws in which something is answered, over the number of checks: a panel for each pool."""
    colours = dict(zip(LIMITS, ("#2a78d6", "#1baf7a", "#eda100"), strict=True))
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 250" font-family="sans-serif" font-size="12">']
    for panel, (pool, checks) in enumerate(CHECKS.items()):
        left, width, height = 50 + 310 * panel, 220, 170
        parts.append(f'<text x="{left}" y="20" font-weight="bold" fill="#888">{pool}</text>')
        for share in (0, 0.5, 1):
            y = 205 - share * height
            parts.append(f'<path d="M{left} {y}h{width}" stroke="#8884"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" fill="#888">{share:.0%}</text>')
        places = {n: left + width * n / checks[-1] for n in checks}
        parts += [f'<text x="{x:.0f}" y="222" text-anchor="middle" fill="#888">{n}</text>' for n, x in places.items()]
        for limit, colour in colours.items():
            points = [(places[n], 205 - height * found[pool, limit, n].commits) for n in checks]
            line = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            x, y = points[-1]
            parts.append(f'<text x="{x + 5:.0f}" y="{y + 4:.0f}" fill="{colour}">{limit:.0%}</text>')
    parts.append('<text x="320" y="244" text-anchor="middle" fill="#888">checked questions</text></svg>\n')
    path.write_text("\n".join(parts), encoding="utf-8")


def worst(questions: int, checked: float, limit: float, tries: int = 4) -> float:
    """The largest chance found of a broken promise: wrong answers moved between thresholds while that raises it."""
    cumulated = [round(questions * part / 20) for part in range(1, 21)]
    sizes = [(total, round(total * checked)) for total in cumulated]
    begin = _begin(sizes, limit, is_pool=True)
    if begin is None:
        return 0.0
    sizes, best, rng = sizes[begin:], 0.0, random.Random(0)
    strata = [(n - m, c - d) for (n, c), (m, d) in zip(sizes, [(0, 0), *sizes], strict=False)]
    for _ in range(tries):
        wrong = [min(size, int(rng.uniform(0, 1.6) * limit * size)) for size, _ in strata]
        chance, step = broken(strata, wrong, limit), 8
        while step:
            moves = [(place, sign * step) for place in range(len(strata)) for sign in (1, -1)]
            for place, move in moves:
                other = [*wrong]
                other[place] = min(strata[place][0], max(0, other[place] + move))
                if (better := broken(strata, other, limit)) > chance + 1e-9:
                    wrong, chance = other, better
                    break
            else:
                step //= 2
        best = max(best, chance)
    return best


def broken(strata: list[tuple[int, int]], wrong: list[int], limit: float) -> float:
    """The exact chance that the last threshold that passes leaves too many wrong answers."""
    alive, total, checked, all_wrong, chance, least_bad = {0: 1.0}, 0, 0, 0, 0.0, -1.0
    for (size, n), among in zip(strata, wrong, strict=True):
        total, checked, all_wrong = total + size, checked + n, all_wrong + among
        after: dict[int, float] = {}
        for before, weight in alive.items():
            for k in range(max(0, n - size + among), min(n, among) + 1):
                here = weight * math.comb(among, k) * math.comb(size - among, n - k) / math.comb(size, n)
                if _p_value(total, checked, before + k, limit, True) <= TEST_LEVEL:
                    after[before + k] = after.get(before + k, 0.0) + here
                else:
                    chance += here * (before < least_bad)
        alive, least_bad = after, all_wrong - limit * (total - checked) - 1e-9
    return chance + sum(weight for k, weight in alive.items() if k < least_bad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--worst", action="store_true")
    given = parser.parse_args()
    if given.worst:
        for checked in (0.2, 0.5, 0.8, 0.9):
            line = "  ".join(f"{limit:.0%}: {worst(250, checked, limit):.2%}" for limit in LIMITS)
            print(f"{checked:.0%} of 250 checked, promise broken at most: {line}", flush=True)
        return
    print("| pool | majority right | at most wrong | checks | answers anything | answered | error | broken |")
    print("|---|---|---|---|---|---|---|---|")
    found = {}
    for pool, (shares, right) in pools().items():
        for limit in LIMITS:
            for checks in CHECKS[pool]:
                found[pool, limit, checks] = each = draws(shares, right, checks, limit, given.draws)
                error = "–" if math.isnan(each.error) else f"{each.error:.1%}"
                cells = (pool, f"{sum(right) / len(right):.1%} of {len(right)}", f"{limit:.0%}", checks)
                figures = (f"{each.commits:.1%}", f"{each.answered:.1%}", error, f"{each.broken:.1%}")
                print("| " + " | ".join(map(str, cells + figures)) + " |", flush=True)
    if given.picture:
        draw_picture(found, given.picture)


if __name__ == "__main__":
    main()
