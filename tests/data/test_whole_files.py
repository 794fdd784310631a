"""Files appear whole or not at all; what is no file stays what it is."""

import os
import stat
import threading

import pytest

from scrl.data.whole_files import give_usual_mode, whole_file, write_whole


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
