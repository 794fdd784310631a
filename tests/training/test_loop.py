"""Whole runs, in this process: what they learn from, what they write, what they do when something is short."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import reference_ops
import torch
from line_files import read_lines, write_lines
from listeners import Listener
from runs import (
    GOLD_METRICS,
    differences,
    digest,
    do,
    go_on,
    metrics,
    no_reports,
    small,
    state_of,
    stop_after_a_step,
    weights,
)
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from scrl.data.arithmetic import arithmetic_questions
from scrl.errors import ConfigError, InputError, TrainingError
from scrl.metrics import STEP_METRICS
from scrl.policy import packing
from scrl.policy.model_paths import model_folder
from scrl.sampling.gpu.graph_engine import GraphEngine
from scrl.sampling.local import LocalSampler
from scrl.training.loop import open_run
from scrl.training.trackers import TRACKERS

pytestmark = pytest.mark.usefixtures("no_report")
QUIET = ("evaluation.completions=0",)
START_WEIGHTS = digest(Path(model_folder("embedded")))


def without(fields, names):
    return {key: value for key, value in fields.items() if key not in names}


# Gold


def test_deleting_the_gold_column_changes_no_bit_of_what_is_learned(tmp_path):
    questions = [{"id": q.id, "question": q.text, "gold": q.gold} for q in arithmetic_questions("easy", 6)]
    with_gold, bare = tmp_path / "with", tmp_path / "without"
    one, two = (
        do(folder, f"questions={write_lines(tmp_path / 'questions.jsonl', rows)}", "steps=4", "evaluation.every=2")[0]
        for folder, rows in ((with_gold, questions), (bare, [without(row, {"gold"}) for row in questions]))
    )
    for which in ("last", "best"):
        assert weights(with_gold, which) == weights(bare, which)
    assert (one.state.best_step, one.state.best_score) == (two.state.best_step, two.state.best_score)
    graded, ungraded = read_lines(with_gold / "rollouts.jsonl"), read_lines(bare / "rollouts.jsonl")
    assert [without(line, {"gold", "correct"}) for line in graded] == ungraded
    assert all({"gold", "correct"} <= line.keys() for line in graded)
    assert [without(line, GOLD_METRICS) for line in metrics(with_gold)] == metrics(bare)
    assert all({"majority_accuracy", "pass@1"} <= line.keys() for line in metrics(with_gold))
    measured, unmeasured = read_lines(with_gold / "evaluations.jsonl"), read_lines(bare / "evaluations.jsonl")
    assert [{key: line[key] for key in unmeasured[0]} for line in measured] == unmeasured
    assert not any("@" in key for line in unmeasured for key in line)
    assert all({"pass@1", "pass@4", "maj@4"} <= line.keys() for line in measured)


# What is learned


def test_the_same_settings_give_the_same_run_and_another_seed_another(tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        do(tmp_path / name, f"seed={seed}", "questions=arithmetic:easy:train:6:0", "steps=1", *QUIET)
    assert differences(tmp_path / "one", tmp_path / "two") == []
    assert {"last", "rollouts"} <= set(differences(tmp_path / "one", tmp_path / "other"))


def test_the_best_checkpoint_is_the_one_with_most_agreement_over_the_last_epoch(tmp_path):
    run, _ = do(tmp_path / "run", "steps=5", *QUIET)
    agreement = [line["agreement"] for line in metrics(tmp_path / "run")]
    # an epoch is 3 steps: after step s the mean over steps s − 2 … s, as far as there are any; the first of equals
    scores = [sum(last := agreement[max(0, step - 2) : step + 1]) / len(last) for step in range(5)]
    assert run.state.best_score == pytest.approx(max(scores))
    assert run.state.best_step == scores.index(max(scores)) + 1
    card = (tmp_path / "run" / "checkpoints" / "best" / "README.md").read_text()
    assert f"# embedded after {run.state.best_step} step" in card
    assert "no gold" in card


def test_a_low_rank_adapter_is_trained_and_saved_as_peft_wants_it(tmp_path):
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM

    run, _ = do(tmp_path / "run", "lora.rank=2", "steps=2", *QUIET)
    last = tmp_path / "run" / "checkpoints" / "last"
    for name in ("adapter_config.json", "adapter_model.safetensors", "README.md", "optimizer.pt"):
        assert (last / name).is_file()
    assert not (last / "model.safetensors").exists()
    assert "library_name: peft" in (last / "README.md").read_text()
    base = AutoModelForCausalLM.from_pretrained(model_folder("embedded"))
    trained = run.language_model.model.eval()
    tokens = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        plain = base(tokens).logits
        expected = trained(tokens).logits
        found = PeftModel.from_pretrained(base, last)(tokens).logits
        assert torch.equal(AutoPeftModelForCausalLM.from_pretrained(last)(tokens).logits, found)
    assert torch.equal(found, expected)
    assert not torch.equal(found, plain)


def test_a_kl_term_is_measured_against_the_start_model(one_step, tmp_path):
    do(tmp_path / "run", "loss.kl_weight=0.01", "steps=2", *QUIET)
    kl = [line["kl"] for line in metrics(tmp_path / "run")]
    assert kl[0] < kl[1]  # it grows from about 0: the first update is measured at the start itself
    assert all(value >= 0 for value in kl)
    assert "kl" not in metrics(one_step[0])[0]


@pytest.fixture(scope="module")
def one_step(tmp_path_factory):
    """A step as it is by default."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    with no_reports():
        run, _ = do(folder, "steps=1", *QUIET)
    return folder, run.policy.optimizer.update


