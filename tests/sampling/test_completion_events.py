"""Groups told of as their completions end."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from scrl.sampling.gpu.completion_events import GrowingGroups


def told_of(groups, size, ended):
    """What is heard when these jobs end in this order and the others at last; a job's text is its number."""
    told = {place: [] for place in range(groups)}
    growing = GrowingGroups(groups, size, lambda place, texts: told[place].append([int(text) for text in texts]))
    for job in ended:
        growing.add(job, str(job))
    growing.finish([str(job) for job in range(groups * size)])
    return told


def test_a_group_is_told_of_at_a_half_three_quarters_and_seven_eighths():
    assert told_of(1, 8, [7, 1, 5, 3, 0, 2, 4]) == {
        0: [[1, 3, 5, 7], [0, 1, 2, 3, 5, 7], [0, 1, 2, 3, 4, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7]]
    }


def test_a_group_that_is_whole_before_others_is_told_of_at_once_and_not_again():
    # ⌈3 · (1/2, 3/4, 7/8)⌉ = 2, 3, 3
    assert told_of(2, 3, [4, 0, 3, 5]) == {0: [[0, 1, 2]], 1: [[3, 4], [3, 4, 5]]}


def test_a_group_of_one_is_told_of_once():
    assert told_of(2, 1, [1]) == {0: [[0]], 1: [[1]]}


@given(groups=st.integers(1, 4), size=st.integers(1, 20), data=st.data())
def test_every_group_grows_and_is_whole_at_last_and_once(groups, size, data):
    jobs = data.draw(st.permutations(range(groups * size)))
    ended = jobs[: data.draw(st.integers(0, len(jobs)))]
    points = {math.ceil(share * size) for share in (0.5, 0.75, 0.875, 1)}
    for place, told in told_of(groups, size, ended).items():
        assert told[-1] == [*range(place * size, (place + 1) * size)]
        assert {len(jobs) for jobs in told} <= points
        assert len(told) <= 4
        assert all(set(some) < set(more) for some, more in itertools.pairwise(told))
        assert all(set(jobs) <= set(ended) for jobs in told[:-1])
