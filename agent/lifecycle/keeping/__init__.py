"""What stays of a run: logs and files, stored beside everything else."""
