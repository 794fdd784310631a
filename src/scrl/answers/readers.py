r"""Completion text → the answer it claims, or None.

docs/answers.md lists the readers. A completion is data: nothing in it is evaluated, and no text makes the built-in
readers raise. Only the last 50,000 characters are looked at, and no thoughts that were cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import isroutine

from scrl.answers.calculations import voters
from scrl.answers.spelling import clean, unwrap_text
from scrl.errors import ConfigError, ReaderError, did_you_mean
from scrl.user_code import import_user_module, refuse_pythons_own

Reader = Callable[[str], str | None]
SOUND = "sound:"
"""Before the name of a reader: only completions whose calculations hold, and leave nothing out, have an answer."""

_BARE_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*+(?!\{)")
_BRACES = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{|\\.|[{}]", re.DOTALL)
_MAX_BARE = 200
_LOOKED_AT = 50_000
_BOXES = re.compile(r"\\(?:boxed|fbox)\{((?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+)\}")
_NAME_BEFORE = re.compile(r"(?<![\w\\])([A-Za-z](?:_\w)?)\s*=\s*[$\s]{0,3}(?:\\[(\[]\s*)?$")
_SPACE = r"(?:[\s$]|\\[()\[\],;]|\\quad)*+"
_JOIN = re.compile(
    rf"{_SPACE}(?:[,;&]|\b(?:and|or)\b|\\text\s*\{{\s*(?:and|or)\s*\}}){_SPACE}(?:\b(?:and|or)\b{_SPACE})?"
    rf"(?:[A-Za-z](?:_\w)?\s*={_SPACE})?"
)
"""What may occur between two boxes that are one answer: "and", a comma, `y =`."""
_LABEL_BEFORE = re.compile(
    r"(?m)^[ *#]{0,8}(?:Part )?\(([a-j]|[ivx]{1,4})\)"
    r"|\((\w|[ivxIVX]{2,4})\)[\s:$]{0,4}(?:\\[(\[]\s*)?(?:[A-Za-z]\s*=\s*)?\Z"
)
"""(a), where a line starts, or right before a box: (a) $x =."""
_EMPTY_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{\s*\}")
_TRAILING = ".,;:!?"
_PLAIN_BOX = re.compile(r"\\(?:boxed|fbox)\{([^{}\\]{0,200})\}")
"""A box with nothing nested and nothing escaped: no need to count braces."""

_SIGN = r"(?:(?<![\d)])(?<![\d)] )[-+−])?"
_DIGITS = r"(?:(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d,])|(?<![\d,])\d{1,3}(?: \d{3})+(?![\d,])|\d+)"
_TIMES_TEN = r"(?:\s?(?:\\times|×|\\cdot|[*x])\s?10\s?\^\s?(?:\{[-−]?\d+\}|[-−]?\d+))?"
_NUMBER = (
    rf"(?<![\w.^{{:√])(?:\\?\$ ?)?{_SIGN}(?:\\?\$ ?)?"
    rf"(?>\d+ \d+/\d+|(?:{_DIGITS}(?:\.\d+)?|\.\d+)(?: ?/ ?\d+)?(?:[eE][-+]?\d+)?{_TIMES_TEN}!?)"  # all of it, or none
    r"(?![\d^:]|\s?(?:\\times|×|\\cdot|[*x]\s?10\s?\^|\\?pi\b|\\?sqrt|[π√]))"
)
_HASHES = re.compile(rf"####[ \t]{{0,4}}(?!\d+(?:[.):][ \t]+\S|[ \t]+[A-Z]))(?={_NUMBER})([^\n]{{1,80}})")
"""#### 18, but no heading: #### 2. Solve."""
_STATED = re.compile(
    r"(?i)\banswer(?: (?:is(?!n)|was(?!n)|(?:would|must|should|will|has to) be)|\*{0,2}:| =|\*{0,2}[ \t]*\n)[*: ]{0,4}"
    r"|答案[是为:：\s]{1,4}"
)
_ANY_NUMBER = re.compile(_NUMBER)
_HALF_A_NUMBER = re.compile(r"[\d.,/]+$")
_NUMBERS = re.compile(rf"{_NUMBER}(?:(?:[,;]\s?(?:and |or )?| (?:and|or) ){_NUMBER})*")  # 3, 5 and 7
_NAMES = re.compile(r"\b[A-Za-z] ?= ?")
_FORMULA = re.compile(r"\s{0,3}(?:\$([^$]{1,60})\$(?! ?\d)|\\\(([^$]{1,60}?)\\\))")
"""The answer is $\\frac{3}{4}$: all of it. $18, not $9: no formula, but money."""
_DENIED = re.compile(r"\bnot\b[^.;]*?(?:\bbut\b|$)|\bnot\b[^.;]*", re.IGNORECASE)
"""What is denied: `not 5 but` in `not 5 but 7`."""
_NEGATIVE = re.compile(r"\b(?:negative|minus)\s+$|-\s*\($", re.IGNORECASE)
_SCALE = re.compile(r" (?:hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_FORMULA_FOLLOWS = re.compile(r"\s?[A-Za-z]\s?[-+*/^=]|[-–]\d|\s(?:or|to)\s\d")  # 2x+3, 5-7, 5 or 6: no number
_TUPLE = re.compile(r"\s{0,3}(\([^()]{1,60},[^()]{1,60}\))")
_SHORT = 40
_WINDOW = 80
"""How many characters after "the answer is" are read."""

_LETTER = (
    r"([A-J])(?![A-Za-z0-9_'(]|\s*[=^+<>])"
    r"(?!(?<=[AI]) (?!because|since|as|and|for|which|due|but|is|would|must)[a-z])"
)
"""No part of a formula or a word: C_2H_6, E = mc^2, A combination, I don't know."""
_CHOICE = re.compile(
    r"\s{0,8}(?:(?i:option|choice|answer)\W{0,4})?[\s({\[*_$\\]{0,8}"
    rf"(?:{_LETTER}|([a-j])(?=[).:}}\]\s]{{0,4}}$|[).:]))"
)
_STATED_CHOICE = re.compile(
    r"(?:not\b.{0,30}?(?:\bbut\b|\bit is\b)\s*)?(?:option |choice |letter )?[({\[*_$\\ ]{0,8}"
    rf"(?:{_LETTER}|(?<=\()([a-j])(?=\)))"
)
_OTHER_CHOICE = re.compile(
    r"[\s).}\]]{0,4}(?:(?:,|/|\bor\b|\band\b)[\s({\[]{0,4}(?:(?:so|or|and)\b[\s({\[]{0,4})?[A-J](?![A-Za-z])"
    r"|\bis (?:false|wrong|not)\b)"
)
"""More than one letter is no choice, nor is one that is ruled out."""
_CHOSEN = re.compile(
    rf"\b(?i:option|choice|it is|it must be|I (?:choose|pick|select))(?i: is)?[ :]{{1,2}}[({{\[*_$\\]{{0,4}}{_LETTER}"
    r"|(?<![\w'])([A-J])[)\]*]{0,3} (?:is|must be|would be) (?:the )?(?:correct|right|best|true|answer)\b"
)
_LONE_CHOICE = re.compile(r"[\s*_$(\[]{0,8}([A-J])(?:[\s*_$)\].:]{0,8}|[).:]{1,2}[\s*_]+\S.*)")  # (C), or B. 3.2 eV


def read_last_box(text: str) -> str | None:
    """The content of the last balanced box that is not empty."""
    text = _said(text)
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    plain = _PLAIN_BOX.match(text, start)
    content = (
        plain[1] if plain else _bare_box(text, start) or _last_balanced_box(text[start:]) or _last_balanced_box(text)
    )
    if content.strip() or not _EMPTY_BOX.search(text):
        return content.strip() or None
    return read_last_box(_EMPTY_BOX.sub("", text))


def read_boxed(text: str) -> str | None:
    """The last box, with the boxes joined to it: `$x = \\boxed{3}$ and $y = \\boxed{5}$` is `x = 3, y = 5`."""
    last, text = read_last_box(text), _said(text)
    if text.count("\\boxed") < 2:
        return last
    text = after if "\\boxed" in (after := text.rpartition("</think>")[2]) else text
    boxes = [box for box in _BOXES.finditer(text) if box[1].strip()]
    if not boxes or boxes[-1][1].strip() != last:
        return last
    starts = [0, *(box.end() for box in boxes)]
    labels = [_LABEL_BEFORE.findall(text, start, box.start())[-1:] for start, box in zip(starts, boxes, strict=False)]
    if labels[-1] and sum(map(bool, labels)) > 1:
        parts = {"".join(found[0]): box[1].strip() for found, box in zip(labels, boxes, strict=True) if found}
        return ", ".join(f"({label}) {part}" for label, part in parts.items()) if len(parts) > 1 else last
    joined = boxes[-1:]
    for box in reversed(boxes[:-1]):
        if not _JOIN.fullmatch(text, box.end(), joined[0].start()):
            break
        joined.insert(0, box)
    if len(joined) < 2:
        return last
    names = [_NAME_BEFORE.search(text[max(0, box.start() - 20) : box.start()]) for box in joined]
    contents = [box[1].strip() for box in joined]
    if all(names):
        contents = [f"{name[1]} = {part}" for name, part in zip(names, contents, strict=True) if name]
    between = text[joined[0].end() : joined[-1].start()]
    mark = r" \text{ or } " if re.search(r"\bor\b", between) else ", "
    answer = mark.join(dict.fromkeys(contents))
    before, after = text[: joined[0].start()].rstrip(" $"), text[joined[-1].end() :].lstrip(" $")
    is_tuple = before.endswith("(") and after.startswith(")") and mark == ", "
    return f"({answer})" if is_tuple else answer


def read_number(text: str) -> str | None:
    """`#### 18` after the last box, else a box, else what follows "the answer is"."""
    text = _said(text)
    hashes, boxed = list(_HASHES.finditer(text)), read_boxed(text)
    if hashes and (boxed is None or hashes[-1].start() > max(text.rfind("\\boxed"), text.rfind("\\fbox"))):
        return _claimed(hashes[-1][1])
    return boxed or next(filter(None, map(_claimed, _last_statements(text))), None)


def _claimed(statement: str) -> str | None:
    """A formula in dollar signs, a pair in brackets, a list of numbers, or a number."""
    statement = _DENIED.sub("", statement)
    if written := _FORMULA.match(statement) or _TUPLE.match(statement):
        return _nonempty(written[written.lastindex or 0])
    claimed = _NAMES.sub("", statement).rpartition("=")[2]
    numbers, number = _NUMBERS.search(claimed), _ANY_NUMBER.search(claimed)
    if numbers and numbers.end() == len(claimed.rstrip(" .*")):
        number = numbers
    if number is None or _FORMULA_FOLLOWS.match(claimed, number.end()):
        return None
    sign = "-" if _NEGATIVE.search(claimed[: number.start()]) else ""
    scale = _SCALE.match(claimed, number.end())
    return sign + _clean_number(number[0]) + (scale[0] if scale else "")


def read_last_number(text: str) -> str | None:
    """As `read_number`, else a list with "and" or "or" at the end, else the last number anywhere."""
    stated = read_number(text)
    text = _said(text)
    runs = [] if stated is not None or _HASHES.search(text) else list(_NUMBERS.finditer(text))
    if not runs:
        return stated
    is_list = re.search(r" (?:and|or) ", runs[-1][0]) and runs[-1].end() == len(text.rstrip("\n .*"))
    return _clean_number(runs[-1][0] if is_list else _ANY_NUMBER.findall(runs[-1][0])[-1])


def read_answer(read: Reader, text: str, *, is_cut: bool) -> str | None:
    """What a completion claims; of one that was cut, number readers take only what it marked, not the last number."""
    if isinstance(read, SoundReader):
        return read_answers(read, [(text, is_cut)])[0]
    if is_cut and read in (read_number, read_last_number):
        return read_number(_HALF_A_NUMBER.sub("", text))
    return read(text)


def read_answers(read: Reader, said_G: Sequence[tuple[str, bool]]) -> list[str | None]:
    """What the completions of a question claim, each a text and whether it was cut."""
    if not isinstance(read, SoundReader):
        return [read_answer(read, text, is_cut=is_cut) for text, is_cut in said_G]
    answers_G = read_answers(read.read, said_G)
    votes_G = voters([_said(text) for text, _ in said_G], answers_G)
    return [answer if votes else None for answer, votes in zip(answers_G, votes_G, strict=True)]


def read_choice(text: str) -> str | None:
    """The chosen letter, in capitals."""
    text = _said(text)
    boxed = read_last_box(text)
    if boxed is not None:
        plain = unwrap_text(unwrap_text(clean(boxed)))
        letter = _CHOICE.match(plain)
        if letter is not None and _OTHER_CHOICE.search(plain, letter.end()):
            return None  # A or B
        if letter is None and _STATED.search(plain):
            letter = _STATED_CHOICE.match(_last_statements(plain)[0].lstrip())
        return (letter[1] or letter[2]).upper() if letter else None
    for statement in _last_statements(text):
        plain = unwrap_text(statement).lstrip()
        stated = _STATED_CHOICE.match(plain)
        if stated and not _OTHER_CHOICE.match(plain, stated.end()):
            return str(stated[1] or stated[2]).upper()
    if chosen := _CHOSEN.findall(text):
        return str(chosen[-1][0] or chosen[-1][1])
    *_, before, last = ["", "", *(line[:_WINDOW].strip() for line in text.split("\n") if line.strip())]
    lone = _LONE_CHOICE.fullmatch(last)
    return lone[1] if lone and not _LONE_CHOICE.fullmatch(before) else None


def _said(text: str) -> str:
    """The end of the text, without thoughts that were cut."""
    start = text.rfind("<think>")
    return (text[:start] if start >= 0 and "</think>" not in text[start:] else text)[-_LOOKED_AT:]


def _last_statements(text: str) -> list[str]:
    """What follows "the answer is" on its line, else a short line below; the last statement first, at most five."""
    ends = [match.end() for match in _STATED.finditer(text)]
    windows = [text[end : end + _WINDOW].split("\n") for end in reversed(ends[-5:])]
    below = [next((line.strip() for line in lines if line.strip()), "") for lines in windows]
    return [
        lines[0] if lines[0].strip() or len(line) > _SHORT else line for lines, line in zip(windows, below, strict=True)
    ]


READERS: dict[str, Reader] = {
    "boxed": read_boxed,
    "last-box": read_last_box,
    "number": read_number,
    "last-number": read_last_number,
    "choice": read_choice,
}


@dataclass(frozen=True, slots=True)
class SoundReader:
    """Finds the answers of those completions of a question that `voters` lets vote."""

    read: Reader

    def __call__(self, text: str) -> str | None:
        return read_answer(self, text, is_cut=False)


def get_reader(name: str) -> Reader:
    """A reader by name, `regex:PATTERN`, or the dotted path of a Python function; `sound:` may stand before it."""
    if name in READERS:
        return READERS[name]
    if name.startswith(SOUND):
        return SoundReader(get_reader(name.removeprefix(SOUND)))
    if name.startswith("regex:"):
        return _regex_reader(name.removeprefix("regex:"))
    if "." in name or ":" in name:
        return _imported_reader(name)
    raise ConfigError(
        f"reader: unknown reader {name!r}.{did_you_mean(name, READERS)} "
        "Or give regex:PATTERN, module:NAME of a function of your own, or sound: before any of them."
    )


def _regex_reader(pattern: str) -> Reader:
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ConfigError(f"reader: {pattern!r} is not a regular expression: {error}") from error

    def read(text: str) -> str | None:
        matches = list(compiled.finditer(text))
        return _nonempty(matches[-1][1 if compiled.groups else 0]) if matches else None

    return read


def _imported_reader(path: str) -> Reader:
    module_name, _, name = path.replace(":", ".").rpartition(".")  # module.name is understood too
    refuse_pythons_own(module_name, path, "reader")
    module, _ = import_user_module(f"{module_name}:{name}", "reader")
    function = getattr(module, name, None)
    if not callable(function):
        functions = [each for each, value in vars(module).items() if isroutine(value)]
        raise ConfigError(f"reader: {module_name!r} has no function {name!r}.{did_you_mean(name, functions)}")
    if isroutine(function):  # it may have come into the module by `from os import system`
        refuse_pythons_own(function.__module__ or "", path, "reader")

    def read(text: str) -> str | None:
        try:
            answer = function(text)
        except Exception as error:
            raise ReaderError(f"reader {path} raised {type(error).__name__}: {error} on {text[:80]!r}") from error
        if answer is not None and not isinstance(answer, str):
            raise ReaderError(f"reader {path} returned {type(answer).__name__}; return the answer as text, or None")
        return _nonempty(answer)

    return read


def _nonempty(answer: str | None) -> str | None:
    return answer.strip() or None if answer is not None else None


def _bare_box(text: str, start: int) -> str | None:
    r"""What follows the \boxed here if it has no braces, up to a space or a dollar sign: `5`, `\frac{1}{2}`."""
    opening = _BARE_BOX.match(text, start)
    if opening is None:
        return None
    text, depth = text[opening.end() : opening.end() + _MAX_BARE], 0
    for index, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth < 0 or (depth == 0 and (letter.isspace() or letter == "$")):
            return text[:index].rstrip(_TRAILING)
    return text.rstrip(_TRAILING) if depth == 0 else None


def _last_balanced_box(text: str) -> str:
    """The last balanced box, in one pass with a stack: a text full of unclosed boxes takes linear time."""
    stack: list[int] = []
    last, content = 0, ""
    for brace in _BRACES.finditer(text):
        if brace[0] == "}" and stack:
            start = stack.pop()
            if start > last:
                last, content = start, text[start : brace.start()]
        elif brace[0].endswith("{") and brace[0] != r"\{":
            stack.append(0 if brace[0] == "{" else brace.end())
    return content


def _clean_number(text: str) -> str:
    return re.sub(r"\\?\$|(?<=\d) (?=\d{3}(?!\d|/))", "", text).replace("−", "-").strip()
