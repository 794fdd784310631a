"""Write every question of a JSONL file, and after each this many of it with other numbers, without answers.

    python results/variants.py QUESTIONS.jsonl 4 > MORE.jsonl

A variant asks the same of other numbers, so a model that learns one by heart does not know the other. Whole numbers
from 2 up are changed; a number that occurs twice is changed alike, and their order stays: what was a part of a whole
stays smaller. A new number n' has n/2 ≤ n' ≤ 2n + 6 and keeps n's divisors among 2, 3, 5 and 6 and its zeros at the
end, so that what could be shared out mostly still can. Percentages, fractions, decimals, ordinals, years and times of
day stay. No two rows have the same question.
"""

import json
import random
import re
import sys
from math import gcd, lcm

NUMBER = re.compile(
    r"(?<![\w.,:/\\{^-])(\d{1,3}(?:,\d{3})+|\d+)"
    r"(?![\w:/%^}]|[.,]\d| ?percent|-?(?:st|nd|rd|th)\b| ?[ap]\.?m\b)"
)


def read(number: str) -> int:
    return int(number.replace(",", ""))


def candidates(n: int) -> list[int]:
    """All m ≠ n, n/2 ≤ m ≤ 2n + 6, that keep n's zeros at the end and its divisors among 2, 3, 5 and 6."""
    unit = lcm(gcd(n, 30), 10 ** (len(str(n)) - len(str(n).rstrip("0"))))
    return [m for m in range(-(-n // (2 * unit)) * unit, 2 * n + 7, unit) if m > 1 and m != n]


def variant(question: str, seen: set[str], random_: random.Random) -> str | None:
    """The question with other numbers, none of `seen`; None if it has none to change, or fifty draws kept no order."""
    old = sorted({n for n in map(read, NUMBER.findall(question)) if n > 1 and not 1900 <= n < 2100 and candidates(n)})
    for _ in range(50 if old else 0):
        new = [random_.choice(candidates(n)) for n in old]
        changed = dict(zip(old, new, strict=True))

        def put(found: re.Match[str], changed: dict[int, int] = changed) -> str:
            n = read(found[0])
            return found[0] if n not in changed else f"{changed[n]:,}" if "," in found[0] else str(changed[n])

        asked = NUMBER.sub(put, question)
        if new == sorted(set(new)) and asked not in seen:
            return asked
    return None


def main() -> None:
    path, variants = sys.argv[1], int(sys.argv[2])
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        print(json.dumps(row))
    seen = {row["question"] for row in rows}
    for v in range(1, variants + 1):
        for row in rows:
            if asked := variant(row["question"], seen, random.Random(f"{row['id']}/{v}")):
                seen.add(asked)
                print(json.dumps({"id": f"{row['id']}-{v}", "question": asked}))


if __name__ == "__main__":
    main()
