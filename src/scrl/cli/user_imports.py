"""Imports of the user's modules, such as a method `module:NAME`."""

from __future__ import annotations

import sys
from pathlib import Path


def import_from_here() -> None:
    """Let modules be imported from the current folder; installed ones of the same name take precedence."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
