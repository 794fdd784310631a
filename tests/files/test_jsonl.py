"""The one reader of JSON lines."""

import gzip
import json
import os
import stat
import threading

import pytest

from scrl.errors import DataError
from scrl.files.jsonl import read_json_lines
from scrl.files.whole_files import give_usual_mode, whole_file, write_whole

LINES = ['{"n": 1}', "", '{"text": "one\u2028line"}', '{"n": 3}']
FIELDS = [{"n": 1}, {"text": "one\u2028line"}, {"n": 3}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_lines_are_read_with_number_and_offset(tmp_path, name, start):
    raw = (start + "\r\n".join(LINES)).encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    lines = list(read_json_lines(tmp_path / name))
    assert [line.fields for line in lines] == FIELDS
    assert [line.number for line in lines] == [1, 3, 4]
    assert json.loads(raw[lines[2].offset :]) == FIELDS[2]


@pytest.mark.parametrize("end", [b'{"n": ', '{"text": "é'.encode()[:-1]])
def test_half_a_line_at_the_end_is_skipped_and_reported_or_an_error(write, end):
    path, messages = write("a.jsonl", b'{"n": 1}\n' + end), []
    assert [line.fields for line in read_json_lines(path, messages.append)] == [{"n": 1}]
    assert [message.partition(",")[0] for message in messages] == ["a.jsonl: line 2"]
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


# Files that appear whole or not at all


def test_a_file_is_replaced_when_the_new_one_is_whole(tmp_path):
    path = tmp_path / "table.csv"
    write_whole(path, "old\n")
    with pytest.raises(UnicodeEncodeError), whole_file(path) as file:
        file.writelines(["half", "\ud800"])
    assert path.read_text() == "old\n"
    write_whole(path, "new\n")
    assert path.read_text() == "new\n"
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "a table")
    reader.join(10)
    assert read == ["a table"]
    assert pipe.is_fifo()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_files_for_the_owner_alone_get_the_mode_that_the_umask_gives(umask, mode, tmp_path):
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    (folder / "inner").mkdir(parents=True)
    for path in (elsewhere, folder / "weights", folder / "inner" / "weights"):
        path.touch(mode=0o600)
    (folder / "link").symlink_to(elsewhere)
    before = os.umask(umask)
    try:
        give_usual_mode(folder)
    finally:
        os.umask(before)
    files = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        elsewhere: 0o600, folder / "link": 0o600, folder / "weights": mode, folder / "inner" / "weights": mode,
    }  # fmt: skip
