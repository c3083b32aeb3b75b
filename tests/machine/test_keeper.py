"""Storage through a process of its own: real file systems that stop, fill up, turn read-only and go away."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.keeping.archive import Archive, PodLog
from agent.log import Log
from agent.machine.api import KeeperProcess
from agent.machine.host import Host
from agent.machine.keeper import Keeper, mount_of
from agent.machine.loop import Loop
from agent.machine.spool import FileSpool, Room
from agent.paths import shipped
from tests.fake.storage import PROGRAM
from tests.machine.waiting import run, wait_until

PATH = shipped("entrypoints", "keep-results.py")
PATIENCE = 5.0
"""Seconds of silence until a process is given up; one that is well speaks every 2 s."""


class Storage:
    """One loop, the processes on it and the file systems under them, which all go with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop = Loop()
        self.talks: list[Talk] = []
        self.hanging: set[KeeperProcess] = set()
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

    # The processes

    def start(self, directory: Path, number: int = 1) -> Talk:
        return Talk(self, directory, number)

    def archive(self, directory: Path, spool: FileSpool | None = None, said: io.StringIO | None = None) -> Archive:
        """What an agent has of such a directory, with a log that is stored from `spool`."""
        pod_log = PodLog(spool, spool.directory, "pod-logs/coordinator.log") if spool else None
        log = Log(stream=said or io.StringIO())
        host, hanging = Host(self.loop), self.hanging
        return Archive(host, log, str(directory), hanging, pod_log, patience=PATIENCE)

    def close_archive(self, archive: Archive) -> None:
        """Wait until everything is stored."""
        ended: list[bool] = []
        archive.close(None, lambda: ended.append(True))
        self.pids.update(self.find_helpers())
        self.run_until(lambda: bool(ended))

    def run_until(self, happened: Callable[[], bool]) -> None:
        """Let the loop go on until something is so that sends no event to it."""

        def look() -> None:
            if happened():
                self.loop.stop()
            else:
                self.loop.later(0.005, look)

        self.loop.post(look)
        run(self.loop)

    def find_helpers(self) -> list[int]:
        """Processes that keep files below this test's directory."""
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self._is_helper(int(pid))]

    def _is_helper(self, pid: int) -> bool:
        argv = arguments(pid)
        return PATH in argv and argv[-2].startswith((str(self.path), str(self.seen(self.path))))

    def helper(self) -> int:
        """The only one. While the kernel starts a program, /proc knows no arguments of it for a moment."""
        wait_until(lambda: bool(self.find_helpers()))
        (pid,) = self.find_helpers()
        return pid

    def close(self) -> None:
        self.pids.update(self.find_helpers())
        for server in self.servers:
            server.kill()  # what waits for it goes on
            server.wait()
        for talk in self.talks:
            talk.process.close(kill=True)
        for pid in self.find_helpers():
            os.kill(pid, signal.SIGKILL)
        try:
            self.run_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in self.pids))
        finally:
            self.namespace.communicate()


class Talk:
    """One process and what it says."""

    def __init__(self, storage: Storage, directory: Path, number: int) -> None:
        self.heard: list[Sequence[str]] = []
        self._storage = storage
        self._count = 0
        storage.talks.append(self)
        self.process = Keeper(storage.loop, str(directory), number, self.heard.append, lambda *end: None)
        storage.pids.update(storage.find_helpers())

    def hear(self, *words: str) -> list[str]:
        """Wait for a line that begins so; what follows in it."""

        def found() -> list[list[str]]:
            return [list(line[len(words) :]) for line in self.heard if tuple(line[: len(words)]) == words]

        self._storage.run_until(lambda: bool(found()))
        return found()[-1]

    def write(self, name: str, text: str, *, new: bool = False) -> str:
        """Why the first try fails; empty when it does not."""
        self._count += 1
        self.process.send("write", str(self._count), name, text, "new" if new else "")
        return self.hear("write", str(self._count))[0]

    def probe(self) -> str:
        return self.probe_and_look("earlier")[0]

    def probe_and_look(self, earlier: str) -> list[str]:
        self.heard.clear()
        self.process.send("probe", ".worker-1-probe", earlier)
        return self.hear("probe")

    def whole(self, spool: str, name: str, end: int) -> list[str]:
        """Have a spool stored as one file."""
        self.heard.clear()
        self.process.send("log", spool, name, "0", "0", "0")
        self.process.send("end", str(end))
        return self.hear("whole")


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


