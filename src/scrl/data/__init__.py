"""Questions, prompts and rollouts, and where they come from."""
