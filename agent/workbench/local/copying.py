"""`a4-agent local cp`: a file or directory into a pod, or out of it."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import IO, NamedTuple

from agent.errors import DirectoryUnusable, SystemFault, UsageError
from agent.workbench.local.access import ANSWER_SECONDS
from agent.workbench.local.client import LocalCluster

_RECEIVE = """\
if [ -d "$1" ]; then exec tar -C "$1" --no-same-owner --strip-components="$3" -xf -; fi
case $1 in */) parent=$1;; *) parent=$(dirname "$1");; esac
if [ ! -d "$parent" ]; then echo "there is no directory $parent" >&2; exit 1; fi
aside=$(mktemp -d "$parent/.a4-cp-XXXXXX") || exit
tar -C "$aside" --no-same-owner -xf - && mv -fT "$aside/$2" "$1"
code=$?
rm -rf "$aside"
exit $code
"""
"""Takes what comes into the directory $1, less $3 parts of each path, or gives what is called $2 the new name $1."""
_CHANGED = 1
"""How tar ends when a file changed while it was read, which it says: cp copies such a file, too."""


class CopyEnd(NamedTuple):
    pod: int | None
    """None: this machine."""
    path: str
    """Absolute; of a directory that has to be there, with a / at its end, or /. where its contents are meant."""

    def __str__(self) -> str:
        return self.path if self.pod is None else f"{self.pod}:{self.path}"


def place(text: str, cluster: LocalCluster) -> CopyEnd:
    """PATH is here, POD:PATH in a pod; what has a / before its colon is a path. Raises UsageError."""
    pod, colon, path = text.partition(":")
    if not colon or "/" in pod:
        return CopyEnd(None, _absolute(text, os.getcwd()))
    return CopyEnd(cluster.index_of(pod), _absolute(path, "/"))


def _absolute(path: str, start: str) -> str:
    if not path:
        raise UsageError("a path is empty", "is a variable of this shell empty?")
    absolute = os.path.normpath(os.path.join(start, path))
    if os.path.basename(path.rstrip("/")) in (".", ".."):
        return os.path.join(absolute, ".")
    return os.path.join(absolute, "") if path.endswith("/") else absolute


def copy(cluster: LocalCluster, source: str, target: str) -> None:
    """Copy as `cp -R` does. Raises UsageError, DirectoryUnusable for what cannot be read or written, or SystemFault for
    a silent side."""
    have, want = place(source, cluster), place(target, cluster)
    if (have.pod is None) == (want.pod is None):
        raise UsageError(f"cp copies between this machine and a pod, not from {have} to {want}", "in a pod: POD:PATH")
    contents = have.path.endswith("/.")
    folder, name = os.path.split(have.path.removesuffix("/.").rstrip("/"))
    if not name:
        raise UsageError(f"{have} is a whole file system", "name a file or a directory in it")
    if not _is_there(cluster, have):
        raise UsageError(f"there is no {have.path} {_where(have.pod)}")
    send = ["tar", "-C", folder, "-cf", "-", "--", f"{name}/." if contents else name]
    receive = ["sh", "-c", _RECEIVE, "sh", want.path, name, "2" if contents else "0"]
    sent, received = _piped(cluster, (have.pod, send), (want.pod, receive))
    if sent not in (0, _CHANGED) or received:
        raise DirectoryUnusable(f"{have} was not copied to {want}", "the lines above say why")


def _where(pod: int | None) -> str:
    return "on this machine" if pod is None else f"in pod {pod}"


def _is_there(cluster: LocalCluster, have: CopyEnd) -> bool:
    if have.pod is None:
        return os.path.lexists(have.path)
    with ExitStack() as stack, open(os.devnull, "r+b") as null:
        argv = ["test", "-e", have.path, "-o", "-L", have.path]
        return _start(cluster, (have.pod, argv), (null.fileno(), null.fileno()), stack)() == 0


Command = tuple[int | None, Sequence[str]]
"""In a pod, or here."""


def _piped(cluster: LocalCluster, sender: Command, receiver: Command) -> tuple[int, int]:
    """The exit codes of two commands of which the second reads what the first prints. Raises SystemFault."""
    with ExitStack() as stack, open(os.devnull, "r+b") as null:
        out, out_end = _pipe(stack)
        in_end, into = _pipe(stack)
        sent = _start(cluster, sender, (null.fileno(), out_end.fileno()), stack)
        received = _start(cluster, receiver, (in_end.fileno(), null.fileno()), stack)
        out_end.close()
        in_end.close()
        with suppress(BrokenPipeError):  # the exit code of the receiver says more
            _pass_on(out, into, sender[0], receiver[0])
        out.close()
        into.close()
        return sent(), received()


def _pipe(stack: ExitStack) -> list[IO[bytes]]:
    read, write = os.pipe()
    return [stack.enter_context(open(read, "rb", 0)), stack.enter_context(open(write, "wb", 0))]


def _start(cluster: LocalCluster, command: Command, streams: tuple[int, int], stack: ExitStack) -> Callable[[], int]:
    """Start a command that ends with `stack`. Returns what waits for its exit code, or raises SystemFault."""
    pod, argv = command
    if pod is None:
        process = subprocess.Popen(argv, stdin=streams[0], stdout=streams[1])
        stack.callback(_kill, process)
    else:
        conversation = stack.enter_context(closing(cluster.exec_with(pod, argv, (*streams, 2))))
        conversation.socket.settimeout(ANSWER_SECONDS)

    def ended() -> int:
        try:
            return process.wait(ANSWER_SECONDS) if pod is None else int(conversation.expect()["code"])
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise _silent(argv[0], pod) from error

    return ended


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(2.0)


def _pass_on(out: IO[bytes], into: IO[bytes], sender: int | None, receiver: int | None) -> None:
    """Until the end of `out`. Raises SystemFault for the one who lets the other wait, BrokenPipeError."""
    os.set_blocking(into.fileno(), False)
    while True:
        if not select.select([out], [], [], ANSWER_SECONDS)[0]:
            raise _silent("tar", sender)
        data = memoryview(os.read(out.fileno(), 1 << 16))
        if not data:
            return
        while data:
            if not select.select([], [into], [], ANSWER_SECONDS)[1]:
                raise _silent("tar", receiver)
            data = data[os.write(into.fileno(), data) :]


def _silent(program: str, pod: int | None) -> SystemFault:
    what = f"{program} {_where(pod)} has not answered for {ANSWER_SECONDS:g} s"
    return SystemFault(what, "does its file system still answer?")
