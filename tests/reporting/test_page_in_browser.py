"""The page in headless Chromium: its arithmetic is Python's, foreign text runs nothing, and it fits a phone."""

import json
import random

import pytest
from browser import Browser, needs_browser
from line_files import write_lines
from pages import HOSTILE, hostile_run
from run_files import CONFIG, evaluation_line, group_lines, metric_lines, rollout_line, rollout_lines

from scrl.credit.rule import credit_rule
from scrl.data.completion_files import open_completions
from scrl.errors import InputError
from scrl.lab.label import label_file
from scrl.lab.stored_groups import credit_of, stored_groups
from scrl.records import Group
from scrl.reporting.report import write_report

pytestmark = needs_browser
SLIDERS = {
    "scrl": {"min_share": 200, "min_margin": 100, "max_negative_share": 100, "entropy_weight": 200},
    "ttrl": {},
    "contrast": {"elsewhere_weight": 100},
    "contrast-label": {"elsewhere_weight": 40, "min_contrast": 200},
}
"""How many steps of 0.005, or for β of 0.05, the random settings are drawn from."""
MOVE = """(([method, values]) => {
  const radio = document.querySelector(`[name=method][value=${method}]`);
  if (!radio.checked) { radio.checked = true; radio.dispatchEvent(new Event('change')); }
  for (const [name, value] of Object.entries(values)) {
    const input = document.getElementById(`set-${name}`);
    input.value = value;
    input.dispatchEvent(new Event('input'));
  }
  return {figures: recompute(), credits: items.map((item) => ({id: DATA.questions[item.place].id, ...item.credit}))};
})"""


@pytest.fixture(scope="module")
def browser():
    found = Browser()
    yield found
    found.close()


@pytest.fixture
def opened(browser):
    """A page, opened at some width."""

    def show(path, width=1280, scheme="light"):
        browser.look(width, scheme)
        browser.open(path)
        assert browser.named("Runtime.exceptionThrown") == []
        return browser

    return show


def votes_file(path, *, questions=30, size=16, seed=0, **more):
    """Ties, missing answers, stock answers, answers that are rare and uncertain, one question without gold."""
    rng, rows = random.Random(seed), []
    for number in range(questions):
        pool = [*"01223", *[str(50 + number)] * rng.choice((2, 6, 20)), *[None] * rng.choice((0, 1, 3)), f"{number}/7"]
        for _ in range(size):
            row = {"question_id": f"q{number}", "answer": rng.choice(pool), "entropy": rng.random()} | more
            rows.append(row | ({"gold": str(50 + number)} if number else {}))
    return write_lines(path, rows)


def page_of(*places):
    first = places[0] if places[0].is_dir() else places[0].parent
    given = [place if place.is_dir() else open_completions(place) for place in places]
    return write_report(given, first / "page.html")


def test_labels_rewards_and_counts_equal_pythons_at_50_random_settings(tmp_path, opened):
    path = votes_file(tmp_path / "votes.jsonl")
    groups = stored_groups(open_completions(path), credit_rule("ttrl"), keep_texts=False)
    browser, rng = opened(page_of(path)), random.Random(1)
    labels = set()
    for number in range(50):
        method = {4: "contrast", 3: "contrast-label"}.get(number % 5, "scrl") if number else "ttrl"
        units = {name: 0.05 if name == "elsewhere_weight" else 0.005 for name in SLIDERS[method]}
        settings = {name: round(units[name] * rng.randrange(1, most), 3) for name, most in SLIDERS[method].items()}
        found = browser.run(f"{MOVE}({json.dumps([method, settings])})")
        rule = credit_rule(method, **settings)
        credits = {credit["id"]: credit for credit in found["credits"]}
        assert len(credits) == len(groups)
        for stored in groups:
            credit, shown = credit_of(rule, stored), credits[stored.question_id]
            keys = stored.tally.keys_K
            assert (keys[shown["positive"]] if shown["positive"] >= 0 else None) == credit.labels.positive
            negatives = {key for key, is_out in zip(keys, shown["negatives"], strict=True) if is_out}
            assert negatives == credit.labels.negatives
            paid = [shown["missing"] if j < 0 else shown["rewards"][j] for j in stored.tally.class_of_G]
            assert paid == credit.rewards.tolist(), (method, settings)
            labels.add((method, credit.labels))
        assert_counts(found["figures"], label_file(path, rule), method)
    assert len(labels) > 80  # the settings do differ


