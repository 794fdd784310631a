"""Results as tables for a paper, a README or a spreadsheet: Markdown, LaTeX, CSV.

Any table can be printed: `as_markdown(Sheet(("method", "pass@1"), (("scrl", Share(0.452)),)))`. Shares are fractions;
text shows them in % with one digit, CSV has them as they are, each bound in a column of its own.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scrl.evaluation.statistics import Difference, mean_over_seeds
from scrl.reporting.results import BY_QUESTION, RESAMPLING_SEED, Evaluation, Place, metrics_of
from scrl.reporting.run_folder import Protocol
from scrl.reporting.text import printable, signed

NOTHING = "–"
MARKS = {
    "start": "before the first step",
    "best": "the checkpoint chosen without gold",
    "peak": "the highest pass@1, chosen by the gold answers, so it flatters",
    "last": "after the last step",
    "chosen": "the step that was asked for",
    "only": "the only evaluation",
}
"""Which evaluation of a place a row is about."""


# Any table


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction, shown in %; with its interval, and with the lowest and the highest seed, where there are some."""

    value: float
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None


Cell = str | int | float | Share | Difference | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table before it is printed; None is shown as a dash."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    @property
    def columns(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells under each heading."""
        return tuple(tuple(row[place] for row in self.rows) for place in range(len(self.header)))


def as_markdown(sheet: Sheet) -> str:
    """A table that reads well as plain text too; the caption stands above it."""
    lines = [[_markdown(text) for text in line] for line in (sheet.header, *_texts(sheet))]
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(sheet.header))]
    sides = [_is_number_column(cells) for cells in sheet.columns]
    rule = ["-" * (width - 1) + ":" if right else "-" * width for width, right in zip(widths, sides, strict=True)]
    padded = [
        [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, sides, strict=True)
        ]
        for line in lines
    ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in (padded[0], rule, *padded[1:]))
    return f"{_markdown(sheet.caption)}\n\n{table}" if sheet.caption else table


def as_latex(sheet: Sheet) -> str:
    """A table environment in the style of booktabs (`\\usepackage{booktabs}`)."""
    sides = "".join("r" if _is_number_column(cells) else "l" for cells in sheet.columns)
    header, *rows = (_latex_row(line) for line in (sheet.header, *_texts(sheet)))
    caption = [f"\\caption{{{latex_escape(sheet.caption)}}}"] if sheet.caption else []
    lines = [
        "\\begin{table}[t]",
        "\\centering",
        *caption,
        f"\\begin{{tabular}}{{{sides}}}",
        "\\toprule",
        header,
        "\\midrule",
        *rows,
        "\\bottomrule",
        "\\end{tabular}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(sheet: Sheet) -> str:
    """Numbers in full; `pass@1` becomes `pass@1, pass@1_low, pass@1_high` where a cell has bounds. No caption."""
    parts = [_parts(cells) for cells in sheet.columns]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name + part for name, names in zip(sheet.header, parts, strict=True) for part in names])
    for row in sheet.rows:
        writer.writerow([_part(cell, part) for cell, names in zip(row, parts, strict=True) for part in names])
    return text.getvalue()


FORMATS: dict[str, Callable[[Sheet], str]] = {"markdown": as_markdown, "csv": as_csv, "latex": as_latex}


def cell_text(cell: Cell) -> str:
    """A cell as text shows it: shares in % and differences in percentage points, to one digit."""
    if cell is None:
        return NOTHING
    if isinstance(cell, Difference):
        mean, low, high = (signed(100 * value, 1) for value in (cell.mean, cell.low, cell.high))
        return f"{mean} [{low}, {high}]"
    if isinstance(cell, Share):
        interval = "" if cell.low is None or cell.high is None else f" [{100 * cell.low:.1f}, {100 * cell.high:.1f}]"
        spread = "" if cell.least is None or cell.most is None else f", {100 * cell.least:.1f} to {100 * cell.most:.1f}"
        return f"{100 * cell.value:.1f}{interval}{spread}"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _texts(sheet: Sheet) -> list[list[str]]:
    return [[cell_text(cell) for cell in row] for row in sheet.rows]


def _is_number_column(cells: Sequence[Cell]) -> bool:
    return not any(isinstance(cell, str) for cell in cells) and any(cell is not None for cell in cells)


def _one_line(text: str) -> str:
    return re.sub(r"[ \t\n]+", " ", str(printable(text))).strip()


_MARKUP = re.compile(r"[\\|`*]|<(?=[a-zA-Z/!?])|(?<!\w)_|_(?!\w)")


def _markdown(text: str) -> str:
    """Text that stays within its cell and is no markup."""
    return _MARKUP.sub(r"\\\g<0>", _one_line(text))


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "–": "--", "—": "---", "…": r"\dots{}", "−": "$-$"}
    | {"±": r"$\pm$", "→": r"$\rightarrow$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "Δ": r"$\Delta$"}
    | {"τ": r"$\tau$", "λ": r"$\lambda$", "\N{NO-BREAK SPACE}": "~", "\N{NARROW NO-BREAK SPACE}": r"\,"}
)


def latex_escape(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return _one_line(text).translate(_LATEX)


def _latex_row(texts: Iterable[str]) -> str:
    line = " & ".join(map(latex_escape, texts))
    return f"{'{}' if line.startswith(('[', '*')) else ''}{line} \\\\"  # the line before ends in \\, which reads on


def _parts(cells: Sequence[Cell]) -> list[str]:
    """The columns a column has in CSV: its value, and the bounds that some cell has."""
    bounds = ("low", "high", "least", "most")
    return ["", *(f"_{name}" for name in bounds if any(getattr(cell, name, None) is not None for cell in cells))]


def _part(cell: Cell, part: str) -> Cell:
    if part:
        bound: float | None = getattr(cell, part.removeprefix("_"), None)
        return bound
    return cell.value if isinstance(cell, Share) else cell.mean if isinstance(cell, Difference) else cell


# The table of results


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One evaluation of one place on one benchmark; of runs that differ in the seed alone, their mean."""

    places: tuple[str, ...]
    model: str
    method: str | None
    benchmark: str
    marks: tuple[str, ...]
    steps_S: tuple[int, ...]
    """After which step, of several seeds the step of each; none for an evaluation that is no run's."""
    scores: Mapping[str, Share]
    """pass@k and maj@k by name."""
    agreement: Share | None
    answered: Share | None
    truncated: Share | None
    questions: int
    """Those the scores are over; where every seed has questions of its own, all of them together."""
    samples: int | None
    temperature: float | None
    seeds_S: tuple[int, ...]


def result_rows(places: Sequence[Place]) -> tuple[ResultRow, ...]:
    """The rows of the table, place by place and benchmark by benchmark, each by step."""
    return tuple(row for group_S in joined_seeds(places) for row in _group_rows(group_S))


def joined_seeds(places: Iterable[Place]) -> list[tuple[Place, ...]]:
    """Runs whose settings differ in the seed alone are one group; a seed that comes twice keeps them apart."""
    groups: dict[object, list[Place]] = {}
    for number, place in enumerate(places):
        key = number if place.config is None else (_settings_but_seed(place.config), place.step)
        groups.setdefault(key, []).append(place)
    joined: list[tuple[Place, ...]] = []
    for group in groups.values():
        is_one_of_each = len({_seed(place) for place in group}) == len(group)
        joined += [tuple(group)] if is_one_of_each else [(place,) for place in group]
    return joined


def _settings_but_seed(config: Mapping[str, Any]) -> str:
    settings = {str(name): value for name, value in config.items() if name != "seed"}
    return json.dumps(settings, sort_keys=True, default=str)


def _seed(place: Place) -> int | None:
    return None if place.config is None else place.config.get("seed")


def _group_rows(group_S: Sequence[Place]) -> Iterator[ResultRow]:
    protocols = dict.fromkeys(Protocol.of(evaluation) for place in group_S for evaluation in place.evaluations)
    for protocol in protocols:
        series_S = [[line for line in place.evaluations if Protocol.of(line) == protocol] for place in group_S]
        marked_S = [marked_evaluations(*pair) for pair in zip(group_S, series_S, strict=True)]
        yield from _marked_rows(group_S, marked_S)


def _marked_rows(group_S: Sequence[Place], marked_S: Sequence[Mapping[str, Evaluation]]) -> Iterator[ResultRow]:
    """A row for each mark, over the seeds that have it; marks that fall on the same evaluations share one.

    `best` needs all seeds: those whose best step happened to be evaluated are no fair choice among them.
    """
    marks: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for mark in MARKS:
        steps = tuple((place, marked[mark]["step"]) for place, marked in enumerate(marked_S) if mark in marked)
        if steps and (mark != "best" or len(steps) == len(group_S)):
            marks.setdefault(steps, []).append(mark)
    for steps, found in sorted(marks.items(), key=lambda item: [step for _, step in item[0]]):
        members = [place for place, _ in steps]
        yield _row([group_S[place] for place in members], [marked_S[place][found[0]] for place in members], found)


def marked_evaluations(place: Place, series: Sequence[Evaluation]) -> dict[str, Evaluation]:
    """Of the evaluations made in one way, by step: which is the start, the best, the peak, the last."""
    if not series:
        return {}
    if place.step is not None:
        return _at_step("chosen", place.step, series)
    first, last = series[0], series[-1]
    if len(series) == 1:
        return {"start" if place.config is not None and first["step"] == 0 else "only": first}
    best = _at_step("best", place.best_step, series)
    graded = [evaluation for evaluation in series if "pass@1" in evaluation]
    peak = {"peak": max(graded, key=lambda evaluation: float(evaluation["pass@1"]))} if graded else {}
    return {"start": first, "last": last} | best | peak


def _at_step(mark: str, step: int | None, series: Sequence[Evaluation]) -> dict[str, Evaluation]:
    found = next((evaluation for evaluation in series if evaluation["step"] == step), None)
    return {} if found is None else {mark: found}


def _row(places_S: Sequence[Place], lines_S: Sequence[Evaluation], marks: Sequence[str]) -> ResultRow:
    config, first = places_S[0].config or {}, lines_S[0]
    asked = {name for line in lines_S for name in line.get("pass@1" + BY_QUESTION, ())}
    pairs_S = zip(places_S, lines_S, strict=True)
    seeds_S = [line.get("seed") if place.config is None else _seed(place) for place, line in pairs_S]
    metrics = [name for name in metrics_of(lines_S) if all(name in line for line in lines_S)]
    return ResultRow(
        places=tuple(place.name for place in places_S),
        model=str(first.get("model", NOTHING)),
        method=str(config["method"]) if "method" in config else None,
        benchmark=first["benchmark"],
        marks=tuple(marks) if places_S[0].has_steps else (),
        steps_S=tuple(line["step"] for line in lines_S) if places_S[0].has_steps else (),
        scores={name: _score(name, lines_S) for name in metrics},
        agreement=_mean("agreement", lines_S),
        answered=_mean("answered", lines_S),
        truncated=_mean("truncated", lines_S),
        questions=len(asked) or first.get("questions", 0),
        samples=first.get("samples"),
        temperature=first.get("temperature"),
        seeds_S=tuple(seed for seed in seeds_S if seed is not None),
    )


def _score(name: str, lines_S: Sequence[Evaluation]) -> Share:
    """A number with its interval: from the file, or over the questions of several seeds."""
    if len(lines_S) == 1:
        return Share(lines_S[0][name], lines_S[0].get(f"{name}_low"), lines_S[0].get(f"{name}_high"))
    if not all(name + BY_QUESTION in line for line in lines_S):
        values_S = [line[name] for line in lines_S]
        return Share(sum(values_S) / len(values_S), least=min(values_S), most=max(values_S))
    found = mean_over_seeds([line[name + BY_QUESTION] for line in lines_S], seed=RESAMPLING_SEED)
    return Share(found.mean, found.low, found.high, found.least, found.most)


def _mean(name: str, lines_S: Sequence[Evaluation]) -> Share | None:
    values_S = [line[name] for line in lines_S if name in line]
    return Share(sum(values_S) / len(values_S)) if values_S else None


def result_sheet(rows: Sequence[ResultRow]) -> Sheet:
    """The rows with everything that must stand beside a number: n, samples, temperature, seeds."""
    metrics = metrics_of(row.scores for row in rows)
    header = ("place", "model", "method", "benchmark", "evaluation", "step", *metrics)
    agreement = ("agreement",) if any(row.agreement for row in rows) else ()
    tail = ("answered", "truncated", "n", "samples", "temperature", "seeds")
    return Sheet(
        header + agreement + tail, tuple(_cells(row, metrics, bool(agreement)) for row in rows), _caption(rows)
    )


def _cells(row: ResultRow, metrics: Sequence[str], has_agreement: bool) -> tuple[Cell, ...]:
    return (
        ", ".join(row.places),
        row.model,
        row.method,
        row.benchmark,
        ", ".join(row.marks) or None,
        _listed(row.steps_S[:1] if len(set(row.steps_S)) == 1 else row.steps_S),
        *(row.scores.get(name) for name in metrics),
        *([row.agreement] if has_agreement else []),
        row.answered,
        row.truncated,
        row.questions,
        row.samples,
        row.temperature,
        _listed(row.seeds_S),
    )


def _listed(numbers: Sequence[int]) -> Cell:
    return None if not numbers else numbers[0] if len(numbers) == 1 else ", ".join(map(str, numbers))


def _caption(rows: Sequence[ResultRow]) -> str:
    used = {mark for row in rows for mark in row.marks}
    legend = "; ".join(f"{mark}: {words}" for mark, words in MARKS.items() if mark in used)
    seeds = " Of several seeds: their mean, its interval, and the lowest to the highest seed."
    has_seeds = any(len(row.steps_S) > 1 for row in rows)
    marks = f" Evaluations: {legend}." if legend else ""
    return f"In %, with the 95 % interval over questions in brackets.{seeds if has_seeds else ''}{marks}"
