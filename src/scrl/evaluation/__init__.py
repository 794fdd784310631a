"""Gold answers are read here and nowhere else."""
