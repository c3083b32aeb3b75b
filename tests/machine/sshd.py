"""A real sshd on loopback, with the agent's own configuration and keys."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.decide.keys import JobKeys
from agent.lifecycle.pod.ssh_files import authorized_keys, sshd_config
from agent.machine.api import Target
from tests.machine.waiting import wait_until

KEYS = JobKeys(b"s" * 32, "this-attempt")
START = 'mount -t tmpfs none /root && cp -r "$1" /root/.ssh && shift && exec /usr/sbin/sshd -D -e "$@"'
"""root's home as an image may have it, for this daemon alone."""
PATIENT = ("-o", "LoginGraceTime=300")
"""A busy machine may need longer for a login than the configuration grants to a stranger."""


@dataclass(frozen=True)
class Sshd:
    """The daemon of pod 3."""

    target: Target
    directory: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(
    directory: Path,
    *,
    session_env: Mapping[str, str],
    people: str = "",
    home: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[Sshd]:
    """The daemon, for as long as the block lasts.

    people: the setting SSH_PUBLIC_KEY
    home: what the image has in /root/.ssh
    options: of its command line, which win over the configuration
    """
    port = free_port()
    texts = {
        "host_key": KEYS.host_private(3),
        "client_key": KEYS.client_private(),
        "authorized_keys": authorized_keys(KEYS.client_public(), people),
        "sshd_config": sshd_config(
            port=port, addresses=["127.0.0.1"], directory=str(directory), session_env=session_env
        ),
    }
    (directory / "home").mkdir()
    texts |= {f"home/{name}": text for name, text in (home or {}).items()}
    for name, text in texts.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o600)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    argv = ["unshare", "--mount", "sh", "-c", START, "sh", str(directory / "home")]
    argv += ["-f", str(directory / "sshd_config"), *PATIENT, *options]
    log = directory / "log"
    # Not through a pipe: nobody reads what it says of each login.
    with log.open("w") as said, subprocess.Popen(argv, stderr=said, stdout=subprocess.DEVNULL) as daemon:
        wait_until(lambda: "Server listening on 127.0.0.1" in log.read_text() or daemon.poll() is not None)
        assert daemon.poll() is None, log.read_text()
        target = Target(3, "pod-3", "127.0.0.1", port, KEYS.host_public(3), KEYS.client_private(), "cat")
        yield Sshd(target, directory)
        daemon.terminate()
