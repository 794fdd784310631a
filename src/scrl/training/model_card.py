"""README.md beside weights: what the model is, how it was made, how to use it, and what to beware of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scrl.config import RunConfig
from scrl.data.prompts import plain_template, prompt_messages, template_switches
from scrl.files.run_state import Standing
from scrl.metrics import SETS
from scrl.records import Question
from scrl.reporting.evaluations import Evaluation, by_protocol, metrics_of
from scrl.reporting.result_rows import score
from scrl.reporting.tables import Table, as_markdown
from scrl.reporting.text import counted, sentence

QUESTION = "Compute 12*7-5."
"""The question in a card's example; the embedded model knows its words, too."""
SETTINGS = "training.yaml"
"""The settings of the run, beside an exported model."""
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM supports."""


def model_card(config: RunConfig, standing: Standing) -> str:
    """The card of a checkpoint that a run makes at its current state."""
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    names = {"library_name": "peft" if config.lora else "transformers", "base_model": config.model}
    return f"""{_opening(config, names, f"{counted(standing.step, 'step')} of ", standing.guard_stop)}
The model may have become more certain without having become more
right; measure it on questions with known answers before you rely on it.

```yaml
{settings}```
"""


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported from a run."""

    config: RunConfig
    checkpoint: str
    """The name of the checkpoint's folder."""
    step: int | None
    """The step after which it was made; None if nothing says so."""
    dtype: str
    base: str | None
    """The model that an adapter was trained on; None for a run that trained all weights."""
    is_merged: bool
    version: str | None
    """The version of scrl that trained it."""
    guard_stop: str | None = None
    """That the guard stopped the run, and why."""

    @property
    def adapter_of(self) -> str | None:
        """The model that these weights cannot be used without."""
        return None if self.is_merged else self.base


def export_card(export: Export, tokenizer: Any, evaluations: Sequence[Evaluation]) -> str:
    """The card of an exported model."""
    config = export.config
    steps = "" if export.step is None else f"{counted(export.step, 'step')} of "
    version = f" {export.version}" if export.version else ""
    head = {"library_name": "transformers" if export.adapter_of is None else "peft"}
    head |= {"base_model": config.model} if _is_on_hub(config.model) else {}
    return f"""{_opening(config, head, steps, export.guard_stop, version)}
A step took {counted(config.questions_per_step, "question")} with {config.completions} completions each. All settings:
[{SETTINGS}]({SETTINGS}).

{_what_it_is(export)}

## Use

```python
{_transformers_lines(export, tokenizer)}```

With vLLM, in place of the lines from `tokens` on:

```python
{_vllm_line(export, tokenizer)}```

The prompt is that of the training. Put another question in place of `question`.

## What changed

{_changes(export, evaluations)}
## Limits

The model may have become more certain without having become more right. It was adapted to these questions and
may do worse on others. Measure it on questions with known answers before you rely on it.
"""


def _opening(config: RunConfig, names: dict[str, str], steps: str, guard_stop: str | None, version: str = "") -> str:
    """The head, the title, a warning if the guard stopped the run, on what questions and by what method."""
    rule = config.rule()
    uses_gold = "truth" in rule.needs
    tags = ["test-time-reinforcement-learning", *([] if uses_gold else ["label-free"]), "scrl"]
    warning = f"**{sentence(guard_stop)}**\n\n" if guard_stop else ""
    source = "rewards came from their gold answers: a control" if uses_gold else "no gold answer was used"
    return f"""---
{yaml.safe_dump({**names, "tags": tags}, sort_keys=False)}---
# {_name(config.model)} after {steps}{rule.method.name}

{warning}Adapted with scrl{version} to the questions of {config.questions}; {source}.
The method, {rule.method.name}: {rule.method.idea}."""


def _is_on_hub(model: str) -> bool:
    return model.count("/") == 1 and not model.startswith((".", "/", "~"))


def _name(model: str) -> str:
    """Of a folder its last part, without the way there."""
    return model if _is_on_hub(model) else Path(model).expanduser().resolve().name


def _what_it_is(export: Export) -> str:
    step = "" if export.step is None else f" (step {export.step})"
    weights = f"The checkpoint `{export.checkpoint}`{step}, in {export.dtype}"
    if export.base is None:
        return f"{weights}: all weights, which were all trained."
    if export.is_merged:
        return f"{weights}: all weights, a low-rank adapter merged into those of {export.base}."
    return (
        f"{weights}: a low-rank adapter. It needs the package peft and its model, {export.base}; where that has moved, "
        "write its new place into `base_model_name_or_path` of adapter_config.json."
    )


# Example code that answers one question


