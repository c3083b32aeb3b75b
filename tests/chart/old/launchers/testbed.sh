#!/bin/bash
# After the launchers of the old testbeds: what they do that matters to the chart, sshd and the hostfile.
export LD_LIBRARY_PATH=/usr/local/gib/lib64
ldconfig $NCCL_PLUGIN_PATH

if [ -n "$SSH_PUBLIC_KEY" ]; then
  echo "$SSH_PUBLIC_KEY" >> /root/.ssh/authorized_keys
fi
mkdir /run/sshd
/usr/sbin/sshd -p 2222
echo "Pod has started SSH daemon"

if [ "$JOB_COMPLETION_INDEX" = 0 ]; then
  sleep 10
  for i in $(seq 0 $((NNODES - 1))); do
    host=${HOSTNAME_PREFIX}0-$i.$DOMAIN_NAME
    until ssh -p 2222 -o StrictHostKeyChecking=no "$host" hostname; do
      sleep 2
    done
    echo "$host" >> /tmp/job-worker-hostnames-order.txt
    echo "$host slots=8" >> /etc/job-worker-services.txt
  done
fi

if [ "$SLEEP_INFINITY" = true ]; then
  sleep infinity
fi
