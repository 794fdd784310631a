"""Training with stock verl."""
