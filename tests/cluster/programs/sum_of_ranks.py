"""MPI program: a sum over all ranks; then each rank says where it is, and what the variable named TOLD holds."""

from __future__ import annotations

import os
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
if total != world.size * (world.size - 1) // 2:
    raise ArithmeticError(f"the sum over {world.size} ranks is {total}")
# One write: mpirun reads from several ranks.
sys.stdout.write(f"{world.rank} of {world.size} on {os.uname().nodename} in {os.getcwd()}: {os.environ['TOLD']}\n")
