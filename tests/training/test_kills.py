"""A slice of `make torture`: a kill right before a file changes; test_resume.py has more of them."""

from kills import KINDS, killed_at_operation
from processes import scrl
from runs import differences


def test_a_run_of_an_adapter_that_was_killed_at_a_file_operation_equals_one_that_was_not(tmp_path):
    done = scrl("train", *KINDS["lora"], "--out", tmp_path / "whole", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert killed_at_operation(37, tmp_path / "run", KINDS["lora"])
    assert differences(tmp_path / "run", tmp_path / "whole") == []
