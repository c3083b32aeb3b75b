"""A cluster for tests of code that uses `agent.Client`: no root, no network, no programs (docs/api.md).

Its pods are those of the agent itself, coordinator and workers, on machines that pretend: they start no process, and
their time passes at once. So it refuses, judges and ends runs, in words and codes, as a real cluster does.
"""

from agent.testing.cluster import FakeCluster, SubmittedRun

__all__ = ["FakeCluster", "SubmittedRun"]
