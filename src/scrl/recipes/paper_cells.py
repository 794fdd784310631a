"""Every number that the paper prints, and what each is a number of: models, benchmarks, budgets, thresholds.

Rows are typed as they are printed: `14.5*` is a peak before degradation. Accuracies are percentages, entropies nats.
Rows and columns that the paper computes from others (Δ, Avg) are cells too, each with the cells it follows from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from scrl.recipes.paper_records import GAIN, METHODS, Block, Cell, Derived

MODELS = {
    "qwen2.5-3b": "Qwen/Qwen2.5-3B",
    "qwen2.5-math-7b": "Qwen/Qwen2.5-Math-7B",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "llama-3.2-1b-instruct": "meta-llama/Llama-3.2-1B-Instruct",
    "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
}
"""The name in an experiment's name, and the hub id."""
BUDGETS = {"32-16": (32, 16), "64-32": (64, 32)}
"""Completions that vote, and those trained on."""
PRINTED = {
    "aime24": "AIME24", "aime25": "AIME25", "amc": "AMC", "math500": "MATH-500", "minerva": "Minerva", "gpqa": "GPQA"
}  # fmt: skip
"""The benchmarks, and what the tables call them."""
EVALUATION = {"samples": 16, "temperature": 0.6, "top_p": 0.95}
"""How every accuracy is measured; the most tokens are the experiment's."""
THRESHOLDS = {"min_share": 0.375, "min_margin": 0.125, "max_negative_share": 0.125, "entropy_weight": 0.1}
"""Of all experiments but those that vary them."""
SYMBOLS = {"min_share": "τ_pos", "min_margin": "τ_marg", "max_negative_share": "τ_neg", "entropy_weight": "λ_H"}


def start_name(model: str, *more: str) -> str:
    """The experiment that measures a model before training."""
    return "/".join((model, "start", *more))


def run_name(model: str, benchmark: str, budget: str, method: str, *more: str) -> str:
    """The experiment that trains a model."""
    return "/".join((model, benchmark, budget, method, *more))


