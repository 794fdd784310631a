"""Run folders → a page, tables, comparisons: functions of the files, nothing else."""
