"""Weights → completions."""
