"""What a reproduction will do: which runs and evaluations, each once, and with which settings."""

import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from line_files import write_lines

from scrl.data.questions import LoadedQuestions
from scrl.errors import ConfigError, DataError, InputError
from scrl.evaluation.settings import build_settings
from scrl.recipes import reproduce
from scrl.recipes.catalogue import EXPERIMENTS, at_scale, config_at, find
from scrl.recipes.jobs import jobs, select, start_of, with_controls, with_voting
from scrl.recipes.paper import TABLES
from scrl.recipes.reproduce import Choices, check, evaluation_settings, rollout_settings, voting_settings
from scrl.records import Question
from scrl.training.export import step_of
from scrl.training.run_folder import RunFolder

SCRL_3B = "qwen2.5-3b/aime25/32-16/scrl"


def names(tables, scale="paper"):
    return [job.name for job in jobs(tables, scale)]


def rows(table):
    return [row for _, row in table.rows]


# Which tables


def test_tables_come_by_name_and_experiments_are_tables_of_their_own():
    assert select(["table-main", "figure-labels"]) == [TABLES["table-main"], TABLES["figure-labels"]]
    (table,) = select([SCRL_3B])
    # before and after on what it is trained on, as table-main prints them
    before, after = ("qwen2.5-3b/start", "aime25", 1.9), (SCRL_3B, "aime25", 8.4)
    assert [(c.row, c.column, c.paper) for c in table.cells] == [before, after]


def test_the_beginning_of_names_means_all_of_them():
    (table,) = select(["qwen2.5-3b/aime25/32-16/"])
    below = {name for name in EXPERIMENTS if name.startswith("qwen2.5-3b/aime25/32-16/")}
    assert set(table.experiments) == {"qwen2.5-3b/start"} | below
    assert len(table.cells) == len({cell.place for cell in table.cells})
    (start,) = select(["qwen3-4b/start"])
    assert [cell.experiment for cell in start.cells] == ["qwen3-4b/start/10240", "qwen3-4b/start/15360"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_reproduced_alone(name):
    (table,) = select([name])
    assert set(table.experiments) == {start_of(EXPERIMENTS[name]), name}
    assert len(jobs([with_voting(table)], "demo")) == len(table.experiments)


@pytest.mark.parametrize(
    ("name", "nearest"), [("table-mian", "table-main"), (f"{SCRL_3B}x", SCRL_3B), ("figure-label", "figure-labels")]
)
def test_unknown_names_suggest_the_nearest(name, nearest):
    with pytest.raises(ConfigError, match=f"{name}.*{nearest}"):
        select([name])


# Which jobs


def test_tables_share_their_runs():
    main, ablation = names([TABLES["table-main"]]), names([TABLES["table-ablation"]])
    assert len(main) == 2 + 2 * 2 * 5 * 2  # starts; models × budgets × benchmarks × methods
    assert len(ablation) == 2 * 5
    both = names([TABLES["table-main"], TABLES["table-ablation"]])
    assert len(both) == len(set(both)) == len(main) + 2 * 4  # SCRL itself is table-main's
    assert set(names([TABLES["figure-dynamics-3b"], TABLES["table-main"]])) == set(main)


def test_starts_come_first_and_are_measured_on_all_that_any_table_asks_for():
    found = jobs([TABLES["table-generalisation"], TABLES["table-main"], TABLES["table-entropy"]], "paper")
    assert [job.is_run for job in found] == sorted(job.is_run for job in found)
    start = next(job for job in found if job.name == "qwen2.5-3b/start")
    assert set(start.measured_on) == {"amc", "math500", "minerva", "aime25", "gpqa"}
    assert set(start.rollouts_on) == {"aime24", "amc", "math500", "minerva"}
    run = next(job for job in found if job.name == SCRL_3B)
    assert set(run.measured_on) == {"amc", "math500", "minerva", "aime25"}
    assert not run.rollouts_on


def test_at_demo_scale_what_is_the_same_is_done_once():
    found = jobs([with_voting(TABLES["table-main"])], "demo")
    assert found[0].name == "embedded/start"
    assert len(found) == 1 + 3 * 2 * 2  # levels × budgets × methods, for one model
    assert [len(job.measured_on) for job in found] == [3] + [1] * 12
    assert [job.has_voting for job in found] == [job.experiment.method == "scrl" for job in found]


# Control arms and voting


def test_a_control_row_below_every_row_of_scrl():
    table = with_controls(TABLES["table-main"], ("oracle", "random"))
    order = ["", " + TTRL", " + SCRL", " + oracle", " + random", " Δ"]
    assert rows(table)[:6] == [f"Qwen2.5-3B{row}" for row in order]
    extra = [cell for cell in table.cells if cell.experiment and cell.experiment not in EXPERIMENTS]
    assert len(extra) == 2 * 4 * 5
    assert all(cell.paper is None and not cell.is_peak for cell in extra)
    assert len(names([table])) == len(names([TABLES["table-main"]])) + 2 * 4 * 5
    control = find("qwen2.5-3b/aime25/32-16/oracle")
    assert control == replace(EXPERIMENTS[SCRL_3B], name=control.name, method="oracle")
    for scale in ("paper", "demo"):
        assert config_at(control, scale).method == "oracle"


def test_controls_of_varied_thresholds_are_not_run_and_rows_without_a_method_say_which():
    table = with_controls(TABLES["table-thresholds"], ("inverted",))
    assert rows(table)[-2:] == ["τ_pos 0.375, τ_neg 0.125", "τ_pos 0.375, τ_neg 0.125, inverted"]
    assert len(rows(table)) == len(rows(TABLES["table-thresholds"])) + 1
    (own,) = select([SCRL_3B])
    assert rows(with_controls(own, ("random",)))[-1] == "qwen2.5-3b/aime25/32-16/random"
    assert all(with_controls(table, ()) == table for table in TABLES.values())


# Settings


def job_of(name=SCRL_3B, scale="paper", table="table-main"):
    return next(job for job in jobs([TABLES[table]], scale) if job.experiment.name == name)


def test_measured_as_the_paper_does():
    job = job_of()
    settings = evaluation_settings(job, Choices(data_dir="d"), 3, "weights")
    assert (settings.samples, settings.sampling.temperature, settings.sampling.top_p) == (16, 0.6, 0.95)
    assert (settings.sampling.max_tokens, settings.prompt.style, settings.prompt.max_tokens) == (3072, "qwen", 512)
    assert (settings.model, settings.benchmarks, settings.seed, settings.data_dir) == ("weights", ("aime25",), 3, "d")


def test_rollouts_are_drawn_as_training_draws_them_with_the_users_settings():
    start = job_of("qwen2.5-3b/start", table="table-entropy")
    settings = rollout_settings(start, Choices(), 0, "weights")
    assert (settings.samples, settings.sampling.temperature, settings.sampling.top_p) == (32, 0.6, 1.0)
    overrides = {"completions": 4, "sampling": {"temperature": 0.9, "max_tokens": 40}}
    demo = job_of("qwen2.5-3b/start", "demo", "table-entropy")
    settings = rollout_settings(demo, Choices(scale="demo", overrides=overrides), 10, "embedded")
    assert (settings.samples, settings.sampling.temperature, settings.sampling.top_p) == (4, 0.9, 1.0)


def test_settings_on_top_hold_for_evaluations_too():
    overrides = {
        "compute": {"sampler_rows": 7}, "limit": 3, "prompt": {"style": "plain"}, "trust_remote_code": True,
        "sampling": {"max_tokens": 9, "temperature": 0.1}, "optimizer": {"learning_rate": 1.0}, "reader": "number",
    }  # fmt: skip
    settings = evaluation_settings(job_of(), Choices(overrides=overrides), 0, "weights")
    assert (settings.compute.sampler_rows, settings.limit, settings.reader) == (7, 3, "number")
    assert (settings.prompt.style, settings.prompt.max_tokens, settings.trust_remote_code) == ("plain", 512, True)
    assert (settings.sampling.max_tokens, settings.sampling.temperature) == (9, 0.6)  # as the paper measures


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"compute": {"rows": 1}}, r"compute\.rows"),
        ({"lr": 1}, "learning_rate"),
        ({"method": "ttrl"}, "method"),
        ({"sampling": 3}, "sampling"),
        ({"sampling": {"max_tokens": 0}}, r"sampling\.max_tokens"),
    ],
)
@pytest.mark.parametrize("table", ["table-ablation", "table-entropy"])
def test_settings_that_would_be_refused_later_are_refused_at_once(table, overrides, named):
    with pytest.raises(ConfigError, match=named):
        check(jobs([TABLES[table]], "demo"), Choices(scale="demo", overrides=overrides))


