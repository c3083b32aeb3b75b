"""What the chart renders starts the real agent: environment, mounts, scripts and probes, in pods of a local cluster."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from agent.fabrics.a3_tcpx import MARK as TCPX
from agent.paths import SECRET_FILE
from agent.settings import SETTINGS
from agent.workbench.local.podenv import ClusterBuild, contract
from agent.workbench.local.running_command import Running
from agent.workbench.local.spec import ClusterSpec
from tests.chart.helm import CHART, KUBERNETES, LOADER, Helm3
from tests.cluster.chart_pods import (
    NAMESPACE,
    UID,
    Attempt,
    ChartPods,
    Object,
    after_init,
    beside,
    pods_of_release,
)
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Start, Trial, all_codes
from tests.cluster.fabric import GIB_TEXT, library_of_bash
from tests.cluster.work import until_phase

CI = CHART / "ci"
IMAGE = "registry.example/a4-agent:1"
HANG_SECONDS = 120.0
"""After which a container that should end does not."""
IDLE = ("tini", "--", "sleep", "infinity")
INSTALLER = "nccl-plugin-installer"
DAEMON = "tcpx-daemon"
WATCHED = "/run/workload/alive"


def release() -> str:
    """Clusters of one machine need different names."""
    return f"chart-{secrets.token_hex(4)}"


class Chart(Protocol):
    """The chart as Helm renders it: the objects of one release with these values, one after the other."""

    def __call__(self, *given: Path | Object, name: str = "") -> list[Object]: ...


@pytest.fixture
def chart(tmp_path: Path) -> Chart:
    helm = Helm3(tmp_path, tmp_path / "no-cluster")

    def render(*given: Path | Object, name: str = "") -> list[Object]:
        files = []
        for number, one in enumerate(given):
            file = one if isinstance(one, Path) else tmp_path / f"{number}.yaml"
            if not isinstance(one, Path):
                file.write_text(json.dumps(one))
            files += ["--values", str(file)]
        text = helm.done("template", *KUBERNETES, "--namespace", NAMESPACE, *files, name or release(), str(CHART))
        return [found for found in yaml.load_all(text, LOADER) if found]

    return render


def values(**workload: Any) -> Object:
    """The values of a job without gIB, but for what is said."""
    return {"workload": {"image": IMAGE, **workload}, "network": {"gibVersion": ""}}


def sleeps(trial: Trial) -> Trial:
    until_phase(trial, "sleeping", *range(trial.cluster.spec.pods))
    return trial


def typed(trial: Trial, index: int, *words: str) -> str:
    """What a command in a pod prints, as people type it."""
    done = trial.cluster.exec(index, words, timeout=END_SECONDS)
    assert done.returncode == 0, done
    return done.stdout


# The pod contract


def test_the_chart_gives_the_whole_pod_contract(chart: Chart) -> None:
    """What the local cluster gives its pods in place of a chart, a chart gives them too, and says the same."""
    name = release()
    pods = pods_of_release(chart(values(gpus=24), name=name))
    spec = ClusterSpec(pods=3, name=name)
    by_default = {setting.name: setting.default for setting in SETTINGS}
    for index in range(3):
        wanted = contract(spec, ClusterBuild(UID, "now", ""), index, index)
        # Those that say what the agent does anyway.
        assert wanted.pop("A4_METADATA_HOST") == by_default["A4_METADATA_HOST"]
        assert wanted.pop("A4_SECRET_FILE") == by_default["A4_SECRET_FILE"] == SECRET_FILE
        wanted["JOB_IDENTIFIER"] = name  # a chart has no clock
        wanted |= {"POD_NAME": f"{name}-workload-0-{index}-x7k2p", "NODE_NAME": f"gke-node-{index}"}
        given = pods.environment("workload", index, Attempt(0, 0))
        assert {key: given.get(key) for key in wanted} == wanted
    (secret,) = (mount for mount in pods.mounts("workload") if SECRET_FILE.startswith(f"{mount.path}/"))
    assert (list(secret.files), secret.mode, len(secret.files["job-secret"])) == (["job-secret"], 0o400, 64)


# Clusters


def test_an_interactive_cluster(start: Start, chart: Chart) -> None:
    """Also of a later attempt: its number is part of the epoch, from which every key of the job is derived."""
    pods = pods_of_release(chart(values(gpus=16)))
    trial = sleeps(start(**pods.cluster(attempt=Attempt(2, 1))))
    names = [trial.cluster.spec.pod_name(index) for index in range(2)]
    for index in range(2):
        state = json.loads(typed(trial, index, "a4-agent", "status", "--json"))["state"]
        assert (state["phase"], state["epoch"]) == ("sleeping", f"{UID}.2.1")
        hostfile = typed(trial, index, "a4-agent", "hostfile")
        assert hostfile == "".join(f"{name} slots=8\n" for name in names)
        assert typed(trial, index, "bash", "-ic", f"ssh {names[1 - index]} hostname").split() == [
            trial.cluster.spec.node_name(1 - index)
        ]
        probe(trial, pods, "startupProbe", index)
        probe(trial, pods, "livenessProbe", index)
    typed(trial, 1, "a4-agent", "release")
    all_codes(trial, 0)


SCRIPT = r"""
printf '<%s>' "$@"
[ "$(printf %s "$HF_TOKEN" | tail -c 6):$(printf %s "$WANDB_API_KEY" | tail -c 6)" = canary:canary ] && echo tokens
echo "$NCCL_DEBUG, $FREE"
[ "$A4_NODE_RANK" = 1 ] || exec touch /mnt/said
until [ -e /mnt/said ]; do sleep 0.02; done
exit 7
"""
ARGUMENTS = ["--lr", "1e-4", "two words", "it's", '"', "$HOME", "é", ""]


def test_a_script_with_arguments_and_tokens(start: Start, chart: Chart) -> None:
    given = values(
        gpus=16,
        arguments=ARGUMENTS,
        env={"HF_TOKEN": "hf_made_by_the_chart_canary", "FREE": 'it\'s "free"; $HOME\nand long'},
        envFromSecrets={"WANDB_API_KEY": {"secret": "mine", "key": "wandb"}},
    )
    more: Object = {"task_script": SCRIPT, "network": {"ncclSettings": [{"name": "NCCL_DEBUG", "value": "INFO"}]}}
    objects = chart(given, more)
    pods = pods_of_release(objects, {"mine": {"wandb": b"kept_by_its_user_canary"}})
    trial = start(**pods.cluster())
    all_codes(trial, 7)
    said = "".join(f"<{word}>" for word in ARGUMENTS) + 'tokens\nINFO, it\'s "free"; $HOME\nand long\n'
    for index in range(2):
        assert trial.cluster.logs(index, "out") == said
        # Nor in what the agent keeps of the pod.
        found = trial.cluster.read_bytes(
            index, [f"{RUN_DIR}/{name}" for name in ("env.sh", "events.jsonl", "facts.json")]
        )
        assert all(content and b"canary" not in content for content in found.values())
    assert "canary" not in trial.log()


# Probes: they start no Python, and what they find is what is there


def probe(trial: Trial, pods: ChartPods, name: str, index: int = 0, *, succeeds: bool = True) -> None:
    """Run a probe's command in a pod, without anything that could start Python."""
    words = pods.container("workload")[name]["exec"]["command"]
    assert "python" not in " ".join(words) and "a4-agent run" not in " ".join(words)
    done = trial.cluster.exec(index, words, timeout=END_SECONDS)
    assert (done.returncode == 0) == succeeds, (name, done)