def _transformers_lines(export: Export, tokenizer: Any) -> str:
    config, code = export.config, ", trust_remote_code=True" if export.config.trust_remote_code else ""
    name, prompt, is_chat = _prompt(config, tokenizer)
    switches = "".join(f", {key}={value}" for key, value in template_switches(tokenizer, config.prompt).items())
    encode = "tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True"
    encode = f'{encode}, return_tensors="pt"{switches})' if is_chat else 'tokenizer(prompt, return_tensors="pt")'
    sampling = config.evaluation_sampling
    how = "do_sample=False"
    if sampling.temperature:
        how = f"do_sample=True, temperature={sampling.temperature}, top_p={sampling.top_p}, top_k={sampling.top_k}"
    stop = f", stop_strings={list(sampling.stop)}, tokenizer=tokenizer" if sampling.stop else ""
    return f"""import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "."  # where this file is
tokenizer = AutoTokenizer.from_pretrained(folder{code})
model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto" if torch.cuda.is_available() else "float32"{code})
question = "{QUESTION}"
{name} = {prompt}
tokens = {encode}
written = model.generate(**tokens, max_new_tokens={sampling.max_tokens}, {how}{stop})
print(tokenizer.decode(written[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))
"""


def _vllm_line(export: Export, tokenizer: Any) -> str:
    config, sampling = export.config, export.config.evaluation_sampling
    name, _, is_chat = _prompt(config, tokenizer)
    arguments: dict[str, Any] = {name: getattr(sampling, name) for name in ("max_tokens", "temperature", "top_p")}
    arguments |= {"top_k": sampling.top_k} if sampling.top_k else {}
    arguments |= {"stop": list(sampling.stop), "include_stop_str_in_output": True} if sampling.stop else {}
    how = ", ".join(f"{key}={value}" for key, value in arguments.items())
    switches = template_switches(tokenizer, config.prompt)
    more = f", chat_template_kwargs={switches}" if switches else ""
    code = ", trust_remote_code=True" if config.trust_remote_code else ""
    model, imports = f"folder{code}", "from vllm import LLM, SamplingParams"
    if export.adapter_of is not None and config.lora is not None:
        rank = next((rank for rank in VLLM_RANKS if rank >= config.lora.rank), config.lora.rank)
        model = f"{export.adapter_of!r}, enable_lora=True, max_lora_rank={rank}{code}"
        imports += "; from vllm.lora.request import LoRARequest"
        more += ', lora_request=LoRARequest("adapter", 1, folder)'
    call = f"{'chat' if is_chat else 'generate'}({name}, SamplingParams({how}){more})"
    return f"{imports}; print(LLM({model}).{call}[0].outputs[0].text)\n"


def _prompt(config: RunConfig, tokenizer: Any) -> tuple[str, str, bool]:
    """The prompt's variable name and value in the example, and whether it is for a chat template."""
    messages = prompt_messages(Question("card", QUESTION), tokenizer, config.prompt)
    rest = messages[-1]["content"].removeprefix(QUESTION)
    content = f"question + {rest!r}" if rest else "question"
    if plain_template(tokenizer, config.prompt) is not None:
        return "prompt", content, False
    before = "".join(f"{message}, " for message in messages[:-1])
    return "messages", f'[{before}{{"role": "user", "content": {content}}}]', True


# Evaluations


def _changes(export: Export, evaluations: Sequence[Evaluation]) -> str:
    """Of each set of questions: the start model's numbers, and those at the exported step, or else the last."""
    found: list[tuple[str, str, Evaluation, Evaluation]] = []
    for protocol, series in by_protocol(evaluations).items():
        before, after = series[0], next((line for line in series if line["step"] == export.step), series[-1])
        if before["step"] == 0 < after["step"]:
            names = (name for name in (*metrics_of([before]), "agreement", "answered") if name in before.keys() & after)
            found += [(SETS.get(protocol.benchmark, protocol.benchmark), name, before, after) for name in names]
    if not found:
        return "The run was not measured before and after. `scrl evaluate` does it.\n"
    steps = sorted({int(after["step"]) for *_, after in found})
    missing = "" if export.step is None or export.step in steps else f" Step {export.step} itself was not measured."
    rounded = "" if export.dtype == "float32" else f", before weights were rounded to {export.dtype}"
    caption = (
        f"In %, with the 95 % interval over questions in brackets, measured by the run{rounded}. "
        f"Agreement is no proof of being right.{missing}"
    )
    header = ("questions", "number", "start model", *(f"step {step}" for step in steps))
    rows = [
        (
            where,
            name,
            score(name, [before]),
            *(score(name, [after]) if after["step"] == at else None for at in steps),
        )
        for where, name, before, after in found
    ]
    return as_markdown(Table(header, tuple(rows), caption))