def files(directory: Path) -> list[str]:
    """All that is there, hidden files too."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


# What it does


def test_a_whole_file(storage: Storage, tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "yet"
    talk = storage.start(out)
    text = 'ä 😀 "quoted" \\ \t\r\n\0 \udcff'
    assert [talk.write("a", "old"), talk.write("pod-logs/b", text)] == ["", ""]
    assert [talk.write("a", "new"), talk.write("empty", "")] == ["", ""]
    assert (out / "a").read_text() == "new"
    assert (out / "pod-logs" / "b").read_bytes() == text.encode("utf-8", "surrogateescape")
    assert files(out) == ["a", "empty", "pod-logs/b"]


def test_much_more_than_a_pipe_holds(storage: Storage, tmp_path: Path) -> None:
    talk = storage.start(tmp_path / "out")
    text = "0123456789abcdef" * (1024 * 1024)
    assert [talk.write("a", text), talk.write("b", text)] == ["", ""]
    assert (tmp_path / "out" / "a").read_text() == (tmp_path / "out" / "b").read_text() == text


def test_a_file_that_is_not_to_be_replaced(storage: Storage, tmp_path: Path) -> None:
    talk = storage.start(tmp_path / "out")
    assert talk.write("a", "text", new=True) == ""
    assert talk.write("a", "text", new=True) == "", "an earlier try got through"
    assert talk.write("a", "other", new=True) == "it is there already, and left as it is"
    assert (tmp_path / "out" / "a").read_text() == "text"
    assert files(tmp_path / "out") == ["a"]


def test_a_probe_leaves_nothing(storage: Storage, tmp_path: Path) -> None:
    assert storage.start(tmp_path / "out").probe() == ""
    assert (tmp_path / "out").is_dir() and files(tmp_path / "out") == []


def test_a_probe_says_what_was_there_before(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "out" / "earlier").mkdir(parents=True)
    talk = storage.start(tmp_path / "out")
    assert talk.probe_and_look("earlier") == ["", "earlier"] and talk.probe_and_look("later") == ["", ""]


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", ".."])
def test_names_do_not_leave_the_directory(storage: Storage, tmp_path: Path, name: str) -> None:
    talk = storage.start(tmp_path / "out")
    whys = [talk.write(name, "text"), talk.whole(str(tmp_path), name, 0)[2]]
    assert all("is not a name in this directory" in why for why in whys)
    assert files(tmp_path) == []


def test_a_text_that_is_none_costs_only_its_own_file(storage: Storage, tmp_path: Path) -> None:
    talk = storage.start(tmp_path / "out")
    why, after = talk.write("a", "half a pair: \ud83d"), talk.write("b", "text")
    assert "surrogates not allowed" in why and after == ""
    assert files(tmp_path / "out") == ["b"]


def test_what_a_killed_process_left_is_removed_by_the_next(storage: Storage, tmp_path: Path) -> None:
    for name in ("a.1.new", "a.2.new", "b.1.new"):
        (tmp_path / name).write_text("half a fi")
    assert storage.start(tmp_path, number=3).write("a", "text") == ""
    assert files(tmp_path) == ["a", "b.1.new"]


def test_the_pieces_of_a_log_go_when_it_is_whole(storage: Storage, tmp_path: Path) -> None:
    _, borders = fill_spool(str(tmp_path / "spool"), [(1, b"text\n")], limit=1000)
    out = tmp_path / "out"
    out.mkdir()
    for name in ("log.0001", "log.0101", "log.0102.1.new", "log2", "log2.0001"):
        (out / name).write_text("of before")
    assert storage.start(out).whole(str(tmp_path / "spool"), "log", borders[-1]) == ["0", "0", "", ""]
    assert files(out) == ["log", "log2", "log2.0001"]


LOOK = """
import os, sys
from agent.machine.keeper import Keeper
from agent.machine.loop import Loop

def show(words):
    if words[0] != "probe":
        return
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        pid = int(file.read())
    with open(f"/proc/{pid}/environ") as file:
        print({entry.split("=")[0] for entry in file.read().split("\\0") if entry} - {"LD_LIBRARY_PATH"})
    print(os.readlink(f"/proc/{pid}/cwd"), os.getsid(pid) == pid)
    loop.stop()

