"""The errors raised on purpose. Messages name the setting or the file and line, the reason, and the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class ScrlError(Exception):
    """Base of all errors raised on purpose."""


class InputError(ScrlError, ValueError):
    """The input cannot be used as it is; nothing was written (exit code 2)."""


class ConfigError(InputError):
    """A setting has a value that makes no sense."""


class DataError(InputError):
    """A file has something wrong in it."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        """`path:line: reason`."""
        self.path, self.reason, self.line = Path(path), reason, line
        place = f"{path}" if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {reason}")


class TrainingError(ScrlError):
    """A run cannot continue (NaN, out of memory, disk full); its last checkpoint is intact."""


class CollapseError(ScrlError):
    """The guard stopped a run because it collapsed: it is complete, and not to be trusted (exit code 3)."""


class EndpointError(ScrlError):
    """A server does not give the completions it is asked for; those it gave are kept."""


class ReaderError(ScrlError):
    """A user's answer reader raised an error or returned something that is not an answer."""


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust, such as tokenizers, has given up; its errors are no `Exception`."""
    return type(error).__name__ == "PanicException"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'scrl'? Known: scrl, ttrl.`, to end a message about an unknown name."""
    names = sorted(known)
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    hint = f" Did you mean {by_lower[close[0]]!r}?" if close else ""
    return f"{hint} Known: {', '.join(names)}."
