"""What an engine asks of a machine, and what only ours can do."""

from __future__ import annotations

import os
from collections.abc import Iterator

from packaging.version import Version

from scrl.config import RunConfig
from scrl.errors import ConfigError
from scrl.optional_deps import installed_version, require_extra, supported


def check_machine(config: RunConfig) -> None:
    """Refuse what this machine cannot train, before verl says so a minute later."""
    if config.engine == "verl" and config.nodes == 1 and "RAY_ADDRESS" not in os.environ:
        import torch

        if not torch.cuda.is_available():
            raise ConfigError(
                "engine: verl trains on GPUs and there is none here; scrl train --dry-run writes its files and command "
                "for a machine that has some"
            )


def require_engine(name: str) -> None:
    """Refuse an engine that is not installed, or not in a version of our extra of its name.

    verl 0.9's workers import a class with a value head from any TRL they find; the TRL of our extra has none.
    """
    require_extra(name, "engine")
    trl = installed_version("trl")
    if name == "verl" and trl and supported("trl").specifier.contains(Version(trl), prereleases=True):
        raise ConfigError(
            f"engine: verl does not start where trl {trl} is installed: it imports what is no longer there. Give "
            "verl its own environment, or: pip uninstall trl"
        )


def shared_refusals(config: RunConfig, engine: str) -> Iterator[tuple[str, str]]:
    """(setting, reason) for every setting that neither TRL nor verl can honour; `engine` is the one to name."""
    if config.sampling.stop:
        yield "sampling.stop", f"{engine} ends completions only at end-of-text tokens"
    if config.optimizer.state != "float32":
        yield "optimizer.state", f"{engine}'s optimizer has only float32"
