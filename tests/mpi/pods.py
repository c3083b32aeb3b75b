"""Pod-like sandboxes for the MPI tests: real sshd in namespaces of their own, on one private bridge.

Open MPI takes every 127.x address for its own machine, so real remote daemons need a network namespace per
pod. Each pod also has its own host name (a node's, not the pod's), PID namespace, /dev/shm, /run,
TMPDIR and /etc/hosts. Namespaces are held by processes only: every pod ends when its standard input closes, so a killed
test run leaves nothing behind. Needs root. Addresses come from 198.18.0.0/15 (RFC 2544).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.launch import Launch
from agent.lifecycle.runs.hanging import AFTER_RANKS_SECONDS, LOOK_SECONDS

PORT = 2222
PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
RANKS = "grep -lsz ^OMPI_COMM_WORLD_RANK= /proc/[0-9]*/environ | cut -d / -f 3"
"""Processes of MPI ranks in a pod."""
HEIRS_S = 5.0
"""For the last output of what mpirun has started, once it has ended itself."""
ENDING_S = LOOK_SECONDS + AFTER_RANKS_SECONDS
"""For an mpirun whose ranks have all finished to end itself: as the agent waits for it, at most."""
LOOK_S = 0.5
"""Between two looks at whether mpirun, or its ranks, have ended."""
HANG_S = 140.0
"""Longer than Open MPI needs to notice a dead link, or to start 66 ranks, on any machine: who takes longer hangs. Twice
this is less than pytest's own limit."""

# $1: node name, $2: directory of the pods. The pod says "up", is told its address once it has a network, and lives
# until the end of its input. Told its address again, it ends all that runs in it and begins anew. sshd's own lines go
# to the same output, so that "Server listening" is the event that says it is ready.
POD = """
set -e
hostname "$1"
ip link set lo up
mount -t tmpfs -o mode=1777 none /dev/shm
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=1777 none "$2/tmp"
mount --bind "$2/hosts" /etc/hosts
echo up
while read -r address; do
  kill -KILL -1 2>/dev/null || true
  wait
  rm -rf /dev/shm/* /run/* "$2"/tmp/*
  mkdir /run/sshd
  /usr/sbin/sshd -D -e -f "$2/sshd_config" -o ListenAddress="$address" 2>&1 &
done
"""

SSHD_CONFIG = """\
Port {port}
HostKey {home}/host_key
AuthorizedKeysFile {home}/client_key.pub
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
MaxStartups 256
AcceptEnv A4_RUN
SetEnv PATH={path} SHLVL=2 TMPDIR={home}/tmp
"""

KEX = "curve25519-sha256"
"""OpenSSH's default, safe from quantum computers, takes 0.2 s of computing for each connection."""
SSH_CONFIG = """\
Host *
  Port {port}
  User root
  IdentityFile {home}/client_key
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {home}/known_hosts
  GlobalKnownHostsFile /dev/null
  ConnectTimeout 100
  KexAlgorithms {kex}
  SendEnv A4_RUN
  LogLevel ERROR
"""


@dataclass(frozen=True)
class End:
    """How mpirun ended."""

    status: int
    stdout: str
    stderr: str
    stuck: bool = False
    """It was at its end and hung, so it was killed: its status says nothing."""

    @property
    def output(self) -> str:
        """All that mpirun and its ranks printed."""
        return self.stdout + self.stderr


