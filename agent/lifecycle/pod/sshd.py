"""The pod's SSH daemon: started, watched, started again when it dies."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress

from agent.decide.os_refusals import refused
from agent.errors import MissingProgram, SystemFault
from agent.launch import Launch
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.pod.ssh_files import OLDEST_OPENSSH
from agent.machine.api import Child

SHADOW = "/etc/shadow"
PRIVILEGE_DIR = "/run/sshd"
"""Where sshd locks up the half of itself that talks to strangers. Images without an init lack it."""
START_SECONDS = 15.0
"""How long it may take until it listens; it takes some ten milliseconds."""
MOST_RESTARTS = 5
"""An sshd that dies more often than this within a minute ends the pod."""
LAST_LINES = 8
"""What it said last, for the error when it ends."""


class SshdGivenUp(SystemFault):
    """It dies again and again: nobody can reach this pod any more."""


class Sshd:
    """`listening()` is called once, when every address listens. Errors are raised into the loop."""

    def __init__(self, pod: Pod, listening: Callable[[], None]) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._path = pod.known.search_path
        self._listening = listening
        self._bound: set[str] = set()
        """Addresses on which it listens."""
        self._announced = False
        """`listening` was called. An sshd that ends before that will not do better the next time."""
        self._closed = False
        self._child: Child | None = None
        self._rest = b""
        self._last: list[str] = []
        self._restarts: list[float] = []
        self._program = ""

    def start(self) -> None:
        """Raises MissingProgram or SystemFault."""
        program = self._machine.find_program("sshd", self._path)
        if program is None:
            raise MissingProgram("sshd is not installed", "Debian and Ubuntu: apt-get install openssh-server")
        self._program = program
        with suppress(OSError):  # some images let nobody read it; sshd will tell
            if any(line.startswith("root:!") for line in (self._machine.read(SHADOW) or "").splitlines()):
                raise SystemFault(
                    "root is locked in /etc/shadow, so sshd refuses every login",
                    "in the image: usermod -p '*' root (still no password login, but keys work)",
                )
        self._pod.make_dir(PRIVILEGE_DIR, 0o755)
        self._launch()

        def check() -> None:
            if not self._announced and not self._closed:
                raise SystemFault(f"sshd does not listen after {START_SECONDS:.0f} s: {self._last_words()}")

        self._machine.later(START_SECONDS, check)

    def reload(self) -> None:
        """Have new sessions follow the configuration as it is now; those that are open stay. Once it listens."""
        if self._child is not None:
            self._child.signal(signal.SIGHUP)

    def close(self) -> None:
        self._closed = True
        if self._child is not None:
            self._child.signal(signal.SIGTERM)

    def _launch(self) -> None:
        self._bound = set()
        # Its parent's environment must not reach the sessions.
        launch = Launch([self._program, "-D", "-e", "-f", self._pod.dir.sshd_config], {"PATH": self._path}, "/")
        try:
            self._child = self._machine.start(launch, self._ended, self._output)
        except OSError as error:
            raise refused(f"sshd ({self._program}) does not start", error) from error

    def _output(self, stream: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            self._line(raw.decode(errors="replace").strip())

    def _line(self, line: str) -> None:
        self._pod.log.debug(f"sshd: {line}")
        self._last = [*self._last[-LAST_LINES + 1 :], line]
        if line.startswith("Server listening on "):
            self._bound.add(line.split()[3])
            if self._bound >= set(self._pod.ssh_addresses()) and not self._announced:
                self._announced = True
                self._listening()
        elif line.startswith("Bind to port ") and "failed" in line:
            self._busy(line)

    def _busy(self, line: str) -> None:
        """sshd goes on with the addresses that it has got; a pod that only answers on some would be a riddle."""
        address, port = line.partition(" on ")[2].split()[0], self._pod.settings.ssh_port
        if "in use" not in line:
            raise SystemFault(f"sshd cannot listen on {address} port {port}: {line}")
        holder = self._machine.port_holder(address, port) or "a process that is gone by now"
        raise SystemFault(
            f"port {port} on {address} is in use by {holder}",
            "end it, or give this job another port for all its pods (A4_SSH_PORT)",
        )

    def _ended(self, status: int) -> None:
        self._child = None
        if self._closed:
            return
        now = self._machine.now()
        self._restarts = [t for t in self._restarts if now - t < 60.0] + [now]
        if not self._announced or len(self._restarts) > MOST_RESTARTS:
            too_old = any(line.startswith(self._pod.dir.sshd_config) and "Bad " in line for line in self._last)
            hint = f"OpenSSH {OLDEST_OPENSSH} or later is needed" if too_old else ""
            raise SshdGivenUp(f"sshd ended with status {status}: {self._last_words()}", hint)
        self._pod.log.warning(f"sshd ended with status {status} and is started again: {self._last_words()}")
        self._launch()

    def _last_words(self) -> str:
        return " / ".join(self._last) or "it said nothing"
