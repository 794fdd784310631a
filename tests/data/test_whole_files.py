"""Files appear whole or not at all; what is no file stays what it is."""

import os
import threading

import pytest

from scrl.data.whole_files import whole_file, write_whole


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
