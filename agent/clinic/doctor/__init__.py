"""Whether a pod is healthy: decisions about what was read there (agent/clinic/probes/pod_readings.py)."""
