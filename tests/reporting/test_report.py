"""The page: safe, self-contained, and true to the files."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_files import CONFIG, evaluation_line, group_lines, metric_lines, rollout_line, rollout_lines

from scrl.errors import InputError
from scrl.reporting.report import settings_of, write_report
from scrl.reporting.run_files import read_runs

VOID = {"meta", "br", "link", "img", "input", "hr"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{7*7}}{% raw %}",
    "</pre></details></table><h1>mine</h1>",
    "</title></style><script>",
    "<!-- ]]> &lt;b&gt; &#x3c;",
    r"$\frac{1}{$ \u0000",
]


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


def assert_safe(html):
    page = Page(html)
    assert not {"script", "iframe", "object", "embed", "link", "img", "base", "form", "h4"} & set(page.tags)
    assert ("meta", "content", POLICY) in page.attributes
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


def test_the_page_is_whole_and_needs_nothing_else(make_run):
    html = page_of(make_run())
    assert html.lstrip().startswith("<!doctype html>")
    page = assert_safe(html)
    assert page.tags.count("figure") == 7
    for title in ("What was run", "Before and after", "Over the steps", "Labels", "Questions"):
        assert title in page.text
    assert "scrl report scrl" in page.text


def test_an_empty_text_is_not_shown_as_nothing(make_run):
    config = CONFIG | {"prompt": {"instruction": "", "system": None, "style": "chat"}, "stop": ["", "end"]}
    (run,) = read_runs([make_run(config=config)])
    shown = {setting.name: setting.values[0] for setting in settings_of([run])}
    found = [shown[name] for name in ("prompt.instruction", "prompt.system", "prompt.style", "stop")]
    assert found == ["''", "–", "chat", "'', end"]


def hostile_run(make_run):
    poison = "".join(HOSTILE)
    rollouts = [
        line | {"completion": poison, "question": poison, "gold": poison, "correct": False, "question_id": poison}
        for line in group_lines("q", 0, [poison, poison, poison + "2", None])
    ]
    return make_run(
        "a<b>&amp;'\"{{7*7}}",
        config=CONFIG | {"model": poison, poison: poison, "nested": {poison: [poison, 1]}},
        evaluations=[evaluation_line(0, 0.25, poison), evaluation_line(3, 0.5, poison, samples=4)],
        rollouts=rollouts,
    )


def test_hostile_text_appears_only_escaped(make_run):
    folder = hostile_run(make_run)
    html = page_of(folder)
    page = assert_safe(html)
    for poison in HOSTILE:
        assert poison in " ".join(page.words)
    for raw in ("<script", "<img", "<h1>mine", "</pre></details></table>", "'alert"):
        assert raw not in html
    assert page.tags.count("h1") == 1
    shown = re.search(r"<pre>\n(.*?)</pre>", html, flags=re.DOTALL)[1]
    assert unescape(shown) == "".join(HOSTILE)  # no template ran, nothing was swallowed
    assert_safe(page_of(folder, make_run("other")))


def test_text_that_hides_or_turns_around_is_written_out(make_run):
    text = "a\x00b\x1b[31m\u202egnp\ud800\r\nnext\rline"
    html = page_of(make_run(rollouts=[rollout_line(completion=text)]))
    assert "a␀b␛[31m⟨U+202E⟩gnp⟨U+D800⟩\nnext␍line" in html


def test_what_is_known_of_a_completion_stands_above_it(make_run):
    line = rollout_line(label="positive", reward=0.625, advantage=-1.254, finished=False, num_tokens=3072)
    text = Page(page_of(make_run(rollouts=[line]))).text
    assert "Step 0: answer 4, the most frequent" in text
    assert "right · positive label · reward +0.625 · advantage −1.25 · entropy 0.27 · 3,072 tokens · cut at" in text


def test_long_completions_keep_beginning_and_end(make_run):
    html = page_of(make_run(rollouts=[rollout_line(completion="start " + "x" * 100_000 + " the end")]))
    assert "start xxx" in html
    assert "[95,014 characters left out]" in html
    assert "the end</pre>" in html
    assert len(html) < 300_000


def test_numbers_are_those_of_the_files(make_run):
    folder = make_run()
    page = Page(page_of(folder))
    shown = {value for tag, name, value in page.attributes if (tag, name) == ("data", "value")}
    for line in map(json.loads, (folder / "evaluations.jsonl").read_text().splitlines()[::2]):
        for key in ("pass@1", "pass@16", "maj@16", "agreement", "answered", "truncated", "entropy_mean"):
            assert str(line[key]) in shown, key
    text = page.text.replace("\N{NARROW NO-BREAK SPACE}", " ")
    for words in ("step 0 43.8 %35.8 to 50.8 %", "step 30 61.3 %53.3 to 68.3 %", "change +17.5 pp", "0.432"):
        assert words.replace(" ", "") in text.replace(" ", ""), words
    assert "30 of 30 steps, 6 questions, 24 groups, 192 completions" in text
    for setting in ("method scrl", "model tiny/model", "seed 7", "learning_rate 5e-07", "sampling.completions 8"):
        assert setting.replace(" ", "") in text.replace(" ", "")


def test_totals_and_votes_are_counted_by_hand(make_run):
    rollouts = [
        *group_lines("q1", 0, ["4", "4", "4", "7"], positive="4", negatives={"7"}),
        *group_lines("q1", 5, ["4", "4", "7", "7"]),  # a tie: half right
        *group_lines("q2", 0, ["8", "8", None, "4"], positive="8", negatives={"4"}),  # wrong, and the truth ruled out
    ]
    html = page_of(make_run(rollouts=rollouts))
    text = Page(html).text.replace("\N{NARROW NO-BREAK SPACE}", "").replace(" ", "")
    for words in (
        "groups with a positive label 66.7%2 of 3",
        "completions without an answer 8.3%1 of 12",
        "completions that are right 50.0%6 of 12",
        "most frequent answer is right 50.0%1.5 of 3",
        "positive label is right 50.0%1 of 2",
        "ruled-out answer is wrong 50.0%1 of 2",
        "right answer was ruled out, of the groups that gave it 33.3%1 of 3",
        "step 0 (4 completions) to step 5 (4), 2 visits",
        "4 3 → 2 ✓ right",
        "7 1 → 2 ✗ wrong",
        "step 5: 2 × 4, 2 × 7",
        "8 2 ✗ wrong · positive label",
        "4 1 ✓ right · ruled out",
        "no answer 1",
    ):
        assert words.replace(" ", "") in text, words
    assert '<rect class="right" x="0" y="25.0" width="9" height="75.0"/>' in html


def test_a_right_answer_that_nobody_gave_is_told(make_run):
    lines = [*group_lines("q1", 0, ["5", None]), *group_lines("q2", 0, ["5", "4"]), *group_lines("q3", 0, ["5"], None)]
    assert Page(page_of(make_run(rollouts=lines))).text.count("the right answer was never given") == 1


def test_two_runs_are_compared_side_by_side(make_run):
    folders = [make_run("first/scrl"), make_run("second/scrl", config=CONFIG | {"method": "ttrl"})]
    page = assert_safe(page_of(*folders))
    assert page.tags.count("figure") == 1 + 3 + 3 + 1 + 1 + 1 + 3
    assert "pass@1 on toy" in page.text
    assert "scrl report first/scrl second/scrl" in page.text  # as much of the path as tells them apart
    assert ("tr", "class", "differs") in page.attributes


def test_questions_are_matched_by_id_and_text(make_run):
    other = [rollout_line("q1", question="Another question with the same id?"), rollout_line("q2")]
    page = Page(
        page_of(make_run("a", rollouts=[rollout_line("q1"), rollout_line("q2")]), make_run("b", rollouts=other))
    )
    assert page.text.count("not in this run") == 2


def test_without_gold_the_page_says_so(make_run):
    folder = make_run(gold=False, metrics=metric_lines(gold=False))
    page = assert_safe(page_of(folder))
    assert "accuracy of answers and labels is not known" in page.text
    assert "No gold answers: accuracy is not known" in page.text
    assert "gold: not given" in page.text
    for words in ("✓", "✗", "pass@1 ", "label is right", "majority wrong"):
        assert words not in page.text.replace("Below pass@1:", "")


def test_a_run_that_has_just_begun(make_run):
    page = assert_safe(page_of(make_run("new", metrics=[], evaluations=[], rollouts=[])))
    for words in ("0 of 30 steps", "no evaluations yet", "No step is finished yet", "No rollouts yet"):
        assert words in page.text
    assert assert_safe(page_of(make_run("unmeasured", evaluations=[]))).tags.count("figure") == 6
    once = Page(page_of(make_run("once", evaluations=[evaluation_line(0, 0.25)])))
    before_and_after = once.text.partition("Before and after")[2].partition("Over the steps")[0]
    assert "change" not in before_and_after.replace("changed", "")


def test_a_cut_last_line_is_left_out_and_told(make_run):
    folder = make_run()
    for name in ("metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl"):
        path = folder / name
        path.write_bytes(path.read_bytes() + '{"step": 31, "completion": "é'.encode()[:-1])
    page = Page(page_of(folder))
    assert "metrics.jsonl: line 31, the last one, is incomplete and was left out" in page.text
    assert "evaluations.jsonl: line 4, the last one" in page.text
    assert "rollouts.jsonl: line 193, the last one" in page.text
    assert "192 completions" in page.text


def test_the_same_files_give_the_same_bytes(make_run, tmp_path):
    folders = [make_run("scrl"), make_run("ttrl")]
    pages = [write_report(folders, tmp_path / name).read_bytes() for name in ("one.html", "two.html")]
    assert pages[0] == pages[1]
    assert str(tmp_path).encode() not in pages[0]


def test_the_page_appears_whole_or_not_at_all(make_run, tmp_path):
    folder = make_run()
    with pytest.raises(InputError, match="there is no folder"):
        write_report([folder], tmp_path / "nowhere" / "report.html")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_report([folder], tmp_path / "taken")
    with pytest.raises(InputError, match="it is a folder; give a file"):
        write_report([folder], Path())
    assert not list(tmp_path.glob(".*"))
    out = tmp_path / "report.html"
    assert write_report([folder], out) == out
    before = out.read_bytes()
    (folder / "config.yaml").unlink()
    with pytest.raises(InputError):
        write_report([folder], out)
    assert out.read_bytes() == before


def test_many_visits_and_questions_stay_readable(make_run):
    page = Page(page_of(make_run(rollouts=rollout_lines(questions=50, steps=range(60)))))
    assert "40 of 50 questions are shown" in page.text
    assert "60 visits, 48 of them drawn" in page.text
    assert page.tags.count("pre") == 40 * 4


def test_the_page_counts_questions_learned_kept_lost_and_never_right(make_run):
    first = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.2}
    last = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.1}
    evaluations = [
        evaluation_line(step, 0.5, **{"maj@16_by_question": votes}) for step, votes in ((0, first), (30, last))
    ]
    text = Page(page_of(make_run(evaluations=evaluations))).text
    assert "by their majority, first to last evaluation: 1 learned, 1 kept, 1 lost, 1 never right." in text


def test_the_page_lists_the_answers_to_the_questions_trained_on(make_run):
    before = {"q1": {"question": "2 + 2?", "votes": [["5", 0.5], ["4", 0.25]]}}
    after = {"q1": {"question": "2 + 2?", "votes": [["<b>4</b>", 0.75]]}}
    lines = [evaluation_line(step, benchmark="stream", answers=found) for step, found in ((0, before), (8, after))]
    folder = make_run(evaluations=lines)
    page = Page(page_of(folder))
    assert "1 answers; SCRL's rule would trust 1; 1 changed in training" in page.text
    assert "2 + 2?<b>4</b>changed75%–550%" in page.text


def test_a_run_that_is_not_measured_says_so(make_run):
    folder = make_run(config=CONFIG | {"evaluation": {"is_off": True}}, evaluations=[])
    assert "no evaluations: they are turned off" in Page(page_of(folder)).text
