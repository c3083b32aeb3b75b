"""What a local cluster shall be: a value, checked before anything is built. No effects here."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

from agent import wire
from agent.decide.setting_values import MOST_LIVES
from agent.errors import UsageError


class Nic(NamedTuple):
    """A NIC that every pod has, and the bridge between those of all pods."""

    name: str
    bridge: str
    gateway: str
    """Address of the bridge."""


NIC = Nic("eth0", "pods", "198.18.0.1")
DATA_NIC = Nic("eth1", "data", "198.19.0.1")
"""Named as the second gVNIC of an A4 node."""
BRIDGE_ADDRESS = NIC.gateway
PREFIX_LENGTH = 16
MAX_PODS = 1000
"""A Linux bridge has 1,023 ports."""
_MACHINES = 250 * 255
"""As many as have an address."""
MOST_TIME = 1e6
"""Seconds that anything may be told to wait."""
NAMESPACE = "default"
METADATA_NAME = "metadata.google.internal"
NAME_MODES = ("ok", "late", "stale", "both")
METADATA_MODES = ("ok", "404", "503", "html", "stall", "no-header")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
_RATE = re.compile(r"\d+(\.\d+)?[kmgt]?(bit|bps)", re.ASCII | re.IGNORECASE)

Place = tuple[str, str, str, str]
"""Cluster, block, sub-block and host of a node."""


class NameFault(NamedTuple):
    """What goes wrong with the name of a pod that has been replaced."""

    mode: str = "ok"
    """One of NAME_MODES: it has the new address; at first none (late), the old one (stale), or both."""
    seconds: float = 0
    """How long, from the start of the replacement."""


RIGHT_NAME = NameFault()


@dataclass(frozen=True)
class Mount:
    """A directory of its own in every pod, mounted as an emptyDir, a ConfigMap or a Secret is."""

    path: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Name → content; none: an empty directory."""
    mode: int = 0o644
    """Permissions of the files."""
    read_only: bool = False