@dataclass
class Pod:
    """One sandbox: `name` is what peers call it, `node` its own host name."""

    name: str
    node: str
    address: str
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """PID (outside) of the pod's first process, whose namespaces are the pod's."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def path(self, path: str) -> Path:
        """Where that path of the pod is for us."""
        return Path(f"/proc/{self.pid}/root{path}")

    def tell(self, line: str) -> None:
        """Send one line to the pod's first process."""
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for(self, text: str) -> None:
        """Read the pod's lines until one has `text`; AssertionError when it ends before."""
        assert self.process.stdout
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if text in line:
                return
        raise AssertionError(f"{self.name} ended before {text!r}:\n{''.join(seen)}")

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` inside this pod."""
        return ["nsenter", "-t", str(self.pid), "--all", "--wd=/", "--", *argv]

    def run(self, script: str) -> str:
        """Run a shell script inside the pod and return what it prints."""
        done = subprocess.run(
            self.command(["sh", "-ec", script]), text=True, capture_output=True, timeout=HANG_S, env=plain()
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End the pod and everything in it."""
        self.process.kill()  # then the kernel kills its child (--kill-child), and with that the PID namespace
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()


class Pods:
    """`count` pods; the first is the coordinator. Use as a context manager."""

    def __init__(self, home: Path, count: int) -> None:
        self.home = home
        self.pods: list[Pod] = []
        self.hub: Pod | None = None
        self.own_files: set[Path] = set()
        self.names = [f"job-workload-0-{i}.job.default.svc.cluster.local" for i in range(count)]
        self.addresses = [f"198.18.0.{i + 1}" for i in range(count)]

    def __enter__(self) -> Pods:
        try:
            self._write_files()
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def clean(self) -> None:
        """End what a test has started in the pods, and remove its files."""
        self._begin()
        for path in set(self.home.iterdir()) - self.own_files:
            path.unlink()

    def close(self) -> None:
        """End all pods; safe to call twice."""
        for pod in [*self.pods, *([self.hub] if self.hub else [])]:
            pod.close()
        self.pods, self.hub = [], None

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a pod with a plain image; TMPDIR is the pod's own, as Open MPI 5
        names its directories below it by PID alone, and short enough for socket paths."""
        return {**plain(), "HOME": "/root", "TMPDIR": f"{self.home}/tmp", **more}

    @contextmanager
    def started(self, launch: Launch, index: int = 0) -> Iterator[subprocess.Popen[str]]:
        """Start a launch in a pod, by default the coordinator; it is killed at the end if it still runs."""
        with subprocess.Popen(
            self.pods[index].command(launch.argv),
            env=dict(launch.env),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def finish(
        self, process: subprocess.Popen[str], at_its_end: Callable[[], bool] = lambda: False, ending: float = ENDING_S
    ) -> End:
        """Wait for the end of a started launch, and end what holds its streams after that: 5.0.11 sometimes leaves a
        daemon that was not told, and the ssh that waits for it.

        An mpirun that hangs is killed, as whoever runs it must do: 5.0.11 sometimes locks itself up on a busy machine
        after all its ranks have ended. `at_its_end` says that they have: it gets `ending` seconds then; without that,
        it takes HANG_S to be sure."""
        deadline, stuck, over = time.monotonic() + HANG_S, False, False
        while True:
            try:
                stdout, stderr = process.communicate(timeout=LOOK_S)
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if not over and process.poll() is not None:
                    deadline, over = now + HEIRS_S, True
                elif not over and not stuck and at_its_end():
                    deadline, stuck = now + ending, True
                if now > deadline:
                    self._end_mpi()
            else:
                return End(process.returncode, stdout, stderr, stuck and process.returncode < 0)

    def _end_mpi(self) -> None:
        for pod in (pod for pod in self.pods if pod.process.poll() is None):
            pod.run("pkill -KILL '^(mpirun|orterun|prterun|ssh)$' || true")
            pod.run(f"{RANKS} | xargs -r kill -KILL")

    def cut(self, index: int) -> None:
        """Take down the link of one pod."""
        assert self.hub
        in_network(self.hub, f"ip link set v{index} down")

    def connect(self, interface: str, network: str) -> None:
        """Join an interface of every pod to a bridge of the hub; addresses are `network`.1 and so on."""
        assert self.hub
        bridge, port = f"br-{interface}", "v" if interface == "eth0" else f"{interface}-v"
        lines = [f"ip link add {bridge} type bridge", f"ip link set {bridge} up"]
        for index, pod in enumerate(self.pods):
            lines += [
                f"ip link add {port}{index} type veth peer name {interface} netns {pod.pid}",
                f"ip link set {port}{index} master {bridge} up",
            ]
        in_network(self.hub, "\n".join(lines))
        for index, pod in enumerate(self.pods):
            address = f"{network}.{index + 1}/24"
            in_network(pod, f"ip addr add {address} dev {interface}; ip link set {interface} up")

    def _write_files(self) -> None:
        home = self.home
        (home / "tmp").mkdir()
        for key in ("host_key", "client_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / key)], check=True)
        public = (home / "host_key.pub").read_text()
        (home / "known_hosts").write_text("".join(f"[{name}]:{PORT} {public}" for name in self.names))
        lines = [f"{a} {n}\n" for a, n in zip(self.addresses, self.names, strict=True)]
        (home / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        values = {"home": str(home), "port": PORT, "path": PLAIN_PATH, "kex": KEX}
        (home / "sshd_config").write_text(SSHD_CONFIG.format(**values))
        (home / "ssh_config").write_text(SSH_CONFIG.format(**values))

    def _start(self) -> None:
        for index, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            self.pods.append(self._spawn(name, f"node-{index}", address))
        self.hub = self._spawn("hub", "hub", "")
        for pod in [*self.pods, self.hub]:
            pod.wait_for("up")
        self.connect("eth0", "198.18.0")
        self._begin()
        self.own_files = set(self.home.iterdir())

    def _begin(self) -> None:
        """All pods, with nothing but sshd in them."""
        for pod in self.pods:
            pod.tell(pod.address)
        for pod in self.pods:
            pod.wait_for("Server listening")

    def _spawn(self, name: str, node: str, address: str) -> Pod:
        process = subprocess.Popen(
            ["unshare", *NAMESPACES, "sh", "-c", POD, "pod", node, str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=plain(),
        )
        return Pod(name, node, address, process)


def plain() -> Mapping[str, str]:
    """The environment of a program that needs none; child processes find Debian's programs."""
    return {"PATH": PLAIN_PATH + os.pathsep + os.environ.get("PATH", "")}


def in_network(pod: Pod, script: str) -> None:
    """Run a shell script in the pod's network namespace with this machine's programs."""
    argv = ["nsenter", "-t", str(pod.pid), "--net", "sh", "-ec", script]
    subprocess.run(argv, check=True, env=plain(), timeout=HANG_S)
