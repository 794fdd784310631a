"""Choices by name: advantages, methods of one's own, needs that nobody knows."""

import numpy as np
import pytest

from scrl.credit.advantages import reward_advantages
from scrl.credit.method import CreditSettings
from scrl.credit.methods import METHODS, find_method
from scrl.errors import ConfigError


def test_advantages_by_name():
    rewards = np.array([1.0, 0.0, 0.5])  # the mean is 0.5
    assert reward_advantages(rewards, CreditSettings(advantage="centred")).tolist() == [0.5, -0.5, 0.0]
    assert reward_advantages(rewards, CreditSettings(advantage="leave-one-out")).tolist() == [0.75, -0.75, 0.0]  # · 3/2
    assert reward_advantages(np.ones(3), CreditSettings(advantage="centred")).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scrll", "unknown method 'scrll'. Did you mean 'scrl'"),
        ("yaml:dump", "'yaml:dump' is of type function, not a Method"),
        ("yaml:Scrl", "'yaml' has no 'Scrl'. There is no Method in it"),
        ("scrl.credit.methods.scrl:SCRLL", "has no 'SCRLL'."),
    ],
)
def test_a_method_that_is_not_there_is_refused(name, message):
    with pytest.raises(ConfigError) as refusal:
        find_method(name)
    assert message in str(refusal.value)


def test_a_method_is_found_by_its_path_and_stays_itself():
    assert find_method("scrl.credit.methods.scrl:SCRL") is METHODS["scrl"]
    assert find_method(METHODS["ttrl"]) is METHODS["ttrl"]
