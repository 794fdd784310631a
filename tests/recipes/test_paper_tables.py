"""What the recipes say the paper prints, held against numbers typed from the paper a second time, column by column."""

from itertools import groupby

import pytest

from scrl.metrics import STEP_METRICS
from scrl.recipes.paper import GAIN, ILLUSTRATIONS, KNOWN_INCONSISTENCIES, PRINTED, SERIES, TABLES, Derived

# benchmark model budget start ttrl scrl
MAIN = """
aime25  qwen2.5-3b      32-16   1.9  2.6  8.4
aime25  qwen2.5-math-7b 32-16   4.6 16.8 26.9
aime25  qwen2.5-3b      64-32   1.9  3.9  7.7
aime25  qwen2.5-math-7b 64-32   4.6 19.0 22.8
amc     qwen2.5-3b      32-16  23.2 39.4 41.5
amc     qwen2.5-math-7b 32-16  34.0 65.7 66.9
amc     qwen2.5-3b      64-32  23.2 39.5 41.3
amc     qwen2.5-math-7b 64-32  34.0 68.1 68.5
math500 qwen2.5-3b      32-16  50.0 66.9 68.2
math500 qwen2.5-math-7b 32-16  46.5 85.7 85.6
math500 qwen2.5-3b      64-32  50.0 72.8 73.4
math500 qwen2.5-math-7b 64-32  46.5 83.4 86.2
minerva qwen2.5-3b      32-16  21.4 31.6 29.5
minerva qwen2.5-math-7b 32-16  10.1 14.5 41.6
minerva qwen2.5-3b      64-32  21.4 33.5 29.5
minerva qwen2.5-math-7b 64-32  10.1 10.8 43.1
gpqa    qwen2.5-3b      32-16  21.6 25.0 25.7
gpqa    qwen2.5-math-7b 32-16  23.0 25.5 25.4
gpqa    qwen2.5-3b      64-32  21.6 23.5 24.5
gpqa    qwen2.5-math-7b 64-32  23.0 25.5 26.0
"""
# Avg of the four blocks, then Δ of the six columns
MAIN_AVERAGES = [23.6, 33.1, 34.7, 23.6, 41.6, 49.3, 23.6, 34.6, 35.3, 23.6, 41.4, 49.3]
MAIN_GAINS = [
    5.8, 2.1, 1.3, -2.1, 0.7, 1.6,
    10.1, 1.2, -0.1, 27.1, -0.1, 7.7,
    3.8, 1.8, 0.6, -4.0, 1.0, 0.7,
    3.8, 0.4, 2.8, 32.3, 0.5, 7.9,
]  # fmt: skip
# row, then AIME24, MATH-500 (1B) or AMC (8B), and the mean; where it was copied from
LLAMA = {
    "Llama-3.2-1B-Instruct": (1.5, 24.7, 13.1, "COMPASS"),
    "Llama-3.2-1B-Instruct + TTRL": (6.7, 27.8, 17.3, "COMPASS"),
    "Llama-3.2-1B-Instruct + COMPASS": (3.5, 28.7, 16.1, "COMPASS"),
    "Llama-3.2-1B-Instruct + SCRL": (6.7, 39.7, 23.2, None),
    "Llama-3.2-1B-Instruct Δ": (3.2, 11.0, 7.1, None),
    "Llama-3.1-8B-Instruct": (4.6, 23.3, 14.0, "RESTRAIN"),
    "Llama-3.1-8B-Instruct + TTRL": (10.0, 32.3, 21.2, "RESTRAIN"),
    "Llama-3.1-8B-Instruct + ETMR": (16.9, 35.4, 26.2, "RESTRAIN"),
    "Llama-3.1-8B-Instruct + RESTRAIN": (16.7, 40.0, 28.4, "RESTRAIN"),
    "Llama-3.1-8B-Instruct + SCRL": (21.9, 36.1, 29.0, None),
    "Llama-3.1-8B-Instruct Δ": (5.2, -3.9, 0.6, None),
}
# method, AIME25, its arrow, AMC, its arrow
ABLATION = [
    ("scrl", 8.4, None, 41.5, None), ("scrl-without-selective", 3.9, -4.5, 41.8, 0.3),
    ("scrl-without-negative", 1.2, -7.2, 37.7, -3.8), ("scrl-without-gate", 3.6, -4.8, 39.3, -2.2),
    ("scrl-without-shaping", 5.1, -3.3, 39.8, -1.7),
]  # fmt: skip
# start, ttrl, scrl
GENERALISATION = {
    ("amc", "pass@1"): (23.2, 27.3, 27.5), ("amc", "pass@16"): (67.5, 54.2, 60.2),
    ("math500", "pass@1"): (50.0, 58.5, 65.1), ("math500", "pass@16"): (86.4, 84.8, 87.0),
    ("minerva", "pass@1"): (21.4, 23.4, 26.3), ("minerva", "pass@16"): (50.0, 48.9, 49.3),
}  # fmt: skip
# τ_pos, τ_neg, AIME25, AMC, MATH
THRESHOLDS = [
    (0.25, 0.0625, 19.2, 64.5, 85.5), (0.25, 0.125, 19.0, 66.6, 85.4), (0.375, 0.0625, 22.1, 66.3, 85.0),
    (0.375, 0.125, 22.8, 67.5, 86.2),
]  # fmt: skip
# τ_marg, λ_H, AIME25, AMC
MARGIN = [
    (0.125, 0, 19.0, 64.4), (0.125, 0.2, 19.0, 63.7), (0.125, 0.5, 18.5, 66.5), (0, 0.1, 18.8, 66.5),
    (0.0625, 0.1, 18.8, 68.8), (0.25, 0.1, 22.6, 65.6), (0.125, 0.1, 22.8, 68.5),
]  # fmt: skip
# correct, incorrect, overall
ENTROPY = {
    "aime24": (0.208, 0.288, 0.286), "amc": (0.225, 0.279, 0.266), "math500": (0.245, 0.272, 0.259),
    "minerva": (0.258, 0.316, 0.303),
}  # fmt: skip
# start, ttrl, scrl, Δ
REASONING = {"10240": (38.9, 50.9, 53.6, 2.7), "15360": (51.9, 59.3, 60.2, 0.9)}

