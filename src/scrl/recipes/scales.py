"""The same experiments and tables at another size: `demo` runs each of them on a laptop, through the same code.

Method, thresholds, completions and those trained on stay; model, questions, lengths and steps become those of the demo.
Experiments that become the same get the same name, so they are run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from scrl.config import RunConfig, build_config
from scrl.data.prompts import PromptSettings
from scrl.policy.model_paths import EMBEDDED
from scrl.recipes import catalogue
from scrl.recipes.catalogue import EXPERIMENTS, Experiment, find
from scrl.recipes.demo import SEED, TOY_STEPS, demo_config
from scrl.recipes.paper import LENGTHS, MODELS, PRINTED, Cell, PaperTable, Place

Scale = Literal["paper", "demo"]
LEVELS = {
    "aime24": "hard", "aime25": "hard", "amc": "medium", "gpqa": "medium", "math500": "easy", "minerva": "easy"
}  # fmt: skip
"""The level of generated arithmetic that represents a benchmark."""
SHORT = {LENGTHS["10,240"]: 48}
"""If an experiment varies the length, the shorter one becomes this; all else is as long as in the demo."""
_DEMO = demo_config("scrl", seed=SEED, steps=TOY_STEPS, model=EMBEDDED)


def at_scale(experiment: Experiment, scale: Scale) -> Experiment:
    """What represents an experiment at a scale."""
    if scale == "paper":
        return experiment
    max_tokens = length_at(experiment.max_tokens, scale)
    varied = ",".join(f"{name}={value:g}" for name, value in experiment.credit)
    length = "" if max_tokens == _DEMO.sampling.max_tokens else str(max_tokens)
    what = "start"
    if experiment.trained_on is not None:
        budget = f"{experiment.completions}-{experiment.trained}"
        what = f"{LEVELS[experiment.trained_on]}/{budget}/{experiment.method}"
    return replace(
        experiment,
        name="/".join(filter(None, ("embedded", what, varied, length))),
        model=_DEMO.model,
        trained_on=experiment.trained_on and benchmark_at(experiment.trained_on, scale),
        max_tokens=max_tokens,
        temperature=_DEMO.sampling.temperature,
        not_in_paper=(),
    )


def benchmark_at(benchmark: str, scale: Scale) -> str:
    """The questions that represent a benchmark: those a run is trained on, as in the paper."""
    return benchmark if scale == "paper" else f"arithmetic:{LEVELS[benchmark]}:train:64"


def length_at(max_tokens: int, scale: Scale) -> int:
    """The most tokens of a completion, in place of the paper's."""
    return max_tokens if scale == "paper" else SHORT.get(max_tokens, _DEMO.sampling.max_tokens)


def config_at(experiment: Experiment, scale: Scale, *, seed: int | None = None, steps: int | None = None) -> RunConfig:
    """The settings of a run at a scale; seed and steps are the scale's where none are given."""
    seed = default_seed(scale) if seed is None else seed
    if scale == "paper":
        config = catalogue.config_of(experiment, seed=seed)
        return config if steps is None else build_config(config.model_dump(mode="json") | {"steps": steps})
    catalogue.trained_benchmark(experiment)  # refuses a start model
    scaled = at_scale(experiment, scale)
    followed = {at_scale(EXPERIMENTS[name], scale).name for name in catalogue.FOLLOWED}
    changes = {
        "questions": scaled.trained_on,
        "credit": dict(scaled.credit),
        "completions": scaled.completions,
        "trained": scaled.trained,
        "sampling": {"max_tokens": scaled.max_tokens},
        "evaluation": {"held_out": None} | catalogue.evaluation_of(scaled.name in followed),
    }
    steps = TOY_STEPS if steps is None else steps
    return demo_config(str(scaled.method), seed=seed, steps=steps, model=EMBEDDED, more=changes)


def prompt_at(experiment: Experiment, scale: Scale) -> PromptSettings:
    return PromptSettings.model_validate(catalogue.prompt_of(experiment)) if scale == "paper" else _DEMO.prompt


def default_seed(scale: Scale) -> int:
    return 0 if scale == "paper" else SEED


def mapping(scale: Scale) -> Iterator[str]:
    """What represents what, line by line."""
    if scale == "paper":
        yield "models, questions and lengths are the paper's own"
        return
    yield f"every model → the {_DEMO.model} model"
    for level in dict.fromkeys(LEVELS.values()):
        names = [name for name, own in LEVELS.items() if own == level]
        printed = ", ".join(PRINTED[name] for name in names)
        yield f"{printed} → {benchmark_at(names[0], scale)}, trained and measured on"
    lengths = (f"{printed} tokens → {length_at(length, scale)}" for printed, length in LENGTHS.items())
    yield (
        f"at most {', '.join(lengths)}, all others → {_DEMO.sampling.max_tokens}; temperature "
        f"{_DEMO.sampling.temperature:g}, learning rate {_DEMO.optimizer.learning_rate:g}, std_floor "
        f"{_DEMO.credit['std_floor']:g}"
    )
    scaled = {at_scale(experiment, scale).name for experiment in EXPERIMENTS.values()}
    yield f"method, thresholds, N and M stay; {len(EXPERIMENTS)} experiments become {len(scaled)}"


def table_at(table: PaperTable, scale: Scale) -> PaperTable:
    """The table of what represents its models, benchmarks and experiments; cells that become the same are one."""
    if scale == "paper":
        return table
    renamed = {cell.place: _renamed(cell, scale) for cell in table.cells}
    cells: dict[Place, Cell] = {}
    for cell in table.cells:
        of = dict.fromkeys(renamed[place].place for place in cell.derived.of) if cell.derived else ()
        derived = replace(cell.derived, of=tuple(of)) if cell.derived else None
        cells.setdefault(renamed[cell.place].place, replace(renamed[cell.place], derived=derived))
    return replace(table, cells=tuple(cells.values()))


def _renamed(cell: Cell, scale: Scale) -> Cell:
    section, row, column = cell.section, cell.row, cell.column
    for name, model in MODELS.items():
        bare = model.rpartition("/")[2]
        section, row = (text.replace(bare, "embedded").replace(f"{name}/", "embedded/") for text in (section, row))
    for name, printed in PRINTED.items():
        section = section.replace(printed, LEVELS[name])
    if level := LEVELS.get(cell.measured_on):
        row = row.replace(f"/{cell.measured_on}/", f"/{level}/")  # an experiment's name
        headings = ("MATH / AMC", PRINTED[cell.measured_on], cell.measured_on)
        heading = next((heading for heading in headings if heading in column), "")
        column = column.replace(heading, level) if heading else column
    if column in LENGTHS:
        column = f"{length_at(LENGTHS[column], scale)} tokens"
    experiment = cell.experiment and at_scale(find(cell.experiment), scale).name
    measured_on = cell.measured_on and benchmark_at(cell.measured_on, scale)
    cell = replace(cell, section=section, row=row, column=column)
    return replace(cell, paper=None, experiment=experiment, measured_on=measured_on)
