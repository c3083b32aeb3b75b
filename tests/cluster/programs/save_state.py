"""MPI program: waits for SIGTERM, then saves its state, which rank 0 does at once. The others take longer than any
mpirun leaves to ranks that it ends, as it does when one has failed."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from mpi4py import MPI

RANK = MPI.COMM_WORLD.rank


def save(number: int, frame: FrameType | None) -> None:
    time.sleep(3 if RANK else 0)
    open(f"/mnt/saved-{RANK}", "w").close()
    os._exit(10 + RANK)  # without MPI_Finalize, which would wait for the others


signal.signal(signal.SIGTERM, save)
MPI.COMM_WORLD.Barrier()
os.write(1, b"here\n")  # in one piece, unlike print
while True:
    time.sleep(0.02)