ALL = [cell for table in TABLES.values() for cell in table.cells]


def with_derived(table, values):
    """Measured values, and the means and gains that follow from them."""
    filled = dict(values)
    for cell in table.cells:  # what a cell follows from stands before it
        value = cell.derived.value(filled) if cell.derived else None
        if value is not None:
            filled[cell.place] = value
    return filled


def by_experiment(table):
    """(experiment, benchmark, metric) → value."""
    return {(c.experiment, c.measured_on, c.metric): c.paper for c in TABLES[table].cells if c.experiment}


def test_the_main_table():
    found = by_experiment("table-main")
    typed = {}
    for line in MAIN.split("\n")[1:-1]:
        benchmark, model, budget, *values = line.split()
        names = (f"{model}/start", *(f"{model}/{benchmark}/{budget}/{method}" for method in ("ttrl", "scrl")))
        typed |= {(n, benchmark, "pass@1"): float(v) for n, v in zip(names, values, strict=True)}
    assert found == typed
    cells = TABLES["table-main"].cells
    assert [c.paper for c in cells if c.column == "Avg" and c.metric != GAIN] == MAIN_AVERAGES
    assert [c.paper for c in cells if c.metric == GAIN] == MAIN_GAINS
    starred = [(c.experiment, c.paper) for c in ALL if c.is_peak]
    assert starred == [("qwen2.5-math-7b/minerva/32-16/ttrl", 14.5), ("qwen2.5-math-7b/minerva/64-32/ttrl", 10.8)]


