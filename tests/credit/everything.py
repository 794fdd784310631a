"""Credit for a group that comes with all that any method may ask for."""

from scrl.records import FACTS, Elsewhere, Group, Truth


def credit_of_all(rule, votes, **choices):
    """`votes`: (answer, number) pairs; the number is the entropy and every fact of the completion, and its text."""
    group = Group.from_answers([a for a, _ in votes], [h for _, h in votes], question_id="q")
    completions = tuple(
        completion._replace(text=str(h), facts=dict.fromkeys(FACTS, h))
        for completion, (_, h) in zip(group.completions, votes, strict=True)
    )
    group = Group(completions, group.question_id, group.step)
    given = {
        "truth": Truth("1" if any(a == "1" for a, _ in votes) else None),  # only a method that is told it sees it
        "reference_share": 0.5,
        "elsewhere": Elsewhere(20, {"1": 0.25, "2": 0.125}, ("1", "2")),
    }
    return rule.credit(group, **given | choices)
