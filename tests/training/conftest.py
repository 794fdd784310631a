import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """For models this small a second thread costs more than it brings, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_report(monkeypatch):
    """Drawing the page takes longer than these runs."""
    monkeypatch.setattr("scrl.training.loop.write_report", lambda folders, out: out.touch())
