"""Other trainers than our own: translate in, translate out, decide nothing."""