@pytest.mark.parametrize("variant", ["dapo", "dr-grpo", "gspo", "rloo", "official"])
def test_every_named_loss_moves_the_weights_its_own_way(variant, one_step, tmp_path):
    setting = "preset=official" if variant == "official" else f"loss_variant={variant}"
    do(tmp_path / "run", setting, "steps=1", "loss.kl_weight=0", *QUIET)
    (line,), (plain,) = metrics(tmp_path / "run"), metrics(one_step[0])
    assert line.keys() <= STEP_METRICS.keys()
    assert weights(tmp_path / "run") not in (weights(one_step[0]), START_WEIGHTS)
    for key in ("agreement", "entropy_mean", "tokens", "positive_share"):
        assert line[key] == plain[key]  # the first completions are the same


# When something is short


def out_of_memory_while(is_full, function):
    def tight(*arguments):
        if is_full():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return function(*arguments)

    return tight


def draw_with_memory_for(rows, out, monkeypatch):
    """With a sampler that runs out of memory until few enough rows are asked for."""
    heard = Listener()
    run = open_run(small("compute.sampler_rows=16"), out, heard)
    forgetful = out_of_memory_while(lambda: run.sampler.max_rows > rows, run.sampler._sample)  # type: ignore[attr-defined]
    monkeypatch.setattr(run.sampler, "_sample", forgetful)
    return run, heard, run.sample(run.stream.batch(0), run.config.sampling, 8, 0)


@pytest.fixture
def run(tmp_path):
    return open_run(small(), tmp_path / "run", Listener())


def take_updates(run, number, monkeypatch, is_full=lambda asked: False):
    """At which updates the sampler was asked for its memory, and what each of them said; memory may be full."""
    groups_B = run.crediting.credit(run.sample(run.stream.batch(0), run.config.sampling, 8, 0))
    asked = []
    monkeypatch.setattr(run.sampler, "release", lambda: asked.append(run.policy.optimizer.update))
    tight = out_of_memory_while(lambda: is_full(asked), run.policy.gradient)
    monkeypatch.setattr(run.policy, "gradient", tight)
    notes = [run.update(groups_B[:1]).notes for _ in range(number)]
    return asked, notes


def test_the_sampler_keeps_its_memory_beside_updates_but_the_first(run, monkeypatch):
    assert take_updates(run, 3, monkeypatch) == ([0], [(), (), ()])


def test_a_sampler_of_ones_own_is_released_before_every_update(run, monkeypatch):
    run.sampler = SimpleNamespace(sample=run.sampler.sample, release=None)
    assert take_updates(run, 3, monkeypatch) == ([0, 1, 2], [(), (), ()])


