"""Write numbers that result.json and the report of the run show: a4-agent mpirun -- python3 series.py

Needs neither torch nor mpi4py. Ranks of torchrun and of mpirun say which they are.
"""

import json
import math
import os

rank = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)


def log(name: str, step: int, value: float, unit: str = "") -> None:
    record = {"name": name, "step": step, "value": value, "unit": unit, "rank": rank}
    with open(os.environ["A4_SERIES_FILE"], "a") as file:  # all ranks of the pod append to it
        file.write(json.dumps(record) + "\n")


for step in range(1, 201):
    log("loss", step, 2 + 8 * math.exp(-step / 40) + math.sin(step * (rank + 3)) / 10)
    log("samples", step, 900 + 20 * math.sin(step / 9) - 30 * rank, "1/s")
