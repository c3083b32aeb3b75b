#!/bin/bash
# A user's own DDP test, for the tests of the chart.
torchrun --nnodes=$NNODES --node_rank=$JOB_COMPLETION_INDEX --nproc_per_node=$GPUS_PER_NODE \
  --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT /tmp/ddp.py
