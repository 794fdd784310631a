"""What the recipes say the paper prints: complete, and consistent with the paper's own arithmetic."""

import pytest

from scrl.metrics import STEP_METRICS
from scrl.recipes.catalogue import EXPERIMENTS, config_of
from scrl.recipes.paper import GAIN, ILLUSTRATIONS, KNOWN_INCONSISTENCIES, PRINTED, SERIES, TABLES, Derived

ALL = [cell for table in TABLES.values() for cell in table.cells]


def with_derived(table, values):
    """Measured values, and the means and gains that follow from them."""
    filled = dict(values)
    for cell in table.cells:  # what a cell follows from stands before it
        value = cell.derived.value(filled) if cell.derived else None
        if value is not None:
            filled[cell.place] = value
    return filled


def test_a_row_is_measured_by_the_run_that_it_names():
    symbols = {"τ_pos": "min_share", "τ_neg": "max_negative_share", "τ_marg": "min_margin", "λ_H": "entropy_weight"}
    for cell in (cell for cell in ALL if cell.experiment):
        experiment = EXPERIMENTS[cell.experiment]
        assert experiment.trained_on in (None, cell.measured_on) or cell.table == "table-generalisation"
        if " + " in cell.row:
            assert cell.row.rpartition(" + ")[2].lower() == experiment.method
        if cell.table in ("table-thresholds", "table-margin-entropy"):
            settings = config_of(experiment).rule().settings
            for symbol, value in (part.split() for part in cell.row.split(", ")):
                assert getattr(settings, symbols[symbol]) == float(value)


def test_what_is_copied_or_a_peak_is_marked():
    starred = [(cell.experiment, cell.paper) for cell in ALL if cell.is_peak]
    assert starred == [("qwen2.5-math-7b/minerva/32-16/ttrl", 14.5), ("qwen2.5-math-7b/minerva/64-32/ttrl", 10.8)]
    assert {cell.table for cell in ALL if cell.copied_from} == {"table-llama"}
    for method in ("compass", "etmr", "restrain"):  # copied numbers have runs of our own beside them
        cells = [cell for cell in ALL if cell.row.endswith(f"+ {method.upper()}")]
        assert all(cell.copied_from for cell in cells)
        assert [cell.experiment and cell.experiment.endswith(f"/{method}") for cell in cells] == [True, True, None]


@pytest.mark.parametrize(("benchmark", "accuracy"), [("amc", 0.232), ("math500", 0.5), ("minerva", 0.214)])
def test_the_entropies_agree_with_the_accuracies_of_the_main_table(benchmark, accuracy):
    # overall = a · correct + (1 − a) · incorrect, each to ±0.0005: the accuracy a lies between these
    correct, incorrect, overall = (c.paper for c in TABLES["table-entropy"].cells if c.measured_on == benchmark)
    low = (incorrect - overall - 0.001) / (incorrect - correct + 0.001)
    high = (incorrect - overall + 0.001) / (incorrect - correct - 0.001)
    assert low < accuracy < high


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
    "failure-minerva": (4, 12, 0),  # 2 budgets · 2 methods; · pass@1, fragmentation, labels
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
    assert SERIES.keys() <= set(STEP_METRICS)
    followed = {t.name: set(t.series) for t in TABLES.values() if t.series}
    assert followed == {
        "figure-labels": {"positive_accuracy", "positive_share", "negative_accuracy", "negative_answers"},
        "figure-dynamics-3b": {"pass@1"},
        "figure-dynamics-7b": {"pass@1"},
        "failure-minerva": {"distinct_answers", "positive_share"},
    }
    for table in TABLES.values():
        others = {c.metric for c in table.cells if c.experiment} - set(table.series)
        assert all(m.startswith(("pass@", "entropy_")) for m in others)


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
    assert ("Instruct models, 8B", "Llama-3.1-8B-Instruct + SCRL", "Average", "pass@1") in filled
    assert not any(place[3] == GAIN for place in filled)  # COMPASS and RESTRAIN were not run
    place = ("", "", "a", "pass@1")
    assert Derived("mean", (place,)).value({place: 2.0}) == 2.0
    assert Derived("difference", (place, place)).value({}) is None
