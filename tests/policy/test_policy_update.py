"""Whole updates: KL to the start, entropy bonus, several questions, memory that runs out, numbers that are none."""

import math

import numpy as np
import pytest
import torch
from updates import (
    ADVANTAGES,
    assert_close,
    cohere,
    collected_gradient,
    credit_of,
    disturb,
    draw_group,
    embedded,
    make_policy,
    plain_gradient,
    small_model,
    tied_gpt2,
    weights_of,
)

from scrl.errors import TrainingError
from scrl.policy.losses import token_ratios
from scrl.policy.model import load_model
from scrl.policy.settings import ComputeSettings, LoraSettings, LossSettings
from scrl.policy.token_scores import CHUNK_ELEMENTS, token_scores

ZEROS = [0.0] * 6


@pytest.fixture(scope="module")
def group():
    return draw_group(small_model())


def with_adapter():
    return embedded(lora=LoraSettings(rank=4))


# KL to the start model


@pytest.mark.parametrize("make", [embedded, with_adapter, small_model, tied_gpt2])
def test_at_the_start_the_kl_is_0_and_so_is_its_gradient(make):
    language_model = make()
    sampled = draw_group(language_model)
    policy = make_policy(language_model, kl_weight=10.0)
    found, measured = collected_gradient(policy, sampled, credit_of(ZEROS))
    assert measured["kl"] == pytest.approx(0, abs=1e-6)
    # k3 = eᵈ − d − 1 is flat at d = 0, and d is a difference of two equal float32 computations
    assert float(found.abs().max()) < 1e-5
    report = policy.update([sampled], [credit_of(ADVANTAGES)])
    assert report.kl == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("make", [embedded, with_adapter])
def test_away_from_the_start_the_kl_pulls_back(make):
    language_model, start = make(), embedded()
    sampled = draw_group(language_model)
    policy = make_policy(language_model, kl_weight=0.5)
    disturb(language_model, 0.01)
    found, measured = collected_gradient(policy, sampled, credit_of(ADVANTAGES))
    settings = LossSettings(kl_weight=0.5)
    wanted, loss = plain_gradient(language_model, sampled, credit_of(ADVANTAGES), settings, reference=start.model)
    assert_close(found, wanted, 1e-5)
    assert measured["loss"] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert measured["kl"] > 0
    without, _ = collected_gradient(make_policy(language_model), sampled, credit_of(ADVANTAGES))
    assert float((found - without).norm()) > 1e-3


@pytest.mark.parametrize("estimate", ["k1", "k2", "k3"])
def test_every_kl_estimate_is_reported_a_token(group, estimate):
    language_model = small_model()
    policy = make_policy(language_model, kl_weight=0.1, kl=estimate)
    disturb(language_model, 0.05)
    difference = []  # log π_start − log π of each token; the samples' own log-probabilities are those of the start
    rows = policy.rows([(group, credit_of(ADVANTAGES))])
    with torch.no_grad():
        logprobs_RT, _ = policy.score(policy._batch(rows))
    for sample, logprobs_T in zip(group.samples_G, logprobs_RT.numpy(), strict=True):
        difference += (sample.logprobs_T - logprobs_T[: len(sample.tokens_T)]).tolist()
    d_n = np.array(difference)
    expected = {"k1": -d_n, "k2": d_n**2 / 2, "k3": np.exp(d_n) - d_n - 1}[estimate]
    report = policy.update([group], [credit_of(ADVANTAGES)])
    assert report.kl == pytest.approx(float(expected.mean()), abs=1e-5)


def test_without_a_weight_there_is_no_reference_and_no_kl(group):
    policy = make_policy(small_model())
    assert policy._reference is None
    assert policy.update([group], [credit_of(ADVANTAGES)]).kl is None


def test_the_reference_stays_where_it_was(group):
    language_model = small_model()
    policy = make_policy(language_model, kl_weight=0.1)
    before = weights_of(language_model)
    for _ in range(3):
        policy.update([group], [credit_of(ADVANTAGES)])
    start = torch.cat([weight.flatten() for weight in policy._reference.parameters()])
    assert torch.equal(start, before)
    assert not torch.equal(weights_of(language_model), before)


# Entropy


