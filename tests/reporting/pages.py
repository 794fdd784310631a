"""The page about runs: how it is written, read and found to be safe."""

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser

from run_files import CONFIG, evaluation_line, group_lines

from scrl.reporting.report import write_report

VOID = {"meta", "br", "link", "img", "input", "hr"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"
HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "{{7*7}}{% raw %}",
    "</pre></details></table><h1>mine</h1>", "</title></style><script>", "<!-- ]]> &lt;b&gt; &#x3c;",
    r"$\frac{1}{$ \u0000",
]  # fmt: skip
POISON = "".join(HOSTILE)


class Page(HTMLParser):
    """Tags in balance, with all their attributes and the text between them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


def page_of(*folders):
    return write_report(folders, folders[0] / "report.html").read_text(encoding="utf-8")


def data_of(html):
    """What the script computes with."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.DOTALL)[1])


def group_of(html, place, *, source=0, visit="last"):
    return data_of(html)["sources"][source]["groups"][place][visit]


def assert_safe(html):
    page = Page(html)
    assert not {"iframe", "object", "embed", "link", "img", "base", "h4"} & set(page.tags)
    assert page.tags.count("form") == 1
    (policy,) = (value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    script = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digests = [b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in script]
    assert [policy] == [f"{POLICY}{digest}'" for digest in digests]  # one script, and the policy knows it
    assert page.tags.count("script") == 2
    assert ("script", "type", "application/json") in page.attributes
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "action", "srcset"):
            assert value.startswith("#"), value
        assert not re.search(r"url\(\s*['\"]?(?!#)", value or ""), value
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL))
    assert "url(" not in styles
    assert "@import" not in styles
    return page


def hostile_run(make_run, poison=POISON):
    rollouts = [
        line | {"completion": poison, "question": poison, "gold": poison, "correct": False, "question_id": poison}
        for line in group_lines("q", 0, [poison, poison, poison + "2", None])
    ]
    return make_run(
        "a<b>&amp;'\"{{7*7}}", config=CONFIG | {"model": poison, poison: poison, "nested": {poison: [poison, 1]}},
        evaluations=[evaluation_line(0, 0.25, poison), evaluation_line(3, 0.5, poison, samples=4)], rollouts=rollouts,
    )  # fmt: skip
