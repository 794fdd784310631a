"""What the README shows is what happens."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_python_example_prints_what_it_says():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    said = "".join(line.removeprefix("# ") for line in block.splitlines() if line.startswith("#"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(block, {})  # our own README
    assert printed.getvalue().split() == said.split()


@pytest.mark.parametrize(
    "page", [path.relative_to(ROOT) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]], ids=str
)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / page.parent / target).exists(), target