def test_a_bonus_raises_the_entropy_and_a_negative_one_lowers_it(group):
    def entropy(bonus):
        policy = make_policy(small_model(), entropy_bonus=bonus, learning_rate=1e-2)
        rows = policy.rows([(group, credit_of(ZEROS))])
        if bonus:
            policy.update([group], [credit_of(ZEROS)])
        with torch.no_grad():
            return float(policy.score(policy._batch(rows))[1].sum())

    assert entropy(1.0) > entropy(0.0) > entropy(-1.0)


def test_the_bonus_is_the_mean_entropy(group):
    report = make_policy(small_model(), entropy_bonus=0.5).update([group], [credit_of(ZEROS)])
    means = [float(sample.entropies_T.mean()) for sample in group.samples_G]
    assert report.loss == pytest.approx(-0.5 * np.mean(means), abs=1e-5)  # fresh samples: a surrogate of 0


# Several questions


def test_each_question_gets_its_own_update_in_the_order_given(group):
    other = draw_group(small_model(), "Compute 2.", size=4)
    credits = [credit_of(ADVANTAGES), credit_of(ADVANTAGES[:4])]
    together = small_model()
    report = make_policy(together).update([group, other], credits)
    one_by_one = small_model()
    policy = make_policy(one_by_one)
    reports = [policy.update([s], [c]) for s, c in zip([group, other], credits, strict=True)]
    assert torch.equal(weights_of(together), weights_of(one_by_one))
    assert policy.optimizer.update == 2
    assert report.loss == pytest.approx(np.mean([r.loss for r in reports]), abs=1e-6)
    assert report.grad_norm == pytest.approx(np.mean([r.grad_norm for r in reports]), rel=1e-6)


def test_questions_of_one_update_are_one_batch(group):
    """GRPO's mean is over completions: six and two of them weigh 1/8 each, whatever their question."""
    language_model = small_model()
    other = draw_group(language_model, "Compute 2.", size=2)
    disturb(language_model)
    policy = make_policy(language_model)
    gradients = [
        collected_gradient(policy, sampled, credit)[0]
        for sampled, credit in ((group, credit_of(ADVANTAGES)), (other, credit_of([1.0, -1.0])))
    ]
    policy.optimizer.clear()
    policy.gradient(policy.rows([(group, credit_of(ADVANTAGES)), (other, credit_of([1.0, -1.0]))]))
    joined = torch.cat([master.grad.flatten() for master in policy.optimizer._masters])
    assert_close(joined, 6 / 8 * gradients[0] + 2 / 8 * gradients[1], 1e-5)
    policy.update([group, other], [credit_of(ADVANTAGES), credit_of([1.0, -1.0])], questions_per_update=2)
    assert policy.optimizer.update == 1


def test_a_question_without_trained_completions_moves_nothing(group):
    language_model = small_model()
    before = weights_of(language_model)
    for mean in ("completion", "token", "constant", "pairs"):
        report = make_policy(language_model, mean=mean).update([group], [credit_of(ADVANTAGES, trained=())])
        assert (report.loss, report.grad_norm, report.clipped_share) == (0, 0, 0)
    assert torch.equal(weights_of(language_model), before)


def test_long_gradients_are_scaled_down_and_their_norm_is_reported(group):
    language_model = small_model()
    policy = make_policy(language_model, max_grad_norm=1e-3)
    gradient, _ = collected_gradient(policy, group, credit_of(ADVANTAGES))
    policy.optimizer.clear()
    report = policy.update([group], [credit_of(ADVANTAGES)])
    assert report.grad_norm == pytest.approx(float(gradient.norm()), rel=1e-5)
    assert report.grad_norm > 1e-3


# Memory


