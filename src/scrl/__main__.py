"""`python -m scrl`."""

import sys
from pathlib import Path

if not sys.flags.safe_path and sys.path[0] == str(Path.cwd()):
    del sys.path[0]  # Python put it there: whatever is in the current folder would be imported as a package

from scrl.cli.main import main

sys.exit(main())
