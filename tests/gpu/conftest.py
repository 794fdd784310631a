import pytest
import torch


def pytest_collection_modifyitems(items):
    """Everything here needs a GPU."""
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.filterwarnings("default"))
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="there is no CUDA here"))
