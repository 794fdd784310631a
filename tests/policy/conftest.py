import pytest
import torch


def pytest_configure(config):
    config.addinivalue_line("markers", "trl: compares with TRL, where it is installed")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """For models this small a second thread costs more than it brings, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
