"""Run folders → one HTML page: a function of the files, nothing else."""
