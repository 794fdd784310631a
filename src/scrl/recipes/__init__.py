"""Functions that return a run's settings: the demo, and later the rows of the paper."""
