"""What stays of a run: logs, files and result.json, stored beside everything else."""
