"""What the chart refuses by looking at several values together, and what it does with a launcher of the old charts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chart.helm import ENGINES, Engines, HelmRefused, sets

by_engine = pytest.mark.parametrize("engine", ENGINES)

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no image": (("workload.image=",), "workload.image is not set"),
    "part of a second node": (("workload.gpus=12",), "workload.gpus=12: .*such as 8 or 16"),
    "nodes to use and to avoid": (("targetNodes={a}", "avoidNodes={b}"), "targetNodes and avoidNodes are both set"),
    "NFS without an address": (("volumes.nfs.enabled=true",), "set volumes.nfs.ip"),
    "half a Filestore instance": (("volumes.nfs.ip=10.0.0.2", "volumes.nfs.instance=f"), "volumes.nfs.region"),
    "Lustre by its address alone": (("volumes.lustre.ip=10.0.0.3",), "set volumes.lustre.filesystem"),
    "two things to run": (("task_script=echo", "workload.run=nccl"), "task_script, workload.run=nccl"),
    "a script beside DeepEP": (("task_script=echo", "workload.env.RUN_DEEPEP_TEST=true"), "RUN_DEEPEP_TEST=true"),
    "two scripts": (("task_script=echo", "workload_launcher=echo"), "workload_launcher, task_script"),
    "script without one": (("workload.run=script",), "--set-file task_script=FILE"),
    "a workload as launcher": (("workload_launcher=exec a4-agent run nccl",), "set workload.run=nccl"),
    "Pai-Megatron without a place": (("workload.run=pai-megatron-qwen3",), "storage that all pods share"),
    "DeepEP on one node": (("workload.run=deepep", "workload.gpus=8"), "workload.gpus to 16"),
    "DWS without Kueue": (("dwsSettings.maxRunDurationSeconds=3600",), "set queue"),
    "a request that Kueue does not know": (("queue=q", "tasSettings.topologyRequest.a=b"), "exactly one"),
    "a variable of the pod contract": (("workload.env.NNODES=2",), "NNODES is the chart's to set: use workload.gpus"),
    "the same by number": (("workload.envs[9].name=A4_SSH_PORT", "workload.envs[9].value=22"), "use network.sshPort"),
    "a variable without a name": (("workload.envs[9].value=2",), r"workload.envs\[9\] has no name"),
    "a second bucket in no place": (("volumes.gcsMounts[1].bucketName=b",), r"volumes.gcsMounts\[1\] has no mountPath"),
    "two volumes in one place": (
        ("volumes.nfs.ip=10.0.0.2", "volumes.pvcMounts[0].claimName=c", "volumes.pvcMounts[0].mountPath=/mnt"),
        "both to be mounted at /mnt",
    ),
    "TCPX with part of a node": (("network.tcpx.enabled=true", "workload.gpus=4"), "workload.gpus to 8"),
    "NFS without a share": (("volumes.nfs.ip=10.0.0.2", "volumes.nfs.volume="), "volumes.nfs.volume is not set"),
    "a bucket with its scheme": (("volumes.gcsMounts[0].bucketName=gs://b",), "without gs://"),
    "a claim in no place": (("volumes.pvcMounts[0].claimName=c",), "both claimName and mountPath"),
    "a setting of NCCL without a name": (("network.ncclSettings[5].value=1",), r"ncclSettings\[5\] has no name"),
    "TCPX without a daemon": (("network.tcpx.enabled=true,network.tcpx.daemonImage=",), "daemonImage is not set"),
    "nothing to run and a script": (("workload.run=none", "task_script=echo"), "workload.run=none beside task_script"),
    "one host for many pods": (
        ("queue=q", "tasSettings.mode=required,tasSettings.level=host"),
        "tasSettings asks for one host",
    ),
    "neither sleep nor not": (("workload.env.SLEEP_INFINITY=perhaps",), "SLEEP_INFINITY=perhaps: write true or false"),
}


@by_engine
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_and_what_to_write_is_said(engines: Engines, engine: str, case: str) -> None:
    settings, said = REFUSED[case]
    with pytest.raises(HelmRefused, match=said):
        engines.with_values(*sets(*settings), engine=engine)


@by_engine
def test_everything_that_is_wrong_is_said_at_once(engines: Engines, engine: str) -> None:
    with pytest.raises(HelmRefused) as refused:
        engines.with_values(*sets("workload.image=", "workload.gpus=12", "queue="), engine=engine, release="9-lives")
    said = str(refused.value)
    assert "a4-agent: these values cannot be used:\n- " in said
    assert all(part in said for part in ("workload.image", "workload.gpus=12", "9-lives"))


@by_engine
def test_a_release_has_as_long_a_name_as_its_pods_leave_room_for(engines: Engines, engine: str) -> None:
    # <name>-workload-0-0-xxxxx
    fits = 63 - len("-workload-0-0-xxxxx")
    engines.with_values(engine=engine, release="a" * fits)
    with pytest.raises(HelmRefused, match=f"at most {fits}"):
        engines.with_values(engine=engine, release="a" * (fits + 1))


@by_engine
def test_a_script_that_fits_into_no_config_map_is_refused(engines: Engines, tmp_path: Path, engine: str) -> None:
    script = tmp_path / "script.sh"
    script.write_text("#" * 1_000_001)
    with pytest.raises(HelmRefused, match="larger than the 1,000,000 bytes"):
        engines.with_values("--set-file", f"task_script={script}", engine=engine)


def test_a_refusal_shows_no_secret(engines: Engines) -> None:
    with pytest.raises(HelmRefused) as refused:
        engines.with_values(*sets("workload.gpus=12", "workload.env.HF_TOKEN=canary-0123456789"))
    assert "canary" not in str(refused.value)


BOOTSTRAP = "mkdir -p /run/sshd\n/usr/sbin/sshd -p 2222\necho a slots=8 >> /etc/job-worker-services.txt\n"
LAUNCHERS = {
    "exec a4-agent run": False,
    "#!/bin/bash\n# ours\nset -euo pipefail\n\nexec a4-agent run\n": False,
    'a4-agent run "$@"\n': False,
    BOOTSTRAP: False,
    f"#!/bin/bash\n{BOOTSTRAP}sleep infinity\n": False,
    "#!/bin/bash\r\nexec a4-agent run\r\n": False,
    "# a comment alone\n": False,
    "echo hello\n": True,
    "# as sshd and /etc/job-worker-services.txt of old\ntorchrun train.py\n": True,
    "mpirun --hostfile /etc/job-worker-services.txt hostname\n": True,
    "python3 train.py && a4-agent run\n": True,
    "/usr/sbin/sshd -p 2222\npython3 train.py\n": True,
}
"""What stands in workload_launcher, and whether it is run."""


@by_engine
@pytest.mark.parametrize("content", LAUNCHERS)
def test_a_launcher_runs_unless_the_agent_does_all_that_it_does(
    engines: Engines, tmp_path: Path, engine: str, content: str
) -> None:
    launcher = tmp_path / "launcher.sh"
    launcher.write_bytes(content.encode())
    rendered = engines.with_values("--set-file", f"workload_launcher={launcher}", engine=engine)
    runs = LAUNCHERS[content]
    assert [found["data"] for found in rendered.kind("ConfigMap")] == [{"task-script.sh": content}] * runs
    assert rendered.env["SLEEP_INFINITY"] == ("false" if runs else "true")
    assert ("drop the flag" in rendered.notes) == (not runs and content != "# a comment alone\n")


@by_engine
@pytest.mark.parametrize(
    ("settings", "sleeps"),
    [
        (("workload.run=nccl",), "false"),
        (("workload.run=none",), "true"),
        (("workload.run=nccl", "workload.sleepInfinity=true"), "true"),
        (("workload.sleepInfinity=false",), "false"),
        (("workload.sleepInfinity=true", "workload.env.SLEEP_INFINITY=false"), "false"),
        (("workload.env.SLEEP_INFINITY=true", "workload.envs[1].value=false"), "false"),
        (("workload.envs[1].value=true", "workload.run=nccl"), "true"),
        (("workload.env.SLEEP_INFINITY=TRUE", "workload.run=nccl"), "true"),
    ],
)
def test_who_decides_whether_the_cluster_stays(
    engines: Engines, engine: str, settings: tuple[str, ...], sleeps: str
) -> None:
    assert engines.with_values(*sets(*settings), engine=engine).env["SLEEP_INFINITY"] == sleeps


@by_engine
def test_holes_in_lists_are_left_out(engines: Engines, engine: str) -> None:
    settings = (
        "workload.envs[11].name=ELEVEN,workload.envs[11].value=11",
        "volumes.pvcMounts[2].claimName=mine,volumes.pvcMounts[2].mountPath=/data",
        "volumes.gcsMounts[1].bucketName=b,volumes.gcsMounts[1].mountPath=/b",
        "network.ncclSettings[3].name=NCCL_DEBUG,network.ncclSettings[3].value=INFO",
        "targetNodes[1]=node-1",
    )
    rendered = engines.with_values(*sets(*settings), engine=engine)
    assert (rendered.env["ELEVEN"], rendered.env["NCCL_DEBUG"]) == ("11", "INFO")
    assert {"/data", "/b"} <= rendered.mounts.keys()
    assert "node-1" in str(rendered.pod["affinity"])


@by_engine
def test_null_is_not_set(engines: Engines, tmp_path: Path, engine: str) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        "{queue: , dwsSettings: {maxRunDurationSeconds: }, tasSettings: {topologyRequest: }, targetNodes: , network: "
        "{subnetworks: , ncclSettings: }, workload: {arguments: , envs: , env: {A: }}, volumes: {nfs: , lustre: }}"
    )
    nulls = engines.with_values("-f", str(values), engine=engine)
    assert nulls.jobset == engines.with_values(engine=engine).jobset
