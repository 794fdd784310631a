"""Which versions of an engine are supported: those of our extra of its name; and what it cannot live beside."""

from __future__ import annotations

import importlib.metadata

from packaging.version import Version

from scrl.errors import ConfigError
from scrl.optional_deps import require_extra, supported


def require_engine(name: str) -> None:
    """Refuse an engine that is not installed, or that is not of a version this package was tested with."""
    require_extra(name, "engine")
    if name == "verl":
        refuse_trl()


def refuse_trl() -> None:
    """verl 0.9's workers import a class with a value head from any TRL they find; the TRL of our extra has none."""
    try:
        found = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError:
        return
    if supported("trl").specifier.contains(Version(found), prereleases=True):
        raise ConfigError(
            f"engine: verl does not start where trl {found} is installed: it imports what is no longer there. Give "
            "verl an environment of its own, or: pip uninstall trl"
        )
