"""The page on methods of one's own: its files and its commands, as they stand there, in an empty folder."""

import dataclasses
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from line_files import read_lines, write_lines
from processes import scrl as run

import scrl
from scrl.cli.main import main
from scrl.config import build_config
from scrl.credit.method import CreditSettings, Labels, Method, Shaped, SplitAdvantage, Tree, needing, spread
from scrl.credit.methods import find_method
from scrl.credit.rule import credit_rule
from scrl.errors import ConfigError, InputError
from scrl.records import Completion, Group
from scrl.training.state import State, check_unchanged
from scrl.user_code import import_user_module, source_digest

PAGE = (Path(__file__).parent.parent / "docs" / "your-own-method.md").read_text(encoding="utf-8")
METHOD, SCRIPT, SETTINGS, READER, SAMPLER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [shlex.split(line) for block in BLOCKS for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path):
    """The user's: the file of the page, and some completions."""
    (tmp_path / "squared.py").write_text(METHOD, encoding="utf-8")
    rows = [{"question_id": "q", "completion": f"\\boxed{{{answer}}}"} for answer in "4445"]
    rows.append({"question_id": "q", "completion": "?"})
    write_lines(tmp_path / "rollouts.jsonl", rows)
    return tmp_path


def test_the_commands_of_the_page_run(folder):
    assert [words[1] for words in COMMANDS] == ["methods", "label", "train"]
    for words in COMMANDS:
        done = run(*words[1:], cwd=folder)  # as an installed command: this place is not on the path by itself
        assert done.returncode == 0, done.stderr
    labels = read_lines(folder / "labels.jsonl")
    # shares 3/5 and 1/5 (a missing answer counts in N), squared
    assert [line["reward"] for line in labels] == pytest.approx([0.36, 0.36, 0.36, 0.04, 0.0])
    assert len((folder / "my-run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert "method: squared:SQUARED\n" in (folder / "my-run" / "config.yaml").read_text()
    rollouts = read_lines(folder / "my-run" / "rollouts.jsonl")
    for line in rollouts:
        same = [o for o in rollouts if all(o[k] == line[k] for k in ("step", "question_id", "answer_class"))]
        assert line["reward"] == pytest.approx((len(same) / 8) ** 2 if line["answer_class"] else 0)
    resumed = run("train", "--resume", "my-run", cwd=folder)  # opened with its method, and found to be done
    assert "my-run: has done all" in resumed.stderr


def test_the_script_of_the_page_prints_what_it_says(folder):
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=True)
    assert f"# {done.stdout}" in SCRIPT


def test_the_settings_of_the_page_are_settings():
    names = {}
    exec(SETTINGS, names)  # our own page
    assert names["PowerSettings"]().power == 2


# What goes wrong


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("squard:SQUARED", "ModuleNotFoundError"),
        ("squared:SQUARE", "'SQUARED'"),
        ("squared:reward", "'squared:reward'"),
        ("broken:X", "ZeroDivisionError"),
        ("empty:X", "'X'"),
        ("squared", "'squared'"),
        (":SQUARED", "ValueError"),
    ],
)
def test_a_method_that_cannot_be_found_is_refused_in_words(folder, monkeypatch, capsys, name, words):
    (folder / "broken.py").write_text("1 / 0")
    (folder / "empty.py").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert main(["label", "rollouts.jsonl", "--method", name]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert words in said
    for module in ("squared", "broken", "empty"):
        sys.modules.pop(module, None)


def plain(**changes):
    def reward(evidence, labels, settings):
        rewards_G = spread(evidence.tally, evidence.tally.shares_K, missing=0.0)
        return Shaped(rewards_G, rewards_G)

    parts = {"settings": CreditSettings, "label": lambda evidence, settings: Labels(), "reward": reward} | changes
    return Method("mine", "an idea", "R = p", "mine", **parts)


def test_a_resumed_run_says_that_the_code_of_its_method_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "rule_of_mine", raising=False)
    file, paths, said = tmp_path / "rule_of_mine.py", ("rule_of_mine:RULE", "boxed", "local"), []
    file.write_text("RULE = 1\n")
    import_user_module("rule_of_mine:RULE", "method")
    config = build_config({"model": "embedded", "questions": "arithmetic:easy"})
    before = State(user_code=source_digest(paths), settings=config.model_dump(mode="json"))
    assert source_digest(paths) == before.user_code != source_digest(("scrl", "boxed", "local")) == ""
    check_unchanged(before, State(user_code=source_digest(paths)), config, said.append)
    file.write_text("RULE = 2\n")
    check_unchanged(before, State(user_code=source_digest(paths)), config, said.append)
    assert len(said) == 1


def test_a_method_can_be_registered_under_a_name(monkeypatch):
    monkeypatch.setitem(scrl.METHODS, "mine", plain())
    assert find_method("mine").name == "mine"
    assert scrl.assign_credit(scrl.Group.from_answers(["1", "2"]), "mine").rewards.tolist() == [0.5, 0.5]


def test_a_need_that_nobody_can_meet_is_refused(monkeypatch):
    monkeypatch.setitem(scrl.METHODS, "mine", plain(needs=needing("entropies")))
    with pytest.raises(ConfigError, match=r"method 'mine'.*'entropy'"):
        credit_rule("mine")


