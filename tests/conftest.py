import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("scrl", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("scrl")

GUARDED = {"test_child_processes", "test_hostile_inputs", "test_load_model", "test_prompts"}
FOLDERS_WITH_MODELS = {"policy", "sampling", "training", "engines"}


def pytest_sessionstart():
    """A shell starts its background jobs with Ctrl-C ignored, which all their children inherit; some tests send one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _no_forks(request):
    """A process for a template or a tokenizer takes longer than they do; only tests of what it guards against start one."""
    if request.path.stem in GUARDED:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrl.child_processes._is_fork", True)
        yield


@pytest.fixture(scope="module", autouse=True)
def _one_thread(request):
    """For models this small a second thread costs more than it brings, above all on a busy machine."""
    if request.path.parent.name not in FOLDERS_WITH_MODELS:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def write(tmp_path):
    """`write(name, content)` makes a file."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
