"""Which M of the N completions are trained on; labels and rewards always come from all N."""

from __future__ import annotations

from scrl.credit.method import CreditSettings, Evidence
from scrl.errors import ConfigError
from scrl.seeds import generator_for


def rows_by_setting(evidence: Evidence, num_trained: int, settings: CreditSettings) -> tuple[int, ...]:
    """M of a group's N completions, by the setting `which_trained`."""
    size, name = evidence.tally.size, evidence.group.question_id
    if settings.which_trained == "first":
        return first_rows(size, num_trained, question_id=name)
    return random_rows(size, num_trained, seed=evidence.seed, step=evidence.group.step, question_id=name)


def random_rows(size: int, num_trained: int, *, seed: int, step: int, question_id: str) -> tuple[int, ...]:
    """A random M of N, the same for the same (seed, step, question)."""
    check_number(size, num_trained, question_id)
    chosen = generator_for(seed, "trained", step, question_id).choice(size, num_trained, replace=False)
    return tuple(sorted(int(i) for i in chosen))


def first_rows(size: int, num_trained: int, *, question_id: str) -> tuple[int, ...]:
    """The first M of N, as the authors' code takes them."""
    check_number(size, num_trained, question_id)
    return tuple(range(num_trained))


def check_number(size: int, num_trained: int, question_id: str) -> None:
    """Refuse to train on more completions than there are."""
    if not 1 <= num_trained <= size:
        raise ConfigError(
            f"num_trained (--trained): question {question_id!r} has {size} completions, "
            f"so 1 to {size} of them can be trained on; got {num_trained}. Sample more completions or train on fewer."
        )
