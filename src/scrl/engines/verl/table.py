"""Questions → the table that verl reads: prompts as chat messages, and gold where there is some, for validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scrl.data.prompts import PromptSettings, prompt_messages
from scrl.errors import InputError
from scrl.records import Question

SOURCE = "scrl"
"""What verl's validation metrics are named after."""


def verl_row(place: int, question: Question, tokenizer: Any, settings: PromptSettings) -> dict[str, Any]:
    """One question, with verl's names."""
    return {
        "data_source": SOURCE,
        "prompt": prompt_messages(question, tokenizer, settings),
        "reward_model": {"style": "rule", "ground_truth": question.gold or ""},
        "extra_info": {"index": place, "question_id": question.id},
    }


def write_verl_table(path: Path, questions: Sequence[Question], tokenizer: Any, settings: PromptSettings) -> None:
    """A parquet file with a row a question."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            "engine: verl reads parquet files. Install what writes them: pip install 'scrl[verl]'"
        ) from error
    rows = [verl_row(place, question, tokenizer, settings) for place, question in enumerate(questions)]
    pq.write_table(pa.Table.from_pylist(rows), path)


def has_gold(questions: Sequence[Question]) -> bool:
    """Whether there is anything to validate with."""
    return any(question.gold is not None for question in questions)
