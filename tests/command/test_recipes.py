"""`scrl reproduce` without --run: what a reader with the paper in hand sees."""

import re

import pytest
import yaml
from commands import small_terminal
from processes import scrl

from scrl.cli.main import main
from scrl.cli.paper_tables import folded, lines_of
from scrl.config import build_config
from scrl.recipes.catalogue import EXPERIMENTS, config_of
from scrl.recipes.paper import NOT_IN_PAPER, TABLES
from scrl.recipes.scales import config_at


def line_with(text, *parts):
    (line,) = (line for line in text.splitlines() if all(part in line for part in parts))
    return line.split()


def test_all_tables_are_listed_as_lines_in_a_pipe():
    done = scrl("reproduce")
    assert done.returncode == 0, done.stderr
    for table in TABLES.values():
        assert f"{table.name}: {table.title} ({table.label})" in done.stdout
        for _, row in table.rows:
            assert f"  {row} " in done.stdout
    assert "…" not in done.stdout  # nothing is cut
    tables = [line for line in done.stdout.splitlines() if "───" in line]
    assert max(map(len, tables)) <= 80
    assert all(reason in done.stdout for reason in NOT_IN_PAPER.values())
    assert "12 tables and figures, 72 rows, 240 numbers and curves, 93 experiments" in done.stdout


def test_one_table_with_its_values_marks_and_experiments(capsys):
    assert main(["reproduce", "table-main"]) == 0
    text = capsys.readouterr().out
    assert line_with(text, "Qwen2.5-Math-7B + TTRL", "10.8*")[3:] == ["19.0", "68.1", "83.4", "10.8*", "25.5", "41.4"]
    below = text.partition("\nexperiments:\n 32 completions, 16 trained\n")[2]
    assert "  Qwen2.5-3B + TTRL: qwen2.5-3b/{aime25,amc,math500,minerva,gpqa}/32-16/ttrl\n" in below
    long = "qwen2.5-math-7b/{aime25,amc,math500,minerva,gpqa}/64-32/ttrl"
    assert f"  Qwen2.5-Math-7B + TTRL:\n    {long}\n" in below
    assert "  Qwen2.5-Math-7B Δ: computed\n" in below
    assert "* the best value before the run degraded, not the last" in text
    assert "7.9 is printed, 7.96 implied" in text
    assert "40 training runs and" in text
    assert "table-llama" not in text


def test_a_terminal_of_80_columns_breaks_no_word(capsys, monkeypatch):
    small_terminal(monkeypatch)
    assert main(["reproduce"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    words = text.split()
    parts = {*words, *(part for word in words for part in word.split("_"))}
    for table in TABLES.values():
        assert f"{table.name}:" in words
        assert {part for column in table.columns for part in re.split("[ _]", column)} <= parts
        assert {line.source for line in lines_of(table) if "/" in line.source} <= set(words)
    # the one name that is longer stays whole, to be copied
    (long,) = {line.strip() for line in text.splitlines() if len(line) > 80}
    assert long == "qwen2.5-math-7b/{aime25,amc,math500}/64-32/scrl/min_share=0.25,max_negative_share=0.0625"
    assert {"optimizer.learning_rate", "questions_per_update", "Response"} <= set(words)


def test_copied_rows_say_so(capsys):
    assert main(["reproduce", "table-llama"]) == 0
    text = capsys.readouterr().out
    etmr = "llama-3.1-8b-instruct/{aime24,amc}/64-32/etmr"
    assert line_with(text, "+ ETMR", "‡")[3:] == ["16.9‡", "35.4‡", "26.2‡"]
    assert etmr in text
    assert line_with(text, "1B-Instruct + TTRL", "†")[3:] == ["6.7†", "27.8†", "17.3†"]
    assert "llama-3.2-1b-instruct/{aime24,math500}/64-32/ttrl" in text
    assert "† the paper copied it from COMPASS; where an experiment is named, it is a run of our own" in text
    assert "not in the paper: prompt: " in text


def test_arrows_stand_beside_their_value_and_figures_have_none(capsys):
    assert main(["reproduce", "table-ablation"]) == 0
    assert line_with(capsys.readouterr().out, "w/o Entropy Gate", "3.6")[3:7] == ["3.6", "-4.8", "39.3", "-2.2"]
    assert main(["reproduce", "figure-labels"]) == 0
    assert capsys.readouterr().out.count("curve ") == 5
    assert main(["reproduce", "table-entropy"]) == 0
    assert line_with(capsys.readouterr().out, "Overall", "0.286")[2:6] == ["0.286", "0.266", "0.259", "0.303"]


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


def test_scale_is_the_papers_by_default(capsys):
    name = "qwen3-4b/aime25/32-16/ttrl/15360"
    assert main(["reproduce", name, "--yaml"]) == 0
    assert build_config(yaml.safe_load(capsys.readouterr().out)) == config_of(EXPERIMENTS[name])


@pytest.mark.parametrize(("words", "message"), [
    (["qwen2.5-3b/amc/32-16/sclr", "--yaml"], "Did you mean 'qwen2.5-3b/amc/32-16/scrl'?"),
    (["qwen2.5-3b/start", "--yaml"], "a start model is measured as it is"),
    (["table-main", "--yaml"], "there is no 'table-main'"),
    (["qwen2.5-3b/amc/32-16/scrl", "qwen2.5-3b/amc/32-16/ttrl", "--yaml"], "with --yaml, one experiment"),
    (["--scale", "demo"], "name a table or an experiment"),
    (["table-main", "--out", "r"], "--out: nothing is written without --run"),
])  # fmt: skip
def test_bad_input_is_refused_in_a_line(words, message, refusal):
    assert message in refusal("reproduce", *words)


def test_names_are_folded_as_a_shell_unfolds_them():
    assert folded(["a/x/b", "a/y/b"]) == "a/{x,y}/b"
    assert folded(["a/b"]) == "a/b"
