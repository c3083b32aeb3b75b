"""Every rank says where it is, rank 0 the sum of all ranks: a4-agent mpirun -- python3 hello_mpi.py

Needs mpi4py in the Python that runs it.
"""

import socket

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"hello from rank {world.rank} of {world.size} on {socket.gethostname()}", flush=True)
total = world.reduce(world.rank)
if world.rank == 0:
    print(f"the ranks add up to {total}", flush=True)