loop = Loop()
Keeper(loop, sys.argv[1], 1, show, lambda *end: None).send("probe", "x", "y")
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
        ("/with space/inner/out", "/with space/inner"),
        ("/with space/out", "/with space"),
    ],
)
def test_the_mount_that_a_directory_lies_on(directory: str, mount: str) -> None:
    points = ["/", "/run", "/gcs", "/with space", "/with space/inner"]
    assert mount_of(directory, points) == mount
    assert mount_of(directory, []) == "/"


def test_a_mount_that_is_gone(tmp_path: Path) -> None:
    def look(mount: str) -> None:
        PROGRAM.Directory(mount, str(tmp_path), str(tmp_path), 1, lambda written: None).remove("x")

    look("/")
    look("/proc")
    with pytest.raises(OSError, match="nothing is mounted at /no/such any more"):
        look("/no/such")


# Spools

Frames = list[tuple[int, bytes]]
FRAMES = st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(min_size=1, max_size=40)), max_size=60)


def fill_spool(directory: str, frames: Frames, limit: int) -> tuple[int, list[int]]:
    """Offset of the oldest frame that is kept, and the offset before each frame and after the last."""
    spool = FileSpool(directory, Room(limit))
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
        text = PROGRAM.Text(PROGRAM.Segments(directory), borders[first], borders[last])
        found = b"".join(text.chunks())
        to_the_end = PROGRAM.Text(PROGRAM.Segments(directory), borders[first], None)
        rest = b"".join(to_the_end.chunks())
    kept = b"".join(
        data for (_, data), at in zip(frames[:last], borders, strict=False) if at >= max(oldest, borders[first])
    )
    missing = min(oldest, borders[last]) - borders[first]
    gap = b"[a4-agent: %d bytes of the log are missing here]\n" % missing if missing > 0 else b""
    assert (found, text.at) == (gap + kept, borders[last])
    assert text.gaps == ([(borders[first], borders[first] + missing)] if missing > 0 else [])
    assert to_the_end.at == borders[-1] and rest.endswith(kept if last == len(frames) else b"")


def test_a_spool_as_a_file(storage: Storage, tmp_path: Path) -> None:
    frames = [(1, b"out\n"), (2, b"err\n"), (3, b"agent\n"), (1, b"half a li")]
    _, borders = fill_spool(str(tmp_path / "spool"), frames, limit=10_000)
    talk = storage.start(tmp_path / "out")
    assert talk.whole(str(tmp_path / "spool"), "pod-logs/a.log", borders[4]) == ["0", "0", "", ""]
    assert talk.whole(str(tmp_path / "spool"), "pod-logs/b.log", borders[2]) == ["0", "0", "", ""]
    logs = tmp_path / "out" / "pod-logs"
    assert [(logs / name).read_text() for name in ("a.log", "b.log")] == ["out\nerr\nagent\nhalf a li", "out\nerr\n"]
    assert len(files(tmp_path / "out")) == 2


def test_a_segment_that_is_gone_or_broken_in_the_middle(storage: Storage, tmp_path: Path) -> None:
    """A hole is named where it is, and what follows it is there."""
    frames = [(1, b"%06d\n" % number) for number in range(100)]
    oldest, borders = fill_spool(str(tmp_path / "spool"), frames, limit=1_000_000)
    assert (oldest, borders[-1]) == (0, 1600)
    whole = (tmp_path / "spool" / f"{0:020d}").read_bytes()
    for start, length in ((0, 800), (816, 776)):  # of the first, frame 50 is gone; of the second, half of the last
        (tmp_path / "spool" / f"{start:020d}").write_bytes(whole[start : start + length])
    assert storage.start(tmp_path / "out").whole(str(tmp_path / "spool"), "a", 1600) == ["32", "32", "", ""]
    missing = "[a4-agent: 16 bytes of the log are missing here]"
    lines = [f"{number:06d}" for number in range(99)]
    lines[50] = missing
    assert (tmp_path / "out" / "a").read_text().splitlines() == [*lines, missing]


def test_no_spool_at_all(storage: Storage, tmp_path: Path) -> None:
    assert storage.start(tmp_path / "out").whole(str(tmp_path / "none"), "a", 90) == ["90", "90", "", ""]
    assert (tmp_path / "out" / "a").read_text() == "[a4-agent: 90 bytes of the log are missing here]\n"


@pytest.mark.parametrize("data", [b"\0" * 9, b"\xff\xfe", b"\x1b[31m", pytest.param(bytes(range(256)) * 300, id="all")])
def test_bytes_that_are_no_text_go_through_unchanged(storage: Storage, tmp_path: Path, data: bytes) -> None:
    _, borders = fill_spool(str(tmp_path / "spool"), [(1, data), (2, b"after")], limit=10_000_000)
    assert storage.start(tmp_path / "out").whole(str(tmp_path / "spool"), "a", borders[-1]) == ["0", "0", "", ""]
    assert (tmp_path / "out" / "a").read_bytes() == data + b"after"


