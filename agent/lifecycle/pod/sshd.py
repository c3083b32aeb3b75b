"""The pod's SSH daemon: started, watched, started again when it dies."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from agent.decide.os_refusals import refused
from agent.decide.ssh_files import OLDEST_OPENSSH
from agent.errors import MissingProgram, SystemFault
from agent.launch import Launch
from agent.log import Log
from agent.machine.api import Child, Machine

SHADOW = "/etc/shadow"
PRIVILEGE_DIR = "/run/sshd"
START_SECONDS = 15.0
MOST_RESTARTS = 5
RESTART_WINDOW_SECONDS = 60.0
LAST_LINES = 8


class Sshd:
    """`listening()` is called once, when every address listens. Errors are raised into the loop."""

    def __init__(
        self,
        machine: Machine,
        log: Log,
        *,
        config: str,
        addresses: Sequence[str],
        port: int,
        path: str,
        listening: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._log = log
        self._config = config
        self._addresses = addresses
        self._port = port
        self._path = path
        self._listening = listening
        self._bound: set[str] = set()
        self._announced = False
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
        self._refuse_locked_root()
        try:
            self._machine.make_dir(PRIVILEGE_DIR, 0o755)
        except OSError as error:
            raise refused(f"{PRIVILEGE_DIR} cannot be made", error) from error
        self._launch()
        self._machine.later(START_SECONDS, self._check_started)

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
        launch = Launch([self._program, "-D", "-e", "-f", self._config], {"PATH": self._path}, "/")
        try:
            self._child = self._machine.start(launch, self._ended, self._output)
        except OSError as error:
            raise refused(f"sshd ({self._program}) does not start", error) from error

    def _refuse_locked_root(self) -> None:
        try:
            shadow = self._machine.read(SHADOW) or ""
        except OSError:
            return  # some images let nobody read it; sshd will tell
        for line in shadow.splitlines():
            if line.startswith("root:!"):
                raise SystemFault(
                    "root is locked in /etc/shadow, so sshd refuses every login",
                    "in the image: usermod -p '*' root (still no password login, but keys work)",
                )

    def _output(self, stream: int, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            self._line(raw.decode(errors="replace").strip())

    def _line(self, line: str) -> None:
        self._log.debug(f"sshd: {line}")
        self._last = [*self._last[-LAST_LINES + 1 :], line]
        if line.startswith("Server listening on "):
            self._bound.add(line.split()[3])
            if self._bound >= set(self._addresses) and not self._announced:
                self._announced = True
                self._listening()
        elif line.startswith("Bind to port ") and "failed" in line:
            self._busy(line)

    def _busy(self, line: str) -> None:
        address = line.partition(" on ")[2].split()[0]
        if "in use" not in line:
            raise SystemFault(f"sshd cannot listen on {address} port {self._port}: {line}")
        holder = self._machine.port_holder(address, self._port) or "a process that is gone by now"
        raise SystemFault(
            f"port {self._port} on {address} is in use by {holder}",
            "end it, or give this job another port for all its pods (A4_SSH_PORT)",
        )

    def _check_started(self) -> None:
        if not self._announced and not self._closed:
            raise SystemFault(f"sshd does not listen after {START_SECONDS:.0f} s: {self._last_words()}")

    def _ended(self, status: int) -> None:
        self._child = None
        if self._closed:
            return
        now = self._machine.now()
        self._restarts = [t for t in self._restarts if now - t < RESTART_WINDOW_SECONDS] + [now]
        if not self._announced or len(self._restarts) > MOST_RESTARTS:
            too_old = any(line.startswith(f"{self._config}") and "Bad " in line for line in self._last)
            hint = f"OpenSSH {OLDEST_OPENSSH} or later is needed" if too_old else ""
            raise SystemFault(f"sshd ended with status {status}: {self._last_words()}", hint)
        self._log.warning(f"sshd ended with status {status} and is started again: {self._last_words()}")
        self._launch()

    def _last_words(self) -> str:
        return " / ".join(self._last) or "it said nothing"
