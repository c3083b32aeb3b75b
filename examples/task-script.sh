#!/bin/bash
# Runs on every pod once the cluster is formed; the exit code is the job's. One process per pod starts here: for one per
# GPU, let it start torchrun, as docs/deployments/script.md shows.
set -euo pipefail

echo "pod $JOB_COMPLETION_INDEX is node rank $A4_NODE_RANK of $NNODES and meets the others at $MASTER_ADDR:$MASTER_PORT"
if [[ $A4_NODE_RANK == 0 ]]; then
    echo "the pods in order of their places:"
    cat "$A4_HOSTFILE_1PERNODE"
fi