def assert_counts(figures, summary, method):
    """The figures of the page against the summary of `scrl label`."""

    def ratio(part, whole):
        return part / whole if whole else None

    assert figures["questions"] == summary["questions"]
    assert figures["push"] / figures["graded"] == pytest.approx(summary["push_right"], abs=1e-9)
    assert figures["entropyOnly"] == summary["entropy_only_questions"]
    assert figures["negatives"] == summary["negative_answers"]
    assert ratio(figures["negativesWrong"], figures["negativesChecked"]) == summary["negative_accuracy"]
    assert ratio(figures["truthFlagged"], figures["hasTruth"]) == summary["truth_flagged"]
    if method != "contrast":  # which has no labels: the page shows what earns most
        assert figures["labelled"] == summary["positive_questions"]
        assert ratio(figures["right"], figures["checked"]) == summary["positive_accuracy"]
        assert ratio(figures["stockLabel"], figures["stockKnown"]) == summary.get("stock_label_share")


@pytest.mark.parametrize("missing_reward", ["negative", "entropy", "zero", -1.0])
def test_a_run_starts_at_its_own_settings_and_last_votes(make_run, opened, missing_reward):
    credit = {"min_share": 0.3, "min_margin": 0.05, "max_negative_share": 0.2, "missing_reward": missing_reward}
    rng = random.Random(2)
    lines = [line | {"entropy": rng.random()} for line in rollout_lines(questions=12)]
    browser = opened(page_of(make_run(config=CONFIG | {"credit": credit}, rollouts=lines)))
    rule = credit_rule("scrl", **credit)
    found = browser.run(f"{MOVE}(['scrl', {{}}])")
    assert len(found["credits"]) == 12
    for shown in found["credits"]:
        group = [line for line in lines if (line["step"], line["question_id"]) == (29, shown["id"])]
        answers = [line["answer_class"] for line in group]
        keys = sorted({answer for answer in answers if answer is not None})
        paid = [shown["missing"] if answer is None else shown["rewards"][keys.index(answer)] for answer in answers]
        python = rule.credit(Group.from_answers(answers, [line["entropy"] for line in group]))
        assert paid == python.rewards.tolist()
        assert keys[shown["positive"]] == python.labels.positive


def test_hostile_text_is_shown_and_runs_nothing(make_run, opened):
    poison = "".join(HOSTILE) + "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
    browser = opened(page_of(hostile_run(make_run, poison)))
    browser.run(OPEN_ALL)
    browser.run(OPEN_ALL)
    assert browser.run("typeof window.hit") == "undefined"
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.querySelectorAll('img, h1 ~ h1, iframe, form:not(#controls)').length") == 0
    assert browser.run("document.title").endswith("– scrl report")
    assert browser.named("Page.javascriptDialogOpening", "Runtime.exceptionThrown") == []
    asked = [event["params"]["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert len(asked) == 1  # the page itself
    shown = browser.run("document.querySelector('#questions pre').textContent")
    assert shown == poison
    # what got in as markup after all could not run: the policy knows one script by its hash
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit = 1\">')")
    browser.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))")
    browser.run("new Promise((r) => setTimeout(r, 100))")
    assert browser.run("typeof window.hit") == "undefined"


OUTSIDE = """[...document.querySelectorAll('body *')].filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1) && !each.matches('.skip, .unseen, .label *');
}).map((each) => `${each.tagName}.${each.className} ${each.textContent.slice(0, 40)}`)"""


OPEN_ALL = """for (const each of document.querySelectorAll('details')) each.open = true;
new Promise((done) => setTimeout(done, 200))"""


def test_nothing_runs_off_the_screen(make_run, tmp_path, opened):
    long = rollout_line("q" * 300, answer="9" * 300, question="word" * 200, completion="x" * 5000)
    stream = {"q1": {"question": "2 + 2?", "votes": [["5" * 200, 0.5], ["4", 0.25]]}}
    lines = [evaluation_line(step, 0.25, "stream", answers=stream) for step in (0, 8)]
    files = {"evaluations": lines, "metrics": list(metric_lines(steps=2)), "rollouts": [*rollout_lines(), long]}
    runs = [make_run(name, **files) for name in ("a" * 60, "b", "c")]
    for page in (page_of(*runs), page_of(votes_file(tmp_path / "votes.jsonl"))):
        for width in (390, 820, 1280):
            browser = opened(page, width)
            browser.run(OPEN_ALL)
            browser.run(OPEN_ALL)  # what the first have opened
            assert browser.run(OUTSIDE) == []
            assert browser.run("document.documentElement.scrollWidth") == width


