"""The judge's process: one JSON request a line in, one JSON verdict a line out.

Run as a script in a process of its own, so that it can be killed in the middle of a computation that never ends.
It reads LaTeX with a grammar; the expression reader of math-verify, which evaluates Python, stays off.

Requests: `[answer]` (can you read it?) and `[answer, answer]` (are they equal, asked both ways round?).
"""

import faulthandler
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

MEMORY_LIMIT = 4 << 30
ORPHAN_SECONDS = 900
"""A request still running after this ends the process, in case nobody is left to kill it."""


def main() -> None:
    """Serve verdicts until standard input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _limit_memory()
    decide = load_judge()
    decide("\\frac{1}{2}", "0.5")  # builds the grammar's tables
    print('"ready"', file=replies, flush=True)
    for line in sys.stdin:
        faulthandler.dump_traceback_later(ORPHAN_SECONDS, exit=True)
        verdict = decide(*json.loads(line))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(verdict), file=replies, flush=True)


def load_judge() -> Callable[..., bool | None]:
    """math-verify as a function of one answer (is it readable?) or two (are they equal?)."""
    from math_verify import LatexExtractionConfig, parse, verify

    config = [LatexExtractionConfig(boxed_match_priority=0)]

    @lru_cache(maxsize=4096)
    def read(answer: str) -> list[Any]:
        return list(parse(f"\\boxed{{{answer}}}", config, fallback_mode="no_fallback", parsing_timeout=None))

    def decide(first: str, second: str | None = None) -> bool | None:
        try:
            a = read(first)
            if second is None or not a:
                return bool(a)
            b = read(second)
            return bool(b) and verify(a, b, timeout_seconds=None) and verify(b, a, timeout_seconds=None)
        except MemoryError:
            return None
        except Exception:  # whatever a computer-algebra system trips over: not shown to be equal
            return False

    return decide


def _limit_memory() -> None:
    """A computation that eats memory fails instead of taking the machine down, where the system can do that."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    except (ImportError, ValueError, OSError):
        return


if __name__ == "__main__":
    main()
