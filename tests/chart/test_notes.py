"""What the notes of a release say of values that do nothing, or not what they seem to."""

from __future__ import annotations

from tests.chart.helm import Engines, Rendered

NOTES = {
    "queue=": "queue is empty: the job starts without Kueue. If it came from a variable of your",
    "workload.run=": "workload.run is empty: if it came from a variable of your shell",
    "network.gibVersion=registry.example/gib": "network.gibVersion is latest",
    "network.gibVersion=latest": "network.gibVersion is latest",
    "pai_training_script=echo": "storage that all pods share, and there is none",
    "workload.gcsSidecarImage=registry.example/sidecar:1": "workload.gcsSidecarImage does nothing without a bucket",
    "network.subnetworks={a}": "network.subnetworks are for hostNetwork: false",
    "volumes.gcsMounts[1].mountPath=/b": "volumes.gcsMounts[1] has no bucketName: no bucket is mounted for it",
    "volumes.pvcMounts[0].claimName=nfs-pvc,volumes.pvcMounts[0].mountPath=/mnt": (
        "volumes.pvcMounts names nfs-pvc, but volumes.nfs is off"
    ),
    "workload.envs[7].value=/mnt": "PAI_WORKSPACE_ROOT was /mnt, where nothing is mounted",
    "workload.env.A4_OUR_OWN=1": "A4_OUR_OWN is none of a4-agent's settings (docs/settings.md): only your own programs",
    "dnsPolicy=ClusterFirst": "dnsPolicy=ClusterFirst: pods ask the DNS server of their node, by which they find each",
    "workload.configFile=x.yaml": (
        "workload.configFile=x.yaml is the name of a file that is not given: add --set-file workload_config=x.yaml"
    ),
    "workload.envs[1].value=true,workload.sleepInfinity=false": (
        "SLEEP_INFINITY is true and workload.sleepInfinity false"
    ),
    "workload.workflow.enabled=false,volumes.nfs.ip=10.0.0.2,volumes.nfs.instance=a": (
        "volumes.nfs.instance does nothing beside workload.workflow"
    ),
}
"""Settings, and what is said of them."""


def notes(rendered: Rendered) -> list[str]:
    _, _, listed = rendered.notes.partition("Please note:\n")
    return listed.rstrip("\n").split("\n") if listed else []


NO_NOTES = (
    "",
    "queue=null",
    "dnsPolicy=ClusterFirst,network.hostNetwork=false",
    "workload.run=null",
    "network.gibVersion=registry.example/gib@sha256:abc",
    "network.gibVersion=registry.example:5000/gib:v1",
    "pai_training_script=echo,volumes.nfs.ip=10.0.0.2",
    "volumes.nfs.ip=10.0.0.2,workload.env.PAI_WORKSPACE_ROOT=/mnt/me",
)


def test_what_does_nothing_is_noted_and_nothing_else(engines: Engines) -> None:
    for settings, (note,) in engines.facts(notes, NOTES).items():
        assert note.startswith("- ") and NOTES[settings] in note
        assert note.endswith(".")
    assert engines.facts(notes, NO_NOTES) == {settings: [] for settings in NO_NOTES}


def test_they_tell_that_an_upgrade_runs_a_finished_job_again(engines: Engines) -> None:
    notes = " ".join(engines.with_settings().notes.split())
    assert (
        "removes the JobSet 43200 s after its end, and an upgrade after that, also by a tool that reconciles" in notes
    )
    kept = engines.with_settings("workload.ttlSecondsAfterFinished=null")
    assert "runs the job again" not in kept.notes and "ttlSecondsAfterFinished" not in kept.jobset["spec"]


def test_the_path_of_results_is_that_of_the_first_attempt(engines: Engines) -> None:
    rendered = engines.with_settings("volumes.gcsMounts[0].bucketName=b")
    env = {entry["name"]: entry.get("value") for entry in rendered.workload["env"]}
    uid = "$(kubectl get jobset -n team-a demo -o jsonpath='{.metadata.uid}')"
    assert f"gs://b/testbed-logs/{env['JOB_IDENTIFIER']}/{uid}.0.0" in rendered.notes
    own = engines.with_settings("volumes.gcsMounts[0].bucketName=b,workload.env.A4_RESULTS_DIR=/gcs/mine")
    assert "/gcs/mine in the pods" in own.notes


def test_with_lives_commands_find_the_pod_that_is_not_lost(engines: Engines) -> None:
    first = "-l jobset.sigs.k8s.io/jobset-name=demo,batch.kubernetes.io/job-completion-index=0"
    pod = f"$(kubectl get pods -n team-a -o name {first})"
    settings = "workload.run=none"
    usual, lives = engines.with_settings(settings).notes, engines.with_settings(settings, "workload.lives=1").notes
    assert f"-c workload {first}\n" in usual and f"-it {pod} " in usual and "field-selector" not in usual
    by_phase = [pod.replace(" -l", f" --field-selector=status.phase{phase} -l") for phase in ("!=Failed", "=Running")]
    assert [f"-c workload {by_phase[0]}\n" in lives, f"-it {by_phase[1]} " in lives] == [True, True]


def test_notes_show_no_secret(engines: Engines) -> None:
    rendered = engines.with_settings("workload.env.HF_TOKEN=canary,workload.envs[2].value=canary,queue=")
    assert "canary" not in rendered.notes
