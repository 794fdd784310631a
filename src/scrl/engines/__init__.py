"""Trainers other than our own: translate in, translate out, decide nothing."""