class Memory:
    """Room for so many rows in a forward pass, as a hook on the model's body; counts what was run."""

    def __init__(self, language_model, room, from_call=0):
        self.room, self.from_call, self.runs = room, from_call, []
        language_model.model.model.register_forward_pre_hook(self.check, with_kwargs=True)

    def check(self, module, args, kwargs):
        rows, tokens = kwargs["input_ids"].shape
        if tokens == 3:
            return  # a new policy looks at the model's head
        self.runs.append(rows)
        if rows > self.room and len(self.runs) > self.from_call:
            raise torch.OutOfMemoryError("no room left")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_when_memory_runs_out_the_micro_batch_halves_and_the_update_is_the_same(group, dtype):
    language_model, spacious = small_model(dtype=dtype), small_model(dtype=dtype)
    memory = Memory(language_model, room=2)
    policy = make_policy(language_model, micro_batch=4)
    report = policy.update([group], [credit_of(ADVANTAGES)])
    assert memory.runs == [4, 2, 2, 2]
    assert policy.micro_batch == 2
    assert report.notes == ("memory ran out: compute.micro_batch is now 2",)
    make_policy(spacious, micro_batch=2).update([group], [credit_of(ADVANTAGES)])
    assert torch.equal(weights_of(language_model), weights_of(spacious))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_bfloat16_the_old_policy_is_looked_at_again_for_all_updates_but_the_first(group, dtype, monkeypatch):
    language_model = small_model(dtype=dtype)
    memory, policy = Memory(language_model, room=6), make_policy(language_model, micro_batch=6, learning_rate=1e-2)
    seen, ratios = [], token_ratios
    monkeypatch.setattr("scrl.policy.policy.token_ratios", lambda *logprobs: seen.append(ratios(*logprobs)) or seen[-1])
    policy.update([group] * 3, [credit_of(ADVANTAGES)] * 3)
    assert len(memory.runs) == (3 if dtype == torch.float32 else 2 + 3)
    first, second, _ = (ratios_RT.detach() for ratios_RT in seen)
    if dtype == torch.bfloat16:  # the sampler's log-probabilities are not looked at
        assert (first == 1).all()
    assert float((second - 1).abs().max()) > 1e-3  # the first update has moved the policy


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_the_old_policy_is_scored_without_the_adapters_dropout(is_checkpointed):
    compute = {"dtype": "bfloat16", "gradient_checkpointing": is_checkpointed}
    language_model = load_model(
        "embedded", ComputeSettings(device="cpu", **compute), lora=LoraSettings(rank=4, dropout=0.5)
    )
    disturb(language_model)
    group = draw_group(language_model)
    policy = make_policy(language_model, compute=compute)
    policy._set_mode()
    modes = [module.training for module in language_model.model.modules()]
    assert any(modes)
    rows = policy.rows([(group, credit_of(ADVANTAGES))])
    first, again = ([row.old_logprobs_T for row in policy.rescored(rows)] for _ in range(2))
    assert [module.training for module in language_model.model.modules()] == modes
    language_model.model.eval()
    with torch.no_grad():
        logprobs_RT = policy.score(policy._batch(rows))[0]
    for one_T, other_T, logprobs_T in zip(first, again, logprobs_RT.double().numpy(), strict=True):
        assert (one_T == other_T).all()
        assert (one_T == logprobs_T[: len(one_T)]).all()


def test_the_adapters_dropout_is_on_again_where_memory_ran_out_while_scoring(group):
    language_model = load_model(
        "embedded", ComputeSettings(device="cpu", dtype="bfloat16"), lora=LoraSettings(rank=4, dropout=0.5)
    )
    policy = make_policy(language_model)
    policy._set_mode()
    modes = [module.training for module in language_model.model.modules()]
    policy.score = raise_out_of_memory
    with pytest.raises(torch.OutOfMemoryError):
        policy.rescored(policy.rows([(group, credit_of(ADVANTAGES))]))
    assert [module.training for module in language_model.model.modules()] == modes


def raise_out_of_memory(batch):
    raise torch.OutOfMemoryError("no room left")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_that_runs_out_in_the_middle_of_an_update_leaves_no_half_gradient(group, dtype):
    language_model, spacious = small_model(dtype=dtype), small_model(dtype=dtype)
    memory = Memory(language_model, room=1, from_call=2)  # 2 of 3 micro-batches of 2 are done, then it is full
    report = make_policy(language_model, micro_batch=2).update([group], [credit_of(ADVANTAGES)])
    assert memory.runs == [2, 2, 2, *[1] * 6]
    assert report.notes == ("memory ran out: compute.micro_batch is now 1",)
    make_policy(spacious, micro_batch=1).update([group], [credit_of(ADVANTAGES)])
    assert torch.equal(weights_of(language_model), weights_of(spacious))


def test_the_micro_batch_halves_until_it_fits_and_stays_there(group):
    language_model = small_model()
    memory = Memory(language_model, room=1)
    policy = make_policy(language_model, micro_batch=4)
    report = policy.update([group], [credit_of(ADVANTAGES)])
    assert memory.runs == [4, 2, *[1] * 6]
    assert report.notes == tuple(f"memory ran out: compute.micro_batch is now {size}" for size in (2, 1))
    assert policy.update([group], [credit_of(ADVANTAGES)]).notes == ()
    assert memory.runs[8:] == [1] * 6


