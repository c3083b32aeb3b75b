"""python -m agent.clinic.probes.counters ENVIRON SECONDS prints what the devices of this pod have counted, as a line of
JSON. Whatever hangs in the kernel keeps this process, and never the agent."""

from __future__ import annotations

import json
import os
import sys

from agent.clinic.doctor.counted import reduced
from agent.clinic.probes.pod_readings import read_counters

if __name__ == "__main__":
    print(json.dumps(reduced(read_counters(json.loads(sys.argv[1]), float(sys.argv[2])))), flush=True)
    os._exit(0)  # a thread that hangs would keep the interpreter here
