"""Completions labelled per second, against voting on simplified strings, in the same run.

    python benchmarks/labelling.py [--completions 100000] [--baseline-answers 2000]

Ours: text → answer → class → labels → rewards → advantages (`CreditRule.assign`, method scrl). The alternative is
what the authors' code and its relatives do: the last box, then a vote on the memoised string of
`sympy.simplify(latex2sympy(answer))`, raw text where that fails; no labels, no rewards. Its cost is one simplification
per distinct answer, so it is timed on a random sample of the distinct answers and scaled to all of them.

Three streams of groups of 32: whole numbers below a million; a mix of LaTeX (fractions, roots, tuples, sets, units,
polynomials, functions, several spellings of each value) with 5 % garbage; and mostly new LaTeX: functions, logarithms,
sums and integrals with numbers that hardly ever repeat. `scrl label` is timed on the same completions as a file,
with its peak memory; `--against SRC` also times that of another version, whose `src` folder it is: CPU seconds, child
processes included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from scrl.answers.readers import read_boxed
from scrl.credit.rule import credit_rule
from scrl.records import Group

GROUP = 32
WORDS = "We add the two numbers, carry the one, and check the result by hand before we state it. " * 4


def integers(rng: random.Random) -> Callable[[], str]:
    """A question whose answers are whole numbers: one value is frequent, the others are scattered."""
    truth = rng.randrange(10**6)
    return lambda: str(truth if rng.random() < 0.6 else rng.randrange(10**6))


def latex_mix(rng: random.Random) -> Callable[[], str]:
    """A question whose answer has several spellings; wrong values are written in the same styles."""
    return _spelled(rng, SPELLINGS, largest=60)


def new_latex(rng: random.Random) -> Callable[[], str]:
    """A question whose answers need more than exact arithmetic, or cannot be computed at all."""
    return _spelled(rng, HARDER, largest=10_000)


def _spelled(rng: random.Random, spellings: dict[str, list[str]], largest: int) -> Callable[[], str]:
    kind = rng.choice(list(spellings))
    truth = (rng.randrange(2, largest), rng.randrange(2, largest))

    def answer() -> str:
        if rng.random() < 0.05:
            return rng.choice(GARBAGE)
        a, b = truth if rng.random() < 0.6 else (rng.randrange(2, largest), rng.randrange(2, largest))
        return rng.choice(spellings[kind]).replace("A", str(a)).replace("B", str(b)).replace("S", str(a + b))

    return answer


SPELLINGS = {
    "fraction": [r"\frac{A}{B}", r"\dfrac{A}{B}", "A/B", r"\frac{AA}{BB}".replace("AA", "{A}").replace("BB", "{B}")],
    "integer": ["A", "A.0", r"A\text{ cm}", r"x = A", r"A^\circ", r"\$A", "0A"],
    "root": [r"A\sqrt{B}", r"A \sqrt B", r"\sqrt{B}\cdot A"],
    "pair": [r"(A, B)", r"\left(A,B\right)", r"(A.0, B)"],
    "set": [r"\{A, B\}", "B, A", r"A \text{ and } B", r"x = A \text{ or } x = B"],
    "polynomial": [r"(x+A)(x+B)", r"(x+B)(x+A)", r"x^2 + Sx + A\cdot B"],
    "pi": [r"\frac{A\pi}{B}", r"\frac{A}{B}\pi", r"A\pi/B"],
    "function": [r"A\sin x + B", r"B + A \sin(x)", r"B + A\sin{x}"],
    "rational function": [r"\frac{A}{x+B}", r"\frac{A}{B+x}", r"A \cdot \frac{1}{x + B}"],
    "word": [r"\text{Monday}", "Monday", "monday"],
}
HARDER = {
    "double angle": [r"A\sin x\cos x + B", r"\frac{A}{2}\sin 2x + B", r"B + A\cos(x)\sin(x)"],
    "logarithm": [r"\ln A + \ln B", r"\ln(A \cdot B)", r"\log_e (A \cdot B)"],
    "radical": [r"\sqrt{A + B\sqrt{2}}", r"\sqrt{B\sqrt2 + A}"],
    "partial fractions": [r"\frac{A}{x+1} + \frac{B}{x-1}", r"\frac{B}{x-1} + \frac{A}{1+x}"],
    "exponential": [r"A e^{Bx}", r"A\exp(Bx)", r"e^{Bx} \cdot A"],
    "sum": [r"\sum_{k=1}^{A} k^{B}", r"\sum_{k=1}^{A}{k^{B}}"],
    "integral": [r"\int_0^A x^B\,dx", r"\int_{0}^{A} x^{B} dx"],
    "set builder": [r"\{x \in \mathbb{Z} \mid x \equiv A \pmod{B}\}", r"\{ x\in\mathbb Z : x\equiv A \pmod{B} \}"],
    "limit": [r"\lim_{n\to\infty} (1 + \frac{A}{n})^{B}", r"\lim_{n \to \infty}\left(1+\frac{A}{n}\right)^{B}"],
    "root of unity": [r"e^{2\pi i A/B}", r"e^{\frac{2\pi i A}{B}}", r"\cos\frac{2\pi A}{B} + i\sin\frac{2\pi A}{B}"],
}
GARBAGE = [
    r"\frac{1}{",
    "",
    "I am not sure",
    r"\text{see above}",
    "???",
    r"\boxed",
    "12 34",
    r"x^{2",
    "+",
    r"\begin{cases}",
]


def stream(make: Callable[[random.Random], Callable[[], str]], num_groups: int, seed: int) -> list[list[str]]:
    """Groups of completions, each a page of prose with a box at its end."""
    rng = random.Random(seed)
    groups = []
    for _ in range(num_groups):
        answer = make(rng)
        groups.append([f"{WORDS}So the answer is $\\boxed{{{answer()}}}$." for _ in range(GROUP)])
    return groups


def time_ours(groups: list[list[str]]) -> float:
    """Seconds for labels, rewards and advantages of all groups."""
    rule = credit_rule("scrl")
    entropies = [0.1 + i / 100 for i in range(GROUP)]
    start = time.perf_counter()
    for number, texts in enumerate(groups):
        rule.credit(Group.from_texts(texts, entropies, question_id=str(number)))
    return time.perf_counter() - start


def time_baseline(groups: list[list[str]], max_answers: int) -> tuple[float, int]:
    """Seconds for a vote on simplified strings, scaled from a sample of the distinct answers; and their number."""
    from latex2sympy2_extended import latex2sympy
    from sympy import simplify

    start = time.perf_counter()
    distinct = sorted({answer for texts in groups for text in texts if (answer := read_boxed(text))})
    reading = time.perf_counter() - start
    sample = random.Random(0).sample(distinct, min(max_answers, len(distinct)))
    latex2sympy("1")
    start = time.perf_counter()
    for answer in sample:
        with contextlib.suppress(Exception):
            str(simplify(latex2sympy(answer)))
    return reading + (time.perf_counter() - start) * len(distinct) / len(sample), len(distinct)


def time_command(groups: list[list[str]], padding: int = 0, source: str | None = None) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MB of `scrl label`, each text with `padding` more characters of prose."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.jsonl"
        with path.open("w") as file:
            for number, texts in enumerate(groups):
                for i, text in enumerate(texts):
                    row = {"question_id": str(number), "completion": "x" * padding + text, "entropy": 0.1 + i / 100}
                    file.write(json.dumps(row) + "\n")
        environment = dict(os.environ) | ({"PYTHONPATH": source} if source else {})
        start, before = time.perf_counter(), _cpu_of_children()
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, str(path), str(Path(folder) / "labels.jsonl")],
            check=True, capture_output=True, text=True, env=environment,
        )  # fmt: skip
    return time.perf_counter() - start, _cpu_of_children() - before, int(done.stdout.split()[-1]) / 1024


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


MEASURED = """
import sys
from scrl.cli.main import main
assert main(["label", sys.argv[1], "--out", sys.argv[2]]) == 0
status = open("/proc/self/status").read()
print(status.split("VmHWM:")[1].split()[0])
"""
"""Runs the command and prints its own peak memory in kB (Linux)."""


def main() -> None:
    """One line per stream."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--completions", type=int, default=100_000)
    parser.add_argument("--baseline-answers", type=int, default=2_000)
    parser.add_argument("--against", help="src folder of another version")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, make in (("integers", integers), ("LaTeX mix", latex_mix), ("new LaTeX", new_latex)):
        groups = stream(make, options.completions // GROUP, seed=0)
        count = len(groups) * GROUP
        ours = time_ours(groups)
        baseline, distinct = time_baseline(groups, options.baseline_answers)
        command, cpu, memory = time_command(groups)
        *_, memory_long = time_command(groups[: len(groups) // 5], padding=10_000)
        print(
            f"{name:10} {count:,} completions, {distinct:,} distinct answers: ours {count / ours:,.0f}/s, "
            f"simplified strings {count / baseline:,.0f}/s, ratio {baseline / ours:.0f}x; "
            f"scrl label {count / command:,.0f}/s, peak {memory:.0f} MB "
            f"({memory_long:.0f} MB for a fifth of the completions with texts 30 times as long)"
        )
        if options.against:
            _, other, _ = time_command(groups, source=options.against)
            print(f"{name:10} scrl label: {cpu:.1f} s of CPU, {other:.1f} s with {options.against}, {other / cpu:.1f}x")


if __name__ == "__main__":
    main()
