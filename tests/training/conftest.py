import os

import pytest
from runs import no_reports

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def no_report():
    with no_reports():
        yield