@dataclass(frozen=True)
class ClusterSpec:
    """A local cluster. Pods are named by their completion index, 0 … `pods` - 1."""

    pods: int
    """How many."""
    gpus_per_pod: int = 8
    """GPUs in which each pod believes (GPUS_PER_NODE)."""
    name: str = ""
    """DNS label of the job; empty: a random one."""
    entrypoint: tuple[str, ...] = ()
    """The command line of every container; empty: `tini -- a4-agent run` and `arguments`."""
    arguments: tuple[str, ...] = ()
    """What follows `a4-agent run`: the workload and its arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every pod, over what a chart gives it."""
    pod_env: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Added to that of one pod, by index."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files that every pod finds, as from a ConfigMap: absolute path → content (mode 0755)."""
    devices: tuple[str, ...] = ()
    """Device files of this machine that pods shall have too."""
    real_gpus: bool = False
    """Each pod has its share of this machine's GPUs; otherwise pods believe in theirs."""
    data_nic: bool = False
    """Each pod has a second NIC, which NCCL and gloo use; SSH and the agents stay on the first."""
    ssh_port: int = 2222
    """Port of every pod's sshd (A4_SSH_PORT)."""
    secret: bytes = b""
    """The job secret; empty: a random one."""
    pod_secret: Mapping[int, bytes] = field(default_factory=dict)
    """Other secrets of single pods, by index."""
    places: Mapping[int, Place] = field(default_factory=dict)
    """Where nodes stand, for the metadata server; others have one of their own."""
    late: Mapping[int, float] = field(default_factory=dict)
    """Pods whose container (and name) comes so many seconds later."""
    missing: Collection[int] = frozenset()
    """Pods that never come and have no name."""
    dead: Collection[int] = frozenset()
    """Pods that never come but have a name: their address answers nothing."""
    late_names: Mapping[int, float] = field(default_factory=dict)
    """Pods whose name appears so many seconds later than their container."""
    metadata: str = "ok"
    """How the metadata server behaves: `ok`, `404`, `503`, `html`, `stall` or `no-header`."""
    pod_metadata: Mapping[int, str] = field(default_factory=dict)
    """The same towards single pods, by index."""
    slow_bashrc: float = 0
    """Seconds that root's .bashrc takes; it prints a line, too."""
    local_ttl: int = 30
    """Seconds for which DNS lets a name be remembered."""
    neg_ttl: int = 5
    """Seconds for which it lets be remembered that there is none."""
    replicated_job: str = "workload"
    """What follows the job's name in the names of its pods."""
    subdomain: str = ""
    """Name of the headless service; empty: that of the job."""
    contract: bool = True
    """Whether pods have the variables that a chart gives them, and the job secret. False: they have nothing of it but
    what `env`, `pod_env` and `mounts` bring."""
    mounts: tuple[Mount, ...] = ()
    """Directories of their own, over whatever this machine has there, as `agent.workbench.local.spec.Mount`."""
    directories: Mapping[str, str] = field(default_factory=dict)
    """Directories of this machine that all pods share and may write in: path in the pods → path here."""
    lives: int = 0
    """How often a run may start again (A4_LIVES). Unless it is 0, lost pods but pod 0 are replaced as a Job does it:
    same index, other address, host name, node and place."""
    replace_after: float = 1.0
    """Seconds from the end of a lost pod to the start of its replacement."""
    replaced_name: NameFault = RIGHT_NAME
    """What goes wrong with its name: `agent.workbench.local.spec.NameFault(mode, seconds)`, docs/local-cluster.md."""

    def to_json(self) -> str:
        """The spec as text, for the supervisor."""
        return json.dumps(wire.to_json(self))

    @classmethod
    def from_json(cls, text: str) -> ClusterSpec:
        """The spec that `to_json` wrote."""
        return wire.from_json(cls, json.loads(text))

    def named(self, name: str) -> ClusterSpec:
        """The same cluster under another name."""
        return replace(self, name=name)

    @property
    def nics(self) -> tuple[Nic, ...]:
        return (NIC, DATA_NIC) if self.data_nic else (NIC,)

    def nic(self, name: str) -> Nic:
        """Raises UsageError."""
        found = {nic.name: nic for nic in self.nics}
        if name not in found:
            raise UsageError(f"pods of the local cluster {self.name} have no {name}, only {', '.join(found)}")
        return found[name]

    def prefix(self) -> str:
        """What all names of pods start with (HOSTNAME_PREFIX)."""
        return f"{self.name}-{self.replicated_job}-"

    def domain(self) -> str:
        """The headless service's domain (DOMAIN_NAME)."""
        return f"{self.subdomain or self.name}.{NAMESPACE}.svc.cluster.local"

    def pod_name(self, index: int) -> str:
        """DNS name of a pod."""
        return f"{self.prefix()}0-{index}.{self.domain()}"

    def spare(self, count: int) -> int:
        """The machine for a replacement, when `count` pods have been replaced: what still thinks of an earlier pod must
        not find another at its address."""
        return self.pods + count % (_MACHINES - self.pods)

    def index_of(self, word: str, nodes: Mapping[int, str] = {}) -> int:
        """The pod that a word names: its index, its name in DNS or in Kubernetes, or its node; `nodes`: those of now,
        by index. Raises UsageError."""
        host, _, domain = word.rstrip(".").partition(".")
        for index in range(self.pods) if domain in ("", self.domain()) else ():
            # A name in Kubernetes ends in five characters that are others at each start.
            named = re.fullmatch(re.escape(f"{self.prefix()}0-{index}") + "(-[a-z0-9]{5})?", host)
            if named or host in (str(index), nodes.get(index, self.node_name(index))):
                return index
        hint = f"pods are named by index (0), by name ({self.prefix()}0-0) or by node ({self.node_name(0)})"
        raise UsageError(f"there is no pod {word} in the local cluster {self.name}, only 0 to {self.pods - 1}", hint)

    def node_name(self, machine: int) -> str:
        """Host name of a machine that a pod would run on: with hostNetwork, that is its `hostname`. A pod has the
        machine of its index; replacements have further ones (`spare`)."""
        return f"gke-local-gpu-{_hex(self.name, 'pool')[:8]}-{machine}"

    def place(self, machine: int) -> Place:
        """Where a machine stands."""
        return self.places.get(machine) or default_place(self.name, machine)

    def starts(self, index: int) -> bool:
        """Whether the pod's container ever comes by itself."""
        return index not in self.missing and index not in self.dead


def _hex(*words: object) -> str:
    """The same words give the same digits: places are alike whenever a cluster of this name is built."""
    return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()[:32]