def test_whoever_can_make_room_is_asked_first(group):
    language_model, spacious = small_model(), small_model()
    memory = Memory(language_model, room=2)
    policy, asked = make_policy(language_model, micro_batch=4), []

    def give_back():
        asked.append(memory.room)
        memory.room = 4
        return "somebody gave some back" if len(asked) == 1 else None

    policy.make_room = give_back
    report = policy.update([group], [credit_of(ADVANTAGES)])
    assert (policy.micro_batch, memory.runs, asked) == (4, [4, 4, 2], [2])
    assert report.notes == ("memory ran out: somebody gave some back",)
    make_policy(spacious, micro_batch=4).update([group], [credit_of(ADVANTAGES)])
    assert torch.equal(weights_of(language_model), weights_of(spacious))
    memory.room = 2
    assert policy.update([group], [credit_of(ADVANTAGES)]).notes == ("memory ran out: compute.micro_batch is now 2",)


def test_no_room_for_one_completion_is_an_error_that_moves_nothing(group):
    language_model = small_model()
    before = weights_of(language_model)
    memory = Memory(language_model, room=0)
    with pytest.raises(TrainingError, match=r"memory ran out with one completion at a time.*sampling.max_tokens"):
        make_policy(language_model, micro_batch=2).update([group], [credit_of(ADVANTAGES)])
    assert memory.runs == [2, 1, 1]  # at last with smaller blocks of logits
    assert torch.equal(weights_of(language_model), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("compute", "halved"), [({}, "compute.micro_batch is now 1"), ({"micro_tokens": 1}, None)]
)  # one completion at a time after one halving, and from the start
def test_where_one_completion_does_not_fit_its_logits_come_in_smaller_blocks(
    group, dtype, compute, halved, monkeypatch
):
    language_model, spacious = small_model(dtype=dtype), small_model(dtype=dtype)
    make_policy(spacious, micro_batch=1).update([group], [credit_of(ADVANTAGES)])
    blocks = []

    def full(*given, chunk_elements, **options):
        blocks.append(chunk_elements)
        if chunk_elements is None:
            raise torch.OutOfMemoryError("no room left")
        return token_scores(*given, chunk_elements=chunk_elements, **options)

    monkeypatch.setattr("scrl.policy.policy.token_scores", full)
    policy = make_policy(language_model, micro_batch=2, compute=compute)
    report = policy.update([group], [credit_of(ADVANTAGES)])
    notes = [halved, "logits in blocks of 128 MiB"] if halved else ["logits in blocks of 128 MiB"]
    assert report.notes == tuple(f"memory ran out: {note}" for note in notes)
    assert blocks == [*[None] * len(notes), *[CHUNK_ELEMENTS] * 6]
    assert torch.equal(weights_of(language_model), weights_of(spacious))
    assert policy.update([group], [credit_of(ADVANTAGES)]).notes == ()


def test_logits_that_are_held_whole_have_no_smaller_blocks(group):
    language_model = cohere()
    policy = make_policy(language_model, micro_batch=2)
    assert policy.note == "this model changes its logits, so they are held whole: more memory"
    memory = Memory(language_model, room=0)
    with pytest.raises(TrainingError, match="memory ran out with one completion at a time"):
        policy.update([group], [credit_of(ADVANTAGES)])
    assert memory.runs == [2, 1]


# Not a number


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("advantage", [math.nan, math.inf, -math.inf])
def test_an_advantage_that_is_no_number_stops_training_and_moves_nothing(group, advantage, dtype):
    language_model = small_model(dtype=dtype)
    policy = make_policy(language_model, micro_batch=2)
    before = weights_of(language_model)
    with pytest.raises(TrainingError, match=r"training cannot go on.*optimizer.learning_rate"):
        policy.update([group], [credit_of([*ADVANTAGES[:-1], advantage])])
    assert torch.equal(weights_of(language_model), before)
    assert policy.optimizer.update == 0
    policy.update([group], [credit_of(ADVANTAGES)])  # and leaves nothing behind
    assert bool(weights_of(language_model).isfinite().all())


def test_weights_that_are_no_number_stop_training(group):
    language_model = small_model()
    with torch.no_grad():
        language_model.model.lm_head.weight[0, 0] = math.nan
    with pytest.raises(TrainingError, match="the loss is nan"):
        make_policy(language_model).update([group], [credit_of(ADVANTAGES)])
    assert int(weights_of(language_model).isnan().sum()) == 1
