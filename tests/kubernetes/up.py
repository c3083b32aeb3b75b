"""A test bed that stays: `make kube-up` and `make kube-down`.

    python -m tests.kubernetes.up [--directory DIR] up [--image NAME]...
    python -m tests.kubernetes.up [--directory DIR] down

One process holds it (tests/kubernetes/standing.py), everything is in memory, and whoever has the lock of the directory
is that process: what a killed one has left can be told from what lives.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from agent.workbench.local.sockets import running_clusters
from tests.chart.helm import HELM, ROOT
from tests.kubernetes.nodes import IMAGE, TORCH, places
from tests.kubernetes.programs import MISSING, Unavailable, cache, programs

DIRECTORY = Path("/run/a4-agent-test-bed")
BUSY = 75
"""What sysexits calls EX_TEMPFAIL: one runs already."""
FAILED = 70
NOT_ROOT = 77
END_SECONDS = 60.0
"""For the process to end everything after SIGTERM."""


def up(directory: Path, images: Sequence[str]) -> int:
    with locked(directory) as lock:
        if lock is None:
            say(already(directory))
            return BUSY
        remove_rest(directory)
        (directory / "pid").write_text(str(os.getpid()))
        found = programs()
        began = time.monotonic()
        say("starting etcd, the API server, JobSet, Kueue and eight nodes …")
        process = start(directory, lock, images)
        if process is None:
            say(f"{(directory / 'log').read_text()[-4000:]}\nthe test bed has not started")
            return FAILED
    memory, disk, seconds = memory_of(process), size_of(found.directory), time.monotonic() - began
    say(f"{len(places())} nodes are ready after {seconds:.0f} s; each claims 8 GPUs, which do not exist")
    say(f"memory: {memory / 1e9:.1f} GB now, and what pods need; all state is in it, and goes with it")
    say(f"disk:   {disk / 1e9:.1f} GB of programs in {found.directory}, and Go's caches")
    say(f"images: {' '.join([IMAGE, TORCH, *images])}")
    say("make kube-down ends it. To use it:\n")
    print(exports(directory), flush=True)
    return 0


def down(directory: Path) -> int:
    process = holder(directory)
    if process is not None and not is_bed(process):
        say(f"process {process.pid} is starting a test bed: wait for it, or interrupt it")
        return BUSY
    if process is not None and not ended(directory, process):
        say(f"the test bed does not end: look at process {process.pid} and at {directory / 'log'}")
        return FAILED
    say("no test bed runs" if process is None else "the test bed has ended")
    with locked(directory) as lock:
        if lock is not None:
            remove_rest(directory)
    return 0


def already(directory: Path) -> str:
    """What to tell somebody who starts a second one."""
    if not (directory / "kubeconfig").exists():
        return "a test bed is being started: wait for it, or interrupt it"
    return f"a test bed runs already. To use it:\n\n{exports(directory)}\n\nmake kube-down ends it."


def start(directory: Path, lock: int, images: Sequence[str]) -> psutil.Process | None:
    """The process that holds it, which has the lock from now on; None when it could not start."""
    argv = [sys.executable, "-m", "tests.kubernetes.standing", str(directory), *images]
    with open(directory / "log", "w") as log:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            pass_fds=[lock],
            start_new_session=True,  # away from the terminal: neither Ctrl-C nor its loss ends it
        )
    try:
        (directory / "pid").write_text(str(process.pid))
        assert process.stdout
        with process.stdout:
            return psutil.Process(process.pid) if process.stdout.readline() else None
    except BaseException:
        process.terminate()
        process.wait()
        raise


def holder(directory: Path) -> psutil.Process | None:
    """The process that starts or holds a test bed; None when none does."""
    with locked(directory) as lock, suppress(FileNotFoundError, psutil.NoSuchProcess):
        return None if lock is not None else psutil.Process(int((directory / "pid").read_text()))
    return None


def is_bed(process: psutil.Process) -> bool:
    """A number that a killed one has left may be another process's by now."""
    with suppress(psutil.NoSuchProcess):
        return "tests.kubernetes.standing" in process.cmdline()
    return False


def ended(directory: Path, process: psutil.Process) -> bool:
    """Tell it to end; kill it if it does not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            if holder(directory) is None:
                return True
            time.sleep(0.1)
    return False


def remove_rest(directory: Path) -> None:
    """What one that was killed has left: its files, and what is removed with the next local cluster."""
    for name in ("kubeconfig", "pid", "log"):
        (directory / name).unlink(missing_ok=True)
    running_clusters()


@contextmanager
def locked(directory: Path) -> Iterator[int | None]:
    """A descriptor with the lock; None when another process has it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock
        except BlockingIOError:
            yield None
    finally:
        os.close(lock)


def memory_of(process: psutil.Process) -> int:
    """Bytes of it and of all that it has started, what they share counted once."""
    found = 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            found += each.memory_full_info().pss
    return found


def size_of(directory: Path) -> int:
    """Bytes of its files; one program has several names there."""
    return sum({found.st_ino: found.st_size for found in map(Path.stat, directory.iterdir())}.values())


def exports(directory: Path) -> str:
    kubeconfig, path = shlex.quote(str(directory / "kubeconfig")), f"{cache()}:{HELM.parent}"
    return f"export KUBECONFIG={kubeconfig}\nexport PATH={shlex.quote(path)}:$PATH"


def say(text: str) -> None:
    """stdout is for the shell."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.up")
    parser.add_argument("--directory", type=Path, default=DIRECTORY)
    verbs = parser.add_subparsers(dest="verb", required=True)
    starting = verbs.add_parser("up")
    starting.add_argument("--image", action="append", default=[], help="a name that pods may use for this machine")
    verbs.add_parser("down")
    given = parser.parse_args()
    try:
        return up(given.directory, given.image) if given.verb == "up" else down(given.directory)
    except Unavailable as error:
        say(str(error))
        return MISSING
    except PermissionError as error:
        say(f"{error.filename}: {error.strerror}: run it as root")
        return NOT_ROOT


if __name__ == "__main__":
    sys.exit(main())
