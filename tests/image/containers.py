"""Images and containers by podman, and the network of pods in which they meet."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.chart.helm import Rendered

ROOT = Path(__file__).resolve().parents[2]
STORE = Path("/var/lib/containers")
SECONDS = 600.0
RELEASE = "bookworm"
HUB = "198.18.77.1"
CGROUP = os.environ.get("IMAGE_CGROUP", "/a4-image")
"""Where scripts/test-image.sh looks for what is left."""
SITES = "/etc/apt/sources.list"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PIP_OPTIONS = {"index-url", "extra-index-url", "trusted-host", "proxy"}


def done(*argv: str | Path, cwd: Path | None = None, seconds: float = SECONDS) -> str:
    """Standard output of a command that must end with 0."""
    result = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, timeout=seconds)
    assert result.returncode == 0, f"{argv} has ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    return result.stdout


def podman(*words: str | Path, cwd: Path | None = None) -> str:
    return done("podman", "--cgroup-manager", "cgroupfs", *words, cwd=cwd).strip()


class Host(NamedTuple):
    """How this machine reaches packages: for builds, and never in an image."""

    mirror: str
    files: Path
    """What builds get to see."""
    marker: str
    """A word in what they see."""

    @property
    def options(self) -> list[str]:
        """For `podman build`: while it builds, files of this machine hide those of the base."""
        mounts = {CERTIFICATES: CERTIFICATES, str(self.files / "sources.list"): SITES, str(self.files / "pip"): "/mnt"}
        volumes = [word for source, target in mounts.items() for word in ("--volume", f"{source}:{target}:ro")]
        return ["--network", "host", *volumes]


def this_host(release: str, files: Path) -> Host:
    """The mirror of Debian and the configuration of pip that this machine uses itself."""
    query = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Component: main")
    mirrors = [uri for uri in done(*query).split() if uri.rstrip("/").endswith("/debian")]
    mirror = (mirrors or ["http://deb.debian.org/debian"])[0].rstrip("/")
    marker = f"# a build's own: {secrets.token_hex(16)}\n"
    lines = [line.partition("=") for line in done(sys.executable, "-m", "pip", "config", "list").splitlines()]
    options = {name.rpartition(".")[2]: value.strip("'") for name, _, value in lines}
    kept = {name: value for name, value in options.items() if name in PIP_OPTIONS and not value.startswith("file:")}
    text = "".join(f"{name} = {value}\n" for name, value in {**kept, "cert": CERTIFICATES}.items())
    (files / "pip").mkdir(parents=True)
    (files / "pip/pip.conf").write_text(f"{marker}[global]\n{text}")
    (files / "sources.list").write_text(f"{marker}deb {mirror} {release} main\n")
    return Host(mirror, files, marker.strip())


def make_base(release: str, host: Host, name: str, *packages: str, without: Sequence[str] = ()) -> None:
    """An image of Debian as debootstrap makes it, without some files, which names Debian's own mirror."""
    place = STORE / f"base-{release}"
    words = ("--variant=minbase", f"--include={','.join(('ca-certificates', *packages))}", release, place, host.mirror)
    done("debootstrap", *words)
    for file in without:
        (place / file).unlink()
    (place / SITES[1:]).write_text(f"deb http://deb.debian.org/debian {release} main\n")
    with subprocess.Popen(["tar", "-C", str(place), "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["podman", "import", "--quiet", "-", name], stdin=tar.stdout, check=True, capture_output=True)
    assert tar.returncode == 0
    done("rm", "-rf", place)


def build(recipe: str, base: str, name: str, context: Path, host: Host) -> None:
    options = ("--isolation", "chroot", "--layers=false", "--build-arg", f"BASE={base}", *host.options)
    pip = ("--build-arg", "PIP_CONFIG_FILE=/mnt/pip.conf")
    podman("build", *options, *pip, "--file", context / recipe, "--tag", name, context)


class Images(NamedTuple):
    """Names of the images, and what they were built with."""

    base: str
    without_agent: str
    image: str
    host: Host


def build_images(context: Path, files: Path) -> Images:
    host = this_host(RELEASE, files)
    made = Images("localhost/debian:12", "localhost/without-agent", "localhost/a4-agent-cpu:debian12", host)
    make_base(RELEASE, host, made.base)
    build("docker/a4-agent-cpu/Dockerfile", made.base, made.without_agent, context, host)
    build("docker/agent.Dockerfile", made.without_agent, made.image, context, host)
    return made


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """The files of an image."""
    yield Path(podman("image", "mount", image))
    podman("image", "umount", image)


class Pod(NamedTuple):
    """One container, as the kubelet would start it."""

    number: int
    name: str
    process: subprocess.Popen[str]
    termination_log: Path
    output: Path

    def execute(self, *command: str) -> int:
        """Exit code of a command in the container, as a probe runs it."""
        argv = ["podman", "--cgroup-manager", "cgroupfs", "exec", self.name, *command]
        return subprocess.run(argv, capture_output=True, timeout=SECONDS).returncode

    def reaches(self, port: int) -> bool:
        """Whether the port answers, asked from outside, as a readiness probe does."""
        code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()"
        argv = ["ip", "netns", "exec", "hub", sys.executable, "-c", code, address(self.number), str(port)]
        return subprocess.run(argv, capture_output=True, timeout=SECONDS).returncode == 0

    def code(self) -> int:
        return self.process.wait(SECONDS)

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def ending(self) -> Mapping[str, Any]:
        """Its termination message."""
        found: Mapping[str, Any] = json.loads(self.termination_log.read_text())
        return found


def address(index: int) -> str:
    return f"198.18.77.{10 + index}"


@contextmanager
def network(names: Sequence[str]) -> Iterator[None]:
    """A namespace pod-<i> for each of these names, a bridge between them, and a DNS server that knows them."""
    done("ip", "netns", "add", "hub")
    hub = ("ip", "-n", "hub")
    done(*hub, "link", "set", "lo", "up")
    done(*hub, "link", "add", "bridge", "type", "bridge")
    done(*hub, "address", "add", f"{HUB}/24", "dev", "bridge")
    done(*hub, "link", "set", "bridge", "up")
    for index in range(len(names)):
        pod = ("ip", "-n", f"pod-{index}")
        done("ip", "netns", "add", f"pod-{index}")
        done(*hub, "link", "add", f"veth{index}", "type", "veth", "peer", "name", "eth0", "netns", f"pod-{index}")
        done(*hub, "link", "set", f"veth{index}", "master", "bridge", "up")
        done(*pod, "address", "add", f"{address(index)}/24", "dev", "eth0")
        done(*pod, "link", "set", "lo", "up")
        done(*pod, "link", "set", "eth0", "up")
        done(*pod, "route", "add", "default", "via", HUB)
    records = [f"--host-record={name},{address(index)}" for index, name in enumerate(names)]
    server = ("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--pid-file=")
    answers = (f"--listen-address={HUB}", "--bind-interfaces", "--local=/#/", "--local-ttl=1", "--user=root", *records)
    dns = subprocess.Popen(["ip", "netns", "exec", "hub", *server, *answers])
    try:
        yield
    finally:
        dns.terminate()
        dns.wait(SECONDS)
        for name in ("hub", *(f"pod-{index}" for index in range(len(names)))):
            done("ip", "netns", "del", name)


def peers(rendered: Rendered) -> list[str]:
    env = rendered.env
    return [f"{env['HOSTNAME_PREFIX']}0-{index}.{env['DOMAIN_NAME']}" for index in range(int(env["NNODES"]))]


FIELDS = {
    "metadata.labels['batch.kubernetes.io/controller-uid']": "6b0c9a0e-job",
    "metadata.labels['jobset.sigs.k8s.io/jobset-uid']": "1f6d0e52-jobset",
    "metadata.labels['jobset.sigs.k8s.io/restart-attempt']": "0",
    "metadata.labels['jobset.sigs.k8s.io/job-restart-attempt']": "0",
}
"""What Kubernetes and JobSet say of every pod of a job."""


def environment(rendered: Rendered, index: int) -> dict[str, str]:
    own = {
        **FIELDS,
        "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        "metadata.name": f"{rendered.env['HOSTNAME_PREFIX']}0-{index}-x7k2p",
        "spec.nodeName": f"gke-node-{index}",
    }
    return {
        entry["name"]: entry["value"] if "value" in entry else own[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in rendered.workload["env"]
    }


def volumes(rendered: Rendered, container: Mapping[str, Any], job: Path, pod: Path) -> list[str]:
    """Options of `podman run` for the mounts of a container; files are put below `job`, an emptyDir's below `pod`."""
    options = []
    by_name = {volume["name"]: volume for volume in rendered.pod["volumes"]}
    for target, volume in ((one["mountPath"], by_name[one["name"]]) for one in container["volumeMounts"]):
        empty = volume.get("emptyDir")
        if (empty or {}).get("medium") == "Memory":
            options += ["--mount", f"type=tmpfs,destination={target}"]
            continue
        source = (job if empty is None else pod) / "volumes" / volume["name"]
        if not source.exists():
            source.mkdir(parents=True)
            for name, text, mode in contents(rendered, volume):
                (source / name).write_text(text)
                (source / name).chmod(mode)
        options += ["--volume", f"{source}:{target}"]
    return options


def contents(rendered: Rendered, volume: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """(name, text, mode) of the files in a Secret's or ConfigMap's volume."""
    if secret := volume.get("secret"):
        yield "job-secret", secrets.token_hex(32), secret["defaultMode"]
    elif config := volume.get("configMap"):
        (found,) = [one for one in rendered.kind("ConfigMap") if one["metadata"]["name"] == config["name"]]
        for name, text in found["data"].items():
            yield name, text, config["defaultMode"]


def start(rendered: Rendered, image: str, index: int, place: Path) -> Pod:
    """One pod of the rendered JobSet, with this image, in its own network."""
    workload, name = rendered.workload, f"{rendered.words.release}-{index}-{secrets.token_hex(3)}"
    own = place / name
    own.mkdir(parents=True)
    log = own / "termination-log"
    log.touch()
    domain = rendered.env["DOMAIN_NAME"].partition(".")[2]
    common = ("--rm", "--runtime", "runc", "--cgroup-parent", CGROUP)
    for init in rendered.pod.get("initContainers", ()):
        mounts = volumes(rendered, init, place, own)
        podman("run", *common, "--network", "none", *mounts, "--entrypoint", json.dumps(init["command"]), init["image"])
    options = [
        *(*common, "--name", name, "--hostname", f"node-{index}"),
        *("--network", f"ns:/run/netns/pod-{index}", "--dns", HUB, "--dns-search", domain, "--dns-option", "ndots:5"),
        # What rootless machines and those in a sandbox allow.
        *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"),
        *(["--privileged"] if workload["securityContext"].get("privileged") else ["--cap-add", "IPC_LOCK"]),
        *(word for pair in environment(rendered, index).items() for word in ("--env", "=".join(pair))),
        *volumes(rendered, workload, place, own),
        *("--volume", f"{log}:/dev/termination-log"),
        *("--entrypoint", json.dumps(workload["command"])),
    ]
    argv = ["podman", "--cgroup-manager", "cgroupfs", "run", *options, image, *workload.get("args", ())]
    with (own / "output").open("w") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, text=True)
    return Pod(index, name, process, log, own / "output")


@contextmanager
def job(rendered: Rendered, image: str, place: Path) -> Iterator[list[Pod]]:
    """All pods of the rendered JobSet; those that still run at the end are killed."""
    with ExitStack() as stack:
        stack.enter_context(network(peers(rendered)))
        pods: list[Pod] = []
        try:
            for index in range(int(rendered.env["NNODES"])):
                pods.append(start(rendered, image, index, place))
            yield pods
        finally:
            podman("rm", "--force", "--ignore", "--time", "0", *(pod.name for pod in pods))
            for pod in pods:
                pod.code()