def test_the_liveness_probe(start: Start, chart: Chart) -> None:
    """In a pod without an agent, so that the file is as it is left."""
    pods = pods_of_release(chart(values(gpus=8)))
    trial = start(**{**pods.cluster(), "entrypoint": IDLE})
    probe(trial, pods, "livenessProbe", succeeds=False)
    typed(trial, 0, "mkdir", RUN_DIR)
    typed(trial, 0, "touch", f"{RUN_DIR}/alive")
    probe(trial, pods, "livenessProbe")
    typed(trial, 0, "touch", "-d", "1 hour ago", f"{RUN_DIR}/alive")
    probe(trial, pods, "livenessProbe", succeeds=False)


# The gIB installer


def gib_image(entry: str = "") -> dict[str, bytes]:
    """What the installer's image has, under /image."""
    name, content = library_of_bash()
    install = entry or (
        'set -e; [ "$*" = "install --install-nccl" ]\n'
        "mkdir -p /var/lib/gib/scripts /var/lib/gib/configs\n"
        "cp -r /built/lib64 /var/lib/gib\n"
        "cp /built/set_nccl_env.sh /var/lib/gib/scripts\n"
    )
    return {
        "/image/scripts/container_entry.sh": b"#!/bin/bash\n" + install.encode(),
        "/image/built/set_nccl_env.sh": GIB_TEXT,
        f"/image/built/lib64/{name}": content,
        "/image/var/lib/mine": b"",
        "/image/diagnostic/check.sh": b"",
        "/image/third_party/nccl-tests/build/all_reduce_perf": b"#!/bin/sh\necho reduced\n",
    }


