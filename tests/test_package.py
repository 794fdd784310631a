"""The shape of the package: import directions, import weight, public names."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import scrl
from scrl.credit.methods import METHODS

SOURCE = Path(scrl.__file__).parent

# Each layer may import itself and the layers before it that are named here, nothing else of the package.
BASE = {
    "records",
    "errors",
    "child_processes",
    "optional_deps",
    "seeds",
    "metrics",
    "settings",
    "setting_names",
    "user_code",
    "listener",
}
CORE = BASE | {"answers", "credit", "files"}
TENSORS = CORE | {"device"}
MODEL = TENSORS | {"policy", "sampling", "data", "evaluation", "reporting", "lab", "config"}
MAY_IMPORT = {
    "errors": set(), "child_processes": set(), "seeds": set(), "settings": set(), "metrics": set(), "listener": set(),
    "device": set(), "records": {"errors"}, "optional_deps": {"errors"}, "user_code": {"errors"},
    "setting_names": {"errors", "settings"},
    "files": {"errors"},
    "answers": BASE,
    "credit": BASE | {"answers"},
    "policy": TENSORS,
    "sampling": TENSORS | {"policy"},
    "data": CORE,
    "evaluation": CORE | {"policy", "sampling", "data"},
    "lab": CORE | {"sampling", "data", "evaluation"},
    "reporting": CORE | {"data", "evaluation", "lab"},
    "config": CORE | {"policy", "sampling", "data", "evaluation"},
    "training": MODEL,
    "engines": MODEL | {"training"},
    "planning": MODEL | {"training", "engines"},
    "recipes": MODEL | {"training", "engines"},
    "cli": MODEL | {"training", "planning", "engines", "recipes", ""},
    "api": MODEL | {"training", "engines"},
    "": CORE | {"lab", "config", "api"},
    "__main__": {"cli"},
}  # fmt: skip


def layer_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py").replace("__init__", "")


def imported_layers(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"scrl.{alias.name}" for alias in node.names] if node.module == "scrl" else [node.module or ""]
        for name in names:
            root, _, rest = name.partition(".")
            if root == "scrl":
                layer = rest.partition(".")[0]
                yield "" if layer == "__version__" else layer


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    layer = layer_of(path)
    assert set(imported_layers(path)) - {layer} <= MAY_IMPORT[layer]


def test_no_arrow_points_up_and_none_in_a_circle():
    levels = dict.fromkeys(MAY_IMPORT, 0)
    for _ in levels:
        below = {name: [levels[each] for each in may - {name}] for name, may in MAY_IMPORT.items()}
        levels = {name: 1 + max(below[name], default=0) for name in levels}
    assert max(levels.values()) < len(levels)  # a circle would have no end


def module_of(path):
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


PATHS = {module_of(path): path for path in SOURCE.rglob("*.py")}


def imported_modules(module, nodes_of):
    """What the imports among these nodes of a module name of the package."""
    names = set()
    for node in nodes_of(ast.parse(PATHS[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & PATHS.keys() - {module}


def test_no_modules_import_each_other_in_a_circle():
    """Not within a package either, and not inside a function, where only a reader would run round."""
    imports = {module: imported_modules(module, ast.walk) for module in PATHS}
    assert list(TopologicalSorter(imports).static_order())  # an error names the circle


@pytest.mark.parametrize("module", ["trl.run", "trl.rollouts", "verl.run", "verl.trainer"])
def test_other_engines_leave_the_local_policy_alone(module):
    """Read from the source, since they may not be installed: what loads with the module, not what its functions import."""
    loaded, found = set(), {f"scrl.engines.{module}"}
    while found:
        loaded |= found
        found = set().union(*(imported_modules(name, lambda tree: tree.body) for name in found)) - loaded
    assert "scrl.training.crediting" in loaded
    assert not loaded & {"scrl.policy.policy", "scrl.policy.optimizer", "scrl.policy.checkpoint", "scrl.sampling.local"}


def test_gold_answers_are_read_only_by_evaluation():
    calling = [path for path in SOURCE.rglob("*.py") if "bare_gold(" in path.read_text(encoding="utf-8")]
    assert {path.relative_to(SOURCE).parts[0] for path in calling} == {"engines", "evaluation"}  # verl validates


def test_nothing_that_trains_touches_a_questions_gold():
    for folder in ("answers", "credit", "policy", "sampling", "training"):
        for path in (SOURCE / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            touched = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "gold"]
            assert not touched, f"{path}:{touched[0].lineno}"


# Who must not know which method runs. A method's name stands in none of their code: not as a name, not in a text (words
# such as `random` are English there), and never as a text of its own. `scrl` alone is the package's name too.
BLIND = ("training", "policy", "sampling", "engines")
ENGLISH = {"random", "oracle", "inverted"}
NAMES = METHODS.keys() - {"scrl"}


def words_of(tree):
    """(line, what is named there, whether it is a text) for all code but docstrings and comments."""
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    alone = {id(node.value) for body in bodies for node in body.body if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value, True
        elif isinstance(node, ast.Name | ast.Attribute | ast.arg | ast.FunctionDef | ast.ClassDef):
            name = next(getattr(node, field) for field in ("id", "attr", "arg", "name") if hasattr(node, field))
            yield node.lineno, name, False
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            yield from ((node.lineno, name, False) for name in names)


def methods_named(tree):
    spelled = {name: re.compile(rf"(?<![a-z]){name.replace('-', '[-_ ]?')}(?![a-z])", re.IGNORECASE) for name in NAMES}
    for line, words, is_text in words_of(tree):
        if words.startswith("scrl.credit.methods"):
            yield line, words
        for name, pattern in spelled.items():
            if (is_text and words == name) or (name not in ENGLISH and pattern.search(words)):
                yield line, name


def test_nothing_that_trains_knows_which_method_runs():
    found = [
        (path.relative_to(SOURCE).as_posix(), name)
        for folder in BLIND
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for _, name in methods_named(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


@pytest.mark.parametrize(("module", "heavy"), [
    ("scrl", ("torch", "transformers", "matplotlib", "sympy", "rich", "cyclopts", "scrl.lab")),
    ("scrl.cli.main", ("torch", "transformers", "matplotlib")),
    ("scrl.training.crediting", ("scrl.policy.policy", "scrl.sampling.local")),
    ("scrl.training.base_run", ("scrl.policy.policy", "scrl.policy.optimizer", "scrl.training.probe")),
    ("scrl.training.loop", ("matplotlib", "scrl.lab", "scrl.reporting.report", "scrl.reporting.tables")),
])  # fmt: skip
def test_imports_are_light(module, heavy):
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_are_few_documented_and_real():
    assert len(scrl.__all__) <= 35
    for name in scrl.__all__:
        public = getattr(scrl, name)
        assert isinstance(public, dict) or public.__doc__, name