def address(machine: int, nic: Nic = NIC) -> str:
    """IPv4 address of a NIC of the pod on a machine; the first is 198.18.1.1."""
    base = int(ipaddress.IPv4Address(nic.gateway)) - 1
    return str(ipaddress.IPv4Address(base + 256 * (1 + machine // 250) + 1 + machine % 250))


def default_place(name: str, machine: int) -> Place:
    """A place that does not follow the index: two blocks interleaved, each with two sub-blocks.

    So an order by place differs from the order by index from four pods on.
    """
    block = machine % 2
    sub_block = machine // 2 % 2
    return (
        f"local-cluster-{_hex(name, 'cluster')[:4]}",
        _hex(name, "block", block),
        _hex(name, "block", block, sub_block),
        _hex(name, "host", machine),
    )


def problems(spec: ClusterSpec) -> list[str]:
    """Everything that is wrong with a spec, one line each."""
    limits = (("pods", spec.pods, MAX_PODS), ("GPUs per pod", spec.gpus_per_pod, 64), ("port", spec.ssh_port, 65535))
    found = [f"{what}: 1 to {most}, not {value}" for what, value, most in limits if not 1 <= value <= most]
    found += [
        f"name: small letters, digits and '-', 40 at most, not {name!r}"
        for name in (spec.name, spec.replicated_job, spec.subdomain)
        if name and not _NAME.fullmatch(name)
    ]
    found += _index_problems(spec)
    if not 0 <= spec.lives <= MOST_LIVES:
        found.append(f"lives: 0 to {MOST_LIVES}, not {spec.lives}")
    if spec.replaced_name.mode not in NAME_MODES:
        found.append(f"replaced name: one of {', '.join(NAME_MODES)}, not {spec.replaced_name.mode}")
    if spec.replaced_name.mode != "ok" and not spec.lives:
        found.append("replaced name: pods are replaced only with lives")
    found += [
        f"metadata: one of {', '.join(METADATA_MODES)}, not {mode}"
        for mode in (spec.metadata, *spec.pod_metadata.values())
        if mode not in METADATA_MODES
    ]
    secrets = [secret for secret in (spec.secret, *spec.pod_secret.values()) if secret]
    found += ["secret: 32 bytes at least" for secret in secrets if len(secret) < 32]
    found += _path_problems("file", spec.files) + _path_problems("device", spec.devices)
    return found + _mount_problems(spec)


def _path_problems(kind: str, paths: Iterable[str]) -> list[str]:
    """Paths that could lead out of a pod, or to its root."""
    return [
        f"{kind}: an absolute path without '..', not {path}"
        for path in paths
        if not path.startswith("/") or not path.strip("/") or ".." in path.split("/")
    ]


def _mount_problems(spec: ClusterSpec) -> list[str]:
    paths = [*(mount.path for mount in spec.mounts), *spec.directories]
    found = _path_problems("mount", paths)
    found += [f"mount: {path} twice" for path in sorted({path for path in paths if paths.count(path) > 1})]
    own = [path for path in paths if _OWN.match(path)] + [path for path in spec.directories if _STATE.match(path)]
    found += [f"mount: {path} is the pod's own" for path in own]
    names = [name for mount in spec.mounts for name in mount.files]
    found += [f"file of a mount: a name, not {name!r}" for name in names if name in ("", ".", "..") or "/" in name]
    return found


_OWN = re.compile(r"/(proc|sys)(/|$)|/dev/*$")
_STATE = re.compile(r"/+run(/+a4-agent(/|$)|/*$)")
"""A directory that pods share cannot be there: each agent has its private state in it."""
_NOT_BY_POD = ("env", "files", "directories")


def _index_problems(spec: ClusterSpec) -> list[str]:
    found = []
    for item in fields(spec):
        value = getattr(spec, item.name)
        is_by_pod = item.type == "Collection[int]" or (isinstance(value, Mapping) and item.name not in _NOT_BY_POD)
        indices = sorted(value) if is_by_pod else []
        words = item.name.replace("_", " ")
        found += [
            f"{words}: there is no pod {index}, only 0 to {spec.pods - 1}"
            for index in indices
            if not 0 <= index < spec.pods
        ]
    times = (*spec.late.values(), *spec.late_names.values(), spec.slow_bashrc)
    found += [
        f"seconds: 0 or more, not {seconds:g}"
        for seconds in (*times, spec.replace_after, spec.replaced_name.seconds)
        if not 0 <= seconds < MOST_TIME
    ]
    return found


def check(spec: ClusterSpec) -> None:
    """Raise UsageError that lists all problems of the spec, after the first that is of a wrong type."""
    try:
        ClusterSpec.from_json(spec.to_json())
    except (TypeError, ValueError) as error:
        raise UsageError(f"this local cluster cannot be built: {error}") from None
    found = problems(spec)
    if found:
        raise UsageError("\n  ".join(["this local cluster cannot be built:", *found]))


def check_rate(rate: str) -> None:
    """Raise UsageError unless `tc` takes the rate."""
    if not _RATE.fullmatch(rate):
        raise UsageError(f"{rate!r} is not a rate", "for example 10mbit or 500kbit")