# The process


@pytest.mark.parametrize("moment", ["before", "begun", "ending"])
def test_a_process_that_was_killed_is_replaced_and_the_log_is_whole(
    storage: Storage, tmp_path: Path, moment: str
) -> None:
    spool = FileSpool(str(tmp_path / "spool"), Room(100 << 20))
    archive = storage.archive(tmp_path / "out", spool)
    data = b"".join(b"line %d\n" % number for number in range(2_000_000))
    spool.append(1, data)
    if moment == "begun":  # more than 8 MiB are stored at once
        storage.run_until(lambda: any("coordinator.log" in name for name in files(tmp_path)))
    else:
        archive.keep("a", "text")
    stopped = storage.helper()
    if moment == "ending":
        os.kill(stopped, signal.SIGSTOP)
        archive.close(None, lambda: None)
    os.kill(stopped, signal.SIGKILL)
    storage.close_archive(archive)
    assert (tmp_path / "out" / "pod-logs" / "coordinator.log").read_bytes() == data
    assert files(tmp_path / "out") == [*(["a"] if moment != "begun" else []), "pod-logs/coordinator.log"]


def test_an_idle_process_ends_with_its_archive(storage: Storage, tmp_path: Path) -> None:
    archive = storage.archive(tmp_path / "out")
    archive.keep("a", "text")
    pid = storage.helper()
    storage.close_archive(archive)
    storage.run_until(lambda: gone(pid))
    assert files(tmp_path / "out") == ["a"]


def test_a_process_that_has_just_ended_by_itself_can_be_killed() -> None:
    loop, ended = Loop(), list[int]()

    def tell(process: Keeper, status: int) -> None:
        ended.append(status)
        loop.stop()

    process = Keeper(loop, "/nowhere", 1, lambda words: None, tell)
    process.send("write")  # what, it does not say
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # the loop has not heard of it
    process.close(kill=True)
    run(loop)
    assert ended == [1]


AGENT = """
import os, signal, sys
from agent.machine.keeper import Keeper
from agent.machine.loop import Loop

def die(words):
    process.send("write", "1", "a", "text", "")
    process.send("log", sys.argv[2], "log", "0", "0", "0")
    os.kill(os.getpid(), signal.SIGKILL)

loop = Loop()
process = Keeper(loop, sys.argv[1], 1, die, lambda *end: None)
loop.run()
"""