def test_light_and_dark_differ_and_text_stands_out(make_run, opened):
    page, seen = page_of(make_run()), set()
    for scheme in ("light", "dark"):
        browser = opened(page, scheme=scheme)
        variables = browser.run("""(() => {
          const style = getComputedStyle(document.documentElement), paint = document.createElement('canvas').getContext('2d');
          return Object.fromEntries(['paper', 'card', 'ink', 'soft', 'right', 'wrong', 'unknown', 'c0', 'c1', 'c2', 'c3', 'c4', 'c5'].map((name) => {
            paint.fillStyle = style.getPropertyValue(`--${name}`);
            return [name, paint.fillStyle];
          }));
        })()""")
        seen.add(variables["paper"])
        assert len(set(variables.values())) >= 12  # no colour means two things
        for ground in ("paper", "card"):
            assert contrast(variables["ink"], variables[ground]) >= 12
            for name in ("soft", "right", "wrong"):  # those that are text too: WCAG AA
                assert contrast(variables[name], variables[ground]) >= 4.5, (scheme, name)
            for name in ("unknown", "c0", "c1", "c2", "c3", "c4", "c5"):  # graphics
                assert contrast(variables[name], variables[ground]) >= 3, (scheme, name)
    assert len(seen) == 2


def contrast(one, two):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_every_control_has_a_name_and_works_from_the_keyboard(make_run, opened):
    browser = opened(page_of(make_run("a"), make_run("b")))
    browser.ask("Accessibility.enable")
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    roles = {"slider", "combobox", "searchbox", "button", "radio", "link", "image", "DisclosureTriangle"}
    controls = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
    assert {node["role"]["value"] for node in controls} >= roles - {"button"}
    assert [node for node in controls if not node["name"]["value"].strip()] == []
    browser.run("document.getElementById('set-min_share').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    moved = browser.run("new Promise((r) => requestAnimationFrame(() => r(state.settings.min_share)))")
    assert moved == 0.38  # 0.375 + 0.005
    assert browser.run("document.querySelector('[data-setting=min_share] output').textContent") == "0.38"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def ids(browser):
    return browser.run("[...rows.keys()].map((place) => DATA.questions[place].id)")


def choose(browser, control, value):
    event = "input" if control == "search" else "change"
    browser.run(f"""(() => {{ const each = document.getElementById({control!r}); each.value = {value!r};
      each.dispatchEvent(new Event({event!r})); return new Promise((r) => requestAnimationFrame(() => setTimeout(r))); }})()""")


def test_questions_are_searched_filtered_sorted_and_all_there(tmp_path, opened):
    rows = [{"question_id": f"q{n}", "question": f"What is {n}?", "answer": str(k), "entropy": n / 1000, "gold": "0"}
            for n in range(130) for k in ([0, 0, 0, 1] if n % 2 else [2, 2, n, 1])]  # fmt: skip
    browser = opened(page_of(write_lines(tmp_path / "votes.jsonl", rows)))
    assert ids(browser) == [f"q{n}" for n in range(100)]
    browser.run("document.getElementById('more').click()")
    assert ids(browser) == [f"q{n}" for n in range(130)]
    choose(browser, "search", "WHAT 12")
    assert ids(browser) == ["q12", "q112", *(f"q{n}" for n in range(120, 130))]
    choose(browser, "search", "")
    choose(browser, "filter", "wrong")  # the even ones say 2; q0 too, where the right answer has one vote
    assert ids(browser)[:3] == ["q0", "q2", "q4"]
    assert browser.run("document.getElementById('shown').textContent") == "65 questions of 130"
    choose(browser, "order", "uncertain")
    assert ids(browser)[:2] == ["q128", "q126"]
    choose(browser, "filter", "all")
    choose(browser, "order", "split")
    assert ids(browser)[0] == "q0"
    assert browser.run("document.getElementById('lies-lead').textContent").startswith("On 65 of 130 questions")
    # 0.5 of the votes at 4 completions: τ_pos = 0.505 takes the labels of the even questions away
    choose(browser, "filter", "loses")
    assert ids(browser) == []
    choose(browser, "order", "number")
    browser.run(f"{MOVE}(['scrl', {{min_share: 0.505}}])")
    browser.run("document.getElementById('set-min_share').dispatchEvent(new Event('change'))")
    assert ids(browser)[:3] == ["q0", "q4", "q6"]  # q2 says 2 three times of four
    summary = browser.run("document.getElementById('summary').textContent")
    assert "0 questions gain one" in summary


def test_without_entropies_scrl_is_refused_by_name(tmp_path, opened):
    rows = [{"question_id": f"q{n}", "answer": "4"} for n in range(3) for _ in range(4)]
    browser = opened(page_of(write_lines(tmp_path / "votes.jsonl", rows)))
    refused = browser.run("document.getElementById('refused').textContent")
    assert refused.startswith("scrl needs")
    assert browser.run("document.querySelector('[name=method]:checked').value") == "ttrl"
    assert browser.run("document.querySelector('[value=scrl]').disabled") is True


def test_votes_are_drawn_as_they_were_counted(make_run, opened):
    rollouts = [
        *group_lines("q1", 0, ["4", "4", "4", "7"], positive="4", negatives={"7"}),
        *group_lines("q1", 5, ["4", "7", "7", None], positive="7"),
        *group_lines("q2", 0, ["8", "8", None, "4"]),
        *group_lines("q3", 0, ["5", None]),
    ]
    browser = opened(page_of(make_run(rollouts=rollouts)))
    text = browser.run("document.getElementById('lies').innerText")
    assert "On 3 of 3 questions" in text
    assert "1 → 2 of 4 votes for 7 labelled; 3 → 1 of 4 votes for 4, which is right." in text
    assert "1 of 2 votes for 5;" in text
    bars = "[...document.querySelectorAll('#lies svg')].map((svg) => [...svg.querySelectorAll('rect')].map((r) => [r.getAttribute('class'), r.getAttribute('x'), r.getAttribute('height')].join(' ')))"
    drawn = ["right 0 75.00", "wrong r0 0 25.00", "right 10 25.00", "wrong r0 10 50.00", "none 10 25.00"]
    assert drawn in browser.run(bars)
    titles = browser.run("[...document.querySelectorAll('#lies svg title')].map((title) => title.textContent)")
    assert "step 5: 2 × 7, 1 × 4, 1 without an answer" in titles
    choose(browser, "visit", "first")
    assert browser.run("items[0].group.step") == 0


def test_at_the_first_visit_all_votes_are_those_of_first_visits(make_run, opened):
    """Of nine other questions two are visited again, and then answer 8: at the first visit nobody did."""
    names = [f"q{number}" for number in range(10)]
    rollouts = [line for name in names for line in group_lines(name, 0, ["4", "8" if name == "q0" else "4"])]
    rollouts += [line for name in names[1:3] for line in group_lines(name, 5, ["8", "8"])]
    browser = opened(page_of(make_run(rollouts=rollouts)))
    shares = "items.find((item) => DATA.questions[item.place].id === 'q0').group.elsewhere"
    assert browser.run(shares) == [7 / 9, 2 / 9]  # of 4 and of 8
    choose(browser, "visit", "first")
    assert browser.run(shares) == [1, 0]


@pytest.mark.parametrize(("preset", "winner"), [("paper", "4"), ("official", "7")])
def test_ties_go_where_the_run_lets_them_go(make_run, opened, preset, winner):
    rollouts = [*group_lines("q1", 0, ["7", "4", "7", "4"]), *group_lines("q2", 0, ["8", "8", "4", "4"])]
    browser = opened(page_of(make_run(config=CONFIG | {"method": "ttrl", "preset": preset}, rollouts=rollouts)))
    credit = credit_rule("ttrl", preset=preset).credit(Group.from_answers(["7", "4", "7", "4"]))
    first, _ = browser.run("items.map((item) => item.group.keys[item.credit.positive])")
    assert first == winner == credit.labels.positive


def test_a_run_with_a_bad_setting_is_named(make_run):
    folder = make_run(config=CONFIG | {"credit": {"min_share": 7}})
    with pytest.raises(InputError, match=rf"^{folder.name}: config.yaml: min_share: "):
        write_report([folder], folder / "page.html")


def test_an_empty_run_and_one_without_gold_have_pages_too(make_run, opened):
    browser = opened(page_of(make_run("new", metrics=[], evaluations=[], rollouts=[])))
    assert browser.run("document.querySelector('.explorer').hidden") is True
    browser = opened(page_of(make_run("ungraded", gold=False)))
    text = browser.run("document.getElementById('lies').innerText")
    assert "On 1 of 6 questions" in text
    assert not any(word in browser.run("document.body.innerText") for word in ("✓", "✗", "is wrong"))
