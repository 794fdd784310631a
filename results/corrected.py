r"""`scrl` with corrections, to be tried before they may become a setting: where a completion miscalculates, the right
result is trained on, too.

    python results/corrected.py train SETTINGS.yaml --out RUN

The first equation of a trained completion that does not hold is cut before its result. What stands before it is a
prompt then, and the right result a completion with advantage WEIGHT, which counts as much as any other of its update:

    \text{left} = 12 - 4 - 3 = [9]      →  5

Soundness as a reward is earned by equations that are left out; a correction is none, and comes after the equation is
written. Needs bfloat16 on a GPU or CPU (there π_old is computed again for every row of an update).
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from scrl.answers.calculations import claims_of, value_of
from scrl.cli.main import main
from scrl.errors import ConfigError
from scrl.policy.batching import TrainingRow
from scrl.policy.policy import Policy
from scrl.records import Credit, Sample, Sampled, Tokens

RESULT = re.compile(r"=\s*(?:\\[$ ]|\$|\\text\{\s*\\?\$?)*\s*(-?\d[\d,]*(?:\.\d+)?)")
WEIGHT = 0.1
"""With 1 the gradient of three corrections was ten times as long as that of the completions (5.3 and 56)."""


def correction(text: str) -> tuple[int, str] | None:
    """Where the first false result of a text begins, and the right one, to two decimals."""
    for line in re.finditer(".+", text):
        false = [claim for claim in claims_of(line[0]) if not claim.holds]
        for found in RESULT.finditer(line[0]) if false else ():
            claims = list(claims_of(line[0][: found.end()]))
            if not claims or claims[-1] not in false:
                continue
            right = value_of(re.sub("[-/]", r" \g<0> ", claims[-1].left))
            if right is not None and value_of(claims[-1].right) == value_of(found[1].replace(",", "")):
                return line.start() + found.start(1), spelled(right)
    return None


def spelled(value: Fraction) -> str:
    """5, 4.5, 66.67."""
    return f"{float(value):.2f}".rstrip("0").rstrip(".") if value.denominator > 1 else str(value)


def corrected(sample: Sample, tokenizer: Any) -> tuple[Tokens, Tokens] | None:
    """The tokens before the first false result, and those of the right one."""
    found = correction(sample.text)
    if found is None:
        return None
    start, right = found

    def before(number: int) -> str:
        text: str = tokenizer.decode(sample.tokens_T[:number], clean_up_tokenization_spaces=False)
        return text

    number = bisect_right(range(len(sample.tokens_T) + 1), start, key=lambda k: len(before(k))) - 1
    rest = sample.text[len(before(number)) : start] + right
    tokens = np.asarray(tokenizer(rest, add_special_tokens=False).input_ids, dtype=sample.tokens_T.dtype)
    return sample.tokens_T[:number], tokens


def corrections(pairs: Sequence[tuple[Sampled, Credit]], tokenizer: Any, num_rows: int) -> Iterator[TrainingRow]:
    """A row for each trained completion with a false result."""
    for sampled, credit in pairs:
        for i in credit.trained:
            found = corrected(sampled.samples_G[i], tokenizer)
            if found is not None:
                prompt_P = np.concatenate((sampled.prompt_P, found[0]))
                yield TrainingRow(prompt_P, found[1], None, WEIGHT, 0.0, 1 / (num_rows * len(found[1])))


plain_rows = Policy.rows


def rows(policy: Policy, pairs: Sequence[tuple[Sampled, Credit]]) -> list[TrainingRow]:
    """`Policy.rows` with corrections."""
    if not policy._is_rounded:
        raise ConfigError("compute.dtype: corrections need bfloat16")
    trained = plain_rows(policy, pairs)
    return [*trained, *corrections(pairs, policy.language_model.tokenizer, len(trained))]


if __name__ == "__main__":
    Policy.rows = rows
    sys.exit(main())
