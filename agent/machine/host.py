"""The real machine: everything that agent.machine.api promises, on this pod."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.launch import Launch
from agent.machine import files, inventory, process
from agent.machine.api import (
    Channel,
    Child,
    Evidence,
    Interface,
    KeeperProcess,
    Piece,
    Problem,
    RunMarks,
    Search,
    Spool,
    Target,
    Timer,
    Whereabouts,
)
from agent.machine.api import T as T
from agent.machine.cgroup_limits import memory_kills
from agent.machine.loop import Action, Loop
from agent.machine.output_writer import Emitter
from agent.machine.spool import FileSpool, Room, read_spool

if TYPE_CHECKING:
    from agent.machine.dns import Resolver
    from agent.machine.ssh import Dialer
    from agent.machine.workers import Workers

MOST_HANDSHAKES = 64
MOST_LOOK_UPS = 32
"""Threads apart from those for handshakes: a DNS server that does not answer must not hold up peers that do."""
MOST_FILES = 65536
"""Children inherit the limit, and some close every possible descriptor one by one."""


class Host:
    """This pod. Parts that only the coordinator needs are imported when it first asks for them."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._emitter = Emitter(loop)
        self._room: Room | None = None
        self._look_ups: Workers | None = None
        self._resolver: Resolver | None = None
        self._dialer: Dialer | None = None

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def later(self, seconds: float, action: Callable[[], None]) -> Timer:
        return self.loop.later(seconds, action)

    def resolve(self, names: Sequence[str], done: Callable[[str, str | Problem], None]) -> None:
        if self._resolver is None:
            from agent.machine.dns import Resolver
            from agent.machine.workers import Workers

            self._resolver = Resolver()
            self._look_ups = Workers(self.loop, MOST_LOOK_UPS)
        resolver, look_ups = self._resolver, self._look_ups
        assert look_ups is not None

        def work(name: str) -> Callable[[], Action]:
            def look() -> Action:
                answer = resolver.lookup(name)
                return lambda: done(name, answer)

            return look

        for name in names:
            look_ups.submit(work(name))

    def connect(self, target: Target, done: Callable[[Channel | Problem], None]) -> None:
        if self._dialer is None:
            from agent.machine.ssh import Dialer
            from agent.machine.workers import Workers

            self._dialer = Dialer(self.loop, Workers(self.loop, MOST_HANDSHAKES))
        self._dialer.dial(target, done)

    def accept(self, directory: str, opened: Callable[[Channel], None]) -> None:
        from agent.machine.fifo import FifoDoor

        FifoDoor(self.loop, directory, opened)

    def listen(self, path: str, opened: Callable[[Channel], None]) -> None:
        from agent.machine.unix_socket import SocketDoor

        SocketDoor(self.loop, path, opened)

    def locate(self, host: str, done: Callable[[Whereabouts], None]) -> None:
        def work() -> Action:
            from agent.machine.metadata import locate

            whereabouts = locate(host)
            return lambda: done(whereabouts)

        self.loop.in_thread(work)

    def interfaces(self) -> list[Interface]:
        return inventory.interfaces()

    def hostname(self) -> str:
        return socket.gethostname()

    def gpu_count(self) -> int:
        return inventory.gpu_count()

    def core_count(self) -> int:
        return inventory.core_count()

    def memory_kills(self) -> int:
        return memory_kills()

    def port_holder(self, address: str, port: int) -> str:
        return inventory.port_holder(address, port)

    def raise_file_limit(self) -> None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = min(hard, MOST_FILES) if hard != resource.RLIM_INFINITY else MOST_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))

    def find_program(self, name: str, path: str) -> str | None:
        return process.find_program(name, path)

    def why_unstartable(self, programs: Sequence[str], path: str, cwd: str) -> OSError | None:
        return process.why_unstartable(programs, path, cwd)

    def start(
        self,
        launch: Launch,
        ended: Callable[[int], None],
        output: Callable[[int, bytes], None] | None = None,
        *,
        emitted: bool = False,
        marks: RunMarks | None = None,
    ) -> Child:
        return process.RunningChild(self.loop, launch, ended, output, self._emitter if emitted else None, marks)

    def emit(self, stream: int, data: bytes) -> None:
        self._emitter.emit(stream, data)

    def flush_output(self, seconds: float) -> int:
        """Wait, at most so long, until all that was emitted is written; returns the bytes that are left."""
        return self._emitter.flush(seconds)

    def spool(self, directory: str, limit: int) -> Spool:
        self._room = self._room or Room(limit)
        return FileSpool(directory, self._room)

    def read_spool(self, directory: str, offset: int, most: int, since: float = 0.0) -> Piece | None:
        return read_spool(directory, offset, most, since)

    def start_keeper(
        self,
        directory: str,
        number: int,
        heard: Callable[[Sequence[str]], None],
        ended: Callable[[KeeperProcess, int], None],
    ) -> KeeperProcess:
        from agent.machine import keeper

        return keeper.KeeperProcess(self.loop, sys.executable, directory, number, heard, ended)

    def gather_inventory(
        self, search: Search, say: Callable[[str], None], done: Callable[[Mapping[str, Any]], None]
    ) -> None:
        def work() -> Action:
            try:
                found = inventory.inventory(search, lambda text: self.loop.post(lambda: say(text)))
            except Exception as error:  # nothing depends on it: what is wrong is told as a part of it
                found = {"problem": f"{type(error).__name__}: {error}"}
            return lambda: done(found)

        self.loop.in_thread(work)

    def gather_evidence(self, marks: RunMarks, path: str, done: Callable[[Evidence], None]) -> None:
        def work() -> Action:
            from agent.machine.evidence import gather

            evidence = gather(marks, path)
            return lambda: done(evidence)

        self.loop.in_thread(work)

    def make_cgroup(self, path: str) -> bool:
        from agent.machine.run_processes import make_cgroup

        return make_cgroup(path)

    def tell(self, marks: RunMarks, number: int, variable: str, seconds: float, over: Callable[[], None]) -> None:
        from agent.machine.telling import tell

        tell(self.loop, marks, number, variable, seconds, over)

    def sweep(self, marks: RunMarks, done: Callable[[int, Sequence[int]], None]) -> None:
        from agent.machine.run_processes import sweep

        sweep(self.loop, marks, done)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def read(self, path: str) -> str | None:
        return files.read(path)

    def read_part(self, path: str, offset: int, most: int) -> bytes:
        return files.read_part(path, offset, most)

    def read_dir(self, path: str) -> dict[str, str]:
        return files.read_dir(path)

    def read_tails(self, path: str, most: int) -> dict[str, str]:
        return files.read_tails(path, most)

    def read_ends(self, path: str, most: int) -> dict[str, str]:
        return files.read_ends(path, most)

    def aside(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        from agent.machine.workers import result_of

        def and_then() -> Action:
            found = work()
            return lambda: done(found)

        # A thread of its own: what hangs must hold up nobody else.
        threading.Thread(target=lambda: self.loop.post(result_of(and_then)), daemon=True).start()

    def list_dir(self, path: str) -> list[str]:
        return files.list_dir(path)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        files.write(path, text, mode)

    def check_writable(self, path: str) -> None:
        files.check_writable(path)

    def append(self, path: str, data: bytes) -> None:
        files.append(path, data)

    def overwrite(self, path: str, text: str) -> None:
        files.overwrite(path, text)

    def remove(self, path: str) -> None:
        files.remove(path)

    def remove_dir(self, path: str) -> None:
        files.remove_dir(path)

    def make_dir(self, path: str, mode: int = 0o755) -> None:
        os.makedirs(path, mode, exist_ok=True)

    def make_private_dir(self, path: str) -> None:
        files.make_private_dir(path)

    def refresh(self, path: str) -> None:
        files.refresh(path)

    def draw_nonce(self) -> str:
        return os.urandom(16).hex()