def installed(pods: ChartPods) -> dict[str, Any]:
    """A cluster whose pods run the installer first."""
    cluster = pods.cluster()
    cluster["entrypoint"] = after_init(pods, INSTALLER, cluster["entrypoint"])
    return {**cluster, "files": gib_image()}


AFTER_GIB = """
printf '%s ' "$NCCL_NET" "$NCCL_CROSS_NIC" "$NCCL_IB_TC"
/third_party/nccl-tests/build/all_reduce_perf
ls /scripts/container_entry.sh /diagnostic
"""


def test_the_gib_installer_and_what_follows(start: Start, chart: Chart) -> None:
    """The workload's container finds what the installer has left, and the user's own variables come first."""
    network = {"gibVersion": "v1.1.1", "ncclSettings": [{"name": "NCCL_CROSS_NIC", "value": 2}]}
    own: Object = {"network": network, "task_script": AFTER_GIB}
    pods = pods_of_release(chart(values(gpus=8, env={"NCCL_NET": "Socket"}), own))
    trial = start(**installed(pods))
    all_codes(trial, 0)
    assert trial.cluster.logs(0, "out").endswith(
        "Socket 2 52 reduced\n/scripts/container_entry.sh\n\n/diagnostic:\ncheck.sh\n"
    )
    assert "profile a4-gib" in trial.log()


FAULTS = (
    ("echo 'no RDMA here' >&2; exit 3\n", "container_entry.sh has ended with 3"),
    ("mkdir -p /var/lib/gib/scripts\n", "it has left no /var/lib/gib/lib64"),
    ("mkdir -p /var/lib/gib; cp -r /built/lib64 /var/lib/gib\n", "it has left no /var/lib/gib/scripts/set_nccl_env.sh"),
)


def test_an_installer_that_fails_or_leaves_half(start: Start, chart: Chart) -> None:
    """Nothing follows it in its pod, and its log says what is missing."""
    pods = pods_of_release(chart(values(gpus=8), {"network": {"gibVersion": "v1"}}))
    images = [gib_image(entry).items() for entry, _ in FAULTS]
    files = {f"/{n}{path}": content for n, image in enumerate(images) for path, content in image}
    trial = start(**{**pods.cluster(), "entrypoint": IDLE}, files=files)
    for n, (_, said) in enumerate(FAULTS):
        done = trial.cluster.exec(0, beside(pods, INSTALLER, image=f"/{n}/image"), timeout=END_SECONDS)
        assert done.returncode != 0 and said in done.stdout + done.stderr, done


# TCPX: the plain sidecar, which nobody ends with the job

PLAIN = CI / "a3-tcpx-plain-sidecar-values.yaml"
TCPX_DAEMON = b"""#!/bin/sh
trap 'sleep 0.1; echo in good order >/run/tcpx/ended; exit 5' TERM
echo "$*" >/run/tcpx/started
until [ -e /run/tcpx/fail ]; do sleep 0.02; done
exit 9
"""
LOSES_A_SIGNAL = TCPX_DAEMON.replace(b"trap '", b"trap 'trap \"", 1).replace(b"' TERM", b"\" TERM' TERM", 1)
"""Does nothing on the first SIGTERM: the shell that becomes the daemon can still take it away from it."""


