"""Storage through a process of its own: real file systems that stop, fill up, turn read-only and go away."""

from __future__ import annotations

import importlib.util
import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.keeping.pod_log import PodLog, PodLogEnd
from agent.log import Log
from agent.machine.host import Host
from agent.machine.keeper import MOST_QUEUED, ProcessKeeper, mount_of
from agent.machine.spool import FileSpool
from agent.paths import shipped
from tests.machine.waiting import DEADLINE_SECONDS, LoopAgain, run, wait_until

PROGRAM = shipped("entrypoints", "keep-results.py")
Done = Callable[[str], None]
SOON = 0.4
"""Seconds that a process has to answer where a test wants it to be given up."""
SILENT = f"no answer for {SOON:g} s"


class Storage:
    """One loop, the keepers on it and the file systems under them, which all go with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop = LoopAgain()
        self.keepers: list[ProcessKeeper] = []
        self.servers: list[subprocess.Popen[bytes]] = []
        self.pids: set[int] = set()
        # Mounts are made in a namespace of its own: they go with its last process, whatever becomes of the test.
        self.namespace = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.namespace.stdout is not None and self.namespace.stdout.readline() == b"ready\n"

    # File systems

    def seen(self, path: Path) -> Path:
        """A path inside the namespace, from outside."""
        return Path(f"/proc/{self.namespace.pid}/root{path}")

    def enter(self, *argv: str) -> list[str]:
        return ["nsenter", "--mount", f"--target={self.namespace.pid}", *argv]

    def mount(self, *argv: str) -> None:
        subprocess.run(self.enter("mount", *argv), check=True)

    def tmpfs(self, options: str) -> Path:
        """A file system in memory."""
        path = self.path / "tmpfs"
        path.mkdir()
        self.mount("-t", "tmpfs", "-o", options, "none", str(path))
        return self.seen(path)

    def fuse(self, *options: str, source: str = "source", name: str = "mount") -> Path:
        """A directory on which `source` is seen through a server, the newest of `servers`."""
        if not os.path.exists("/dev/fuse"):
            pytest.skip("this machine has no /dev/fuse")
        for folder in (source, name):
            (self.path / folder).mkdir(exist_ok=True)
        bindfs = ["bindfs", "-f", *options, str(self.path / source), str(self.path / name)]
        server = subprocess.Popen(self.enter("setpriv", "--pdeathsig", "KILL", *bindfs))
        self.servers.append(server)
        seen = self.seen(self.path / name)
        wait_until(lambda: server.poll() is not None or os.path.ismount(seen))
        assert server.poll() is None
        return seen

    # Keepers

    def keeper(
        self,
        directory: Path,
        *,
        python: str = sys.executable,
        answer: float = DEADLINE_SECONDS,
        probe: float = DEADLINE_SECONDS,
        restart: float = 0.0,
    ) -> ProcessKeeper:
        keeper = ProcessKeeper(
            self.loop, python, str(directory), answer_seconds=answer, probe_seconds=probe, restart_seconds=restart
        )
        self.keepers.append(keeper)
        return keeper

    def run_until(self, happened: Callable[[], bool]) -> None:
        """Let the loop go on until something is so that sends no event to it."""

        def look() -> None:
            if happened():
                self.loop.stop()
            else:
                self.loop.later(0.005, look)

        self.loop.post(look)
        run(self.loop)

    def ask(self, *commands: Callable[[Done], None]) -> list[str]:
        """Give all commands at once: what each is told."""
        told: dict[int, str] = {}

        def hear(number: int) -> Done:
            def done(why: str) -> None:
                assert number not in told, "told twice"
                told[number] = why
                if len(told) == len(commands):
                    self.loop.stop()

            return done

        for number, command in enumerate(commands):
            command(hear(number))
        assert told == {}, "told from inside the call"
        self.pids.update(self.find_helpers())
        run(self.loop)
        return [told[number] for number in range(len(commands))]

    def find_helpers(self) -> list[int]:
        """Processes that keep files below this test's directory."""
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self._is_helper(int(pid))]

    def _is_helper(self, pid: int) -> bool:
        argv = arguments(pid)
        return PROGRAM in argv and argv[-1].startswith((str(self.path), str(self.seen(self.path))))

    def helper(self) -> int:
        (pid,) = self.find_helpers()
        return pid

    def close(self) -> None:
        self.pids.update(self.find_helpers())
        for server in self.servers:
            server.kill()  # what waits for it goes on
            server.wait()
        for keeper in self.keepers:
            keeper.close()
        try:
            self.run_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in self.pids))
        finally:
            self.namespace.communicate()


