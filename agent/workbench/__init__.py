"""What people use around runs: a cluster on one machine, and pages that compare runs. The agent needs none of it."""
