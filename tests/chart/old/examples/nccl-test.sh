#!/bin/bash
# A user's own NCCL test, for the tests of the chart.
mpirun --allow-run-as-root -hostfile /etc/job-worker-services.txt \
  bash -c "source /tmp/export_init_env.sh && all_reduce_perf -b 2M -e 16G -f 2 -n 1 -g 1 -w 10"
