#!/bin/bash
# After the launchers of the old testbeds: what they do that matters to the chart, sshd and the hostfile.
export LD_LIBRARY_PATH=/usr/local/gib/lib64
ldconfig $NCCL_PLUGIN_PATH

if [ -n "$SSH_PUBLIC_KEY" ]; then
  echo "$SSH_PUBLIC_KEY" >> /root/.ssh/authorized_keys
fi
mkdir /run/sshd
/usr/sbin/sshd -p 222
echo "Pod has started SSH daemon"

if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  sleep 10
  for i in $(seq 0 $((NNODES - 1))); do
    host=${HOSTNAME_PREFIX}0-$i.$DOMAIN_NAME
    until ssh -p 222 -o StrictHostKeyChecking=no "$host" hostname; do
      sleep 2
    done
    echo "$host" >> /tmp/job-worker-hostnames-order.txt
    echo "$host slots=8" >> /etc/job-worker-services.txt
    echo "$host slots=1" >> /etc/job-worker-services-1pernode.txt
  done
fi

if [ "$RUN_DEEPEP_TEST" = true ] && [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  source /opt/deepep/unified-env.sh
  mpirun --allow-run-as-root --hostfile /etc/job-worker-services-1pernode.txt -np $NNODES \
    bash -c "cd /opt/deepep/DeepEP && python3 tests/test_internode.py" 2>&1 | tee /tmp/deepep-test-results.txt
  echo "DeepEP test completed"
fi

if [ "$SLEEP_INFINITY" = true ]; then
  sleep infinity
fi
