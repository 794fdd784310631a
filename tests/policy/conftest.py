import shutil
import socket
from pathlib import Path

import pytest

from scrl.policy.model_paths import model_folder


@pytest.fixture
def folder(tmp_path):
    """A copy of the embedded model to break."""
    return Path(shutil.copytree(model_folder("embedded"), tmp_path / "model"))


@pytest.fixture
def no_network(monkeypatch):
    """Every attempt to reach another machine fails the test."""

    def refuse(*address, **options):
        pytest.fail(f"the network was touched: {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
