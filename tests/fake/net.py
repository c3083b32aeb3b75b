"""The network between fake pods: names, addresses, SSH log-ins, channels, and all that goes wrong there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from agent.machine.api import Channel, Problem, Target
from agent.machine.stream import MOST_BYTES
from tests.fake.clock import Clock

if TYPE_CHECKING:
    from tests.fake.machine import FakeMachine

LATENCY = 0.001
HANDSHAKE_SECONDS = 0.03
CONNECT_SECONDS = 5.0
DNS_SECONDS = 0.005
DNS_LATE_SECONDS = 5.0
LATE = "late"
"""In a DNS script: no server answers."""
Named = list[tuple[float, str]]
"""A DNS script: from that second on, this address; empty: the name is unknown."""


@lru_cache(maxsize=256)
def public_of(private: str) -> str:
    """The public key of a private one, both in OpenSSH's text forms."""
    key = load_ssh_private_key(private.encode(), None).public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


class FakeEnd:
    """One end of a channel, in the hands of one machine."""

    def __init__(self, pipe: Pipe, machine: FakeMachine) -> None:
        self.pipe = pipe
        self.machine = machine
        self.closed = False
        self.incoming: deque[tuple[float, bytes | None]] = deque()
        """Arrival time and line; None: the other end is closed."""
        self.line: Callable[[bytes], None] | None = None
        self.ended: Callable[[str], None] = lambda reason: None
        machine.ends.append(self)

    def send(self, line: bytes) -> None:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        if not self.closed:
            self.pipe.carry(self, line[:-1])

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.pipe.carry(self, None)

    def receive(self, line: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self.line, self.ended = line, ended
        self.pipe.clock.after(0, lambda: self.pipe.pump(self))


class Pipe:
    """Two ends; what one sends the other gets a little later and in order, unless they are parted."""

    def __init__(self, net: Network, near: FakeMachine, far: FakeMachine) -> None:
        self.net = net
        self.clock = net.clock
        self.near, self.far = FakeEnd(self, near), FakeEnd(self, far)
        self.reason = "the connection was closed"

    def pods(self) -> set[int]:
        return {self.near.machine.pod.index, self.far.machine.pod.index}

    def other(self, end: FakeEnd) -> FakeEnd:
        return self.far if end is self.near else self.near

    def carry(self, sender: FakeEnd, line: bytes | None) -> None:
        if line is not None and len(line) > MOST_BYTES:  # the other side takes it for a broken channel
            self.cut(f"a line of more than {MOST_BYTES} bytes")
            return
        self.net.carried += len(line or b"")
        if line is not None and b'"type":"hello"' not in line and self.net.breaking & self.pods():
            self.cut()
            return
        end = self.other(sender)
        way = sender.machine.pod.index, end.machine.pod.index
        seconds = self.net.latency + self.net.delays.get(way, 0.0)
        end.incoming.append((self.clock.now + seconds, line))
        self.clock.after(seconds, lambda: self.pump(end))

    def pump(self, end: FakeEnd) -> None:
        """Deliver what has arrived."""
        if self.net.parted(self.other(end).machine.pod.index, end.machine.pod.index):
            return
        while (
            (take := end.line) is not None
            and not end.closed
            and end.incoming
            and end.incoming[0][0] <= self.clock.now + 1e-9
        ):
            _, line = end.incoming.popleft()
            if line is None:
                end.closed = True
                end.machine.call(lambda: end.ended(self.reason), arrived=True)
            else:
                end.machine.call(partial(take, line), arrived=True)

    def cut(self, reason: str = "the connection was reset") -> None:
        """Both ends lose it, and what was under way is lost."""
        self.reason = reason
        for end in (self.near, self.far):
            end.incoming.clear()
            end.incoming.append((self.clock.now, None))
            self.clock.after(0, lambda end=end: self.pump(end))  # type: ignore[misc]


class Network:
    """Who is where. Every pod's name leads to its address from its start on, unless scripted otherwise."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.latency = LATENCY
        self.carried = 0
        """Bytes of all messages."""
        self.names: dict[str, Named] = {}
        self.hosts: dict[str, FakeMachine] = {}
        """Address → the machine that has it now."""
        self.impostors: dict[str, str] = {}
        """Address → public host key of a stranger's sshd."""
        self.unreachable: set[str] = set()
        self.isolated: set[int] = set()
        self.breaking: set[int] = set()
        """Pods whose channels break as soon as anything but a `hello` goes through them."""
        self.mute: set[tuple[int, int]] = set()
        """What the first sends does not reach the second; the other way it does."""
        self.delays: dict[tuple[int, int], float] = {}
        """How many seconds more than usual what the first sends takes to the second."""
        self.pipes: list[Pipe] = []
        self.dials: list[tuple[float, int]] = []
        self.lookups: list[tuple[float, str]] = []

    # Faults

    def parted(self, sender: int, receiver: int) -> bool:
        apart = sender != receiver and bool({sender, receiver} & self.isolated)
        return apart or (sender, receiver) in self.mute

    def unreached(self, one: int, other: int) -> bool:
        """A connection needs both ways."""
        return self.parted(one, other) or self.parted(other, one)

    def isolate(self, index: int) -> None:
        """Nothing reaches this pod or leaves it, and nobody is told."""
        self.isolated.add(index)

    def heal(self, index: int) -> None:
        self.isolated.discard(index)
        for pipe in self.pipes:
            pipe.pump(pipe.near)
            pipe.pump(pipe.far)

    def cut(self, index: int) -> None:
        """Break the open channels of this pod; new ones can be made at once."""
        for pipe in self.pipes:
            if index in pipe.pods():
                pipe.cut()

    # Names and connections

    def resolve(self, asker: FakeMachine, name: str, done: Callable[[str, str | Problem], None]) -> None:
        self.lookups.append((self.clock.seconds, name))
        answer = next((given for since, given in reversed(self.names[name]) if since <= self.clock.seconds), "")
        if answer == LATE or asker.pod.index in self.isolated:
            problem = Problem("name", "DNS (10.0.0.10) did not answer within 5 s")
            asker.post(DNS_LATE_SECONDS, lambda: done(name, problem))
        elif answer:
            asker.post(DNS_SECONDS, lambda: done(name, answer))
        else:
            asker.post(DNS_SECONDS, lambda: done(name, Problem("name", "DNS does not know its name yet")))

    def dial(self, caller: FakeMachine, target: Target, done: Callable[[Channel | Problem], None]) -> None:
        self.dials.append((self.clock.seconds, target.index))
        address, where = target.address, f"port {target.port} at {target.address}"
        host = self.hosts.get(address)
        if address in self.unreachable:
            caller.post(LATENCY, lambda: done(Problem("unreachable", f"DNS ok, {where}: No route to host")))
        elif address in self.impostors:
            caller.post(HANDSHAKE_SECONDS, lambda: done(_wrong_key(target, self.impostors.get(address, ""))))
        elif host is None or self.unreached(caller.pod.index, host.pod.index):
            caller.post(CONNECT_SECONDS, lambda: done(Problem("timeout", f"DNS ok, {where} does not answer")))
        elif not host.listens(address, target.port):
            caller.post(self.latency, lambda: done(Problem("refused", f"DNS ok, {where} refused")))
        else:
            caller.post(HANDSHAKE_SECONDS, lambda: done(self._log_in(caller, host, target)))

    def _log_in(self, caller: FakeMachine, host: FakeMachine, target: Target) -> Channel | Problem:
        """As sshd would: by the files that the pod's own agent has written."""
        if not host.listens(target.address, target.port) or self.unreached(caller.pod.index, host.pod.index):
            return Problem("ssh", f"SSH to {target.address}:{target.port} broke: connection closed")
        if (host_key := public_of(host.ssh_file("HostKey"))) != target.host_key:
            return _wrong_key(target, host_key)
        if public_of(target.client_key).split()[1] not in host.ssh_file("AuthorizedKeysFile").split():
            text = f"{target.address} refuses the job's SSH key (another secret or epoch there?)"
            return Problem("key-refused", text)
        pipe = Pipe(self, caller, host)
        self.pipes.append(pipe)
        if not host.knock(target.command, pipe.far):
            pipe.cut("no a4-agent has been started here")
        return pipe.near


def _wrong_key(target: Target, shown: str) -> Problem:
    text = f"{target.address}:{target.port} shows a host key that is not pod {target.index}'s ({shown[-12:]})"
    return Problem("host-key", text)