def test_where_both_do_not_fit_the_sampler_gives_back_before_every_update(run, monkeypatch):
    asked, notes = take_updates(run, 5, monkeypatch, lambda asked: run.policy.optimizer.update == 2 not in asked)
    assert asked == [0, 2, 3, 4]
    said = ("memory ran out: the sampler's is given back before every update from now on",)
    assert notes == [(), (), said, (), ()]
    assert run.state.is_released  # so that a resumed run does not run out again


def test_a_sampler_that_has_given_back_is_not_asked_again(run, monkeypatch):
    # at the first update the sampler has nothing to give
    found = take_updates(run, 1, monkeypatch, lambda _: run.policy.micro_batch > 2)
    assert found == ([0], [("memory ran out: compute.micro_batch is now 2",)])
    assert not run.state.is_released


def test_when_memory_ends_fewer_completions_are_written_side_by_side(tmp_path, monkeypatch):
    run, heard, sampled_B = draw_with_memory_for(4, tmp_path / "run", monkeypatch)
    said = [note for note in heard.notes if note.startswith("memory")]
    assert said == [f"memory ran out: compute.sampler_rows is now {rows}" for rows in (8, 4)]
    assert [len(sampled.samples_G) for sampled in sampled_B] == [8, 8]
    run.save_last()
    assert state_of(tmp_path / "run")["sampler_rows"] == 4  # which a resumed run starts with


def test_when_memory_ends_with_one_completion_the_run_ends_in_words(tmp_path, monkeypatch):
    with pytest.raises(TrainingError, match=r"sampling\.max_tokens"):
        draw_with_memory_for(0, tmp_path / "run", monkeypatch)


def test_a_run_whose_completions_have_no_answers_says_what_to_try(tmp_path):
    _, heard = do(tmp_path / "run", "sampling.max_tokens=2", "steps=1", "probe=0", *QUIET)
    assert "sampling.max_tokens" in heard.text
    (line,) = metrics(tmp_path / "run")
    assert (line["no_answer_share"], line["truncated_share"], line["signal_share"]) == (1.0, 1.0, 0.0)


# Held-out questions, trackers


def test_held_out_questions_are_measured_and_never_trained_on(tmp_path):
    do(tmp_path / "run", "evaluation.held_out=arithmetic:easy:held-out:3", "steps=1", "evaluation.questions=2")
    found = read_lines(tmp_path / "run" / "evaluations.jsonl")
    assert [(line["step"], line["benchmark"], line["questions"]) for line in found] == [
        (0, "stream", 2), (0, "held-out", 3), (1, "stream", 2), (1, "held-out", 3),
    ]  # fmt: skip
    held_out = {question.id for question in arithmetic_questions("easy", 3, stream="held-out")}
    assert held_out.isdisjoint(line["question_id"] for line in read_lines(tmp_path / "run" / "rollouts.jsonl"))


def test_held_out_questions_that_the_model_cannot_read_are_refused_before_anything_is_written(tmp_path):
    (tmp_path / "long.txt").write_text("Compute " + "1+" * 150 + "1.\n")
    with pytest.raises(InputError, match=r"'long-0'.*304"):
        do(tmp_path / "run", f"evaluation.held_out={tmp_path / 'long.txt'}")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def tracked(monkeypatch):
    """What the tracker `fake` heard; `broken` cannot be opened."""
    heard = []

    @contextmanager
    def fake(folder, config):
        heard.append((folder.name, config["method"]))
        try:
            yield lambda *step: heard.append(step)
        finally:
            heard.append("closed")

    def broken(folder, config):
        raise RuntimeError("no connection")

    monkeypatch.setitem(TRACKERS, "fake", fake)
    monkeypatch.setitem(TRACKERS, "broken", broken)
    monkeypatch.setattr("scrl.training.trackers.find_spec", lambda name: name)  # both are installed
    return heard


