"""Nothing from elsewhere writes escapes to a terminal, and no cell of a table is a formula."""

import json
import shutil

import numpy as np
import pytest
import torch
from commands import small_terminal
from line_files import write_lines
from processes import scrl
from safetensors.torch import load_file, save_file

from scrl.cli.main import main
from scrl.files.printable import csv_cell
from scrl.policy.model_paths import model_folder
from scrl.reporting.tables import Table, as_csv

ESCAPE = "\x1b[2K\x1b]0;title\x07\u202e"
HOSTILE = ("\x1b", "\x07", "\u202e", "\x9b")


def write_evaluation(folder, benchmark):
    folder.mkdir()
    record = {"step": 0, "benchmark": benchmark, "pass@1": 0.5, "pass@1_by_question": {"q": 0.5, "r": 0.5}}
    record |= {"questions": 2, "samples": 4, "temperature": 1.0, "top_p": 1.0, "max_tokens": 9}
    write_lines(folder / "evaluations.jsonl", [record])


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_command_lets_escapes_through(is_terminal, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if is_terminal:
        small_terminal(monkeypatch)
    for name in "ab":
        write_evaluation(tmp_path / name, f"bench{ESCAPE}")
    (tmp_path / "columns.jsonl").write_text(json.dumps({f"c{ESCAPE}": 1, f"d{ESCAPE}": 2}) + "\n")
    (tmp_path / "settings.yaml").write_text(json.dumps({"model": "embedded", f"x{ESCAPE}": 1}))
    (tmp_path / "rollouts.jsonl").write_text(json.dumps({"question_id": f"q{ESCAPE}", "completion": 3}) + "\n")
    (tmp_path / f"dir{ESCAPE}").mkdir()
    commands = [
        ("compare", "a", "b"), ("report", "a", "--format", "csv"), ("report", "a", "--format", "markdown"),
        ("train", "--model", "embedded", "--questions", "columns.jsonl"), ("train", "settings.yaml"),
        ("train", "--model", f"m{ESCAPE}", "--questions", "arithmetic:easy"), ("label", "rollouts.jsonl"),
        ("train", "--method", f"x{ESCAPE}"), ("report", f"dir{ESCAPE}"), ("methods", f"m{ESCAPE}"), (f"no{ESCAPE}",),
        ("label", "rollouts.jsonl", "--method", f"x{ESCAPE}:Y"), ("train", "--resume", f"dir{ESCAPE}"),
        ("evaluate", "embedded", f"b{ESCAPE}"), ("answers", f"dir{ESCAPE}"), ("plan", f"--seed={ESCAPE}"),
    ]  # fmt: skip
    for command in commands:
        main(command)
        said = capsys.readouterr()
        text = said.out + said.err
        assert not [mark for mark in HOSTILE if mark in text], command
        assert text.strip(), command


@pytest.mark.parametrize(("cell", "written"), [
    ("=1+2", "'=1+2"), ("@SUM(A1)", "'@SUM(A1)"), ("+cmd|x", "'+cmd|x"), ("-x", "'-x"), (" =1", "' =1"),
    ("-3", "-3"), ("+1.5e-7", "+1.5e-7"), ("-1,000", "-1,000"), ("x=1", "x=1"), (-3, -3), ("a\x1bb", "a␛b"),
])  # fmt: skip
def test_a_cell_is_never_a_formula_and_numbers_stay_numbers(cell, written):
    assert csv_cell(cell) == written
    assert as_csv(Table(("name",), ((cell,),))) == as_csv(Table(("name",), ((written,),)))


def test_what_transformers_reports_about_a_model_has_no_escapes(tmp_path):
    """Names of forty tensors, made of any characters."""
    rng, folder = np.random.default_rng(0), tmp_path / "model"
    shutil.copytree(model_folder("embedded"), folder)
    weights = load_file(folder / "model.safetensors")
    more = {f"x{n}{ESCAPE}{''.join(map(chr, rng.integers(1, 0x300, 5)))}": torch.zeros(1) for n in range(40)}
    save_file(weights | more, folder / "model.safetensors", {"format": "pt"})
    words = ("evaluate", "./model", "arithmetic:easy:train:1", "--samples", "1", "--max-tokens", "8", "--out", "e")
    done = scrl(*words, cwd=tmp_path)
    assert done.returncode == 0
    assert "x39" in done.stderr  # the report is there
    assert not any(character in done.stdout + done.stderr for character in HOSTILE)
