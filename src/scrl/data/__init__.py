"""Files → questions and rollouts."""
