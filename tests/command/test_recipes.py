"""`scrl reproduce` without --run: what a reader with the paper in hand sees."""

import pytest
import yaml
from processes import scrl

from scrl.cli.main import main
from scrl.cli.reproduce import show
from scrl.cli.terminal import plain_console
from scrl.config import build_config
from scrl.recipes.catalogue import EXPERIMENTS, OWN_TABLES, config_at
from scrl.recipes.paper import NOT_IN_PAPER, TABLES, UNSTATED_EVERYWHERE


def line_with(text, *parts):
    (line,) = (line for line in text.splitlines() if all(part in line for part in parts))
    return line.split()


def test_without_a_name_all_tables_are_listed():
    done = scrl("reproduce")
    assert done.returncode == 0, done.stderr
    for table in (*TABLES.values(), *OWN_TABLES.values()):
        assert f"\n{table.name} " in f"\n{done.stdout}"
    assert all(NOT_IN_PAPER[key] in done.stdout for key in UNSTATED_EVERYWHERE)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_fits_a_terminal_and_says_what_the_paper_leaves_open(table, capsys):
    show(table, plain_console())
    shown = capsys.readouterr().out
    assert f"{table.name}: {table.title} ({table.label})" in shown
    assert all(f"  {row} " in shown for _, row in table.rows)
    assert "…" not in shown  # nothing is cut
    chosen = {*table.not_in_paper, *(key for name in table.experiments for key in EXPERIMENTS[name].not_in_paper)}
    assert all(NOT_IN_PAPER[key] in shown for key in chosen)
    assert max(len(line) for line in shown.splitlines() if "───" in line) <= 80


def test_one_table_with_its_values_marks_and_experiments(capsys):
    assert main(["reproduce", "table-main"]) == 0
    text = capsys.readouterr().out
    assert line_with(text, "Qwen2.5-Math-7B + TTRL", "10.8*")[3:] == ["19.0", "68.1", "83.4", "10.8*", "25.5", "41.4"]
    assert "  Qwen2.5-3B + TTRL: qwen2.5-3b/{aime25,amc,math500,minerva,gpqa}/32-16/ttrl\n" in text
    assert "7.9 is printed, 7.96 implied" in text
    assert "40 training runs and" in text


@pytest.mark.parametrize("scale", ["paper", "demo"])
def test_an_experiments_settings_are_a_file_for_train(scale, capsys):
    name = "qwen2.5-3b/gpqa/32-16/scrl"
    assert main(["reproduce", name, "--yaml", "--scale", scale]) == 0
    text = capsys.readouterr().out
    assert build_config(yaml.safe_load(text)) == config_at(EXPERIMENTS[name], scale)
    assert text.startswith(f"# {name}\n")
    assert (f"# not in the paper: episodes: {NOT_IN_PAPER['episodes']}\n" in text) == (scale == "paper")
    assert ("# AMC, GPQA → arithmetic:medium:train:64" in text) == (scale == "demo")


def test_settings_of_the_user_are_in_the_file_too(capsys):
    words = ["--yaml", "--seed", "3", "--steps", "7", "--max-tokens", "512"]
    assert main(["reproduce", "qwen2.5-3b/amc/32-16/scrl", *words]) == 0
    config = build_config(yaml.safe_load(capsys.readouterr().out))
    assert (config.seed, config.steps, config.sampling.max_tokens) == (3, 7, 512)


@pytest.mark.parametrize(("words", "message"), [
    (["qwen2.5-3b/amc/32-16/sclr", "--yaml"], "'qwen2.5-3b/amc/32-16/scrl'"),
    (["qwen2.5-3b/start", "--yaml"], "start"),
    (["table-main", "--yaml"], "table-main"),
    (["qwen2.5-3b/amc/32-16/scrl", "qwen2.5-3b/amc/32-16/ttrl", "--yaml"], "--yaml"),
    (["--scale", "demo"], "name a table"),
    (["table-main", "--out", "r"], "--out"),
])  # fmt: skip
def test_bad_input_is_refused_in_a_line(words, message, refusal):
    assert message in refusal("reproduce", *words)
