"""The pages of docs/ say what is so: names exist, tables agree with the code, commands are understood, the site builds."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from scrl.cli.main import app
from scrl.cli.train import file_and_overrides
from scrl.config import RunConfig, read_config
from scrl.credit.methods import METHODS
from scrl.data import completion_files
from scrl.data.benchmarks import BENCHMARKS
from scrl.data.prompts import STYLES
from scrl.data.questions import COLUMN_NAMES
from scrl.recipes.paper import TABLES
from scrl.records import Sample
from scrl.settings import setting_rows

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
REFERENCE = re.compile(r"\[`([^`]+)`\](?:\[([\w-]+)\]|\((\.\./[^)]+)\))")
DEFINITION = re.compile(r"^\[([\w-]+)\]: (\S+)$", re.MULTILINE)


@cache
def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def references(name, text=None):
    """Every `name` of a page that links a file of the repository: (file, what it is called there)."""
    places = dict(DEFINITION.findall(page(name)))
    for words, key, inline in REFERENCE.findall(text or page(name)):
        yield (DOCS / (inline or places[key])).resolve(), words


def tables(name):
    """The tables of a page by their heading: a list of rows, the one with the column names first."""
    found = {}
    for part in re.split(r"^## ", page(name), flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        found[heading] = [row for row in rows if set("".join(row)) - {"-"}]
    return found


@cache
def shown_by():
    """Which tests show what stands in a row of a table: heading → first cell → tests."""
    return tomllib.loads((ROOT / "tests" / "shown_by.toml").read_text(encoding="utf-8"))


def commands(name):
    """Every `scrl …` line of the page's shell blocks, in words."""
    for block in re.findall(r"```sh\n(.*?)```", page(name), re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["scrl"]:
                yield words[1:]


@cache
def names_in(path):
    """Functions, classes, their members and the variables at the top of a file."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= set(_names(node))
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in node.body for name in _names(member)}
    return found


def _names(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_every_function_and_test_that_a_page_names_exists(name):
    for path, words in references(name):
        assert path.is_file(), words
        file, _, inside = words.rpartition("::") if "::" in words else ("", "", words)
        assert path.as_posix().endswith(file), f"{words} links {path.name}"
        if inside.endswith(".py"):
            continue
        assert inside in names_in(path), f"{words} is not in {path.relative_to(ROOT)}"


@pytest.mark.parametrize("name", PAGES)
def test_no_link_is_defined_for_nothing(name):
    for key, _ in DEFINITION.findall(page(name)):
        assert f"][{key}]" in page(name), key


def test_every_equation_has_a_function_and_a_test():
    _, *rows = tables("method.md")["Equations"]
    numbers = [str(number) for number in range(1, 10)]  # the paper has nine
    assert [row[0] for row in rows] == numbers
    assert sorted(re.findall(r"\\tag\{(\d)\}", page("method.md"))) == numbers
    for row in rows:
        linked = [path for path, _ in references("method.md", row[1])]
        assert linked, row[0]
        assert all(ROOT / "src" in path.parents for path in linked), row[0]
    assert list(shown_by()["Equations"]) == numbers


def test_equation_6_the_entropy_of_a_completion_is_the_mean_over_its_tokens():
    # three tokens: (0.2 + 0.6 + 0.1) / 3 = 0.3
    sample = Sample("", np.arange(3), np.zeros(3), np.array([0.2, 0.6, 0.1]), is_finished=True)
    assert sample.entropy == pytest.approx(0.3, abs=1e-12)


def test_symbols_are_those_of_the_settings():
    rows = {row[0].strip("`"): row for row in tables("method.md")["Symbols"]}
    fields = METHODS["scrl"].settings.model_fields
    symbols = {name: field.description.partition(":")[0] for name, field in fields.items() if "_" in name}
    for name in ("min_share", "min_margin", "max_negative_share", "entropy_weight"):
        row = rows[symbols[name]]  # the field's description begins with the paper's symbol
        assert row[1] == f"`credit.{name}`"
        assert float(row[2]) == fields[name].default


def test_every_method_is_named_with_its_paper_and_has_a_test():
    text = page("method.md")
    for name, method in METHODS.items():
        assert f"`{name}`" in text
        assert method.paper.startswith("ours") or method.paper.partition(":")[2].split()[0] in text
    assert list(shown_by()["Methods"]) == list(METHODS)


def test_every_deviation_has_a_test():
    sections = {heading: rows for heading, rows in tables("deviations.md").items() if rows}
    assert len(sections) == 4
    for heading, (_, *rows) in sections.items():
        assert [row[0] for row in rows] == list(shown_by()[heading]), heading


def test_the_tests_behind_the_pages_exist():
    for rows in shown_by().values():
        for row, names in rows.items():
            assert names, row
            for name in names:
                path, _, test = name.partition("::")
                assert test in names_in(ROOT / path), name


# --- tables that repeat the code --------------------------------------------------------------------------------------


def test_benchmarks_are_those_of_the_code():
    _, *rows = tables("evaluation.md")["Benchmarks by name"]
    assert [row[0].strip("`") for row in rows] == list(BENCHMARKS)
    for row, source in zip(rows, BENCHMARKS.values(), strict=True):
        assert int(row[1]) == source.num_questions
        assert row[2] == source.hub.name + (" (gated)" if source.is_gated else "")


def test_prompt_styles_are_those_of_the_code():
    text = " ".join(page("evaluation.md").partition("## Prompts")[2].partition("\n## ")[0].split())
    thinking = {None: "", True: " (on)", False: " (thinking off)"}
    for name, style in STYLES.items():
        assert f"`{name}`{thinking[style.thinking]}" in text
        assert style.instruction in text
        assert not style.system or f'the system message "{style.system}"' in text


def test_columns_are_those_of_the_code():
    text = page("your-questions.md").partition("Columns are found by name")[2].partition("\n\n")[2].partition("\n\n")[0]
    told = [re.findall(r"`(\w+)`", line.split("|")[2]) for line in text.splitlines()[2:]]
    known = [" ".join(ranks).split() for ranks in COLUMN_NAMES.values()]
    assert told == [[name for name in names if name != "groundtruth"] for names in known]  # a spelling of another


def test_the_columns_of_completions_that_are_listed_are_those_that_are_found():
    rows = {row.split("|")[1].strip(): row for row in page("lab.md").splitlines() if "-column NAME`" in row}
    for what, names in zip(("completion", "question", "id"), completion_files._FLAT, strict=False):
        assert re.findall(r"`([a-z_]+)`", rows[what].split("|")[2]) == list(names)
    assert all(f"`{name}`" in rows["gold answer"] for name in (*completion_files._NO_GOLD, "gts"))


def test_tables_of_the_paper_are_named():
    assert all(f"`{name}`" in page("recipes.md") for name in TABLES)


def test_the_pictures_of_the_method_are_what_the_script_draws(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "method_pictures.py"), str(tmp_path)]
    subprocess.run(command, check=True)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["stock-answers.svg", "votes.svg"]
    for name in drawn:
        assert (tmp_path / name).read_bytes() == (DOCS / name).read_bytes(), name


def test_every_page_is_named_on_the_first():
    for name in set(PAGES) - {"index.md"}:
        assert f"]({name})" in page("index.md"), name


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_every_command_is_understood(name):
    """Options exist and have values of the right kind; settings of runs are settings. Nothing is run."""
    for words in commands(name):
        command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        assert command.__name__ == words[0]
        if words[0] in ("train", "plan") and not {"resume", "list_settings"} & bound.arguments.keys():
            _, given = file_and_overrides(bound.args)
            read_config(None, given, {"model": "embedded", "questions": "arithmetic:easy"})


def test_settings_that_pages_name_exist():
    rows = (setting_rows(RunConfig), *(setting_rows(each.settings, "credit.") for each in METHODS.values()))
    known = {name for each in rows for name, _, _ in each}
    groups = {name.partition(".")[0] for name in known if "." in name}
    for name in PAGES:
        for setting in re.findall(r"`([a-z_]+\.[a-z_]+)(?:: [^`]*)?`", page(name)):
            if setting.partition(".")[0] in groups:
                assert setting in known, f"{name}: {setting}"


# --- the site ---------------------------------------------------------------------------------------------------------


def build(config, site):
    """`mkdocs build --strict`, in a process of its own; with --quiet it would count no warnings."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_site_builds_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path):
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (tmp_path / "site" / name.replace(".md", ".html") for name in PAGES):
        html = path.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|iframe)[^>]*src=\"(?:https?:)?//", html), path
        assert not re.search(r"<link[^>]*rel=\"stylesheet\"[^>]*href=\"(?:https?:)?//", html), path
        article = html.partition("<article")[2].partition("</article>")[0]
        assert "$" not in re.sub(r"<code.*?</code>", "", article, flags=re.DOTALL), path  # equations are drawn
    assert (tmp_path / "site" / "source" / "src" / "scrl" / "credit" / "labels.py.txt").is_file()
    method = (tmp_path / "site" / "method.html").read_text(encoding="utf-8")
    assert len(re.findall('<math [^>]*display="block"', method)) == 11  # the paper's nine, contrast's and its label's


@pytest.mark.parametrize(("text", "found"), [
    ("$p_j$ is a share", "<math"), ("a\n\n$$x \\tag{4}$$\n", "<span>(4)</span></div>"),
    ("`$x$` and\n```sh\necho $x $y$\n```", None), ("from $5 to $6, US$ and \\$x$", None),
])  # fmt: skip
def test_equations_become_mathml_and_code_and_money_stay(text, found):
    spec = importlib.util.spec_from_file_location("equations", DOCS / "equations.py")
    equations = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(equations)
    page = equations.on_page_markdown(text)
    assert found in page if found else page == text


def test_broken_links_are_errors(tmp_path):
    targets = ("nowhere.md", "other.md#elsewhere", "../src/scrl/nowhere.py")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n" + " ".join(f"[words]({target})" for target in targets))
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"docs/(\w+\.py)", rf"{DOCS}/\1", settings))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert all(target.rpartition("/")[2] in done.stdout + done.stderr for target in targets)


def test_the_tests_behind_the_promises_are_there():
    lines = [line for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    named = re.findall(r"`(tests/[^`]+)`", "".join(lines))
    assert len(named) >= len(lines) - 2  # but for the two lines of the head, every promise has a test
    assert all((ROOT / name).is_file() for name in named)