def test_the_reader_and_the_sampler_of_the_page_work(folder):
    (folder / "readers.py").write_text(READER)
    (folder / "samplers.py").write_text(SAMPLER)
    rows = [{"question_id": "q", "completion": text} for text in ("ANSWER: 4", "so ANSWER: 8/2", "4")]
    write_lines(folder / "own.jsonl", rows)
    words = ("label", "own.jsonl", "--reader", "readers:after_answer", "--method", "ttrl", "--out", "own-labels.jsonl")
    assert run(*words, cwd=folder).returncode == 0
    assert [line["answer_class"] for line in read_lines(folder / "own-labels.jsonl")] == ["4", "4", None]
    tiny = "--steps 1 --completions 4 --trained 2 --sampling.max-tokens 24 --evaluation.completions 0 --out sampled"
    command = f"train --model embedded --questions arithmetic:easy:train:2 --compute.sampler samplers:Logged {tiny}"
    done = run(*command.split(), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "2 prompts at step 0" in done.stdout


@pytest.mark.parametrize("rewards", [[1.0], [1.0, float("nan")], [1.0] * 3])
def test_rewards_that_do_not_fit_the_group_are_refused(rewards):
    method = plain(reward=lambda *given: Shaped(np.array(rewards), np.array(rewards)))
    with pytest.raises(ConfigError, match="`reward`"):
        scrl.assign_credit(scrl.Group.from_answers(["1", "2"]), method)


@pytest.mark.parametrize("labels", [Labels("3"), Labels(None, frozenset({"3"})), Labels("1", frozenset({"1", "2"}))])
def test_labels_that_do_not_fit_the_answers_are_refused(labels):
    with pytest.raises(ConfigError, match=r"'mine'.*`label`"):
        scrl.assign_credit(scrl.Group.from_answers(["1", "2"]), plain(label=lambda *given: labels))


@pytest.mark.parametrize("number", [1, 3])
def test_one_value_per_class_is_spread_over_completions(number):
    method = plain(reward=lambda evidence, *given: Shaped(spread(evidence.tally, [1.0] * number, missing=0.0)))
    with pytest.raises(InputError, match="spread"):
        scrl.assign_credit(scrl.Group.from_answers(["1", "2"]), method)


def test_what_a_method_has_not_declared_it_does_not_see():
    seen = []
    method = plain(label=lambda evidence, settings: seen.append(evidence.elsewhere) or Labels())
    scrl.assign_credit(scrl.Group.from_answers(["1", "2"]), method, elsewhere=scrl.Elsewhere(9, {"1": 0.5}, ("1",)))
    assert seen == [None]


@pytest.mark.parametrize("part", ["label", "reward", "advantage"])
def test_a_part_that_gives_back_the_wrong_thing_is_named(part):
    method = dataclasses.replace(scrl.METHODS["ttrl"], **{part: lambda *given: [1.0]})
    rule = dataclasses.replace(scrl.credit_rule("ttrl"), method=method)
    with pytest.raises(scrl.ConfigError, match=f"method 'ttrl'.*`{part}`"):
        rule.credit(scrl.Group.from_answers(["1", "2"]))


@pytest.mark.parametrize(
    ("positive", "negative", "field"),
    [
        (0.5, [-0.25] * 2, "positive_part_M"),
        ([0.5] * 2, -0.25, "negative_part_M"),
        ([0.5] * 3, [0.0] * 2, "positive_part_M"),
        ([0.5, float("nan")], [0.0] * 2, "positive_part_M"),
        ([0.5] * 2, [0.0, float("-inf")], "negative_part_M"),
        ([-1.0, 0.0], [1.0, 0.0], "positive_part_M"),  # their sum would be logged as 0, and yet be trained on
        ([0.0] * 2, [1.0, 0.0], "negative_part_M"),
        (["a", None], [0.0] * 2, "positive_part_M"),
    ],
)
def test_advantages_that_do_not_fit_the_completions_trained_on_are_refused(positive, negative, field):
    method = plain(advantage=lambda *given: SplitAdvantage(positive, negative))
    with pytest.raises(ConfigError, match=f"'mine'.*`advantage`.*{field}"):
        scrl.assign_credit(scrl.Group.from_answers(["1", "2", "2"]), method, num_trained=2)


def test_a_plan_with_another_number_of_leaves_than_completions_is_refused(monkeypatch):
    monkeypatch.setitem(scrl.METHODS, "mine", plain(plan=lambda number, settings: Tree(number - 1, 1, 1)))
    given = {"model": "embedded", "questions": "arithmetic:easy", "method": "mine", "completions": 8, "trained": 4}
    with pytest.raises(ConfigError, match=r"method 'mine'.*`plan`"):
        build_config(given)
    monkeypatch.setitem(scrl.METHODS, "mine", plain(plan=lambda number, settings: Tree(number // 2, 1, 1)))
    assert build_config(given).completions == 8


def test_texts_are_needed_where_a_method_says_so_and_an_empty_one_is_a_text():
    rule = credit_rule(dataclasses.replace(find_method("ttrl"), name="reads", needs=needing("text")))
    with pytest.raises(InputError, match=r"'q'.*'reads'.*completion 1"):
        rule.credit(Group((Completion("x", answer="1"), Completion(answer="1")), question_id="q"))
    assert rule.credit(Group((Completion("x", answer="1"), Completion(answer=None)))).rewards.tolist() == [1, 0]
    assert rule.credit(Group.from_texts(["\\boxed{1}", ""])).rewards.tolist() == [1, 0]