def test_one_folder_of_weights_stands_for_one_model():
    choices = Choices(overrides={"model": "weights"})
    check(jobs([TABLES["table-ablation"]], "paper"), choices)
    with pytest.raises(ConfigError, match=r"model"):
        check(jobs([TABLES["table-main"]], "paper"), choices)


def test_every_table_can_be_planned_at_both_scales():
    for scale in ("paper", "demo"):
        for table in TABLES.values():
            planned = jobs([with_controls(with_voting(table), ("oracle",))], scale)
            check(planned, Choices(scale=scale))  # raises what a run would raise
            assert {job.name for job in planned} >= {at_scale(EXPERIMENTS[e], scale).name for e in table.experiments}


def test_votes_are_what_the_runs_tokens_would_have_bought(tmp_path):
    lines = [{"tokens": 3000, "length_mean": 25.0}, {"tokens": 5000, "length_mean": 80.0}]
    write_lines(tmp_path / "metrics.jsonl", lines)
    job, choices = job_of(scale="demo"), Choices(scale="demo", overrides={"limit": 10})
    config = reproduce.settings_of(job.experiment, choices, 10)
    settings = voting_settings(job, choices, config, tmp_path)
    # 8,000 tokens in completions of 25, as long as the start model's, are 320: 32 for each of 10 questions
    assert settings.samples == 32
    assert (settings.model, settings.benchmarks, settings.limit) == ("embedded", ("arithmetic:hard:train:64",), 10)
    write_lines(tmp_path / "metrics.jsonl", [{"tokens": 3, "length_mean": 25.0}])
    assert voting_settings(job, choices, config, tmp_path).samples == 1


