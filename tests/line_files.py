"""Files of one JSON object a line."""

import json
import re


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ANYTHING = (
    None,
    True,
    -1,
    2**70,
    1.5,
    -1e308,
    float("nan"),
    "x",
    "\x1b",
    [],
    [1],
    {},
    {"a": [1, {"b": None}]},
    [[1, 2]],
)


def forged(value, rng):
    """A copy with anything in a random place; sometimes 960 levels deep, so that what reads on has no room."""
    text = json.dumps(value)
    places = [
        match.span(1) for match in re.finditer(r'[:,\[] ?("[^"\\]*"(?!:)|[-\d.e]+|null|true|false|\[\]|\{\})', text)
    ]
    begin, end = places[rng.integers(len(places))]
    with_what = "[" * 960 + "]" * 960 if rng.random() < 0.1 else json.dumps(ANYTHING[rng.integers(len(ANYTHING))])
    return text[:begin] + with_what + text[end:]
