"""Two questions, as records and as rows."""

import json

from scrl.records import Question

TWO = (Question("amc-0", "What is 1 + 1?", "2"), Question("amc-1", "What is 2 + 2?", "4"))
ROWS = [{"question": question.text, "answer": question.gold} for question in TWO]


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)
