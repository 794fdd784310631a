"""Code of the user's own, such as a method `module:NAME`."""

from __future__ import annotations

import sys
from pathlib import Path


def import_from_here() -> None:
    """Let modules be imported from where the command was started; installed ones of the same name come first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
