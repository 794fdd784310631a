"""The one reader of JSON lines."""

import gzip
import json

import pytest

from scrl.data.jsonl import read_json_lines
from scrl.errors import DataError

LINES = ['{"n": 1}', "", '{"text": "one\u2028line"}', '{"n": 3}']
FIELDS = [{"n": 1}, {"text": "one\u2028line"}, {"n": 3}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_lines_are_read_with_number_and_offset(tmp_path, name, start):
    raw = (start + "\r\n".join(LINES)).encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    lengths = []
    lines = list(read_json_lines(tmp_path / name, on_bytes=lengths.append))
    assert [line.fields for line in lines] == FIELDS
    assert [line.number for line in lines] == [1, 3, 4]
    assert sum(lengths) == len(raw)
    assert json.loads(raw[lines[2].offset :]) == FIELDS[2]


@pytest.mark.parametrize("end", [b'{"n": ', '{"text": "é'.encode()[:-1]])
def test_half_a_line_at_the_end_is_skipped_and_reported_or_an_error(write, end):
    path, messages = write("a.jsonl", b'{"n": 1}\n' + end), []
    assert [line.fields for line in read_json_lines(path, messages.append)] == [{"n": 1}]
    assert messages == ["a.jsonl: line 2, the last one, is incomplete and was left out"]
    with pytest.raises(DataError, match=r"a\.jsonl:2"):
        list(read_json_lines(path))


@pytest.mark.parametrize("line", [b'{"a" 1}', b"[1]", b"\xff", b"[" * 100_000])
def test_a_broken_line_is_named(write, line):
    path = write("a.jsonl", b'{"n": 1}\n' + line + b"\n")
    with pytest.raises(DataError, match=r"a\.jsonl:2"):
        list(read_json_lines(path, print, hint="Write it so."))


def test_a_file_that_cannot_be_read_is_named(write, tmp_path):
    for path in (tmp_path / "none.jsonl", write("a.jsonl.gz", gzip.compress(b'{"n": 1}\n')[:-12])):
        with pytest.raises(DataError, match=path.name):
            list(read_json_lines(path))
