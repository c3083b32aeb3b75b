"""A cluster of pod-like sandboxes on this machine, for trials and tests."""
