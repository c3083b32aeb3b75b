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
from tests.shared_mounts import SharedMounts, command

PATH = shipped("entrypoints", "keep-results.py")
PATIENCE = 5.0
"""Seconds of silence until a process is given up; one that is well speaks every 2 s."""


class Storage(SharedMounts):
    """One loop, the processes on it and the file systems under them, which all go with it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, pods=0)
        self.loop = Loop()
        self.talks: list[Talk] = []
        self.hanging: set[KeeperProcess] = set()
        self.pids: set[int] = set()

    def fuse(self, *options: str, source: str = "source", name: str = "mount") -> Path:
        """A directory on which `source` is seen through a server, the newest of `servers`."""
        for folder in (source, name):
            (self.path / folder).mkdir(exist_ok=True)
        mount = self.path / name
        self.serve(["bindfs", "-f", *options, str(self.path / source), str(mount)], mount)
        return self.inside(mount)

    def talk(self, directory: Path, number: int = 1) -> Talk:
        return Talk(self, directory, number)

    def archive(self, directory: Path, spool: FileSpool | None = None) -> Archive:
        """What an agent has of such a directory, with a log that is stored from `spool`."""
        pod_log = PodLog(spool, spool.directory, "log") if spool else None
        log = Log(stream=io.StringIO())
        return Archive(Host(self.loop), log, str(directory), self.hanging, pod_log, patience=PATIENCE)

    def close_archive(self, archive: Archive, seconds: float | None = None) -> None:
        """Wait until everything is stored, at most so long."""
        ended: list[bool] = []
        archive.close(seconds, lambda: ended.append(True))
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
        # One that the kernel is just starting shows no arguments yet, and would be left to another test.
        while (argv := command(pid)) == [""] and is_python(pid):
            pass
        return PATH in argv and argv[-3].startswith((str(self.path), str(self.inside(self.path))))

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
            self.__exit__(None, None, None)


def is_python(pid: int) -> bool:
    try:
        return os.path.samefile(f"/proc/{pid}/exe", sys.executable)
    except OSError:  # it has ended
        return False


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
    talk = storage.talk(out)
    text, much = 'ä 😀 "quoted" \\ \t\r\n\0 \udcff', "0123456789abcdef" * (1024 * 1024)  # more than a pipe holds
    assert "surrogates not allowed" in talk.write("c", "half a pair: \ud83d")  # which costs only its own file
    assert [talk.write("a", "old"), talk.write("pod-logs/b", text)] == ["", ""]
    assert [talk.write("a", much), talk.write("empty", "")] == ["", ""]
    assert (out / "a").read_text() == much
    assert (out / "pod-logs" / "b").read_bytes() == text.encode("utf-8", "surrogateescape")
    assert files(out) == ["a", "empty", "pod-logs/b"]


def test_a_file_that_is_not_to_be_replaced(storage: Storage, tmp_path: Path) -> None:
    talk = storage.talk(tmp_path / "out")
    assert talk.write("a", "text", new=True) == ""
    assert talk.write("a", "text", new=True) == "", "an earlier try got through"
    assert talk.write("a", "other", new=True) == "it is there already, and left as it is"
    assert (tmp_path / "out" / "a").read_text() == "text"
    assert files(tmp_path / "out") == ["a"]


def test_a_probe_leaves_nothing_and_says_what_was_there_before(storage: Storage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    talk = storage.talk(out)
    assert talk.probe_and_look("earlier") == ["", ""] and out.is_dir()
    (out / "earlier").mkdir()
    assert talk.probe_and_look("earlier") == ["", "earlier"] and files(out) == []


def test_names_do_not_leave_the_directory(storage: Storage, tmp_path: Path) -> None:
    talk = storage.talk(tmp_path / "out")
    for name in ("", "/etc/x", "../x", "a/../../x", ".."):
        for why in (talk.write(name, "text"), talk.whole(str(tmp_path), name, 0)[2]):
            assert "is not a name in this directory" in why, name
    assert files(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next(storage: Storage, tmp_path: Path) -> None:
    for name in ("a.1.new", "a.2.new", "b.1.new"):
        (tmp_path / name).write_text("half a fi")
    assert storage.talk(tmp_path, number=3).write("a", "text") == ""
    assert files(tmp_path) == ["a", "b.1.new"]


def test_the_pieces_of_a_log_go_when_it_is_whole(storage: Storage, tmp_path: Path) -> None:
    _, borders = fill_spool(str(tmp_path / "spool"), [(1, b"text\n")], limit=1000)
    out = tmp_path / "out"
    out.mkdir()
    for name in ("log.0001", "log.0101", "log.0102.1.new", "log2", "log2.0001"):
        (out / name).write_text("of before")
    assert storage.talk(out).whole(str(tmp_path / "spool"), "log", borders[-1]) == ["0", "0", "", ""]
    assert files(out) == ["log", "log2", "log2.0001"]


def test_the_process_is_none_of_the_run(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("A4_RUN", "exec-1234"), ("HF_TOKEN", "a secret")):
        monkeypatch.setenv(name, value)
    storage.talk(tmp_path).probe()
    process = Path(f"/proc/{storage.helper()}")
    names = {entry.split("=")[0] for entry in (process / "environ").read_text().split("\0") if entry}
    assert names <= {"LD_LIBRARY_PATH"}
    assert ((process / "cwd").readlink(), os.getsid(int(process.name))) == (Path("/"), int(process.name))


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
    frames = [(1, b"out\n"), (2, b"err\n"), (3, b"\0\xff\xfe\x1b[31m"), (1, b"half a li")]
    _, borders = fill_spool(str(tmp_path / "spool"), frames, limit=10_000)
    talk = storage.talk(tmp_path / "out")
    for frame_count, name in ((4, "a.log"), (2, "b.log")):
        assert talk.whole(str(tmp_path / "spool"), f"pod-logs/{name}", borders[frame_count]) == ["0", "0", "", ""]
        wanted = b"".join(data for _, data in frames[:frame_count])
        assert (tmp_path / "out" / "pod-logs" / name).read_bytes() == wanted
    assert len(files(tmp_path / "out")) == 2


def stored_text(directory: Path, end: int) -> tuple[list[str], int]:
    """The lines up to that offset, and how many bytes are missing."""
    text = PROGRAM.Text(PROGRAM.Segments(str(directory)), 0, end)
    return b"".join(text.chunks()).decode().splitlines(), text.missing(0)


def test_a_segment_that_is_gone_or_broken_in_the_middle(tmp_path: Path) -> None:
    """A hole is named where it is, and what follows it is there."""
    frames = [(1, b"%06d\n" % number) for number in range(100)]
    oldest, borders = fill_spool(str(tmp_path), frames, limit=1_000_000)
    assert (oldest, borders[-1]) == (0, 1600)
    whole = (tmp_path / f"{0:020d}").read_bytes()
    for start, length in ((0, 800), (816, 776)):  # of the first, frame 50 is gone; of the second, half of the last
        (tmp_path / f"{start:020d}").write_bytes(whole[start : start + length])
    missing = "[a4-agent: 16 bytes of the log are missing here]"
    lines = [f"{number:06d}" for number in range(99)]
    lines[50] = missing
    assert stored_text(tmp_path, 1600) == ([*lines, missing], 32)
    assert stored_text(tmp_path / "none", 90) == (["[a4-agent: 90 bytes of the log are missing here]"], 90)


# The process


def test_a_process_that_was_killed_is_replaced_and_the_log_is_whole(storage: Storage, tmp_path: Path) -> None:
    spool = FileSpool(str(tmp_path / "spool"), Room(100 << 20))
    archive = storage.archive(tmp_path / "out", spool)
    data = b"0123456789abcde\n" * (1 << 20)  # more than 8 MiB are stored at once
    spool.append(1, data)
    storage.run_until(lambda: any("log" in name for name in files(tmp_path / "out")))
    os.kill(storage.helper(), signal.SIGKILL)
    storage.close_archive(archive)
    assert (tmp_path / "out" / "log").read_bytes() == data
    assert files(tmp_path / "out") == ["log"]


def test_what_it_was_asked_for_is_done_when_the_agent_is_gone(storage: Storage, tmp_path: Path) -> None:
    """Where the log ends, it was not told."""
    fill_spool(str(tmp_path / "spool"), [(1, b"text\n")], limit=1000)
    process = storage.talk(tmp_path / "out").process
    process.send("write", "1", "a", "text", "")
    process.send("log", str(tmp_path / "spool"), "log", "0", "0", "0")
    pid = storage.helper()
    process.close(kill=False)
    storage.run_until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert files(tmp_path / "out") == ["a", "log"]
    assert (tmp_path / "out" / "log").read_text() == "text\n"


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


# File systems


def test_processes_that_not_even_a_kill_ends_are_few(storage: Storage, tmp_path: Path) -> None:
    """A request that a server has taken is waited for without end: here a server waits for a server that stops."""
    storage.fuse(name="inner")
    inner = storage.servers[0]
    out = storage.fuse("--multithreaded", source="inner")
    assert storage.talk(out).probe() == ""
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
        storage.close_archive(archive, 0.0)
    storage.run_until(lambda: not storage.hanging)


def test_a_server_that_is_gone(storage: Storage) -> None:
    talk = storage.talk(storage.fuse())
    talk.probe()
    storage.servers[0].kill()
    storage.servers[0].wait()
    assert [talk.write("a", "text"), talk.probe()] == ["Transport endpoint is not connected"] * 2


def test_a_full_file_system(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "tmpfs").mkdir()
    storage.mount("-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path / "tmpfs"))
    out = storage.inside(tmp_path / "tmpfs")
    talk = storage.talk(out)
    full = "No space left on device"
    assert [talk.write("a", "old"), talk.write("big", "x" * (2 << 20))] == ["", full]
    assert files(out) == ["a"]
    (out / "ballast").write_bytes(b"x" * ((1 << 20) - 4096))
    assert [talk.write("a", "new"), talk.probe()] == [full, full]
    assert (out / "a").read_text() == "old"
    (out / "ballast").unlink()
    assert talk.hear("write", "3", "") and talk.probe() == ""
    assert files(out) == ["a"] and (out / "a").read_text() == "new"


def test_a_directory_that_was_removed_is_made_anew(storage: Storage, tmp_path: Path) -> None:
    talk = storage.talk(tmp_path / "out")
    talk.write("pod-logs/a", "text")
    subprocess.run(["rm", "-r", str(tmp_path / "out")], check=True)
    assert [talk.write("pod-logs/b", "text"), talk.probe()] == ["", ""]
    assert files(tmp_path / "out") == ["pod-logs/b"]


def test_a_file_where_the_directory_should_be(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    talk = storage.talk(tmp_path / "out")
    assert [talk.probe(), talk.write("a", "text")] == ["Not a directory"] * 2
