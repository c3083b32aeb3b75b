"""The lines that the guides of the old testbeds have people type, as they stand there, from any pod."""

from __future__ import annotations

import subprocess
from collections import Counter

from tests.cluster.conftest import END_SECONDS, Start, Trial
from tests.cluster.fabric import deepep_files, gib_files
from tests.cluster.work import hostnames, sleeping

CONNECTIVITY = r"""
mpirun --allow-run-as-root -np 16 -hostfile /etc/job-worker-services.txt \
--mca orte_keep_fqdn_hostnames 1 hostname
"""
ALL_REDUCE = r"""
mpirun --allow-run-as-root \
--hostfile /etc/job-worker-services.txt \
-wdir /third_party/nccl-tests \
--mca plm_rsh_no_tree_spawn 1 \
--mca orte_keep_fqdn_hostnames 1 \
--map-by slot \
--mca plm_rsh_agent "ssh -q -o LogLevel=ERROR -o StrictHostKeyChecking=no" \
bash -c "source /tmp/export_init_env.sh && ./build/all_reduce_perf -b 2M -e 16G -f 2 -n 1 -g 1 -w 10"
"""
DEEPEP = r"""
source /opt/deepep/unified-env.sh
source /usr/local/gib/scripts/set_nccl_env.sh

sed 's/slots=8/slots=1/g' /etc/job-worker-services.txt > /tmp/hostfile-1pernode.txt

mpirun --allow-run-as-root \
  --hostfile /tmp/hostfile-1pernode.txt \
  --mca orte_keep_fqdn_hostnames 1 \
  --mca plm_rsh_agent "ssh -q -o LogLevel=ERROR -o StrictHostKeyChecking=no -p 222" \
  -np $NNODES \
  -x NVSHMEM_REMOTE_TRANSPORT -x NVSHMEM_IBGDA_NIC_HANDLER \
  -x DEEP_EP_DEVICE_TO_HCA_MAPPING -x NVSHMEM_DISABLE_CUDA_VMM \
  -x LD_PRELOAD -x LD_LIBRARY_PATH -x NVSHMEM_IB_GID_INDEX \
  -x NCCL_SOCKET_IFNAME=eth0,eth1 \
  -x NCCL_TUNER_CONFIG_PATH=/usr/local/gib/configs/tuner_config_a4.txtpb \
  bash -c "export WORLD_SIZE=$NNODES && export RANK=\$OMPI_COMM_WORLD_RANK && \
    export MASTER_ADDR=$MASTER_ADDR && export MASTER_PORT=29500 && \
    source /opt/deepep/unified-env.sh && source /usr/local/gib/scripts/set_nccl_env.sh && \
    cd /opt/deepep/DeepEP && python3 tests/test_internode.py"
"""
NCCL_TEST = b'#!/bin/sh\necho "rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, $NCCL_NET, in $PWD: $*"\n'


def typed(trial: Trial, index: int, lines: str, *shell: str) -> subprocess.CompletedProcess[str]:
    """Lines typed into a shell of a pod, as `kubectl exec -it POD -- bash` opens one."""
    return trial.cluster.exec(index, [*(shell or ("bash", "-ic")), lines], timeout=END_SECONDS)


def test_the_first_guide(start: Start) -> None:
    """Sessions of ssh have no secrets, as docs/migrating.md says: they need the -x of a typed line."""
    files = {**gib_files(), "/dev/shm/third_party/nccl-tests/build/all_reduce_perf": NCCL_TEST}
    token = {"HF_TOKEN": "hf_0123456789", "A4_SECRET_ENV": "HF_TOKEN"}
    trial = sleeping(start, 2, gpus_per_pod=8, files=files, env=token)
    for shell in (("bash", "-ic"), ("bash", "-lc")):
        for peer in range(2):
            over = typed(trial, 1, f"ssh {trial.cluster.spec.pod_name(peer)} hostname", *shell)
            assert (over.returncode, over.stdout.split()) == (0, hostnames(trial, peer)), over
    names = typed(trial, 0, CONNECTIVITY)
    assert names.returncode == 0, names
    assert Counter(names.stdout.split()) == dict.fromkeys(hostnames(trial, 0, 1), 8)
    reduced = typed(trial, 1, ALL_REDUCE)
    assert reduced.returncode == 0, reduced
    options = "-b 2M -e 16G -f 2 -n 1 -g 1 -w 10"
    wanted = [f"rank {rank} of 16, gIB, in /third_party/nccl-tests: {options}" for rank in range(16)]
    assert sorted(line for line in reduced.stdout.splitlines() if line.startswith("rank ")) == sorted(wanted)
    shown = "bash -c 'echo rank $OMPI_COMM_WORLD_RANK: ${#HF_TOKEN}'"
    for option, there in (("", 0), ("-x HF_TOKEN", 13)):
        line = CONNECTIVITY.replace("-np 16", f"-np 2 --map-by node {option}").replace("hostname\n", shown)
        over = typed(trial, 0, line)
        assert (over.returncode, sorted(over.stdout.splitlines())) == (0, ["rank 0: 13", f"rank 1: {there}"]), over


def test_the_guide_to_deepep(start: Start) -> None:
    trial = sleeping(start, 2, gpus_per_pod=8, ssh_port=222, files=deepep_files())
    done = typed(trial, 1, DEEPEP)
    assert done.returncode == 0, done
    said = sorted(line for line in done.stdout.splitlines() if line.startswith("RANK="))
    rest = "WORLD_SIZE=2 MASTER_PORT=29500 NVSHMEM_REMOTE_TRANSPORT=ibgda NCCL_SOCKET_IFNAME=eth0,eth1 NCCL_IB_TC=52"
    preload = "LD_PRELOAD=/opt/deepep/nvshmem/lib/libnvshmem_host.so.3"
    assert said == [f"RANK={rank} {rest} {preload}" for rank in range(2)], done
