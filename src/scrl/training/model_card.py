"""README.md beside weights, from model_card.md: what the model is, how it was made and used, and what to beware of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scrl.config import RunConfig
from scrl.data.prompts import plain_template, prompt_messages, template_switches
from scrl.files.run_state import Standing
from scrl.records import Question
from scrl.reporting.text import counted, sentence, templates

QUESTION = "Compute 12+30."
"""The question in a card's example; the embedded model knows its words, too."""
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def model_card(config: RunConfig, standing: Standing) -> str:
    """The card of a checkpoint that a run makes at its current state."""
    head = {"library_name": "peft" if config.lora else "transformers", "base_model": config.model}
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return _card(config, head, standing.step, standing.guard_stop, export=None, settings=settings)


@dataclass(frozen=True, slots=True)
class Export:
    config: RunConfig
    checkpoint: str
    step: int | None
    """The step after which it was made; None if nothing says so."""
    dtype: str
    base: str | None
    """The model that an adapter was trained on; None for a run that trained all weights."""
    is_merged: bool
    version: str | None
    guard_stop: str | None = None

    @property
    def adapter_of(self) -> str | None:
        """The model that these weights cannot be used without."""
        return None if self.is_merged else self.base


def export_card(export: Export, tokenizer: Any, evaluations: Sequence[Mapping[str, Any]]) -> str:
    """The card of an exported model, with lines of code that ask it as in training."""
    config = export.config
    head = {"library_name": "transformers" if export.adapter_of is None else "peft"}
    head |= {"base_model": config.model} if _is_on_hub(config.model) else {}
    rank = config.lora.rank if config.lora is not None and export.adapter_of is not None else 0
    *before, last = prompt_messages(Question("card", QUESTION), tokenizer, config.prompt)
    rest = last["content"].removeprefix(QUESTION)
    return _card(
        config, head, export.step, export.guard_stop,
        export=export,
        question=QUESTION,
        is_chat=plain_template(tokenizer, config.prompt) is None,
        before=before,
        content=f"question + {rest!r}" if rest else "question",
        switches=template_switches(tokenizer, config.prompt),
        sampling=config.evaluation_sampling,
        vllm_rank=next((each for each in VLLM_RANKS if each >= rank), rank) if rank else None,
        changes=_changes(export, evaluations),
    )  # fmt: skip


def _card(config: RunConfig, head: dict[str, Any], step: int | None, guard_stop: str | None, **more: Any) -> str:
    rule = config.rule()
    uses_gold = "truth" in rule.needs
    tags = ["test-time-reinforcement-learning", *([] if uses_gold else ["label-free"]), "scrl"]
    return templates("training").get_template("model_card.md").render(
        head=yaml.safe_dump({**head, "tags": tags}, sort_keys=False),
        name=config.model if _is_on_hub(config.model) else Path(config.model).expanduser().resolve().name,
        **more, config=config, step=step, guard_stop=guard_stop, method=rule.method, uses_gold=uses_gold,
        counted=counted, sentence=sentence,
    )  # fmt: skip


def _is_on_hub(model: str) -> bool:
    return model.count("/") == 1 and not model.startswith((".", "/", "~")) and not Path(model).is_dir()


def _changes(export: Export, evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Of each set of questions: the start model's numbers, and those at the exported step, or else the last."""
    from scrl.reporting.evaluations import by_protocol, in_words, metrics_of
    from scrl.reporting.result_rows import score
    from scrl.reporting.tables import Table, as_markdown

    found: list[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = []
    for protocol, series in by_protocol(evaluations).items():
        before, after = series[0], next((line for line in series if line["step"] == export.step), series[-1])
        if before["step"] == 0 < after["step"]:
            names = (name for name in (*metrics_of([before]), "agreement", "answered") if name in before.keys() & after)
            found += [(in_words(protocol.benchmark), name, before, after) for name in names]
    if not found:
        return "The run was not measured before and after. `scrl evaluate` does it.\n"
    steps = sorted({int(after["step"]) for *_, after in found})
    missing = "" if export.step is None or export.step in steps else f" Step {export.step} itself was not measured."
    rounded = "" if export.dtype == "float32" else f", before weights were rounded to {export.dtype}"
    caption = f"In %, with the 95 % interval over questions in brackets, measured by the run{rounded}. "
    caption += f"Agreement is no proof of being right.{missing}"
    header = ("questions", "number", "start model", *(f"step {step}" for step in steps))
    rows = []
    for where, name, before, after in found:
        ends = (score(name, [after]) if after["step"] == at else None for at in steps)
        rows.append((where, name, score(name, [before]), *ends))
    return as_markdown(Table(header, tuple(rows), caption))
