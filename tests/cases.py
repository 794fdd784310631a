"""How many random cases a test looks at: few in the suite, which has to stay short, many in `make torture`."""

import os


def how_many(few, many):
    return many if "SCRL_TORTURE" in os.environ else few
