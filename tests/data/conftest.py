import pytest


@pytest.fixture
def write(tmp_path):
    """`write(name, content)` makes a file."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