def varied(settings: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """The thresholds that are not the paper's usual ones."""
    return tuple((name, value) for name, value in settings.items() if value != THRESHOLDS[name])


def varied_name(credit: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
    """The last part of an experiment's name, where it varies a threshold."""
    return (",".join(f"{name}={value:g}" for name, value in credit),) if credit else ()


MAIN_BENCHMARKS = ("aime25", "amc", "math500", "minerva", "gpqa")
_MAIN = {
    ("32-16", "qwen2.5-3b"): {
        "start": "1.9  23.2 50.0 21.4 21.6 23.6",
        "ttrl": " 2.6  39.4 66.9 31.6 25.0 33.1",
        "scrl": " 8.4  41.5 68.2 29.5 25.7 34.7",
        GAIN: "   +5.8 +2.1 +1.3 -2.1 +0.7 +1.6",
    },
    ("32-16", "qwen2.5-math-7b"): {
        "start": "4.6   34.0 46.5 10.1  23.0 23.6",
        "ttrl": " 16.8  65.7 85.7 14.5* 25.5 41.6",
        "scrl": " 26.9  66.9 85.6 41.6  25.4 49.3",
        GAIN: "   +10.1 +1.2 -0.1 +27.1 -0.1 +7.7",
    },
    ("64-32", "qwen2.5-3b"): {
        "start": "1.9  23.2 50.0 21.4 21.6 23.6",
        "ttrl": " 3.9  39.5 72.8 33.5 23.5 34.6",
        "scrl": " 7.7  41.3 73.4 29.5 24.5 35.3",
        GAIN: "   +3.8 +1.8 +0.6 -4.0 +1.0 +0.7",
    },
    ("64-32", "qwen2.5-math-7b"): {
        "start": "4.6  34.0 46.5 10.1  23.0 23.6",
        "ttrl": " 19.0 68.1 83.4 10.8* 25.5 41.4",
        "scrl": " 22.8 68.5 86.2 43.1  26.0 49.3",
        GAIN: "   +3.8 +0.4 +2.8 +32.3 +0.5 +7.9",
    },
}


def section_name(budget: str) -> str:
    """Where a table has the rows of a budget."""
    return "{} completions, {} trained".format(*BUDGETS[budget])


def bare_name(model: str) -> str:
    """A model's name without its owner."""
    return MODELS[model].rpartition("/")[2]


def _namer(model: str, budget: str, columns: Mapping[str, str]) -> Callable[[str, str], str]:
    def name(method: str, column: str) -> str:
        return start_name(model) if method == "start" else run_name(model, columns[column], budget, method)

    return name


def main_cells() -> Iterator[Cell]:
    """Of table-main."""
    columns = {PRINTED[name]: name for name in MAIN_BENCHMARKS}
    for (budget, model), rows in _MAIN.items():
        name = _namer(model, budget, columns)
        block = Block("table-main", section_name(budget), bare_name(model), columns, rows, "ttrl", name, {}, "Avg")
        yield from block.cells()


LLAMA_METHODS = {
    "llama-3.2-1b-instruct": ("ttrl", "compass", "scrl"), "llama-3.1-8b-instruct": ("ttrl", "etmr", "restrain", "scrl")
}  # fmt: skip
LLAMA_BENCHMARKS = {"llama-3.2-1b-instruct": ("aime24", "math500"), "llama-3.1-8b-instruct": ("aime24", "amc")}
_LLAMA = {
    ("llama-3.2-1b-instruct", "COMPASS"): {
        "start": "  1.5  24.7  13.1",
        "ttrl": "   6.7  27.8  17.3",
        "compass": "3.5  28.7  16.1",
        "scrl": "   6.7  39.7  23.2",
        GAIN: "     +3.2 +11.0 +7.1",
    },
    ("llama-3.1-8b-instruct", "RESTRAIN"): {
        "start": "   4.6  23.3 14.0",
        "ttrl": "    10.0 32.3 21.2",
        "etmr": "    16.9 35.4 26.2",
        "restrain": "16.7 40.0 28.4",
        "scrl": "    21.9 36.1 29.0",
        GAIN: "      +5.2 -3.9 +0.6",
    },
}


def llama_cells() -> Iterator[Cell]:
    """Of table-llama."""
    for (model, source), rows in _LLAMA.items():
        columns = dict(zip(("AIME24", "MATH / AMC"), LLAMA_BENCHMARKS[model], strict=True))
        copied = {method: source for method in rows if method not in ("scrl", GAIN)}
        name = _namer(model, "64-32", columns)
        yield from Block(
            "table-llama", "Instruct models", bare_name(model), columns, rows, source.lower(), name, copied, "Average"
        ).cells()


LENGTHS = {"10,240": 10_240, "15,360": 15_360}
"""The most tokens of a completion in the table of large reasoning models."""
_REASONING = {"start": "38.9 51.9", "ttrl": "50.9 59.3", "scrl": "53.6 60.2", GAIN: "+2.7 +0.9"}


def reasoning_cells() -> Iterator[Cell]:
    """Of table-reasoning."""

    def name(method: str, column: str) -> str:
        length = str(LENGTHS[column])
        if method == "start":
            return start_name("qwen3-4b", length)
        return run_name("qwen3-4b", "aime25", "32-16", method, length)

    columns = dict.fromkeys(LENGTHS, "aime25")
    yield from Block(
        "table-reasoning", "Max generation length", "Qwen3-4B", columns, _REASONING, "ttrl", name, {}, None
    ).cells()


ABLATIONS = {
    "scrl-without-selective": "w/o Selective Labeling",
    "scrl-without-negative": "w/o Negative Labeling",
    "scrl-without-gate": "w/o Entropy Gate",
    "scrl-without-shaping": "w/o Dynamic Reward",
}
"""Method, and what the paper calls it."""
ABLATION_BENCHMARKS = ("aime25", "amc")
_ABLATION = {
    "scrl": ("8.4 41.5", ""),
    "scrl-without-selective": ("3.9 41.8", "-4.5 +0.3"),
    "scrl-without-negative": ("1.2 37.7", "-7.2 -3.8"),
    "scrl-without-gate": ("3.6 39.3", "-4.8 -2.2"),
    "scrl-without-shaping": ("5.1 39.8", "-3.3 -1.7"),
}
"""The accuracies, and the arrows beside them, which compare with the first row."""


def ablation_cells() -> Iterator[Cell]:
    """Of table-ablation."""
    table, section = "table-ablation", "Qwen2.5-3B"
    for method, (accuracies, arrows) in _ABLATION.items():
        row = ABLATIONS.get(method, "SCRL")
        for benchmark, number in zip(ABLATION_BENCHMARKS, accuracies.split(), strict=True):
            name = run_name("qwen2.5-3b", benchmark, "32-16", method)
            yield Cell(table, section, row, PRINTED[benchmark], "pass@1", float(number), name, benchmark)
        for benchmark, number in zip(ABLATION_BENCHMARKS, arrows.split(), strict=bool(arrows)):
            column = PRINTED[benchmark]
            gain = Derived("difference", tuple((section, name, column, "pass@1") for name in (row, "SCRL")))
            yield Cell(table, section, row, column, GAIN, float(number), None, benchmark, derived=gain)


_GENERALISATION = {
    "start": "23.2 67.5 50.0 86.4 21.4 50.0",
    "ttrl": " 27.3 54.2 58.5 84.8 23.4 48.9",
    "scrl": " 27.5 60.2 65.1 87.0 26.3 49.3",
}
"""pass@1 and pass@16 on AMC, MATH-500 and Minerva."""


def generalisation_cells() -> Iterator[Cell]:
    """Of table-generalisation."""
    places = [(benchmark, metric) for benchmark in ("amc", "math500", "minerva") for metric in ("pass@1", "pass@16")]
    for method, text in _GENERALISATION.items():
        is_start = method == "start"
        row = "Qwen2.5-3B" if is_start else f"Qwen2.5-3B + {METHODS[method]}"
        name = start_name("qwen2.5-3b") if is_start else run_name("qwen2.5-3b", "aime25", "32-16", method)
        for (benchmark, metric), number in zip(places, text.split(), strict=True):
            column = f"{PRINTED[benchmark]} {metric}"
            yield Cell("table-generalisation", "trained on AIME25", row, column, metric, float(number), name, benchmark)


THRESHOLD_TABLES = {
    "table-thresholds": (("min_share", "max_negative_share"), ("aime25", "amc", "math500")),
    "table-margin-entropy": (("min_margin", "entropy_weight"), ("aime25", "amc")),
}
"""What is varied, and the columns; all with Qwen2.5-Math-7B at 64/32."""
THRESHOLD_ROWS = {
    "table-thresholds": {
        (0.25, 0.0625): " 19.2 64.5 85.5",
        (0.25, 0.125): "  19.0 66.6 85.4",
        (0.375, 0.0625): "22.1 66.3 85.0",
        (0.375, 0.125): " 22.8 67.5 86.2",
    },
    "table-margin-entropy": {
        (0.125, 0.0): " 19.0 64.4",
        (0.125, 0.2): " 19.0 63.7",
        (0.125, 0.5): " 18.5 66.5",
        (0.0, 0.1): "   18.8 66.5",
        (0.0625, 0.1): "18.8 68.8",
        (0.25, 0.1): "  22.6 65.6",
        (0.125, 0.1): " 22.8 68.5",
    },
}


def threshold_cells(table: str) -> Iterator[Cell]:
    """Of a table that varies two thresholds."""
    varying, benchmarks = THRESHOLD_TABLES[table]
    for values, text in THRESHOLD_ROWS[table].items():
        settings = dict(zip(varying, values, strict=True))
        row = ", ".join(f"{SYMBOLS[name]} {value:g}" for name, value in settings.items())
        more = varied_name(varied(settings))
        for benchmark, number in zip(benchmarks, text.split(), strict=True):
            name = run_name("qwen2.5-math-7b", benchmark, "64-32", "scrl", *more)
            yield Cell(table, "Qwen2.5-Math-7B", row, PRINTED[benchmark], "pass@1", float(number), name, benchmark)


_ENTROPY = {
    ("Correct Trajectories", "entropy_correct"): "    0.208 0.225 0.245 0.258",
    ("Incorrect Trajectories", "entropy_incorrect"): "0.288 0.279 0.272 0.316",
    ("Overall Average", "entropy_mean"): "            0.286 0.266 0.259 0.303",
}


def entropy_cells() -> Iterator[Cell]:
    """Of table-entropy."""
    for (row, metric), text in _ENTROPY.items():
        for benchmark, number in zip(("aime24", "amc", "math500", "minerva"), text.split(), strict=True):
            column = PRINTED[benchmark]
            name = start_name("qwen2.5-3b")
            yield Cell("table-entropy", "Qwen2.5-3B", row, column, metric, float(number), name, benchmark)


_LABEL_CURVES = (
    ("positive labels", "ttrl", "positive_accuracy"),
    ("positive labels", "scrl", "positive_accuracy"),
    ("positive labels", "scrl", "positive_share"),
    ("negative labels", "scrl", "negative_accuracy"),
    ("negative labels", "scrl", "negative_answers"),
)
"""The curves the text speaks of."""


def label_cells() -> Iterator[Cell]:
    """Of figure-labels."""
    for panel, method, series in _LABEL_CURVES:
        name = run_name("qwen2.5-3b", "amc", "32-16", method)
        yield Cell("figure-labels", panel, METHODS[method], series, series, None, name, "amc")


def dynamics_cells(table: str, model: str) -> Iterator[Cell]:
    """Of a figure of accuracies throughout training."""
    for benchmark in ("aime25", "amc", "minerva"):
        for method in ("ttrl", "scrl"):
            name = run_name(model, benchmark, "32-16", method)
            yield Cell(table, PRINTED[benchmark], METHODS[method], "pass@1", "pass@1", None, name, benchmark)


def failure_cells() -> Iterator[Cell]:
    """Of failure-minerva."""
    for budget in BUDGETS:
        for method in ("ttrl", "scrl"):
            name = run_name("qwen2.5-3b", "minerva", budget, method)
            accuracy = float(_MAIN[budget, "qwen2.5-3b"][method].split()[MAIN_BENCHMARKS.index("minerva")])
            for metric, value in {"pass@1": accuracy, "distinct_answers": None, "abstention": None}.items():
                section, row = section_name(budget), METHODS[method]
                yield Cell("failure-minerva", section, row, metric, metric, value, name, "minerva")
