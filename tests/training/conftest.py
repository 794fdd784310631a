import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def no_report(monkeypatch):
    """Drawing the page takes longer than these runs."""
    monkeypatch.setattr("scrl.training.run_folder.write_report", lambda folders, out: out.touch())
