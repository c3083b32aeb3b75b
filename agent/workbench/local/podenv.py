"""The environment that a pod of the old charts has (the pod contract), as a pure function."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent.paths import SECRET_FILE
from agent.workbench.local.dealt_gpus import Gpus
from agent.workbench.local.spec import DATA_NIC, METADATA_NAME, ClusterSpec


class ClusterBuild(NamedTuple):
    """What distinguishes one building of a cluster from the next."""

    uid: str
    stamp: str
    path: str
    """PATH of this machine."""
    gpu_variables: Mapping[str, str] = {}
    """Variables for pods with real GPUs."""


class Surroundings(NamedTuple):
    """What the client has found out about this machine, for the supervisor."""

    dnsmasq: str
    entrypoint: Sequence[str]
    file_systems: Sequence[str]
    installation: Sequence[str]
    command: str
    """Text of the program `a4-agent` in pods."""
    job: ClusterBuild
    gpus: Gpus


def pod_environment(spec: ClusterSpec, job: ClusterBuild, index: int, machine: int | None = None) -> dict[str, str]:
    """The whole environment of pod `index`, on the machine of its index if no other is given: built anew, nothing of
    this machine's but PATH, and what concerns GPUs."""
    where = index if machine is None else machine
    given = contract(spec, job, index, where) if spec.contract else {}
    return {**_container_environment(spec, job, where), **given, **spec.env, **spec.pod_env.get(index, {})}


def contract(spec: ClusterSpec, job: ClusterBuild, index: int, machine: int) -> dict[str, str]:
    """What a chart gives to pod `index` on a machine."""
    coordinator = spec.pod_name(0)
    lives = {"A4_LIVES": str(spec.lives)} if spec.lives else {}
    return {
        "NNODES": str(spec.pods),
        "JOB_COMPLETION_INDEX": str(index),
        "GPUS_PER_NODE": str(spec.gpus_per_pod),
        "WORLD_SIZE": str(spec.pods * spec.gpus_per_pod),
        "HOSTNAME_PREFIX": spec.prefix(),
        "DOMAIN_NAME": spec.domain(),
        "MASTER_ADDR": coordinator,
        "MASTER_PORT": "6002",
        "RANK_0_FQDN": coordinator,
        "JOB_ID": spec.name,
        "JOB_IDENTIFIER": f"{spec.name}-{job.stamp}",
        "JOB_ORCHESTRATOR": "gke",
        "POD_NAME": kubernetes_name(spec, job, index, machine),
        "NODE_NAME": spec.node_name(machine),
        "A4_JOBSET_UID": job.uid,
        "A4_RESTART_ATTEMPT": "0",
        "A4_JOB_RESTART_ATTEMPT": "0",
        "A4_SSH_PORT": str(spec.ssh_port),
        "A4_METADATA_HOST": METADATA_NAME,
        "A4_SECRET_FILE": SECRET_FILE,
        **lives,
    }


def kubernetes_name(spec: ClusterSpec, job: ClusterBuild, index: int, machine: int) -> str:
    """The name of the pod's object: that of its DNS record, and five characters that are others at each start, and
    for each replacement."""
    suffix = hashlib.sha256(f"{job.uid}/{machine}".encode()).hexdigest()[:5]
    return f"{spec.prefix()}0-{index}-{suffix}"


def _container_environment(spec: ClusterSpec, job: ClusterBuild, machine: int) -> dict[str, str]:
    """What an image and a container runtime give, and what this machine needs."""
    env = {
        "PATH": job.path or os.defpath,
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "HOSTNAME": spec.node_name(machine),
        # No pod can see that all of them share the cores of this machine: idle ranks must not spin.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    if spec.data_nic:
        env["NCCL_SOCKET_IFNAME"] = env["GLOO_SOCKET_IFNAME"] = DATA_NIC.name
    if spec.real_gpus:
        env["A4_GPU_PERSISTENCE"] = "false"  # the GPUs are this machine's, and their settings its owner's
        env.update(job.gpu_variables)
    return env