def test_the_llama_table_and_what_in_it_is_copied():
    table = TABLES["table-llama"]
    rows = {row: list(cells) for row, cells in groupby(table.cells, key=lambda c: c.row)}
    assert {r: (*(c.paper for c in cells), cells[0].copied_from) for r, cells in rows.items()} == LLAMA
    assert all({c.copied_from for c in cells} == {LLAMA[row][3]} for row, cells in rows.items())
    assert [c.measured_on for c in table.cells if c.column == "MATH / AMC"] == ["math500"] * 5 + ["amc"] * 6
    small = ("llama-3.2-1b-instruct", "math500", ("ttrl", "compass", "scrl"))
    large = ("llama-3.1-8b-instruct", "amc", ("ttrl", "etmr", "restrain", "scrl"))
    assert by_experiment("table-llama").keys() == {
        (name, benchmark, "pass@1")
        for model, other, methods in (small, large) for benchmark in ("aime24", other)
        for name in (f"{model}/start", *(f"{model}/{benchmark}/64-32/{method}" for method in methods))
    }  # fmt: skip
    # copied numbers have runs of our own beside them
    for method in ("compass", "etmr", "restrain"):
        cells = [c for c in ALL if c.row.endswith(f"+ {method.upper()}")]
        assert len(cells) == 3
        assert all(c.copied_from for c in cells)
        assert [c.experiment and c.experiment.endswith(f"/{method}") for c in cells] == [True, True, None]  # the mean
    assert {c.table for c in ALL if c.copied_from} == {"table-llama"}


def test_the_ablation_table():
    typed, arrows = {}, []
    for method, aime, aime_arrow, amc, amc_arrow in ABLATION:
        typed[f"qwen2.5-3b/aime25/32-16/{method}", "aime25", "pass@1"] = aime
        typed[f"qwen2.5-3b/amc/32-16/{method}", "amc", "pass@1"] = amc
        arrows += [arrow for arrow in (aime_arrow, amc_arrow) if arrow is not None]
    assert by_experiment("table-ablation") == typed
    assert [c.paper for c in TABLES["table-ablation"].cells if c.metric == GAIN] == arrows


def test_the_generalisation_table():
    names = ("qwen2.5-3b/start", "qwen2.5-3b/aime25/32-16/ttrl", "qwen2.5-3b/aime25/32-16/scrl")
    assert by_experiment("table-generalisation") == {
        (name, *place): value
        for place, values in GENERALISATION.items() for name, value in zip(names, values, strict=True)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "rows", "names", "usual"),
    [
        ("table-thresholds", THRESHOLDS, ("min_share", "max_negative_share"), (0.375, 0.125)),
        ("table-margin-entropy", MARGIN, ("min_margin", "entropy_weight"), (0.125, 0.1)),
    ],
)
def test_the_threshold_tables(table, rows, names, usual):
    typed = {}
    for first, second, *values in rows:
        varied = [f"{n}={v}" for n, v, u in zip(names, (first, second), usual, strict=True) if v != u]
        for benchmark, value in zip(("aime25", "amc", "math500"), values, strict=False):
            name = "/".join(["qwen2.5-math-7b", benchmark, "64-32", "scrl", *([",".join(varied)] if varied else [])])
            typed[name, benchmark, "pass@1"] = value
    assert by_experiment(table) == typed


def test_the_entropy_table_is_about_the_start_model_as_training_samples():
    metrics = ("entropy_correct", "entropy_incorrect", "entropy_mean")
    assert by_experiment("table-entropy") == {
        ("qwen2.5-3b/start", benchmark, metric): value
        for benchmark, values in ENTROPY.items()
        for metric, value in zip(metrics, values, strict=True)
    }
    assert TABLES["table-entropy"].measured_with == "rollouts"