class Pair:
    """A pod with two containers, each started and ended by the test."""

    def __init__(self, start: Start, chart: Chart, daemon: bytes = TCPX_DAEMON, **values: Any) -> None:
        self.pods = pods_of_release(chart(PLAIN, {"workload": {"gpus": 8, **values}}))
        files = {"/image/tcpgpudmarxd/build/app/tcpgpudmarxd": daemon}
        self.trial = start(**{**self.pods.cluster(), "entrypoint": IDLE}, files=files)

    @contextmanager
    def container(self, name: str) -> Iterator[Running]:
        with self.trial.cluster.popen(0, beside(self.pods, name)) as running:
            yield running

    def started(self) -> None:
        self.trial.until(0, f"test -e {TCPX}/started")

    def has_ended(self) -> str:
        """What the daemon has left; nothing: it was not asked to end, or not given the time for it."""
        (content,) = self.trial.cluster.read_bytes(0, [f"{TCPX}/ended"]).values()
        return (content or b"").decode()

    @contextmanager
    def both(self, alone: bool) -> Iterator[Running]:
        """The daemon has started and, unless it is alone, the workload too, which it watches then."""
        typed(self.trial, 0, "rm", "-rf", *(f"{TCPX}/{name}" for name in ("started", "ended", "fail")), RUN_DIR)
        with ExitStack() as stack:
            if not alone:
                stack.enter_context(self.container("workload"))
                sleeps(self.trial)
            daemon = stack.enter_context(self.container(DAEMON))
            self.started()
            if not alone:
                self.trial.until(0, f"ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q '^lr-x.*{WATCHED}'")
            yield daemon


def test_the_tcpx_daemon_ends_with_the_workload(start: Start, chart: Chart) -> None:
    pair = Pair(start, chart, run="none", sleepInfinity=False)
    with pair.container(DAEMON) as daemon:
        pair.started()
        with pair.container("workload") as workload:
            assert workload.wait(HANG_SECONDS) == 0
        assert (daemon.wait(HANG_SECONDS), pair.has_ended()) == (0, "in good order\n")
    with pair.container(DAEMON) as late:
        assert late.wait(HANG_SECONDS) == 0
    options = "--gpu_nic_preset a3vm --gpu_shmem_type fd --uds_path /run/tcpx --setup_param --verbose 128 2 0 \n"
    assert pair.trial.cluster.read(0, f"{TCPX}/started") == options


def test_the_tcpx_daemon_ends_with_a_workload_that_is_killed(start: Start, chart: Chart) -> None:
    pair = Pair(start, chart, LOSES_A_SIGNAL, run="none", sleepInfinity=True)
    with pair.container("workload") as workload:
        sleeps(pair.trial)
        shown = json.loads(typed(pair.trial, 0, "a4-agent", "env", "--json"))
        assert shown["profile"] == "a3-tcpx"
        with pair.container(DAEMON) as daemon:
            pair.started()
            assert pair.has_ended() == ""
            workload.signal(signal.SIGKILL)
            assert (daemon.wait(HANG_SECONDS), pair.has_ended()) == (0, "in good order\n")


def test_a_tcpx_daemon_that_fails_or_is_told_to_end(start: Start, chart: Chart) -> None:
    """Whether the workload runs yet or not: its code is the container's, and when the pod is deleted it has the time
    that it takes."""
    pair = Pair(start, chart, run="none", sleepInfinity=True)
    for alone in (True, False):
        with pair.both(alone) as daemon:
            typed(pair.trial, 0, "touch", f"{TCPX}/fail")
            assert daemon.wait(HANG_SECONDS) == 9, alone
        with pair.both(alone) as daemon:
            # PID 1 of the container that was started last.
            typed(pair.trial, 0, "sh", "-c", "pkill -TERM -P $(pgrep -n -x unshare)")
            daemon.wait(HANG_SECONDS)
            assert pair.has_ended() == "in good order\n", alone
