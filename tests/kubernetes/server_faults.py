"""What can go wrong with the servers of a control plane."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kubernetes.control_plane import ASK_SECONDS, MASTER, OF_MASTER, PLACES, ControlPlane, pause_file

CONTROLLERS_LATER_SECONDS = 15.0


def stop_servers(plane: ControlPlane, seconds: float) -> float:
    """Kill the API server and all controllers, which are started again after so long; returns for how long the API
    server was away."""
    began = time.monotonic()
    servers = [*((MASTER, program) for program in OF_MASTER[1:]), *((pod, name) for name, pod in PLACES.items())]
    for pod, program in servers:
        # Kueue hangs until its liveness probe fails, a minute later, where it comes before the API server.
        later = CONTROLLERS_LATER_SECONDS if pod in PLACES.values() else 0.0
        plane.cluster.write(pod, pause_file(program), f"{seconds + later}")
    for pod, program in servers:
        # The kernel cuts names.
        plane.cluster.exec(pod, ["pkill", "-KILL", "-x", program[:15]], timeout=ASK_SECONDS)
    for pod, program in servers:
        plane.until(pod, f"[ ! -e {pause_file(program)} ]")
    plane.until(MASTER, f"{plane.programs.directory}/kubectl get --raw=/readyz")
    return time.monotonic() - began


@contextmanager
def slow_storage(plane: ControlPlane) -> Iterator[None]:
    """etcd stands still for most of the time."""
    stutter = "while :; do pkill -STOP -x etcd; sleep 0.3; pkill -CONT -x etcd; sleep 0.1; done"
    try:
        with plane.cluster.popen(MASTER, ["sh", "-c", stutter]):
            yield
    finally:
        plane.cluster.exec(MASTER, ["pkill", "-CONT", "-x", "etcd"], timeout=ASK_SECONDS)
