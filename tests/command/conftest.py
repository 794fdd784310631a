import pytest

from scrl.cli.main import main


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """`scrl …` in this process, in a folder of its own: the exit code, and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refusal(call):
    """`scrl …` with something wrong: what it says, on one line."""

    def run(*words):
        code, _, error = call(*words)
        assert code == 2, error
        assert "Traceback" not in error
        return " ".join(error.split())

    return run
