"""A reproduction does nothing twice, goes on with what was interrupted, and refuses what was made otherwise."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from line_files import write_lines

from scrl.engines.choice import Engine
from scrl.errors import ConfigError, DataError
from scrl.evaluation.settings import build_settings
from scrl.recipes import reproduce
from scrl.recipes.jobs import jobs, select
from scrl.recipes.reproduce import Choices
from scrl.training.run_folder import RunFolder


def test_how_far_a_run_came_is_read_from_each_engines_checkpoint(tmp_path):
    last = tmp_path / "run" / "checkpoints" / "last"
    assert reproduce._steps_done(tmp_path / "run") == 0
    last.mkdir(parents=True)
    (last / "trainer_state.json").write_text('{"version": 1, "step": 5, "stopped_for": []}')
    assert reproduce._steps_done(tmp_path / "run") == 5
    (last / "scrl_state.json").write_text(
        '{"version": 1, "step": 7, "stopped_for": []}'
    )  # on TRL, whose trainer writes the other one
    assert reproduce._steps_done(tmp_path / "run") == 7
    weights = tmp_path / "verl" / "checkpoints" / "global_step_40" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    (tmp_path / "verl" / "checkpoints" / "last").symlink_to(weights)
    assert reproduce._steps_done(tmp_path / "verl") == 40


class Measured:
    """Stands in for `measure`, and notes down what it was asked."""

    def __init__(self, fail_on=None):
        self.asked, self.fail_on = [], fail_on

    def __call__(self, settings, folder, listener):
        self.asked.append(settings.benchmarks)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "evaluation.yaml").write_text(json.dumps(settings.model_dump(mode="json")))
        if self.fail_on in settings.benchmarks:
            raise KeyboardInterrupt
        write_lines(folder / "evaluations.jsonl", [{"benchmark": name} for name in settings.benchmarks])


@pytest.fixture
def measured(monkeypatch):
    stand_in = Measured()
    monkeypatch.setattr(reproduce, "measure", stand_in)
    return stand_in


def settings_of(*benchmarks, **more):
    return build_settings({"model": "m", "benchmarks": benchmarks} | more)


def test_what_is_measured_is_not_measured_again_and_other_benchmarks_are_added(measured, tmp_path):
    for wanted in (("amc",), ("amc",), ("math500", "amc"), ("amc",), ("math500",)):
        reproduce._measure(settings_of(*wanted, model=f"moved/{len(wanted)}/checkpoints/last"), tmp_path, None)
    assert measured.asked == [("amc",), ("amc", "math500")]


@pytest.mark.parametrize("text", ["{bad", "[]", "\xff"])
def test_a_state_that_no_run_wrote_is_named(tmp_path, text):
    (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    (tmp_path / "checkpoints" / "last" / "trainer_state.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"trainer_state\.json: cannot be read"):
        reproduce._steps_done(tmp_path)


def test_an_addition_that_was_interrupted_is_gone_on_with(measured, tmp_path):
    reproduce._measure(settings_of("amc"), tmp_path, None)
    measured.fail_on = "math500"
    with pytest.raises(KeyboardInterrupt):
        reproduce._measure(settings_of("math500"), tmp_path, None)
    measured.fail_on = None
    for _ in range(2):
        reproduce._measure(settings_of("math500"), tmp_path, None)
    assert measured.asked == [("amc",), ("amc", "math500"), ("amc", "math500")]


def test_measured_with_other_settings_is_refused(measured, tmp_path):
    reproduce._measure(settings_of("amc"), tmp_path, None)
    for more in ({"samples": 4}, {"seed": 1}, {"sampling": {"max_tokens": 9}}, {"limit": 2}, {"model": "./other"}):
        with pytest.raises(ConfigError, match="was made with other settings; give another --out"):
            reproduce._measure(settings_of("amc", **more), tmp_path, None)


def test_a_run_with_other_settings_is_refused(monkeypatch, tmp_path):
    def train(config, folder, observer):
        RunFolder.create(folder, config, "cpu")

    gone_on = []
    engine = Engine(train, lambda folder, observer: gone_on.append(folder))
    monkeypatch.setattr(reproduce, "engine_of", lambda config: engine)
    (job,) = (job for job in jobs(select(["qwen2.5-3b/aime25/32-16/scrl"]), "demo") if job.is_run)
    job = replace(job, measured_on=())

    def go(**more):
        choices = Choices(**{"scale": "demo", "seeds": (10,), "steps": 2} | more)
        reproduce.carry_out([job], choices, tmp_path, lambda steps, name: nullcontext(None))

    run = tmp_path / "seed-10" / "runs" / "embedded" / "hard" / "32-16" / "scrl"
    go()
    assert (run / "config.yaml").is_file()
    go()
    assert gone_on == [run]  # it has no checkpoint yet
    (run / "checkpoints" / "last").mkdir()
    (run / "checkpoints" / "last" / "trainer_state.json").write_text('{"version": 1, "step": 2, "stopped_for": []}')
    (run / "report.html").touch()
    go()
    assert gone_on == [run]
    for more in ({"steps": 1}, {"steps": 3}, {"overrides": {"optimizer": {"learning_rate": 1.0}}}):
        with pytest.raises(ConfigError, match="scrl: was made with other settings"):
            go(**more)
    go(seeds=(10, 11))
    assert (tmp_path / "seed-11" / "runs" / "embedded" / "hard" / "32-16" / "scrl" / "config.yaml").is_file()
