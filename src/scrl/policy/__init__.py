"""Advantages → weights: log-probabilities, losses, the optimizer, checkpoints. torch lives here."""
