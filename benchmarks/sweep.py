"""`scrl sweep`: 10,000 settings of scrl on 500 questions of 64 completions, and whether they equal `scrl label`.

    python benchmarks/sweep.py [--questions 500] [--completions 64] [--compared 50]

Seconds of the whole command (start, reading, classing, sweeping, writing). Then as many settings as `--compared`, drawn
at random, are labelled one by one, and every figure is compared bit by bit.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scrl.credit.methods import find_method
from scrl.credit.rule import credit_rule
from scrl.lab.label import label_file


def write_rollouts(path: Path, questions: int, completions: int, words: int = 0) -> None:
    """Questions with a right answer, stock answers, scattered wrong ones and missing ones, after this many words."""
    rng = random.Random(0)
    with path.open("w") as file:
        for number in range(questions):
            gold, share = str(rng.randrange(10**4)), rng.random()
            for sample in range(completions):
                wrong = rng.choice(["0", "1", "2", None, str(rng.randrange(100))])
                answer = gold if rng.random() < share else wrong
                text = "So we are lost." if answer is None else f"So it is \\boxed{{{answer}}}."
                text = " ".join([*(f"{rng.random():.6f}" for _ in range(words)), text])
                row = {"question_id": f"q{number}", "sample": sample, "completion": text, "gold": gold}
                file.write(json.dumps(row | {"entropy": rng.random()}) + "\n")


def main() -> None:
    """Time the command, then compare."""
    parser = argparse.ArgumentParser()
    for name, default in (("questions", 500), ("completions", 64), ("compared", 50)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rollouts, table = Path(folder) / "rollouts.jsonl", Path(folder) / "sweep.csv"
        write_rollouts(rollouts, options.questions, options.completions)
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "scrl", "sweep", rollouts, "--out", table], check=True, capture_output=True
        )
        seconds = time.perf_counter() - start
        with table.open() as file:
            rows = list(csv.DictReader(file))
        print(f"{len(rows):,} settings on {options.questions} × {options.completions} completions: {seconds:.1f} s")
        different = 0
        for row in random.Random(1).sample(rows, options.compared):
            names = find_method(row["method"]).settings.model_fields
            chosen: dict[str, Any] = {name: value for name, value in row.items() if name in names and value}
            summary = label_file(rollouts, credit_rule(row["method"], **chosen))
            shared = {key for key in row.keys() & summary.keys() if key != "method"}
            different += any((float(row[key]) if row[key] else None) != summary[key] for key in shared)
        print(f"{different} of {options.compared} settings differ from scrl label")


if __name__ == "__main__":
    main()
