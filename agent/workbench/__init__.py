"""What people use around runs: a cluster on one machine, and pages that compare runs. No pod needs it."""
