"""In place of torchrun where there is no torch: one process for all ranks of this node.

It has the rank of the node's last one, which is the one that Megatron has print.
"""

import argparse
import os
import subprocess
import sys

parser = argparse.ArgumentParser()
for option in ("nproc_per_node", "nnodes", "node_rank"):
    parser.add_argument(f"--{option}", type=int, required=True)
for option in ("master_addr", "master_port"):
    parser.add_argument(f"--{option}", required=True)
options, program = parser.parse_known_args()
ranks = {
    "WORLD_SIZE": options.nnodes * options.nproc_per_node,
    "RANK": (options.node_rank + 1) * options.nproc_per_node - 1,
    "GROUP_WORLD_SIZE": options.nnodes,
    "GROUP_RANK": options.node_rank,
    "MASTER_ADDR": options.master_addr,
    "MASTER_PORT": options.master_port,
}
told = {name: str(value) for name, value in ranks.items()}
ended = subprocess.run([sys.executable, *program], env={**os.environ, **told})
sys.exit(1 if ended.returncode else 0)
