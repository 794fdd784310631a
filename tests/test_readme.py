"""What the README shows is what happens."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from processes import scrl

ROOT = Path(__file__).parent.parent


def test_the_python_example_prints_what_it_says():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    said = "".join(line.removeprefix("# ") for line in block.splitlines() if line.startswith("#"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})  # our own README
    assert printed.getvalue().split() == said.split()


def test_links_of_the_readme_lead_somewhere():
    """Those between the pages of docs/ are checked as the site is built (tests/test_docs.py)."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


@pytest.fixture
def root(tmp_path):
    """The repository's root, without what earlier runs left there."""
    for name in ("examples", "docs", "src", "benchmarks", "results"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def shell_lines(page):
    """The `scrl …` lines of a page, in words."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    lines = (shlex.split(line, comments=True) for block in blocks for line in block.splitlines())
    return [words[1:] for words in lines if words[:1] == ["scrl"]]


FEWER = {
    "train": "--steps 2 --limit 20 --completions 8 --trained 4 --evaluation.completions 4".split(),
    "evaluate": ["--limit", "20"],
}
"""What is added to a command, so that it takes seconds: 20 questions are as many as `--draw-check 20` needs."""


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_every_command_works_as_written_from_the_root(page, root):
    """A run whose model is on the hub is planned, a table of the paper too; the others are smaller."""
    for words in shell_lines(page):
        is_far = any(word.startswith("HuggingFaceTB/") for word in words)
        if words[0] == "demo":  # tests/command/test_demo.py runs it
            continue
        command, more = ("plan", ["--gpus", "1"]) if is_far else (words[0], FEWER.get(words[0], []))
        done = scrl(command, *words[1:], *more, cwd=root)
        assert done.returncode == 0, (words, done.stdout[-500:], done.stderr[-500:])
