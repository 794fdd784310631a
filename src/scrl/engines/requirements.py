"""What an engine asks of a machine, and what only ours can do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from packaging.version import Version

from scrl.config import RunConfig
from scrl.errors import ConfigError
from scrl.optional_deps import installed_version, require_extra, supported


def check_machine(config: RunConfig) -> None:
    """Refuse what this machine cannot train, before verl says so a minute later."""
    if config.engine == "verl" and config.nodes == 1 and "RAY_ADDRESS" not in os.environ:
        import torch

        if not torch.cuda.is_available():
            raise ConfigError("engine: verl needs GPUs; scrl train --dry-run writes its files for a machine with some")


def require_engine(name: str) -> None:
    """Refuse an engine that is not installed, or not in a version of our extra of its name.

    verl 0.9's workers import a class with a value head from any TRL they find; the TRL of our extra has none.
    """
    require_extra(name, "engine")
    trl = installed_version("trl")
    if name == "verl" and trl and supported("trl").specifier.contains(Version(trl), prereleases=True):
        raise ConfigError(f"engine: verl does not start beside trl {trl}: pip uninstall trl, or use two environments")


def shared_refusals(config: RunConfig, engine: str, needs_met: frozenset[str]) -> Iterator[tuple[str, str]]:
    """(setting, reason) for what neither TRL nor verl can do, and for needs of methods that `engine` cannot meet."""
    rule = config.rule()
    if config.sampling.stop:
        yield "sampling.stop", f"{engine} ends completions only at end-of-text tokens"
    if config.sampling.temperature == 0:
        yield "sampling.temperature", "equal completions cannot vote"
    if config.compute.sampler != "local":
        yield "compute.sampler", f"{engine} has its own sampler, which engine_options choose"
    if config.optimizer.state != "float32":
        yield "optimizer.state", f"{engine}'s optimizer has only float32"
    if rule.method.plan is not None:
        yield "method", f"{rule.method.name!r} has completions share their beginnings, and {engine} samples each alone"
    for need in sorted(rule.needs - needs_met):
        yield "method", f"{rule.method.name!r} needs {need!r}, and {engine} has no place for it"


def refuse(refusals: Iterable[tuple[str, str]]) -> None:
    """Refuse the first of these settings."""
    for name, reason in refusals:
        raise ConfigError(f"{name}: {reason}. Change it, or use engine: local.")
