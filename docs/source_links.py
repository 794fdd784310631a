"""Links from pages to files of the repository.

A page links `../src/scrl/credit/labels.py`, which leads somewhere wherever the repository is browsed. The built site
carries a copy of every file that is linked, so that it does there too; a link to a file that is not there is a broken
link like any other, and a strict build fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK = re.compile(r"(\]\(|\]: )\.\./((?:(?:src|tests|examples|benchmarks|results)/|[A-Z]+\.md)[^)#\s]*)")
"""`[words](../src/…)`, and `[name]: ../src/…` at the end of a page."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that pages link."""
    root = Path(config.config_file_path).parent
    pages = (page.content_string for page in files.documentation_pages())
    for path in sorted({path for page in pages for _, path in LINK.findall(page)}):
        if (root / path).is_file():
            files.append(File.generated(config, f"source/{path}.txt", abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to the copies."""
    return LINK.sub(r"\1source/\2.txt", markdown)
