"""One reading of a pod's devices, in a process of its own: `python -m agent.lifecycle.runs.counting ENVIRON SECONDS`.

Prints it as a line of JSON. Whatever hangs in the kernel keeps this process, and never the agent.
"""

from __future__ import annotations

import json
import os
import sys

from agent.health.doctor.counted import reduced
from agent.machine.health.pod_readings import read_counters


def main(environ: str, seconds: str) -> None:
    print(json.dumps(reduced(read_counters(json.loads(environ), float(seconds)))), flush=True)
    os._exit(0)  # a thread that hangs would keep the interpreter here


if __name__ == "__main__":
    main(*sys.argv[1:])
