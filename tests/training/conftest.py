import os

import pytest
from runs import any_entropy_is_low, no_reports

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def no_report():
    with no_reports():
        yield


@pytest.fixture
def any_entropy(no_report):
    with any_entropy_is_low():
        yield
