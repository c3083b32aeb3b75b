"""What follows when the operating system says no, by errno: whose code it is, and what to do."""

from __future__ import annotations

import errno

from agent.errors import AgentError, MissingProgram, SystemFault

NO_PROGRAM = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ELIBBAD, errno.ELOOP,
    errno.ENAMETOOLONG,
}  # fmt: skip
"""Why a program cannot be started: it, its interpreter or the working directory is missing or of the wrong kind."""
_ROOM = "make room there, or mount a larger volume"
HINTS = {
    errno.EROFS: "mount a volume (emptyDir) there, or set readOnlyRootFilesystem: false for the container",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "raise the container's limit of open files (ulimit -n); a4-agent's process has used it up",
    errno.ENFILE: "the node is out of open files (fs.file-max)",
    errno.EAGAIN: "the container has reached its limit of processes: raise it (pids.max, ulimit -u)",
    errno.ENOMEM: "raise the container's memory limit",
    errno.E2BIG: "arguments and environment are too long: put long ones into a file",
}


def hint_of(error: OSError) -> str:
    """What to do about it; empty where nobody knows."""
    return HINTS.get(error.errno or 0, "")


def refused(what: str, error: OSError) -> SystemFault:
    """Something that the agent needs for itself could not be had."""
    return SystemFault(f"{what}: {error.strerror or error}", hint_of(error))


def not_started(name: str, error: OSError | ValueError, cwd: str, python: str) -> AgentError:
    """Why the workload `name` could not be started in `cwd` with that `python`; a ValueError says that there is a text
    which no process can be given."""
    if isinstance(error, ValueError):
        return MissingProgram(f"{name} cannot be started: {error}")
    if isinstance(error, FileNotFoundError) and error.filename == cwd:
        what = f"the directory {error.filename}, in which {name} was asked for, is missing"
    elif error.filename:
        setting = "A4_PYTHON=" if error.filename == python else ""
        what = f"{setting}{error.filename} cannot be started: {error.strerror}"
    else:
        what = f"{name} cannot be started: {error}"
    return MissingProgram(what) if error.errno in NO_PROGRAM else SystemFault(what, hint_of(error))