@pytest.mark.parametrize(("benchmark", "accuracy"), [("amc", 0.232), ("math500", 0.5), ("minerva", 0.214)])
def test_the_entropies_agree_with_the_accuracies_of_the_main_table(benchmark, accuracy):
    # overall = a · correct + (1 − a) · incorrect, each to ±0.0005: the accuracy a lies between these
    correct, incorrect, overall = ENTROPY[benchmark]
    low = (incorrect - overall - 0.001) / (incorrect - correct + 0.001)
    high = (incorrect - overall + 0.001) / (incorrect - correct - 0.001)
    assert low < accuracy < high


def test_the_table_of_large_reasoning_models():
    typed = {}
    for length, (start, ttrl, scrl, _) in REASONING.items():
        typed[f"qwen3-4b/start/{length}", "aime25", "pass@1"] = start
        typed[f"qwen3-4b/aime25/32-16/ttrl/{length}", "aime25", "pass@1"] = ttrl
        typed[f"qwen3-4b/aime25/32-16/scrl/{length}", "aime25", "pass@1"] = scrl
    assert by_experiment("table-reasoning") == typed
    gains = [c.paper for c in TABLES["table-reasoning"].cells if c.metric == GAIN]
    assert gains == [values[3] for values in REASONING.values()]


# (rows, cells, of these derived), with the arithmetic of the printed tables
COUNTS = {
    "table-main": (16, 96, 36),  # 2 budgets · 2 models · 4 rows; · 6 columns; 12 Avg and 4 · 6 gains
    "table-llama": (11, 33, 15),  # 5 + 6 rows; · 3 columns; 4 + 5 means and 2 · 3 gains
    "table-ablation": (5, 18, 8),  # 5 rows · 2 columns, and 4 · 2 arrows
    "table-generalisation": (3, 18, 0),  # 3 rows · 3 benchmarks · 2 metrics
    "table-thresholds": (4, 12, 0),  # 4 · 3
    "table-margin-entropy": (7, 14, 0),  # 7 · 2
    "table-entropy": (3, 12, 0),  # 3 · 4
    "table-reasoning": (4, 8, 2),  # 4 · 2, of which a row of gains
    "figure-labels": (3, 5, 0),  # two panels: accuracy of both and share; accuracy and number
    "figure-dynamics-3b": (6, 6, 0),  # three panels · 2 methods
    "figure-dynamics-7b": (6, 6, 0),
    "failure-minerva": (4, 12, 0),  # 2 budgets · 2 methods; · pass@1, fragmentation, abstention
}


def test_every_row_and_number_is_there():
    found = {t.name: (len(t.rows), len(t.cells), sum(c.derived is not None for c in t.cells)) for t in TABLES.values()}
    assert found == COUNTS
    in_tables = [cell for cell in ALL if cell.table.startswith("table-")]
    assert len(in_tables) == 211  # 96 + 33 + 18 + 18 + 12 + 14 + 12 + 8
    assert sum(rows for name, (rows, _, _) in COUNTS.items() if name.startswith("table-")) == 53
    assert all(cell.paper is not None for cell in in_tables)
    assert all(cell.paper is None for cell in ALL if cell.table.startswith("figure-"))
    for name, table in TABLES.items():
        assert len({cell.place for cell in table.cells}) == len(table.cells)
        assert {cell.table for cell in table.cells} == {name} == {table.name}
        assert {cell.measured_on for cell in table.cells} <= {*PRINTED, ""}


def test_every_table_and_figure_of_the_paper_is_accounted_for():
    # tab:parameter holds settings: see test_catalogue
    tables = "main_results main_results2 ablation general_results hyperment hyperment2 entropy lrm".split()
    figures = "label_accuracy qwen25-3b-train-dynamic qwen25math-train-dynamic intro overview".split()
    labels = {table.label for table in TABLES.values()} | set(ILLUSTRATIONS)
    assert labels == {f"tab:{t}" for t in tables} | {f"fig:{f}" for f in figures} | {"Failure Analysis"}


