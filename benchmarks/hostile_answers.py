"""Texts that try to break reading: mutants of real spellings, heaps of LaTeX, megabytes of one character.

    python benchmarks/hostile_answers.py 1000000

Prints the slowest reader and form in CPU seconds, what was raised (nothing may be), and the peak memory.
"""

import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scrl.answers.classes import classify
from scrl.answers.forms import canonical_form
from scrl.answers.readers import READERS

PAIRS = Path(__file__).parent.parent / "tests" / "answers"
PIECES = (
    r"\frac \sqrt \sin \log_ \pm \text{ cm} { } ( ) [ ] \{ \} , ; = < \le \cup \in ^ _ ! | + - * / . : ' 1 23 0.5 x y "
    r"\pi \infty and or for if million \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} & \\ \overline \over "
    r"\binom e i % $ \circ ~ ½ √ ² é Ⅷ ٣ \left \right \ln \exp \arcsin \boxed{ 9^ 99999 \mathbb{Z} \approx \ne \lfloor "
    r"\rfloor"
).split()
MEGABYTE = 1 << 20


def spellings() -> list[str]:
    """Both sides of every pair."""
    texts = [path.read_text("utf-8") for path in sorted(PAIRS.glob("*pairs.tsv"))]
    lines = [line for text in texts for line in text.splitlines()]
    return [side for line in lines for side in line.split("\t")[-2:]]


def mutant(rng: random.Random, texts: list[str]) -> str:
    """A spelling with something cut, doubled, swapped, nested or put in."""
    text = rng.choice(texts)
    for _ in range(rng.randint(1, 4)):
        start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        part = text[start:end]
        text = rng.choice((
            text[:start] + text[end:],
            text[:start] + part * rng.randint(2, 6) + text[end:],
            text[:start] + rng.choice(texts) + text[end:],
            text[:start] + rng.choice(PIECES) + part + text[end:],
            rf"\frac{{{text}}}{{{part or 2}}}",
            rf"\sin({text})^{{{rng.randint(2, 40)}}}",
            rf"({text})^{{{rng.choice(('2', '12', '99', '1/3', 'x', '-1', '0.5'))}}}",
            rf"e^{{{text}}}",
            " ".join(rng.choices(PIECES, k=rng.randint(1, 25))),
        ))[:2_000]  # fmt: skip
    return text


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rng, texts = random.Random(0), spellings()
    slowest: dict[str, tuple[float, str]] = {}

    def timed(name: str, run: Callable[[Any], object], text: Any) -> None:
        began = time.process_time()
        run(text)
        seconds = time.process_time() - began
        if seconds > slowest.get(name, (0.0, ""))[0]:
            slowest[name] = (seconds, str(text)[:120])

    for _ in range(count):
        text = mutant(rng, texts)
        timed("form", canonical_form, text)
        timed("reader", READERS[rng.choice(list(READERS))], f"so \\boxed{{{text}}} and the answer is {text}")
    for mark in ("$", "{", "}", "9", "\\", "(", "\\boxed{", "\\frac", "####", "the answer is ", "|", "^", "\u200b"):
        text = mark * (MEGABYTE // len(mark))
        timed(f"form of a megabyte of {mark}", canonical_form, text)
        for name, reader in READERS.items():
            timed(f"{name} of a megabyte of {mark}", reader, text)
    hardest = [slowest["form"][1], *(mutant(rng, texts) for _ in range(31))]
    timed("a group of 32", classify, tuple(f"{text} + {place}" for place, text in enumerate(hardest)))
    for name, (seconds, text) in sorted(slowest.items(), key=lambda item: -item[1][0])[:12]:
        print(f"{seconds:.3f} s  {name}  {text[:90]!r}")
    print(
        f"{count} texts, nothing raised; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB"
    )


if __name__ == "__main__":
    main()
