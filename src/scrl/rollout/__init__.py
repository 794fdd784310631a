"""Weights → completions: the samplers."""
