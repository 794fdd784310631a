"""Memory that runs out in an update: less at a time, the same numbers, or an error that moves nothing."""

import numpy as np
import pytest
import torch
from updates import (
    Memory,
    assert_close,
    cohere,
    credit_of,
    draw_group,
    make_policy,
    small_model,
    weights_of,
)

from scrl.errors import TrainingError
from scrl.policy.batching import TrainingRow, num_tokens
from scrl.policy.token_scores import CHUNK_ELEMENTS, token_scores

CREDIT = credit_of()
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@pytest.fixture(scope="module")
def group():
    return draw_group(small_model())


def without_recomputation():
    language_model = small_model()
    language_model.model.supports_gradient_checkpointing = False
    return language_model


def updated_weights(group, micro_batch, dtype=torch.float32, is_packed=False):
    """After an update with room for everything."""
    language_model = small_model(dtype)
    make_policy(language_model, micro_batch=micro_batch, is_packed=is_packed).update([group], [CREDIT])
    return weights_of(language_model)


@both_dtypes
@pytest.mark.parametrize(
    ("micro_batch", "room", "full_after", "runs", "sizes"),
    [
        (4, 2, 0, [4, 2, 2, 2], [2]),
        (4, 1, 0, [4, 2, *[1] * 6], [2, 1]),
        (2, 1, 2, [2, 2, 2, *[1] * 6], [1]),  # 2 of 3 micro-batches are done, then it is full
    ],
)
def test_the_micro_batch_halves_until_it_fits_and_the_update_is_the_same(
    group, dtype, micro_batch, room, full_after, runs, sizes
):
    language_model = small_model(dtype)
    memory = Memory(language_model, room, full_after=full_after)
    policy = make_policy(language_model, micro_batch=micro_batch)
    report = policy.update([group], [CREDIT])
    assert memory.runs == runs
    assert policy.micro_batch == sizes[-1]
    assert [note.partition("compute.")[2] for note in report.notes] == [f"micro_batch is now {size}" for size in sizes]
    assert torch.equal(weights_of(language_model), updated_weights(group, sizes[-1], dtype))
    assert policy.update([group], [CREDIT]).notes == ()  # and it stays there
    assert memory.runs[len(runs) :] == [sizes[-1]] * (6 // sizes[-1])


def test_whoever_can_make_room_is_asked_first(group):
    language_model = small_model()
    memory, policy = Memory(language_model, room=2), make_policy(language_model, micro_batch=4)
    calls = []

    def make_room():
        calls.append(memory.room)
        memory.room = 4
        return "somebody gave some back" if len(calls) == 1 else None

    policy.make_room = make_room
    report = policy.update([group], [CREDIT])
    assert (policy.micro_batch, memory.runs, calls) == (4, [4, 4, 2], [2])
    assert report.notes == ("memory ran out: somebody gave some back",)
    assert torch.equal(weights_of(language_model), updated_weights(group, 4))
    memory.room = 2
    assert policy.update([group], [CREDIT]).notes == ("memory ran out: compute.micro_batch is now 2",)


@pytest.mark.parametrize(
    ("make", "options", "runs"),
    [
        (small_model, {}, [2, 1, 1, 1]),  # then with smaller blocks of logits, at last without activations
        (cohere, {}, [2, 1, 1]),  # whose logits are held whole
        (
            small_model,
            {"is_packed": True},
            [1, 1, 1, 1, 1],
        ),  # as one row; two completions again once activations are not kept
        (small_model, {"compute": {"gradient_checkpointing": True}}, [2, 1, 1]),
        (without_recomputation, {}, [2, 1, 1]),
    ],
)
def test_no_room_for_one_completion_is_an_error_that_moves_nothing(group, make, options, runs):
    language_model = make()
    before = weights_of(language_model)
    policy = make_policy(language_model, micro_batch=2, **options)
    assert (policy.note is not None) == (make is cohere)
    memory = Memory(language_model, room=0)
    with pytest.raises(TrainingError, match=r"sampling\.max_tokens"):
        policy.update([group], [CREDIT])
    assert memory.runs == runs
    assert torch.equal(weights_of(language_model), before)


@both_dtypes
@pytest.mark.parametrize(
    ("micro_batch", "halved"), [(2, ["compute.micro_batch is now 1"]), (1, [])]
)  # one completion at a time after one halving, and from the start
def test_where_one_completion_does_not_fit_its_logits_come_in_smaller_blocks(
    group, dtype, micro_batch, halved, monkeypatch
):
    language_model, wanted = small_model(dtype), updated_weights(group, 1, dtype)
    blocks = []

    def full(*given, chunk_elements, **options):
        blocks.append(chunk_elements)
        if chunk_elements is None:
            raise torch.OutOfMemoryError("no room left")
        return token_scores(*given, chunk_elements=chunk_elements, **options)

    monkeypatch.setattr("scrl.policy.token_scores.token_scores", full)
    policy = make_policy(language_model, micro_batch=micro_batch)
    notes = tuple(f"memory ran out: {note}" for note in [*halved, "logits in blocks of 128 MiB"])
    assert policy.update([group], [CREDIT]).notes == notes
    assert blocks == [*[None] * len(notes), *[CHUNK_ELEMENTS] * 6]
    assert torch.equal(weights_of(language_model), wanted)
    assert policy.update([group], [CREDIT]).notes == ()


@both_dtypes
def test_where_even_that_does_not_fit_activations_are_computed_twice(group, dtype, monkeypatch):
    language_model, wanted = small_model(dtype), updated_weights(group, 1, dtype)

    def full(*given, **options):
        if not language_model.model.is_gradient_checkpointing:
            raise torch.OutOfMemoryError("no room left")
        return token_scores(*given, **options)

    monkeypatch.setattr("scrl.policy.token_scores.token_scores", full)
    policy = make_policy(language_model, micro_batch=1)
    changes = ["logits in blocks of 128 MiB", "activations are computed twice (compute.gradient_checkpointing)"]
    assert policy.update([group], [CREDIT]).notes == tuple(f"memory ran out: {change}" for change in changes)
    assert torch.equal(weights_of(language_model), wanted)
    assert policy.update([group], [CREDIT]).notes == ()


# Counted in tokens


def test_the_tokens_halve_and_the_update_is_the_same(group):
    language_model = small_model()
    policy = make_policy(language_model, is_packed=True)
    tokens = num_tokens(policy.rows([(group, CREDIT)]), is_packed=True)
    memory = Memory(language_model, room=tokens // 2, unit="tokens")
    report = policy.update([group], [CREDIT])
    assert (policy.micro_batch, policy.most_tokens) == (16, tokens // 2)
    assert [str(tokens // 2) in note for note in report.notes] == [True]
    assert tokens // 2 < memory.runs[0] <= tokens  # copies of a shared prompt's keys count too
    assert all(run <= tokens // 2 for run in memory.runs[1:])
    assert_close(weights_of(language_model), updated_weights(group, 16, is_packed=True), 1e-5)


def test_no_room_for_one_long_completion_among_short_ones_is_an_error():
    language_model = small_model()
    policy = make_policy(language_model, micro_batch=3, max_tokens=60, is_packed=True)
    memory = Memory(language_model, room=40, unit="tokens")
    rows = [TrainingRow(np.arange(4), np.arange(n), np.zeros(n), 1.0, 0.0, 1.0) for n in (50, 6, 6)]
    with pytest.raises(TrainingError, match="one completion"):
        policy._step(rows)
    # 74 tokens; 54 of one completion, and 10 + 10; those one by one; with smaller blocks of logits; without activations
    assert (memory.runs, policy.most_tokens) == ([74, 54, 54, 54, 74, 54, 54], 10)
