"""A cluster of pod-like sandboxes on this machine, for trials and tests."""

DEFAULT_NAME = "local"
"""Name of the cluster that the command line makes and finds where nobody names another."""