def test_figures_follow_metrics_that_a_run_writes():
    assert all(series.key in STEP_METRICS for series in SERIES.values())
    followed = {t.name: {s.name for s in t.series} for t in TABLES.values() if t.series}
    assert followed == {
        "figure-labels": {"positive_accuracy", "positive_share", "negative_accuracy", "negative_answers"},
        "figure-dynamics-3b": {"pass@1"},
        "figure-dynamics-7b": {"pass@1"},
        "failure-minerva": {"distinct_answers", "abstention"},
    }
    for table in TABLES.values():
        others = {c.metric for c in table.cells if c.experiment} - {s.name for s in table.series}
        assert all(m.startswith(("pass@", "entropy_")) for m in others)
    assert SERIES["abstention"].value({"positive_share": 0.75}) == 0.25
    assert SERIES["positive_accuracy"].value({"positive_share": 0.75}) is None  # undefined is absent


# The paper's own arithmetic


def test_printed_means_and_gains_follow_from_the_printed_cells_but_for_the_known_ones():
    odd = {}
    for table in TABLES.values():
        measured = {cell.place: cell.paper for cell in table.cells if cell.derived is None}
        implied = with_derived(table, measured)
        for cell in table.cells:
            if cell.derived is not None and abs(cell.paper - implied[cell.place]) > 0.05 + 1e-9:
                odd[table.name, cell.place] = (cell.paper, round(implied[cell.place], 2))
    known = {(k.table, k.place): (k.printed, k.implied) for k in KNOWN_INCONSISTENCIES if k.place[3] == GAIN}
    assert odd == known
    assert len(known) == 3


def test_gains_of_means_are_differences_of_rounded_means():
    # 49.3 − 41.6 = 7.7, 35.3 − 34.6 = 0.7, 49.3 − 41.4 = 7.9: each follows from the printed averages
    printed = {cell.place: cell.paper for cell in TABLES["table-main"].cells}
    for cell in TABLES["table-main"].cells:
        if cell.derived and cell.metric == GAIN:
            assert cell.derived.value(printed) == pytest.approx(cell.paper)


def test_one_run_has_one_value_but_for_the_known_one():
    values = {}
    for cell in ALL:
        if cell.experiment is not None and cell.paper is not None:
            values.setdefault((cell.experiment, cell.measured_on, cell.metric), {})[cell.table] = cell.paper
    odd = {run: tables for run, tables in values.items() if len(set(tables.values())) > 1}
    printed = {"table-main": 68.5, "table-thresholds": 67.5, "table-margin-entropy": 68.5}
    assert odd == {("qwen2.5-math-7b/amc/64-32/scrl", "amc", "pass@1"): printed}
    failures = [cell.paper for cell in TABLES["failure-minerva"].cells if cell.metric == "pass@1"]
    assert failures == [31.6, 29.5, 33.5, 29.5]  # table-main's
    (known,) = (k for k in KNOWN_INCONSISTENCIES if k.place[3] != GAIN)
    assert (known.table, known.printed, known.implied) == ("table-thresholds", 67.5, 68.5)
    assert known.place in {cell.place for cell in TABLES[known.table].cells}


def test_what_lacks_a_part_is_not_derived():
    table = TABLES["table-llama"]
    ours = {cell.place: cell.paper for cell in table.cells if (cell.experiment or "").endswith(("start", "scrl"))}
    filled = with_derived(table, ours)
    assert ("Instruct models", "Llama-3.1-8B-Instruct + SCRL", "Average", "pass@1") in filled
    assert not any(place[3] == GAIN for place in filled)  # COMPASS and RESTRAIN were not run
    place = ("", "", "a", "pass@1")
    assert Derived("mean", (place,)).value({place: 2.0}) == 2.0
    assert Derived("difference", (place, place)).value({}) is None
