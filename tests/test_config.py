"""Settings: presets, named losses, the words of the command, and what is said about a wrong one."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import scrl
from scrl.cli.train import file_and_overrides
from scrl.config import GONE, GuardSettings, RunConfig, build_config, override, read_config, with_settings, write_config
from scrl.config import NAMES as RUN
from scrl.credit.method import AS_PRINTED
from scrl.credit.methods import METHODS
from scrl.errors import ConfigError, DataError
from scrl.evaluation.settings import NAMES as EVALUATION
from scrl.lab.endpoint_settings import NAMES as ENDPOINT
from scrl.planning.plan import warnings
from scrl.policy.settings import LoraSettings, OptimizerSettings
from scrl.recipes.demo import METHODS as DEMO_METHODS
from scrl.recipes.demo import demo_config
from scrl.sampling.settings import SamplingSettings
from scrl.setting_names import FOREIGN_NAMES, foreign
from scrl.settings import merged, setting_rows, tree_of

BARE = {"model": "embedded", "questions": "arithmetic:easy"}
SMALL = ("model=embedded", "questions=arithmetic:easy", "completions=8", "trained=4", "evaluation.completions=4")


def small(*changes):
    return read_config(None, [*SMALL, *changes])


# Presets and variants


def test_the_paper_preset_is_the_defaults():
    config = build_config(BARE | {"method": "scrl"})
    assert config == build_config(BARE | {"method": "scrl", "preset": "paper", "loss_variant": "grpo"})
    loss = config.loss
    assert (loss.kl_weight, loss.mean, loss.dual_clip) == (0, "completion", None)
    assert (loss.ratio, loss.clip_low, loss.clip_high) == ("token", 0.2, 0.2)
    assert (config.questions_per_step, config.completions, config.trained, config.drop_last) == (8, 32, 16, False)
    assert config.optimizer.learning_rate == 5e-7


def who_votes(config):
    rate = config.optimizer.learning_rate
    return config.method, config.completions, config.label_votes, config.sampling.temperature, rate


def test_each_method_has_its_own_number_of_completions_temperature_and_votes_unless_they_are_given():
    ours, printed = ("contrast-label", 16, "round", 0.6, 1e-6), ("ttrl", 32, "present", 1.0, 5e-7)
    given = {"sampling": {"max_tokens": 64}}
    assert who_votes(build_config(BARE | given)) == ours
    assert who_votes(build_config(BARE | given | {"method": "ttrl"})) == printed
    assert who_votes(with_settings(build_config(BARE | given), {"method": "ttrl"})) == printed
    chosen = {"completions": 20, "label_votes": "start", "temperature": 0.8, "learning_rate": 3e-6}
    for method in ("contrast-label", "ttrl"):
        assert who_votes(build_config(BARE | chosen | {"method": method})) == (method, 20, "start", 0.8, 3e-6)
    assert who_votes(with_settings(build_config(BARE | chosen), {"method": "ttrl"})) == ("ttrl", 20, "start", 0.8, 3e-6)


def test_the_defaults_that_are_listed_are_those_of_a_run():
    listed = {name: default for name, default, _ in setting_rows(RunConfig)}
    config = build_config(BARE)
    shown = (
        listed[name]
        for name in ("method", "completions", "label_votes", "sampling.temperature", "optimizer.learning_rate")
    )
    assert tuple(shown) == tuple(map(repr, who_votes(config)))


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ({}, 1e-6),
        ({"lora": False}, 1e-6),
        ({"method": "ttrl"}, 5e-7),
        ({"method": "ttrl", "lora": True}, 5e-5),
        ({"lora": True}, 5e-5),
        ({"lora": {"rank": 8}, "optimizer": {"warmup": 0.1}}, 5e-5),
        ({"lora": True, "learning_rate": 2e-6}, 2e-6),
        ({"lora": True, "optimizer": {"learning_rate": 2e-6}}, 2e-6),
    ],
)
def test_an_adapter_has_a_learning_rate_of_its_own_unless_one_is_given(given, rate):
    config = build_config({"model": "m", "questions": "q.txt"} | given)
    assert config.optimizer.learning_rate == rate
    assert build_config(config.model_dump(mode="json")).optimizer.learning_rate == rate


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("optimizer", [None, 3, "fast", [1]])
def test_settings_of_the_optimizer_that_are_none_are_refused(optimizer, lora, tmp_path):
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(BARE | {"optimizer": optimizer, "lora": lora}))
    with pytest.raises(ConfigError, match="optimizer"):
        read_config(tmp_path / "run.yaml", ["lora=true"])


def test_the_official_preset_is_what_the_authors_code_does():
    config = build_config(BARE | {"method": "scrl", "preset": "official"})
    loss = config.loss
    assert (loss.kl_weight, loss.kl, loss.mean, loss.dual_clip) == (0.001, "k3-capped", "pairs", 3.0)
    assert config.drop_last is True
    rule: Any = config.rule().settings
    assert (rule.missing_reward, rule.std, rule.ties, rule.which_trained) == (-1.0, "sample", "first-seen", "first")
    assert (rule.min_share, rule.min_margin, rule.max_negative_share) == (0.375, 0.125, 0.125)


def test_what_is_given_wins_over_the_preset():
    given = {"preset": "official", "drop_last": False, "loss": {"kl_weight": 0.0}, "credit": {"std": "population"}}
    config = build_config(BARE | given)
    assert (config.drop_last, config.loss.kl_weight, config.loss.dual_clip) == (False, 0.0, 3.0)
    assert (config.rule().settings.std, config.rule().settings.which_trained) == ("population", "first")


# Files


@pytest.mark.parametrize(("lines", "words", "found"), [
    ("lora: {rank: 8}\noptimizer: {learning_rate: 5.0e-7}", ["lora.rank=16"], {"rate": 5e-7}),
    ("learning_rate: 1.0e-6", ["lora=true"], {"rate": 1e-6}),  # the default, but written
    ("lora: true\nlearning_rate: 5.0e-5", ["lora=false"], {"rate": 5e-5}),
    ("lora: {rank: 8}", ["lora.rank=16"], {"rate": 5e-5}),
    ("lora: {rank: 8}", ["lora=false"], {"rate": 1e-6}),
    ("loss: {clip_high: 0.35}", ["loss_variant=grpo"], {"clip_high": 0.35, "mean": "completion"}),
    ("loss: {clip_high: 0.35}", ["loss_variant=dapo"], {"clip_high": 0.35, "mean": "token"}),
    ("loss_variant: dapo\nloss: {clip_high: 0.28}", ["loss_variant=gspo"], {"clip_high": 0.28, "clip_low": 3e-4}),
    ("loss: {kl_weight: 0.0}\ncredit: {std: population}", ["preset=official"],
     {"kl_weight": 0.0, "dual_clip": 3.0, "std": "population", "ties": "first-seen"}),
    ("credit: {advantage: normalised}", ["loss_variant=rloo"], {"advantage": "normalised"}),
])  # fmt: skip
def test_a_setting_of_a_file_wins_over_what_the_command_names_for_several(lines, words, found, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(f"model: embedded\nquestions: arithmetic:easy\n{lines}\n")
    config = read_config(file, words)
    values = config.loss.model_dump() | config.rule().settings.model_dump() | {"rate": config.optimizer.learning_rate}
    assert {name: values[name] for name in found} == found
    given = {name: value for word in words for name, value in override(word).items()}
    assert with_settings(yaml.safe_load(file.read_text()), given) == config  # as from Python


def test_in_settings_written_out_those_that_differ_from_what_preset_loss_and_adapter_give_were_chosen(tmp_path):
    file = tmp_path / "config.yaml"
    chosen = small("loss.clip_high=0.35", "lora.rank=8", "optimizer.learning_rate=5e-7", "credit.std=sample")
    write_config(chosen, file)
    for config in (
        read_config(file, ["loss_variant=gspo", "lora.rank=16", "preset=official"]),
        with_settings(chosen, {"loss_variant": "gspo", "lora": {"rank": 16}, "preset": "official"}),
    ):
        # clip_high 0.35 is none of grpo's, 5e-7 not an adapter's and std never written out; the rest follows the words
        assert (config.loss.clip_high, config.loss.clip_low, config.loss.ratio) == (0.35, 3e-4, "completion")
        assert (config.lora.rank, config.optimizer.learning_rate) == (16, 5e-7)
        assert (config.loss.kl_weight, config.rule().settings.std) == (0.001, "sample")


@pytest.mark.parametrize("changes", [
    (), ("preset=official", "loss.kl_weight=0.5"), ("loss_variant=dr-grpo", "method=scrl", "credit.min_share=0.5"),
    ("lora.rank=2", "sampling.stop=['\\n\\n', 'Q:']", "trackers=[wandb]"),
    ("guard.mode=off", "evaluation.held_out=arithmetic:hard:held-out", "prompt.system=Ünïcode: # 'quoted'"),
])  # fmt: skip
def test_the_resolved_settings_are_read_back_as_they_were(changes, tmp_path):
    config = small(*changes)
    write_config(config, tmp_path / "config.yaml")
    assert read_config(tmp_path / "config.yaml") == config.resolved()


@pytest.mark.parametrize(("content", "reason"), [
    (b"model: embedded\nloss: [1,\n  2\nsteps: }\n", ":4"), (b"- a\n- b\n", ""), (b"", ""), (b"\xff\xfe", ""), (None, ""),
])  # fmt: skip
def test_a_file_that_holds_no_settings_is_refused_with_its_line(content, reason, tmp_path):
    if content is not None:
        (tmp_path / "bad.yaml").write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\.yaml.*{reason}"):
        read_config(tmp_path / "bad.yaml")


# Words of the command


def test_the_words_of_the_command_are_settings():
    words = ["--loss.clip-high", "0.3", "--drop-last", "--seed=1", "steps=2", "--limit", "-1", "--trust-remote-code"]
    found = ["loss.clip_high=0.3", "drop_last=true", "seed=1", "steps=2", "limit=-1", "trust_remote_code=true"]
    assert file_and_overrides(words) == (None, found)
    words = ["run.yaml", "--questions", "a.txt", "b.md", "c.yaml"]
    with pytest.raises(ConfigError, match=r"c\.yaml"):
        file_and_overrides(words)
    assert file_and_overrides(words[:-1])[1] == ["questions=a.txt,b.md"]
    config = read_config(None, [*SMALL, "loss.clip-high=0.3", "drop-last=true"])
    assert (config.loss.clip_high, config.drop_last) == (0.3, True)


@pytest.mark.parametrize(("words", "reason"), [
    (["a.yaml", "b.yaml"], r"'b\.yaml'"), (["--seed", "1", "0.3"], r"'0\.3'"), (["=3"], "'=3'"),
])  # fmt: skip
def test_a_word_that_is_no_setting_is_refused(words, reason):
    with pytest.raises(ConfigError, match=reason):
        read_config(*file_and_overrides(words))


@pytest.mark.parametrize(("text", "value"), [
    ("Answer: put it in \\boxed{}.", "Answer: put it in \\boxed{}."),
    ("Solve problem #3 # now", "Solve problem #3 # now"), ("# think", "# think"), ("- think", "- think"),
    ("off", "off"), ("2024-01-01", "2024-01-01"), ("'12'", "12"), ("", ""),
])  # fmt: skip
def test_text_is_taken_as_it_stands(text, value):
    assert small(f"prompt.instruction={text}").prompt.instruction == value


def test_numbers_lists_mappings_and_null_are_read():
    config = small("optimizer.learning_rate=1e-6", "sampling.stop=[a, b]", "loss={clip_low: 0.1}", "limit=null")
    assert (config.optimizer.learning_rate, config.sampling.stop, config.loss.clip_low) == (1e-6, ("a", "b"), 0.1)
    assert config.limit is None
    assert small("guard.mode=off").guard == GuardSettings(mode="off")
    assert small("drop_last=yes").drop_last is True
    assert small("lora=true").lora == LoraSettings()
    assert small("lora.rank=2", "lora=false").lora is None


def test_a_setting_given_twice_is_refused_with_both_lines(tmp_path):
    (tmp_path / "run.yaml").write_text("model: embedded\nsteps: 3\nquestions: arithmetic\nsteps: 4\n")
    with pytest.raises(DataError, match=r"run\.yaml:4: .*'steps' is on line 2"):
        read_config(tmp_path / "run.yaml")


def test_a_benchmark_brings_its_reader():
    values = {"model": "embedded", "questions": "gpqa"}
    assert build_config(values).reader == "choice"
    assert build_config(values | {"reader": "boxed"}).reader == "boxed"
    apart = build_config(values | {"evaluation": {"held_out": "amc"}})
    assert any("held-out" in warning for warning in warnings(apart, 8, 1.0, 0))
    for questions in ("amc", "q.txt"):
        assert build_config(values | {"questions": questions}).reader == "boxed"


# What is wrong is said by name, with the reason and the fix


@pytest.mark.parametrize(("change", "named"), [
    ("methd=scrl", "--methd.*--method"), ("loss.clip_hih=0.3", "--loss.clip-hih.*--loss.clip-high"),
    ("lora.rnk=2", "--lora.rnk.*--lora.rank"), ("method=scl", "method.*'scrl'"), ("preset=oficial", "preset.*'official'"),
    ("loss_variant=dr-grp", "loss_variant.*'dr-grpo'"), ("credit.min_contras=1", "min_contras.*'min_contrast'"),
    ("trained=9", "trained"), ("steps=-1", "steps.* -1"), ("steps=many", "steps"),
    ("steps=true", "steps.*True"), ("optimizer.learning_rate=true", "optimizer.learning_rate.*True"),
    ("credit.min_contrast=true", "min_contrast"), ("sampling.temperature=.nan", "sampling.temperature"), ("reader=bxed", "reader"),
])  # fmt: skip
def test_a_wrong_setting_is_named(change, named):
    with pytest.raises(ConfigError, match=f"^{named}") as error:
        small(change)
    assert "Value error" not in str(error.value)


@pytest.mark.parametrize(("lines", "named"), [
    ("stepz: 3", ":3: stepz.*'steps'"), ("num_generations: 8", ":3: num_generations.*completions"),
    ("\nloss:\n  clip_low: 0.1\n  clp_high: 0.3", ":6: loss.clp_high.*'loss.clip_high'"),
    ("actor_rollout_ref: {rollout: {n: 8}}", ":3: actor_rollout_ref.rollout.n.*completions"),
    ("sampling.max_tokens: 8", ":3: sampling.max_tokens"), ("min_contrast: 0.5", ":3: min_contrast.*'credit.min_contrast'"),
    ("max_tokens: 8\nsampling: {max_tokens: 9}", ": max_tokens.* 8 and 9"),
])  # fmt: skip
def test_a_wrong_name_in_a_file_is_told_with_its_line(tmp_path, lines, named):
    path = tmp_path / "run.yaml"
    path.write_text(f"model: embedded\nquestions: arithmetic:easy\n{lines}\n")
    with pytest.raises(DataError, match=rf"run\.yaml{named}"):
        read_config(path)


def test_a_short_name_is_its_long_one(tmp_path):
    short = small("max_tokens=9", "temperature=0.5", "learning-rate=1e-3", "instruction=Go!", "device=cpu")
    long = ("sampling.max_tokens=9", "sampling.temperature=0.5", "optimizer.learning_rate=1e-3")
    built = BARE | {"completions": 8, "trained": 4, "evaluation": {"completions": 4}, "max_tokens": 9}
    built |= {"temperature": 0.5, "learning_rate": 1e-3, "instruction": "Go!", "device": "cpu"}
    assert short == small(*long, "prompt.instruction=Go!", "compute.device=cpu") == build_config(built)
    path = tmp_path / "run.yaml"
    path.write_text("model: embedded\nquestions: arithmetic:easy\nmax_tokens: 7\nsampling: {temperature: 0.5}\n")
    assert read_config(path).sampling.max_tokens == 7
    assert read_config(path, ["sampling.max_tokens=8"]).sampling.max_tokens == 8  # the command wins over the file
    assert read_config(path, ["max_tokens=8", "sampling.max_tokens=8"]).sampling.temperature == 0.5
    with pytest.raises(ConfigError, match=r"sampling\.max_tokens.* 8 and 9"):
        read_config(path, ["max_tokens=8", "sampling.max_tokens=9"])


def test_a_setting_that_is_required_says_what_it_is_for():
    with pytest.raises(ConfigError, match=r"model: .*`embedded`"):
        build_config({"questions": "mine.txt"})


def test_every_setting_is_listed_once_with_a_description():
    rows = list(setting_rows(RunConfig))
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names))
    assert [name for name, _, description in rows if not description] == []
    parts = {"prompt", "sampling", "loss", "optimizer", "compute", "evaluation", "guard"}
    assert {name.partition(".")[0] for name in names} == set(RunConfig.model_fields)
    assert set(RunConfig.model_fields) - set(names) == parts
    assert {"lora", "lora.rank", "loss.dual_clip", "guard.window", "sampling.stop"} <= set(names)
    assert {name: default for name, default, _ in rows}["model"] == "(required)"


# Questions


def test_the_questions_and_those_held_out_are_loaded_with_the_same_columns_and_a_limit_of_their_own(tmp_path):
    rows = "".join(f"{number},What is {number}?,{number},9\n" for number in range(3))
    for name in ("train.csv", "held-out.csv"):
        (tmp_path / name).write_text(f"key,text,truth,answer\n{rows}")
    columns = {"id_column": "key", "question_column": "text", "gold_column": "truth"}
    config = build_config({"model": "embedded", "questions": str(tmp_path / "train.csv"), "limit": 2, **columns})
    assert config.load_held_out() is None
    asked = merged(config.model_dump(), {"evaluation": {"held_out": str(tmp_path / "held-out.csv")}})
    found = [(q.id, q.text, q.gold) for q in build_config(asked).load_held_out().questions]
    assert found == [("0", "What is 0?", "0"), ("1", "What is 1?", "1"), ("2", "What is 2?", "2")]
    assert [(q.id, q.text, q.gold) for q in config.load_questions().questions] == found[:2]


def test_held_out_questions_may_have_the_usual_columns_where_the_others_have_their_own(tmp_path):
    (tmp_path / "train.csv").write_text("Nr;Frage;Wert\n7;What is 1?;1\n")
    (tmp_path / "held-out.csv").write_text("question,answer\nWhat is 2?,2\n")
    columns = {"id_column": "Nr", "question_column": "Frage", "gold_column": "Wert"}
    files = {"questions": str(tmp_path / "train.csv"), "evaluation": {"held_out": str(tmp_path / "held-out.csv")}}
    config = build_config({"model": "embedded", **files, **columns})
    found = [(q.id, q.text, q.gold) for q in config.load_held_out().questions]
    assert found == [("held-out-0", "What is 2?", "2")]
    with pytest.raises(DataError, match="'Fragen'"):
        build_config({"model": "embedded", **files, **columns, "question_column": "Fragen"}).load_questions()


# Recipes


@pytest.mark.parametrize("method", DEMO_METHODS)
def test_the_runs_of_the_demo_differ_by_the_method_and_what_it_decides_alone(method):
    config = demo_config(method, seed=3, steps=5)
    assert (config.method, config.seed, config.steps) == (method, 3, 5)
    assert with_settings(config, {"method": "scrl"}) == demo_config("scrl", seed=3, steps=5)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_builds(method):
    assert small(f"method={method}", "completions=10").rule().method.name == method  # a number that trees have


def test_a_file_of_settings_can_be_given_from_python(tmp_path):
    (tmp_path / "run.yaml").write_text("model: embedded\nquestions: arithmetic:easy\nstepz: 3\n")
    for path in (str(tmp_path / "run.yaml"), tmp_path / "run.yaml"):
        with pytest.raises(DataError, match=r"run\.yaml:3"):
            scrl.train(path)
    with pytest.raises(DataError, match=r"nowhere\.yaml"):
        scrl.train(str(tmp_path / "nowhere.yaml"))


# Names: short ones lead to settings, other projects' words to names, typos to the nearest

KNOWN = [name for name, _, _ in setting_rows(RUN.model)]


@pytest.mark.parametrize("names", [RUN, EVALUATION, ENDPOINT])
def test_every_short_name_leads_to_a_setting_and_hides_none(names):
    rows = {name for name, _, _ in setting_rows(names.model)}
    assert set(names.short.values()) <= rows
    assert not set(names.short) & rows
    assert not set(names.not_here) & (rows | set(names.short))


def test_every_foreign_word_leads_to_a_name_and_is_none_itself():
    here = {*KNOWN, *RUN.short, "out"}
    words = [word for words in FOREIGN_NAMES.values() for word in words]
    assert {name for words in FOREIGN_NAMES.values() for name in words.values() if " " not in name} <= here
    assert not set(words) & here
    assert len(set(words)) == len(words)  # each belongs to one project


def test_of_a_dotted_word_the_end_is_enough():
    assert foreign("actor_rollout_ref.rollout.n") == foreign("rollout.n") == ("verl", "completions")
    assert foreign("actor_rollout_ref.actor.optim.lr") == ("verl", "learning_rate")
    assert foreign("n") is None


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("modle", "--model"),  # not guard.mode, which is as close
        ("max_token", "--max-tokens"),
        ("clip_high", "--loss.clip-high"),
        ("sampling.clip_high", "--loss.clip-high"),
        ("rnk", "--lora.rank"),
        ("evaluation.evry", "--evaluation.every"),
        ("zzz", "--list-settings"),
        ("evaluation.is_off", "--list-settings"),  # not another setting of that group
    ],
)
def test_the_nearest_name(name, nearest):
    assert nearest in RUN.about(name, is_option=True).partition(": ")[2]


@given(st.sampled_from(KNOWN), st.data())
def test_a_letter_left_out_still_finds_some_setting(name, data):
    place = data.draw(st.integers(0, len(name) - 1))
    typo = name[:place] + name[place + 1 :]
    if typo in (*KNOWN, *RUN.short) or name[place] == "." or len(name) < 5 or foreign(typo):
        return
    assert "Did you mean" in RUN.about(typo, is_option=True)


@given(st.dictionaries(st.sampled_from(sorted(RUN.short)), st.integers(0, 9)))
def test_long_names_are_their_own_long_names(values):
    long = RUN.long(values)
    assert RUN.long(long) == long
    expected = {}
    for name, value in values.items():
        expected = merged(expected, tree_of(RUN.short[name], value))
    assert long == expected
    assert not list(RUN.unknown(long))


def test_settings_of_an_earlier_version_are_no_obstacle_where_they_did_what_is_done_now(tmp_path):
    path, known = tmp_path / "config.yaml", {"model": "embedded", "questions": "arithmetic:easy"}
    path.write_text(yaml.safe_dump(known | GONE))
    assert read_config(path) == build_config(known)
    path.write_text(yaml.safe_dump({"chains": 7} | known))
    with pytest.raises(DataError, match=r"config.yaml:1: chains: "):
        read_config(path)


@pytest.mark.parametrize("name", METHODS)
def test_everything_that_decides_can_be_put_on_top_of_every_method(name, tmp_path):
    begun = build_config(BARE | {"method": name})
    write_config(begun, tmp_path / "run.yaml")
    for changes in ({"preset": "official"}, {"loss_variant": "dapo"}, {"lora": {}}, {"method": "ttrl"}):
        fresh = build_config(BARE | {"method": name} | changes).resolved()
        assert with_settings(begun, changes).resolved() == fresh
    assert with_settings(read_config(tmp_path / "run.yaml"), changes).resolved() == fresh


def test_what_a_method_leaves_open_is_as_the_paper_has_it():
    own = replace(METHODS["ttrl"], name="own", run={"sampling": {"temperature": 0.3}})
    assert own.run_settings == AS_PRINTED | {"sampling": {"temperature": 0.3}}


def test_settings_that_are_given_as_objects_decide_only_what_they_name():
    config = RunConfig(**BARE, sampling=SamplingSettings(max_tokens=72), optimizer=OptimizerSettings(warmup=0.5))
    assert (config.sampling.max_tokens, config.sampling.temperature) == (72, 0.6)
    assert config.optimizer.warmup == 0.5


def test_a_file_of_a_run_holds_every_setting_of_its_method(tmp_path):
    write_config(build_config(BARE), tmp_path / "run.yaml")
    assert yaml.safe_load((tmp_path / "run.yaml").read_text())["credit"]["min_contrast"] == 0.4


def test_more_trained_than_a_method_samples_is_refused_with_where_the_number_comes_from():
    with pytest.raises(
        ConfigError, match=r"trained \(32\) .* completions \(16\): .*'contrast-label' samples 16 by default"
    ):
        build_config(BARE | {"trained": 32})
    assert [build_config(BARE | {"completions": number}).trained for number in (8, 64)] == [8, 16]
    written_out = build_config(BARE | {"completions": 8})
    assert [with_settings(written_out, {"completions": number}).trained for number in (4, 64)] == [4, 16]
    assert with_settings(written_out, {"completions": 12, "trained": 6}).trained == 6
    changed = with_settings(written_out, {"loss": {"clip_high": 0.35}, "label_votes": "start"})
    for base in (written_out, changed):
        assert with_settings(base, {"completions": 4, "method": "ttrl"}).trained == 4


def test_several_files_of_questions_may_be_a_list():
    assert build_config(BARE | {"questions": ["a.csv", "b.txt"]}).questions == "a.csv,b.txt"
