"""The shape of the package: import directions, import weight, public names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scrl

SOURCE = Path(scrl.__file__).parent

# Each layer may import itself and the layers named here, nothing else of the package.
BASE = {"records", "errors", "seeds", "metrics"}
CORE = BASE | {"answers", "credit"}
RUN = CORE | {"policy", "rollout", "data", "evaluation", "reporting", "lab", "training", "recipes"}
MAY_IMPORT = {
    "records": {"errors"},
    "errors": set(),
    "seeds": set(),
    "metrics": set(),
    "answers": BASE,
    "credit": BASE | {"answers"},
    "policy": CORE,
    "rollout": CORE,
    "data": CORE,
    "evaluation": CORE | {"policy", "rollout", "data"},
    "reporting": CORE | {"data", "evaluation"},
    "lab": CORE | {"data", "evaluation"},
    "training": RUN - {"recipes"},
    "recipes": RUN,
    "cli": RUN | {""},
    "": RUN,
    "__main__": {"cli"},
}


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


def test_gold_answers_are_read_only_by_evaluation():
    readers = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if "find_class(" in path.read_text(encoding="utf-8")
    }
    assert readers == {"answers", "evaluation"}  # where it is defined, and where it is used


def test_nothing_that_trains_touches_a_questions_gold():
    for folder in ("answers", "credit", "policy", "rollout", "training"):
        for path in (SOURCE / folder).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            touched = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "gold"]
            assert not touched, f"{path}:{touched[0].lineno}"


def test_importing_scrl_is_light():
    heavy = "('torch', 'transformers', 'matplotlib', 'sympy', 'math_verify', 'rich', 'cyclopts')"
    code = f"import sys, scrl; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_public_names_are_few_documented_and_real():
    assert len(scrl.__all__) <= 25
    for name in scrl.__all__:
        public = getattr(scrl, name)
        assert isinstance(public, dict) or public.__doc__, name


def test_no_function_is_longer_than_a_screen():
    for path in SOURCE.rglob("*.py"):
        assert path.read_text(encoding="utf-8").count("\n") < 450, path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 80, f"{path}:{node.lineno} {node.name}"
