"""Questions, and copies of them in which every whole number is another of its size.

    python results/vary.py QUESTIONS.jsonl OUT.jsonl COPIES SEED

A copy has no answer and needs none: it is voted on like any other question, and one that makes no sense gets no label.
"""

import json
import random
import re
import sys
from pathlib import Path

NUMBER = re.compile(
    r"(?<![\w.,/\\^_{])\d{1,3}(?:,\d{3})+(?![\d/])"  # 1,200
    r"|(?<![\w.,/\\^_{])\d+(?![\d,.]*\d|/|th\b|st\b|nd\b|rd\b|\w)"  # 12, but no part of 1.2, 1/2, 2nd, x_2 or 3x
)


def another(number: int, rng: random.Random) -> int:
    """A number of the same size and roundness: 37 may become 29, 40 may become 30; 0 and 1 stay."""
    if number < 2:
        return number
    unit = 1
    while number % (unit * 10) == 0:
        unit *= 10
    if unit == 1 and number % 5 == 0 and number > 5:
        unit = 5
    units = number // unit
    low = max(2 if unit == 1 else 1, (units * 2 + 2) // 3)
    high = max(units * 3 // 2, units + 2)
    return rng.choice([k * unit for k in range(low, high + 1) if k != units])


def varied(text: str, rng: random.Random) -> str:
    """The text with other numbers; a number that stands in it twice is replaced by the same one twice."""
    chosen: dict[int, int] = {}

    def replaced(found: re.Match[str]) -> str:
        number = int(found[0].replace(",", ""))
        if number not in chosen:
            chosen[number] = another(number, rng)
        return f"{chosen[number]:,}" if "," in found[0] else str(chosen[number])

    return NUMBER.sub(replaced, text)


if __name__ == "__main__":
    source, out, copies, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)  # noqa: S311
    rows = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    lines = [{"id": row["id"], "question": row["question"]} for row in rows]
    for copy in range(1, copies + 1):
        for row in rows:
            text = varied(row["question"], rng)
            if text != row["question"]:
                lines.append({"id": f"{row['id']}v{copy}", "question": text})
    rng.shuffle(lines)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