def test_what_a_killed_agent_has_asked_for_is_still_done(storage: Storage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    fill_spool(str(tmp_path / "spool"), [(1, b"text\n")], limit=1000)
    argv = [sys.executable, "-c", AGENT, str(out), str(tmp_path / "spool")]
    assert subprocess.run(argv).returncode == -signal.SIGKILL
    wait_until(lambda: storage.find_helpers() == [])
    assert files(out) == ["a", "log"]
    assert (out / "log").read_text() == "text\n"


# File systems


@pytest.mark.faults  # tests/cluster/test_storage.py has it in real pods
def test_the_log_of_a_pod_over_a_server_that_stops(storage: Storage, tmp_path: Path) -> None:
    """Nothing is lost, what is said is said once, and the loop does not stand still."""
    out = storage.fuse()
    spool = FileSpool(str(tmp_path / "spool"), Room(1_000_000))
    said = io.StringIO()
    archive = storage.archive(out, spool, said)
    text = "".join(f"line {number}\n" for number in range(1000))
    for line in text.splitlines(keepends=True):
        spool.append(1, line.encode())
    storage.servers[0].send_signal(signal.SIGSTOP)
    archive.keep("result.json", "{}")
    archive.close(None, lambda: pytest.fail("the next call hears"))
    turns: list[int] = []

    def turn() -> None:
        turns.append(1)
        storage.loop.later(0.05, turn)

    turn()
    storage.run_until(lambda: "tried again" in said.getvalue())
    assert len(turns) > 2, "the loop stood still"
    storage.servers[0].send_signal(signal.SIGCONT)
    storage.close_archive(archive)
    assert (out / "pod-logs" / "coordinator.log").read_text() == text
    assert files(out) == ["pod-logs/coordinator.log", "result.json"]
    warning, info = said.getvalue().splitlines()
    assert f"cannot be stored in {out}: no answer for {PATIENCE:g} s" in warning
    assert f"is stored in {out} again" in info


def test_processes_that_not_even_a_kill_ends_are_few(storage: Storage, tmp_path: Path) -> None:
    """A request that a server has taken is waited for without end: here a server waits for a server that stops."""
    storage.fuse(name="inner")
    inner = storage.servers[0]
    out = storage.fuse("--multithreaded", source="inner")
    assert storage.start(out).probe() == ""
    storage.talks.pop().process.close(kill=True)
    storage.run_until(lambda: storage.find_helpers() == [])
    inner.send_signal(signal.SIGSTOP)
    archives = [storage.archive(out) for _ in range(4)]
    for number, archive in enumerate(archives):
        archive.keep(str(number), "text")
    heard: list[str] = []
    storage.run_until(lambda: len(storage.hanging) >= 3)
    archives.append(storage.archive(out))
    archives[-1].keep("late", "text")
    archives[-1].when_kept(heard.append, 0.1)
    storage.run_until(lambda: bool(heard))
    assert re.fullmatch(r"late \(\d processes hang there\)", heard[0])
    assert len(storage.find_helpers()) <= 4, "those that were started before any hung"
    inner.send_signal(signal.SIGCONT)
    for archive in archives:
        storage.close_archive(archive)
    assert files(out) == ["0", "1", "2", "3", "late"]


def test_a_server_that_is_gone(storage: Storage) -> None:
    talk = storage.start(storage.fuse())
    talk.probe()
    storage.servers[0].kill()
    storage.servers[0].wait()
    assert [talk.write("a", "text"), talk.probe()] == ["Transport endpoint is not connected"] * 2


def test_a_mount_that_cannot_rename(storage: Storage, tmp_path: Path) -> None:
    out = storage.fuse("--rename-deny")
    _, borders = fill_spool(str(tmp_path / "spool"), [(1, b"text\n")], limit=1000)
    talk = storage.start(out)
    assert [talk.write("a", "old"), talk.write("a", "new")] == ["", ""]
    assert talk.whole(str(tmp_path / "spool"), "b", borders[1]) == ["0", "0", "", ""]
    assert files(out) == ["a", "b"]
    assert ((out / "a").read_text(), (out / "b").read_text()) == ("new", "text\n")


def test_a_full_file_system(storage: Storage) -> None:
    out = storage.tmpfs("size=1m")
    talk = storage.start(out)
    full = "No space left on device"
    assert [talk.write("a", "old"), talk.write("big", "x" * (2 << 20))] == ["", full]
    assert files(out) == ["a"]
    (out / "ballast").write_bytes(b"x" * ((1 << 20) - 4096))
    assert [talk.write("a", "new"), talk.probe()] == [full, full]
    assert (out / "a").read_text() == "old"
    talk.heard.clear()
    assert talk.hear("write", "3")[1:] == ["lasting"] or talk.hear("write", "3", full, "lasting") == []
    (out / "ballast").unlink()
    assert talk.hear("write", "3", "") and talk.probe() == ""
    assert files(out) == ["a"] and (out / "a").read_text() == "new"


def test_a_file_system_that_turns_read_only(storage: Storage, tmp_path: Path) -> None:
    out = storage.tmpfs("size=1m")
    talk = storage.start(out)
    assert talk.write("a", "text") == ""
    storage.mount("-o", "remount,ro", str(tmp_path / "tmpfs"))
    assert [talk.write("a", "new"), talk.write("new/b", "text"), talk.probe()] == ["Read-only file system"] * 3
    storage.mount("-o", "remount,rw", str(tmp_path / "tmpfs"))
    assert talk.hear("write", "3", "") and talk.write("b", "text") == ""
    assert files(out) == ["a", "b", "new/b"]


def test_a_directory_that_was_removed_is_made_anew(storage: Storage, tmp_path: Path) -> None:
    talk = storage.start(tmp_path / "out")
    talk.write("pod-logs/a", "text")
    subprocess.run(["rm", "-r", str(tmp_path / "out")], check=True)
    assert [talk.write("pod-logs/b", "text"), talk.probe()] == ["", ""]
    assert files(tmp_path / "out") == ["pod-logs/b"]


def test_a_file_where_the_directory_should_be(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    talk = storage.start(tmp_path / "out")
    assert [talk.probe(), talk.write("a", "text")] == ["Not a directory"] * 2
