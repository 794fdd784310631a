"""A slice of `make torture`: kills right before a file changes, in a full run and in one of an adapter."""

import pytest
from kills import KINDS, killed_at_operation
from processes import scrl
from runs import differences


@pytest.mark.parametrize(("kind", "operations"), [("full", (41,)), ("lora", (37,))])
def test_a_run_that_was_killed_at_a_file_operation_equals_one_that_was_not(kind, operations, tmp_path):
    done = scrl("train", *KINDS[kind], "--out", tmp_path / "whole", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for operation in operations:
        folder = tmp_path / f"run-{operation}"
        assert killed_at_operation(operation, folder, KINDS[kind])
        assert differences(folder, tmp_path / "whole") == []
