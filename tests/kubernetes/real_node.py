"""A node with a real kubelet and containerd, beside the simulated ones.

It stands in the network of the local cluster's bridge, to which its pods are connected, and has mounts, processes and a
host name of its own: all but its cgroups ends with the process that made it, however that ends.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kubernetes.control_plane import (
    ASK_SECONDS,
    FILES,
    KUBECONFIG,
    KUBELET_ADDRESS,
    MASTER,
    READY_SECONDS,
    REAL_ADDRESS,
    ControlPlane,
)

NAME = "real-node"
TAINT = "a4-agent.test/real"
"""Pods come here only if they tolerate it."""
PAUSE = "registry.example/pause:1"
DAEMON = "registry.example/daemon:1"
"""The same program, where A3's daemon for TCPX is."""
PROGRAMS = {PAUSE: "pause", DAEMON: "tcpgpudmarxd/build/app/tcpgpudmarxd"}
"""Images that consist of it, and its path in each."""
CGROUPS = Path("/sys/fs/cgroup")
PREFIX = "a4-node-"
"""Names of the node's cgroups begin so; the PID of this process follows."""
SHARES = "20480"
"""The cgroup's cpu.shares: as much as 20 processes beside it have."""
STATE = "/run/node"
SOCKET = "/run/containerd/containerd.sock"
CTR = ("ctr", "--address", SOCKET, "--namespace", "k8s.io")
TUNABLES = (("vm/overcommit_memory", 1), ("kernel/panic", 10), ("kernel/panic_on_oops", 1))
"""The kubelet would set them, for the whole machine: it is shown files that have them already."""
_BEGIN = """\
set -eu
name=$1 address=$2 state=$3; shift 3
for place in /run /tmp /var; do mount -t tmpfs -o mode=755 none "$place"; done
mkdir -p /var/lib /var/log /var/tmp "$state"
hostname "$name"
ip address add "$address/32" dev pods
for tunable; do
    file=$(mktemp -p "$state")
    echo "${tunable#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${tunable%=*}"
done
echo ready
exec tini -- sleep infinity
"""
_IN_CGROUPS = 'for place in $1; do echo $$ >"$place/cgroup.procs"; done; log=$2; shift 2; exec "$@" >>"$log" 2>&1'
CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE nobody may be made less of a victim than this process is.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{STATE}/cni"
"""
NETWORK = """\
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge",
    "bridge": "pods",
    "ipam": {
      "type": "host-local",
      "ranges": [[{
        "subnet": "198.18.0.0/16",
        "rangeStart": "198.18.200.1",
        "rangeEnd": "198.18.200.250",
        "gateway": "198.18.0.1"
      }]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
"""


class RealNode:
    """Made by `joined`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        self.pid = int(children.read_text())
        """PID of the node's first process."""
        self.root = Path(f"/proc/{self.pid}/root")
        self._programs: list[subprocess.Popen[bytes]] = []

    def write(self, name: str, content: str) -> str:
        """A file; its path for those inside."""
        path = f"{STATE}/{name}"
        (self.root / path[1:]).parent.mkdir(exist_ok=True)
        (self.root / path[1:]).write_text(content)
        return path

    def spawn(self, *argv: str) -> None:
        name = os.path.basename(argv[0])
        places = " ".join(str(place) for place in own_cgroups())
        inside = ("sh", "-c", _IN_CGROUPS, "sh", places, f"{STATE}/{name}.log", *argv)
        process = subprocess.Popen(self._enter(*inside), stdin=subprocess.DEVNULL, start_new_session=True)
        self._programs.append(process)

    def until(self, what: str, *argv: str) -> None:
        """Until a command in it ends with 0. Raises TimeoutError with what its programs have said."""
        deadline = time.monotonic() + READY_SECONDS
        while subprocess.run(self._enter(*argv), capture_output=True, timeout=ASK_SECONDS).returncode:
            if time.monotonic() > deadline or any(one.poll() is not None for one in self._programs):
                raise TimeoutError(f"not: {what}\n{self.said()}")
            time.sleep(0.2)

    def load(self, archive: Path) -> None:
        """An image."""
        with archive.open("rb") as file:
            argv = self._enter(*CTR, "images", "import", "-")
            subprocess.run(argv, stdin=file, capture_output=True, check=True, timeout=ASK_SECONDS)

    def said(self) -> str:
        """The end of what its programs have logged."""
        logs = (self.root / STATE[1:]).glob("*.log")
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in logs)

    def close(self) -> None:
        """Nothing of it runs when this returns."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        for each in (self._process, *self._programs):
            each.wait(ASK_SECONDS)

    def _enter(self, *argv: str) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--ipc", "--net", "--pid", *argv]


@contextmanager
def joined(plane: ControlPlane, place: Path) -> Iterator[RealNode]:
    """`place` is a directory for what is built."""
    _remove_cgroups()
    for cgroup in own_cgroups():
        cgroup.mkdir(parents=True)
        _prepare_cgroup(cgroup)
    argv = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{plane.cluster.supervisor_pid()}/ns/net"]
    argv += ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["sh", "-c", _BEGIN, "sh", NAME, REAL_ADDRESS, STATE, *(f"{name}={value}" for name, value in TUNABLES)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        ) as process,
    ):
        assert process.stdout
        if process.stdout.readline() != b"ready\n":
            errors.seek(0)
            raise RuntimeError(f"the node has not started: {errors.read().decode()}")
        node = RealNode(process)
        try:
            _start(plane, node, place)
            yield node
        finally:
            node.close()
            _remove_cgroups(_cgroup())


def _start(plane: ControlPlane, node: RealNode, place: Path) -> None:
    config = node.write("containerd.toml", CONTAINERD)
    node.write("cni/pods.conflist", NETWORK)
    node.spawn("/usr/bin/containerd", "--config", config)
    node.until("containerd answers", *CTR, "version")
    program, archive = place / "pause", place / "image.tar"
    source = plane.programs.kubernetes / "build/pause/linux/pause.c"
    subprocess.run(["gcc", "-Os", "-static", "-o", program, source], check=True)
    for image, path in PROGRAMS.items():
        archive.write_bytes(image_of(image, program.read_bytes(), path))
        node.load(archive)
    read = plane.cluster.read
    kubeconfig = node.write("kubeconfig", read(MASTER, KUBECONFIG))
    files = {name: node.write(name, read(MASTER, f"{FILES}/{name}")) for name in ("nodes.crt", "nodes.key", "ca.crt")}
    config = node.write("kubelet.json", json.dumps(configuration(files)))
    kubelet, kubectl = (str(plane.programs.directory / name) for name in ("kubelet", "kubectl"))
    addressed = (f"--hostname-override={NAME}", f"--node-ip={REAL_ADDRESS}")
    node.spawn(kubelet, f"--config={config}", f"--kubeconfig={kubeconfig}", *addressed)
    ready = ("wait", "--for=condition=Ready", f"node/{NAME}", "--timeout=2s")
    node.until("the node is ready", kubectl, f"--kubeconfig={kubeconfig}", *ready)
    gpus = json.dumps({"status": {"capacity": {"nvidia.com/gpu": "8"}}})
    plane.kubectl("patch", "node", NAME, "--subresource=status", "--patch", gpus)


def configuration(files: Mapping[str, str]) -> dict[str, Any]:
    """The kubelet's."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_cgroup()}",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": REAL_ADDRESS,
        "healthzPort": 0,
        "tlsCertFile": files["nodes.crt"],
        "tlsPrivateKeyFile": files["nodes.key"],
        "authentication": {"webhook": {"enabled": False}, "x509": {"clientCAFile": files["ca.crt"]}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [KUBELET_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi"},
        "nodeStatusUpdateFrequency": "2s",
        "registerWithTaints": [{"key": TAINT, "effect": "NoSchedule"}],
    }


def image_of(name: str, program: bytes, path: str) -> bytes:
    """An archive of an image that has one program, and runs it."""
    layer = _tar({path: program})
    layers = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    config = {"architecture": "amd64", "os": "linux", "config": {"Entrypoint": [f"/{path}"]}, "rootfs": layers}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    about = {"config.json": config, "manifest.json": manifest}
    return _tar({"layer.tar": layer, **{name: json.dumps(value).encode() for name, value in about.items()}})


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _hierarchies() -> list[Path]:
    """Where cgroups are made: each hierarchy of version 1, or the only one of version 2."""
    places = [CGROUPS] if (CGROUPS / "cgroup.procs").exists() else CGROUPS.iterdir()
    return [place for place in places if (place / "cgroup.procs").exists()]


def _cgroup() -> str:
    return f"{PREFIX}{os.getpid()}"


def own_cgroups() -> list[Path]:
    """For the kubelet and containerd. Pods have theirs beside it: version 2 wants processes at the ends alone."""
    return [place / _cgroup() / "programs" for place in _hierarchies()]


def _prepare_cgroup(cgroup: Path) -> None:
    """In version 1 it begins without a core to run on, and all in it has the share of one process beside it."""
    root = cgroup.parent.parent
    if root.name == "cpuset":
        for name in ("cpuset.cpus", "cpuset.mems"):
            for each in (cgroup.parent, cgroup):
                (each / name).write_text((root / name).read_text())
    elif root.name.startswith("cpu") and (cgroup.parent / "cpu.shares").exists():
        (cgroup.parent / "cpu.shares").write_text(SHARES)


def _remove_cgroups(name: str = "") -> None:
    """Those of this name, or of processes that were killed."""
    for place in _hierarchies():
        for path in place.glob(f"{PREFIX}*"):
            if path.name == name or not os.path.exists(f"/proc/{path.name.removeprefix(PREFIX)}"):
                for directory, _, _ in os.walk(path, topdown=False):
                    with suppress(OSError):
                        os.rmdir(directory)