def test_steps_are_counted_from_the_questions_that_are_left(tmp_path):
    rows = [{"id": str(n), "question": "1 + 2 = ?" + " + 3" * 40 * (n < 13), "answer": "3"} for n in range(30)]
    write_lines(tmp_path / "aime25.jsonl", rows)

    def steps(**more):
        choices = Choices(**{"data_dir": str(tmp_path), "overrides": more.pop("overrides", {}) | small} | more)
        job = job_of()
        return reproduce._with_its_steps(reproduce.settings_of(job.experiment, choices, 0), job, choices).steps

    small = {"model": "embedded", "prompt": {"style": "plain", "instruction": "", "max_tokens": 60}}
    assert steps() == 80 * 3  # ⌈17 / 8⌉ of 30 questions: 13 prompts are too long
    assert steps(overrides={"preset": "official"}) == 80 * 2  # which drops the last, smaller batch
    assert steps(overrides={"questions_per_step": 4}) == 80 * 5
    assert steps(steps=7) == 7
    assert steps(scale="demo") == 40


ENGINE = {"scale": "demo", "overrides": {"engine": "trl"}}


def test_an_engine_trains_and_what_it_trained_is_measured_afterwards(monkeypatch):
    monkeypatch.setattr("scrl.engines.choice.require_engine", lambda name: None)
    job = job_of(scale="demo")
    config = reproduce.settings_of(job.experiment, Choices(**ENGINE), 10)
    assert (config.engine, config.evaluation.is_off) == ("trl", True)
    assert not reproduce.settings_of(job.experiment, Choices(scale="demo"), 10).evaluation.is_off
    check(jobs([TABLES["table-ablation"]], "demo"), Choices(**ENGINE))
    with pytest.raises(ConfigError, match="engine"):
        check(jobs([TABLES["figure-dynamics-3b"]], "demo"), Choices(**ENGINE))
    with pytest.raises(ConfigError, match=r"method"):
        check(jobs([TABLES["table-llama"]], "demo"), Choices(**ENGINE))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="scrl reproduce"):
        check(jobs([TABLES["table-ablation"]], "demo"), Choices(**ENGINE))


def test_steps_of_unequal_size_are_refused_before_a_start_model_is_measured(tmp_path):
    choices = Choices(scale="demo", seeds=(10,), overrides={"engine": "trl", "limit": 30})
    with pytest.raises(ConfigError, match="30 questions"):
        reproduce.carry_out(jobs([TABLES["table-main"]], "demo"), choices, tmp_path, None)
    assert not list(tmp_path.iterdir())


def test_questions_that_a_method_cannot_use_are_told_before_the_first_run(monkeypatch, tmp_path):
    loaded = LoadedQuestions((Question("q", "What is 1 + 1?"),), ())
    monkeypatch.setattr(reproduce, "load_source", lambda source, **options: loaded)
    monkeypatch.setattr(reproduce, "engine_of", None)  # is not called
    all_jobs = [job for job in jobs(select(["methods"]), "paper") if job.is_run]
    with pytest.raises(InputError, match=r"qwen2\.5-3b/amc/32-16/oracle"):
        reproduce.carry_out(all_jobs, Choices(), tmp_path, None)
    assert not list(tmp_path.iterdir())


# Nothing is done twice, what was interrupted is resumed, what was made with other settings is refused


def test_how_far_a_run_came_is_read_from_each_engines_checkpoint(tmp_path):
    last = tmp_path / "run" / "checkpoints" / "last"
    assert step_of(last) is None
    last.mkdir(parents=True)
    (last / "trainer_state.json").write_text('{"version": 1, "step": 5, "stopped_for": []}')
    assert step_of(last) == 5
    # on TRL, whose trainer writes the other one
    (last / "scrl_state.json").write_text('{"version": 1, "step": 7, "stopped_for": []}')
    assert step_of(last) == 7
    weights = tmp_path / "verl" / "checkpoints" / "global_step_40" / "actor" / "huggingface"
    weights.mkdir(parents=True)
    (tmp_path / "verl" / "checkpoints" / "last").symlink_to(weights)
    assert step_of(tmp_path / "verl" / "checkpoints" / "last") == 40


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
    with pytest.raises(DataError, match=r"trainer_state\.json"):
        step_of(tmp_path / "checkpoints" / "last")


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
        with pytest.raises(ConfigError, match="--out"):
            reproduce._measure(settings_of("amc", **more), tmp_path, None)


def test_a_run_with_other_settings_is_refused(monkeypatch, tmp_path):
    def train(config, folder, observer):
        RunFolder.create(folder, config, "cpu")

    gone_on = []
    engine = SimpleNamespace(train=train, resume=lambda folder, observer: gone_on.append(folder))
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
        with pytest.raises(ConfigError, match="scrl"):
            go(**more)
    go(seeds=(10, 11))
    assert (tmp_path / "seed-11" / "runs" / "embedded" / "hard" / "32-16" / "scrl" / "config.yaml").is_file()
