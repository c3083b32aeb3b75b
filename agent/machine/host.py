"""The real machine: everything that agent.machine.api promises, on this pod."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from agent.machine import files, inventory, process, resources, run_processes
from agent.machine.api import Channel, Problem, RunMarks, Search, Spool, Target, Whereabouts
from agent.machine.asking import ask
from agent.machine.cgroup_limits import memory_kills
from agent.machine.fifo import open_fifos
from agent.machine.guarding import Guarding
from agent.machine.helper_process import helper_environment
from agent.machine.keeper import Keeper
from agent.machine.loop import Action, Loop
from agent.machine.output_writer import Emitter
from agent.machine.spool import FileSpool, Room, read_spool
from agent.machine.unix_socket import open_door
from agent.machine.workers import Workers

if TYPE_CHECKING:
    from agent.machine.dns import Resolver

MOST_HANDSHAKES = 64
MOST_LOOK_UPS = 32
"""Threads apart from those for handshakes: a DNS server that does not answer must not hold up peers that do."""
MOST_FILES = 65536
"""Children inherit the limit, and some close every possible descriptor one by one."""


class Host:
    """This pod. Parts that only the coordinator needs are imported when it first asks for them.

    What has a function of its own is that; what takes long or may hang runs in a thread, and comes back by the loop.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.later = loop.later
        self.aside = loop.aside
        self.accept = partial(open_fifos, loop)
        self.start_keeper = partial(Keeper, loop)
        self.start_guard = partial(Guarding, loop)
        self.tell = partial(run_processes.tell, loop)
        emitter = Emitter(loop)
        self.emit = emitter.emit
        self.flush_output = emitter.flush
        self.start = partial(process.RunningChild, loop, emitter)
        self._handshakes = Workers(loop, MOST_HANDSHAKES)
        self._room: Room | None = None

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    hostname = staticmethod(socket.gethostname)
    interfaces = staticmethod(inventory.interfaces)
    gpu_count = staticmethod(resources.gpu_count)
    core_count = staticmethod(inventory.core_count)
    memory_kills = staticmethod(memory_kills)
    port_holder = staticmethod(inventory.port_holder)
    find_program = staticmethod(process.find_program)
    why_unstartable = staticmethod(process.why_unstartable)
    read_spool = staticmethod(read_spool)
    exists = staticmethod(os.path.exists)
    read = staticmethod(files.read)
    read_part = staticmethod(files.read_part)
    read_tails = staticmethod(files.read_tails)
    read_ends = staticmethod(files.read_ends)
    list_dir = staticmethod(files.list_dir)
    dir_size = staticmethod(files.dir_size)
    write = staticmethod(files.write)
    check_writable = staticmethod(files.check_writable)
    append = staticmethod(files.append)
    overwrite = staticmethod(files.overwrite)
    remove = staticmethod(files.remove)
    remove_dir = staticmethod(files.remove_dir)
    make_private_dir = staticmethod(files.make_private_dir)
    refresh = staticmethod(files.refresh)
    make_cgroup = staticmethod(run_processes.make_cgroup)

    def resolve(self, names: Sequence[str], done: Callable[[str, str | Problem], None]) -> None:
        resolver, workers = self._resolving

        def look(name: str) -> Action:
            answer = resolver.lookup(name)
            return lambda: done(name, answer)

        for name in names:
            workers.submit(partial(look, name))

    @cached_property
    def _resolving(self) -> tuple[Resolver, Workers]:
        from agent.machine.dns import Resolver

        return Resolver(), Workers(self.loop, MOST_LOOK_UPS)

    def connect(self, target: Target, done: Callable[[Channel | Problem], None]) -> None:
        from agent.machine.ssh import dial

        dial(self.loop, self._handshakes, target, done)

    def listen(self, path: str, opened: Callable[[Channel], None], full: bytes) -> None:
        open_door(self.loop, path, opened, full)

    def locate(self, host: str, done: Callable[[Whereabouts], None]) -> None:
        def work() -> Whereabouts:
            from agent.machine.metadata import locate

            return locate(host)

        self.aside(work, done, lambda why: done(Whereabouts({}, f"no place from the metadata server: {why.strerror}")))

    def raise_file_limit(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = min(hard, MOST_FILES) if hard != resource.RLIM_INFINITY else MOST_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))

    def spool(self, directory: str, limit: int) -> Spool:
        self._room = self._room or Room(limit)
        return FileSpool(directory, self._room)

    def gather_inventory(
        self, search: Search, say: Callable[[str], None], done: Callable[[Mapping[str, Any]], None]
    ) -> None:
        def work() -> Mapping[str, Any]:
            try:
                return inventory.inventory(search, lambda text: self.loop.post(lambda: say(text)))
            except Exception as error:  # nothing depends on it: what is wrong is told as a part of it
                return {"problem": f"{type(error).__name__}: {error}"}

        self.aside(work, done, lambda why: done({"problem": why.strerror}))

    def ask_process(self, argv: Sequence[str], cwd: str, seconds: float, done: Callable[[str], None]) -> None:
        def work() -> str:
            # A line without its end was cut off when time was up.
            line, ended, _ = ask("it", argv, helper_environment(), seconds, cwd).output.partition("\n")
            return line if ended else ""

        self.aside(work, done, lambda why: done(""))

    def sweep(
        self, marks: RunMarks, seconds: float, done: Callable[[int, Sequence[int]], None], *, at_once: bool = False
    ) -> None:
        term_seconds = 0.0 if at_once else run_processes.TERM_SECONDS
        run_processes.RunSweep(self.loop, marks, seconds, done, term_seconds)

    def make_dir(self, path: str, mode: int = 0o755) -> None:
        os.makedirs(path, mode, exist_ok=True)

    def draw_nonce(self) -> str:
        return os.urandom(16).hex()
