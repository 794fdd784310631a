"""Groups reported as their completions end."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from scrl.sampling.gpu.completion_events import GroupProgress


def reports(groups, size, ended):
    """What is reported when these completions end in this order and the others last; a text is its number."""
    found = {group: [] for group in range(groups)}
    progress = GroupProgress(groups, size, lambda group, texts: found[group].append([int(text) for text in texts]))
    for completion in ended:
        progress.add(completion, str(completion))
    progress.finish([str(completion) for completion in range(groups * size)])
    return found


def test_a_group_is_reported_at_a_half_three_quarters_and_seven_eighths_and_once_when_it_is_complete():
    assert reports(1, 8, [7, 1, 5, 3, 0, 2, 4]) == {
        0: [[1, 3, 5, 7], [0, 1, 2, 3, 5, 7], [0, 1, 2, 3, 4, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7]]
    }
    # ⌈3 · (1/2, 3/4, 7/8)⌉ = 2, 3, 3
    assert reports(2, 3, [4, 0, 3, 5]) == {0: [[0, 1, 2]], 1: [[3, 4], [3, 4, 5]]}
    assert reports(2, 1, [1]) == {0: [[0]], 1: [[1]]}


@given(groups=st.integers(1, 4), size=st.integers(1, 20), data=st.data())
def test_every_group_grows_and_is_complete_last_and_once(groups, size, data):
    order = data.draw(st.permutations(range(groups * size)))
    ended = order[: data.draw(st.integers(0, len(order)))]
    points = {math.ceil(share * size) for share in (0.5, 0.75, 0.875, 1)}
    for group, found in reports(groups, size, ended).items():
        assert found[-1] == [*range(group * size, (group + 1) * size)]
        assert {len(some) for some in found} <= points
        assert len(found) <= 4
        assert all(set(some) < set(more) for some, more in itertools.pairwise(found))
        assert all(set(some) <= set(ended) for some in found[:-1])
