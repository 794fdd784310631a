import pytest
from hypothesis import HealthCheck, settings

from scrl.answers.judge import MathVerifyJudge

settings.register_profile("scrl", deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("scrl")


@pytest.fixture(scope="session")
def judge():
    """The real judge, with its worker processes."""
    judge = MathVerifyJudge(seconds_per_answer=60, seconds_per_group=300)  # no verdict may hang on a busy machine
    yield judge
    judge.close()
