"""Training with stock TRL."""
