"""`python -m scrl`, and the command `scrl`. Until everything is imported, Ctrl-C ends the process in silence."""

import os
import signal
import sys
from pathlib import Path


def main() -> int:
    if is_default := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from scrl.cli.main import main as command

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command()


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] == str(Path.cwd()):
        del sys.path[0]  # Python put it there: whatever is in the current folder would be imported as a package
    sys.exit(main())
