"""The import graph of the package, by folder, as a picture: python tools/import_graph.py docs/import-graph.svg

A folder is one level above everything it imports. An arrow that pointed up would need a cycle, which is an error.
Arrows that follow from others (a → b → c makes a → c) are left out, so that the picture shows the shape.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

SOURCE = Path(__file__).parent.parent / "src" / "scrl"
ENTRY = "scrl"
"""What `import scrl` is: __init__.py."""


def layer_of(path: Path) -> str:
    """The folder or top-level module of a file."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py").replace("__init__", ENTRY)


def imports() -> dict[str, set[str]]:
    """Layer → the layers it imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        own = found.setdefault(layer_of(path), set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                root, _, rest = name.partition(".")
                if root == "scrl":
                    own.add(rest.partition(".")[0] or ENTRY)
    return {layer: below - {layer} for layer, below in found.items()}


def levels_of(graph: dict[str, set[str]]) -> dict[str, int]:
    """Layer → its level; a cycle is refused."""
    levels: dict[str, int] = {}
    while len(levels) < len(graph):
        ready = [layer for layer in graph if layer not in levels and graph[layer] <= levels.keys()]
        if not ready:
            raise SystemExit(f"imports form a cycle among {sorted(graph.keys() - levels.keys())}")
        for layer in ready:
            levels[layer] = 1 + max((levels[below] for below in graph[layer]), default=-1)
    return levels


def shortest(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that do not follow from others."""

    def reach(layer: str) -> set[str]:
        return graph[layer].union(*(reach(below) for below in graph[layer]))

    return [
        (layer, below)
        for layer, all_below in graph.items()
        for below in all_below
        if not any(below in reach(other) for other in all_below - {below})
    ]


def draw(graph: dict[str, set[str]], out: Path) -> None:
    """Boxes in rows, the lowest layer at the bottom."""
    levels = levels_of(graph)
    rows: dict[int, list[str]] = {}
    for layer, level in sorted(levels.items()):
        rows.setdefault(level, []).append(layer)
    place = {
        layer: ((number + 0.5) / len(row) * 10, level)
        for level, row in rows.items()
        for number, layer in enumerate(row)
    }
    with rc_context({"svg.hashsalt": "scrl", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9, 0.62 * len(rows) + 0.4), layout="constrained")
        axes = figure.subplots()
        for layer, below in sorted(shortest(graph)):
            arrow = {"arrowstyle": "-|>", "color": "#7f7f7f", "shrinkA": 9, "shrinkB": 9, "linewidth": 0.8}
            axes.annotate("", xy=place[below], xytext=place[layer], arrowprops=arrow)
        for layer, (x, y) in place.items():
            box = {"boxstyle": "round,pad=0.35", "facecolor": "#eef3f8", "edgecolor": "#0072b2", "linewidth": 0.8}
            axes.text(x, y, layer, ha="center", va="center", bbox=box)
        axes.set(xlim=(0, 10), ylim=(-0.5, len(rows) - 0.5))
        axes.axis("off")
        figure.savefig(out, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(imports(), Path(sys.argv[1] if len(sys.argv) > 1 else "docs/import-graph.svg"))
