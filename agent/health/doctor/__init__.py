"""Whether a pod is healthy: decisions about what was read there (agent/machine/health/pod_readings.py)."""
