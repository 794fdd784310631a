"""`python -m scrl`."""

import sys

from scrl.cli.main import main

sys.exit(main())