def test_trackers_hear_every_number_of_every_step_and_are_closed_whatever_happens(tracked, tmp_path):
    do(tmp_path / "run", "trackers=[fake]", "steps=2", *QUIET)
    steps = [(line.pop("step"), line) for line in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert tracked == [("run", "scrl"), *steps, "closed"]
    tracked.clear()
    with pytest.raises(InputError, match="2 steps"):
        go_on(tmp_path / "run")
    assert tracked == []  # they are opened for steps alone
    with pytest.raises(TrainingError, match=r"trackers: broken .*no connection"):
        do(tmp_path / "other", "trackers=[fake, broken]", "steps=1", *QUIET)
    assert tracked == [("other", "scrl"), "closed"]


def test_a_tracker_that_is_unknown_or_not_installed_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"trackers"):
        do(tmp_path / "run", "trackers=[tensorbord]")
    assert not (tmp_path / "run").exists()
    with monkeypatch.context() as patch:
        patch.setattr("scrl.training.trackers.find_spec", lambda name: None)
        with pytest.raises(ConfigError, match="trackers"):
            do(tmp_path / "run", "trackers=[wandb]")
    assert not (tmp_path / "run").exists()


# Completions written as on a GPU, here in plain torch

LEARNS = (
    "steps=2", "completions=4", "trained=2", "sampling.max_tokens=32", "optimizer.learning_rate=1e-3",
    "evaluation.every=1", "evaluation.completions=2", "probe=0",
)  # fmt: skip


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The memory that each rollout was written in."""
    caches, init, write = [], LocalSampler.__init__, GraphEngine.generate

    def with_engine(self, model, *given, **named):
        init(self, model, *given, **named)
        self._engine = GraphEngine(model, self._end_tokens, reference_ops, page_size=32)

    def noted(self, *given, **named):
        results = write(self, *given, **named)
        caches.append(self._memory)
        return results

    def switch_on():
        monkeypatch.setattr(LocalSampler, "__init__", with_engine)
        monkeypatch.setattr(GraphEngine, "generate", noted)
        return caches

    return switch_on


def test_a_run_learns_what_it_learns_elsewhere_in_memory_that_it_keeps(as_on_a_gpu, tmp_path):
    do(tmp_path / "elsewhere", *LEARNS)
    caches = as_on_a_gpu()
    do(tmp_path / "gpu", *LEARNS)
    for found, expected in zip(metrics(tmp_path / "gpu"), metrics(tmp_path / "elsewhere"), strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert len(metrics(tmp_path / "gpu")) == 2
    assert len({id(cache) for cache in caches}) < len(caches) - 2  # rollouts and evaluations share it


# Packed rows, several passes, split masters and short averages

LEAN = (
    "compute.dtype=bfloat16", "compute.micro_batch=3", "compute.gradient_checkpointing=true",
    "optimizer.state=bfloat16", "evaluation.completions=0", "steps=2",
)  # fmt: skip


@pytest.fixture
def narrow(tmp_path):
    """The embedded model in small, with random weights: some CPUs take a minute for that one in bfloat16."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 1, "num_hidden_layers": 2}
    config = AutoConfig.from_pretrained(model_folder("embedded"), **sizes)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "narrow")
    AutoTokenizer.from_pretrained(model_folder("embedded")).save_pretrained(tmp_path / "narrow")
    return f"model={tmp_path / 'narrow'}"


def test_a_lean_run_goes_on_exactly(narrow, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "DEVICES", ("cpu",))
    settings = (*LEAN, narrow)
    run, _ = do(tmp_path / "whole", *settings)
    assert run.policy.is_packed
    stop_after_a_step(tmp_path / "run", *settings)
    go_on(tmp_path / "run")
    assert differences(tmp_path / "run", tmp_path / "whole") == []


def test_packing_changes_a_run_by_rounding_alone(tmp_path, monkeypatch):
    for name, devices in (("on", ("cpu",)), ("off", ())):
        monkeypatch.setattr(packing, "DEVICES", devices)
        do(tmp_path / name, "evaluation.completions=0", "steps=1")
    one, other = (metrics(tmp_path / name) for name in ("on", "off"))
    assert one[0].pop("grad_norm") == pytest.approx(other[0].pop("grad_norm"), rel=1e-5)
    assert one[0].pop("loss") == pytest.approx(other[0].pop("loss"), abs=1e-6)
    assert one[0] == other[0]