def arguments(pid: int) -> list[str]:
    """Command line of a process; one empty text when it has none or is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return [""]


def gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    storage = Storage(tmp_path)
    yield storage
    storage.close()


def writing(keeper: ProcessKeeper, name: str, text: str) -> Callable[[Done], None]:
    return lambda done: keeper.write(name, text, done)


def files(directory: Path) -> list[str]:
    """All that is there, hidden files too."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


# What it does


def test_a_whole_file(storage: Storage, tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "yet"
    keeper = storage.keeper(out)
    text = 'ä 😀 "quoted" \\ \t\r\n\0 \udcff'
    assert storage.ask(writing(keeper, "a", "old"), writing(keeper, "pod-logs/b", text)) == ["", ""]
    assert storage.ask(writing(keeper, "a", "new"), writing(keeper, "empty", "")) == ["", ""]
    assert (out / "a").read_text() == "new"
    assert (out / "pod-logs" / "b").read_bytes() == text.encode("utf-8", "surrogateescape")
    assert files(out) == ["a", "empty", "pod-logs/b"]


def test_commands_are_done_in_order(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    commands = [writing(keeper, "a", str(number)) for number in range(100)]
    removal = [lambda done: keeper.remove(["a", "nothing"], done)]
    assert storage.ask(*commands) == [""] * 100
    assert (tmp_path / "out" / "a").read_text() == "99"
    assert storage.ask(*commands, *removal) == [""] * 101
    assert files(tmp_path / "out") == []


def test_much_more_than_a_pipe_holds(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    text = "0123456789abcdef" * (1024 * 1024)
    assert storage.ask(writing(keeper, "a", text), writing(keeper, "b", text)) == ["", ""]
    assert (tmp_path / "out" / "a").read_text() == (tmp_path / "out" / "b").read_text() == text


def test_a_probe_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    assert storage.ask(keeper.probe) == [""]
    assert (tmp_path / "out").is_dir() and files(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", ".."])
def test_names_do_not_leave_the_directory(storage: Storage, tmp_path: Path, name: str) -> None:
    keeper = storage.keeper(tmp_path / "out")
    whys = storage.ask(
        writing(keeper, name, "text"),
        lambda done: keeper.remove([name], done),
        lambda done: keeper.copy_spool(str(tmp_path), 0, 0, name, done),
    )
    assert all("is not a name in this directory" in why for why in whys)
    assert files(tmp_path) == []


def test_a_text_that_is_none_costs_only_its_own_file(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    why, after = storage.ask(writing(keeper, "a", "half a pair: \ud83d"), writing(keeper, "b", "text"))
    assert "surrogates not allowed" in why and after == ""
    assert files(tmp_path / "out") == ["b"]


def test_no_process_before_the_first_command(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    assert storage.find_helpers() == []
    storage.ask(keeper.probe)
    assert len(storage.find_helpers()) == 1


LOOK = """
import os, sys
from agent.lifecycle.keeping.pod_log import PodLog, PodLogEnd
from agent.log import Log
from agent.machine.host import Host
from agent.machine.keeper import ProcessKeeper
from agent.machine.loop import Loop

def show(why):
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        pid = int(file.read())
    with open(f"/proc/{pid}/environ") as file:
        print({entry.split("=")[0] for entry in file.read().split("\\0") if entry} - {"LD_LIBRARY_PATH"})
    print(os.readlink(f"/proc/{pid}/cwd"), os.getsid(pid) == pid)
    loop.stop()

loop = Loop()
keeper = ProcessKeeper(loop, sys.executable, sys.argv[1])
keeper.probe(show)
loop.run()
"""


def test_the_process_is_none_of_the_run(tmp_path: Path) -> None:
    env = {**os.environ, "A4_RUN": "exec-1234", "HF_TOKEN": "a secret"}
    shown = subprocess.run([sys.executable, "-c", LOOK, str(tmp_path)], env=env, capture_output=True, text=True)
    assert (shown.stdout, shown.stderr) == ("set()\n/ True\n", "")


@pytest.mark.parametrize(
    ("directory", "mount"),
    [
        ("/gcs/testbed-logs/job", "/gcs"),
        ("/gcs", "/gcs"),
        ("/gcs2/out", "/"),
        ("/run/a4-agent/results", "/run"),
        ("/run/a4-agent/../../gcs/out", "/gcs"),
        ("/with space/inner/out", "/with\\040space/inner"),
        ("/with space/out", "/with\\040space"),
    ],
)
def test_the_mount_that_a_directory_lies_on(directory: str, mount: str) -> None:
    points = ["/", "/run", "/gcs", "/with\\040space", "/with\\040space/inner"]
    assert mount_of(directory, points) == mount
    assert mount_of(directory, []) == "/"


def test_a_mount_that_is_gone() -> None:
    check = program().check_mount
    check("/")
    check("/proc")
    with pytest.raises(OSError, match="nothing is mounted at /no/such any more"):
        check("/no/such")


# Spools

Frames = list[tuple[int, bytes]]
FRAMES = st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(min_size=1, max_size=40)), max_size=60)


def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("keep_results", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill_spool(directory: str, frames: Frames, limit: int) -> tuple[int, list[int]]:
    """Offset of the oldest frame that is kept, and the offset before each frame and after the last."""
    spool = FileSpool(directory, limit)
    borders = [0]
    for stream, data in frames:
        spool.append(stream, data)
        borders.append(spool.end)
    spool.close()
    return min(map(int, os.listdir(directory))), borders


@given(frames=FRAMES, data=st.data())
def test_the_text_between_two_offsets_of_a_spool(frames: Frames, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        oldest, borders = fill_spool(directory, frames, limit=800)
        first = data.draw(st.integers(0, len(frames)))
        last = data.draw(st.integers(first, len(frames)))
        text = b"".join(program().spool_text(directory, borders[first], borders[last]))
    kept = b"".join(
        data for (_, data), at in zip(frames[:last], borders, strict=False) if at >= max(oldest, borders[first])
    )
    missing = min(oldest, borders[last]) - borders[first]
    gap = b"[a4-agent: %d bytes of the log are missing here]\n" % missing if missing > 0 else b""
    assert text == gap + kept


def test_a_spool_as_a_file(storage: Storage, tmp_path: Path) -> None:
    frames = [(1, b"out\n"), (2, b"err\n"), (3, b"agent\n"), (1, b"half a li")]
    _, borders = fill_spool(str(tmp_path / "spool"), frames, limit=10_000)
    keeper = storage.keeper(tmp_path / "out")
    spool = str(tmp_path / "spool")
    whys = storage.ask(
        lambda done: keeper.copy_spool(spool, 0, borders[4], "pod-logs/a.log", done),
        lambda done: keeper.copy_spool(spool, borders[1], borders[3], "pod-logs/b.log", done),
        lambda done: keeper.copy_spool(spool, borders[2], borders[2], "pod-logs/c.log", done),
    )
    assert whys == ["", "", ""]
    logs = tmp_path / "out" / "pod-logs"
    assert [(logs / name).read_text() for name in ("a.log", "b.log", "c.log")] == [
        "out\nerr\nagent\nhalf a li",
        "err\nagent\n",
        "",
    ]
    assert len(files(tmp_path / "out")) == 3


def test_a_segment_that_is_gone_or_broken_in_the_middle(storage: Storage, tmp_path: Path) -> None:
    """A hole is named where it is, and what follows it is there."""
    frames = [(1, b"%06d\n" % number) for number in range(100)]
    oldest, borders = fill_spool(str(tmp_path / "spool"), frames, limit=1_000_000)
    assert (oldest, borders[-1]) == (0, 1200)
    whole = (tmp_path / "spool" / f"{0:020d}").read_bytes()
    for start, length in ((0, 600), (612, 582)):  # of the first, frame 50 is gone; of the second, half of the last
        (tmp_path / "spool" / f"{start:020d}").write_bytes(whole[start : start + length])
    keeper = storage.keeper(tmp_path / "out")
    spool = str(tmp_path / "spool")
    assert storage.ask(lambda done: keeper.copy_spool(spool, 0, 1200, "a", done)) == [""]
    missing = "[a4-agent: 12 bytes of the log are missing here]"
    lines = [f"{number:06d}" for number in range(99)]
    lines[50] = missing
    assert (tmp_path / "out" / "a").read_text().splitlines() == [*lines, missing]


def test_no_spool_at_all(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    assert storage.ask(lambda done: keeper.copy_spool(str(tmp_path / "none"), 10, 90, "a", done)) == [""]
    assert (tmp_path / "out" / "a").read_text() == "[a4-agent: 80 bytes of the log are missing here]\n"


# The process


def test_a_process_that_was_killed_is_replaced(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    storage.ask(writing(keeper, "a", "text"))
    first = storage.helper()
    os.kill(first, signal.SIGKILL)
    assert storage.ask(writing(keeper, "b", "text")) == [""]
    assert storage.helper() != first
    assert files(tmp_path / "out") == ["a", "b"]


def test_commands_survive_a_process_that_was_killed_over_them(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    storage.ask(keeper.probe)
    stopped = storage.helper()
    os.kill(stopped, signal.SIGSTOP)

    def kill(done: Done) -> None:
        os.kill(stopped, signal.SIGKILL)
        keeper.write("c", "text", done)

    assert storage.ask(writing(keeper, "a", "text"), writing(keeper, "b", "text"), kill) == ["", "", ""]
    assert files(tmp_path / "out") == ["a", "b", "c"]


def shell(path: Path, script: str) -> str:
    """A stand-in for the Python."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_process_that_ends_again_and_again(storage: Storage, tmp_path: Path) -> None:
    python = shell(tmp_path / "python", f"echo >> {shlex.quote(str(tmp_path / 'starts'))}; exit 3")
    keeper = storage.keeper(tmp_path / "out", python=python)
    why = "the process that stores files was ended with status 3"
    assert storage.ask(writing(keeper, "a", "text"), keeper.probe) == [why, why]
    assert (tmp_path / "starts").read_text() == "\n" * 2
    assert storage.ask(writing(keeper, "a", "text"), keeper.probe) == [why, why]
    assert (tmp_path / "starts").read_text() == "\n" * 3


def test_a_python_that_is_not_there(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out", python="/no/such/python")
    why = "/no/such/python cannot be started: No such file or directory"
    assert storage.ask(writing(keeper, "a", "text")) == [why]
    assert storage.ask(keeper.probe, keeper.probe) == [why, why]


def test_signs_of_life_buy_time(storage: Storage, tmp_path: Path) -> None:
    """A second more for each 16 MiB: here the answer comes only when the usual time is long over."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    answer = f'read line; echo \'["1", "busy", "{1 << 40}"]\'; read go < {shlex.quote(str(gate))}'
    python = shell(tmp_path / "python", f'{answer}; echo \'["1", "done", ""]\'; read line')
    keeper = storage.keeper(tmp_path / "out", python=python, answer=1.0)

    def open_gate() -> None:
        gate.write_text("go\n")

    storage.loop.later(1.5, open_gate)
    assert storage.ask(writing(keeper, "a", "text")) == [""]


def test_the_queue_is_bounded(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    storage.ask(keeper.probe)
    os.kill(storage.helper(), signal.SIGSTOP)
    text = "x" * (MOST_QUEUED // 4)

    def go_on(done: Done) -> None:
        os.kill(storage.helper(), signal.SIGCONT)
        keeper.write("small", "x", done)

    whys = storage.ask(*[writing(keeper, str(number), text) for number in range(5)], go_on)
    full = "the queue is full (64 MiB)"
    assert whys == ["", "", "", full, full, ""]
    assert storage.ask(writing(keeper, "3", text)) == [""]
    assert files(tmp_path / "out") == ["0", "1", "2", "3", "small"]


def test_an_idle_process_ends_when_its_keeper_closes(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    storage.ask(keeper.probe)
    pid = storage.helper()
    keeper.close()
    storage.run_until(lambda: gone(pid))
    keeper.probe(lambda why: pytest.fail("a keeper that is closed does nothing"))
    keeper.close()
    assert storage.find_helpers() == []


def test_closing_gives_up_what_is_under_way(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    storage.ask(keeper.probe)
    pid = storage.helper()
    os.kill(pid, signal.SIGSTOP)
    keeper.write("a", "text", lambda why: pytest.fail("told after the end"))
    keeper.close()
    storage.run_until(lambda: gone(pid))
    assert files(tmp_path / "out") == []


AGENT = """
import os, signal, sys
from agent.lifecycle.keeping.pod_log import PodLog, PodLogEnd
from agent.log import Log
from agent.machine.host import Host
from agent.machine.keeper import ProcessKeeper
from agent.machine.loop import Loop

def store(why):
    keeper.write("a", "text", lambda why: None)
    os.kill(os.getpid(), signal.SIGKILL)

loop = Loop()
keeper = ProcessKeeper(loop, sys.executable, sys.argv[1])
keeper.probe(store)
loop.run()
"""


def test_what_a_killed_agent_has_asked_for_is_still_done(storage: Storage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", AGENT, str(out)]).returncode == -signal.SIGKILL
    wait_until(lambda: storage.find_helpers() == [])
    assert files(out) == ["a"]


# File systems


def test_a_server_that_stops_for_a_while(storage: Storage, tmp_path: Path) -> None:
    out = storage.fuse()
    keeper = storage.keeper(out, probe=SOON)
    assert storage.ask(writing(keeper, "a", "text")) == [""]
    (server,) = storage.servers
    server.send_signal(signal.SIGSTOP)
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        storage.loop.later(SOON / 20, turn)

    turn()
    late = [writing(keeper, name, "text") for name in ("b", "c")]
    assert storage.ask(keeper.probe, *late) == [SILENT] * 3
    assert len(turns) > 2, "the loop stood still"
    server.send_signal(signal.SIGCONT)
    assert storage.ask(*late, writing(keeper, "d", "text")) == [""] * 3
    assert files(out) == files(tmp_path / "source") == ["a", "b", "c", "d"]


def test_after_a_hang_the_directory_rests(storage: Storage) -> None:
    keeper = storage.keeper(storage.fuse(), probe=SOON, restart=1000.0)
    assert storage.ask(writing(keeper, "a", "text")) == [""]
    hung = storage.helper()
    storage.servers[0].send_signal(signal.SIGSTOP)
    assert storage.ask(keeper.probe) == [SILENT]
    storage.servers[0].send_signal(signal.SIGCONT)
    storage.run_until(lambda: gone(hung))
    assert storage.ask(writing(keeper, "b", "text"), keeper.probe) == [SILENT] * 2
    assert storage.find_helpers() == []


def test_the_log_of_a_pod_over_a_server_that_stops(storage: Storage, tmp_path: Path) -> None:
    """Nothing is lost, and what is said is said once."""
    out = storage.fuse()
    spool = FileSpool(str(tmp_path / "spool"), 1_000_000)
    said = io.StringIO()
    keeper = storage.keeper(out, answer=SOON)
    pod_log = PodLog(Host(storage.loop), Log(stream=said), keeper, str(tmp_path / "spool"), "coordinator", spool)
    text = "".join(f"line {number}\n" for number in range(1000))
    for line in text.splitlines(keepends=True):
        spool.append(1, line.encode())
    ends: list[PodLogEnd] = []
    storage.servers[0].send_signal(signal.SIGSTOP)
    pod_log.finish(DEADLINE_SECONDS, ends.append)
    storage.run_until(lambda: "tried again" in said.getvalue())
    assert ends == []
    storage.servers[0].send_signal(signal.SIGCONT)
    storage.run_until(lambda: bool(ends))
    assert ends == [PodLogEnd(spool.end, 0, "")]
    assert (out / "pod-logs" / "coordinator.log").read_text() == text
    warning, info = said.getvalue().splitlines()
    assert f"cannot be stored in the results directory: {SILENT}" in warning
    assert "is stored in the results directory again" in info
    spool.close()


def test_what_a_process_given_up_has_begun_is_cleared_away(storage: Storage, tmp_path: Path) -> None:
    """Here it hangs over a spool, of which a segment is a FIFO that nobody writes to."""
    (tmp_path / "spool").mkdir()
    os.mkfifo(tmp_path / "spool" / f"{0:020d}")
    out = tmp_path / "out"
    keeper = storage.keeper(out, answer=SOON, probe=DEADLINE_SECONDS)
    while not files(out):  # on a busy machine it has not come that far at first
        copied = storage.ask(lambda done: keeper.copy_spool(str(tmp_path / "spool"), 0, 10, "logs/a", done))
        assert copied == [SILENT]
    while files(out):
        storage.ask(keeper.probe)


def test_processes_that_not_even_a_kill_ends_are_few(storage: Storage) -> None:
    """A request that a server has taken is waited for without end: here a server waits for a server that stops."""
    storage.fuse(name="inner")
    inner = storage.servers[0]
    out = storage.fuse("--multithreaded", source="inner")
    keeper = storage.keeper(out, answer=SOON)
    assert storage.ask(keeper.probe) == [""]
    inner.send_signal(signal.SIGSTOP)
    while len(storage.find_helpers()) < 3:  # one that was killed before it asked for anything is none
        (why,) = storage.ask(writing(keeper, "a", "text"))
        assert why
    hung = storage.find_helpers()
    assert storage.ask(writing(keeper, "b", "text"), keeper.probe) == ["3 processes hang there"] * 2
    assert storage.find_helpers() == hung
    inner.send_signal(signal.SIGCONT)
    storage.run_until(lambda: all(gone(pid) for pid in hung))
    assert storage.ask(keeper.probe) == [""]


def test_a_server_that_is_gone(storage: Storage) -> None:
    keeper = storage.keeper(storage.fuse())
    storage.ask(keeper.probe)
    storage.servers[0].kill()
    storage.servers[0].wait()
    assert storage.ask(writing(keeper, "a", "text"), keeper.probe) == ["Transport endpoint is not connected"] * 2


def test_a_mount_that_cannot_rename(storage: Storage, tmp_path: Path) -> None:
    out = storage.fuse("--rename-deny")
    _, borders = fill_spool(str(tmp_path / "spool"), [(1, b"text\n")], limit=1000)
    keeper = storage.keeper(out)
    whys = storage.ask(
        writing(keeper, "a", "old"),
        writing(keeper, "a", "new"),
        lambda done: keeper.copy_spool(str(tmp_path / "spool"), 0, borders[1], "b", done),
    )
    assert whys == ["", "", ""]
    assert files(out) == ["a", "b"]
    assert ((out / "a").read_text(), (out / "b").read_text()) == ("new", "text\n")


def test_a_full_file_system(storage: Storage) -> None:
    out = storage.tmpfs("size=1m")
    keeper = storage.keeper(out)
    full = "No space left on device"
    assert storage.ask(writing(keeper, "a", "old"), writing(keeper, "big", "x" * (2 << 20))) == ["", full]
    assert files(out) == ["a"]
    (out / "ballast").write_bytes(b"x" * ((1 << 20) - 4096))
    assert storage.ask(writing(keeper, "a", "new"), keeper.probe) == [full, full]
    assert (out / "a").read_text() == "old"
    (out / "ballast").unlink()
    assert storage.ask(writing(keeper, "a", "new"), keeper.probe) == ["", ""]
    assert files(out) == ["a"] and (out / "a").read_text() == "new"


def test_a_file_system_that_turns_read_only(storage: Storage, tmp_path: Path) -> None:
    out = storage.tmpfs("size=1m")
    keeper = storage.keeper(out)
    assert storage.ask(writing(keeper, "a", "text")) == [""]
    storage.mount("-o", "remount,ro", str(tmp_path / "tmpfs"))
    refused = "Read-only file system"
    assert (
        storage.ask(
            writing(keeper, "a", "new"),
            writing(keeper, "new/b", "text"),
            keeper.probe,
            lambda done: keeper.remove(["a"], done),
        )
        == [refused] * 4
    )
    storage.mount("-o", "remount,rw", str(tmp_path / "tmpfs"))
    assert storage.ask(writing(keeper, "b", "text")) == [""]
    assert files(out) == ["a", "b"]


def test_a_directory_that_was_removed_is_made_anew(storage: Storage, tmp_path: Path) -> None:
    keeper = storage.keeper(tmp_path / "out")
    storage.ask(writing(keeper, "pod-logs/a", "text"))
    subprocess.run(["rm", "-r", str(tmp_path / "out")], check=True)
    assert storage.ask(writing(keeper, "pod-logs/b", "text"), keeper.probe) == ["", ""]
    assert files(tmp_path / "out") == ["pod-logs/b"]


def test_a_file_where_the_directory_should_be(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    keeper = storage.keeper(tmp_path / "out")
    assert storage.ask(keeper.probe, writing(keeper, "a", "text")) == ["Not a directory"] * 2
