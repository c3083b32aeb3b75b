"""This pod's beats in a shared directory: a process that goes on when the command that began it has ended."""

from __future__ import annotations

import fcntl
import os
import secrets
import select
import subprocess
from typing import NamedTuple

from agent.errors import DirectoryUnusable, SystemFault
from agent.machine import files
from agent.machine.api import SERVER_SECONDS
from agent.machine.helper_process import start_helper
from agent.machine.shared_files import PROGRAM


class BeatPlan(NamedTuple):
    """What the process is to do."""

    directory: str
    job: str
    """Folder of the beats."""
    pod: int
    seconds: float
    """Between two beats."""
    lease: float
    owner: int
    """The process that it ends with."""
    lead: int = 0
    """The pod that makes the folders that all others use."""
    left_group: int = 0
    """It begins in a run that it outlives: the group by which the run's processes are found, to end them; 0: none."""
    cgroup: str = ""
    """The cgroup to enter for the same reason; empty: the present one."""

    @property
    def leads(self) -> bool:
        return self.pod == self.lead


def first_of_run(run: str) -> int:
    """The process of a run in this pod that has started all others above this one, by their mark."""
    import psutil

    first = os.getpid()
    for parent in psutil.Process().parents():
        try:
            if parent.environ().get("A4_RUN") != run:
                break
        except psutil.Error:
            break  # it has ended, or is not ours
        first = parent.pid
    return first


class Beating(NamedTuple):
    """The start of this pod that its beats stand for."""

    nonce: str
    lost: float = 0.0
    """For how many seconds it was stopped, longer than a lease; 0: it was not. The next command begins a new start."""
    new: bool = False
    """It begins with this command."""


def keep_beating(state_dir: str, name: str, plan: BeatPlan) -> Beating:
    """See to it that this pod beats: a process of an earlier command goes on, or one is started.

    state_dir, name: where the state of that process is, on this pod's own disk. Raises DirectoryUnusable,
    SystemFault.
    """
    os.makedirs(state_dir, 0o700, exist_ok=True)
    with open(f"{state_dir}/lock", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        path = f"{state_dir}/{name}"
        if is_beating(path):
            return _read(path)
        before = _read(path)
        files.remove(path)
        return before if before.lost else _start(path, plan)


def is_beating(path: str) -> bool:
    """Whether the process whose state this is still lives: it holds the lock on its file."""
    try:
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _read(path: str) -> Beating:
    nonce, _, lost = (files.read(path) or "").partition("\n")
    return Beating(nonce, float(lost.strip() or 0))


def _start(path: str, plan: BeatPlan) -> Beating:
    nonce = secrets.token_hex(16)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, f"{nonce}\n".encode())
        _spawn(plan, nonce, fd)
    except OSError as error:
        hint = "--job in a run needs the rights of root in the pod" if plan.left_group else ""
        raise SystemFault(f"the process by which this pod is heard cannot be started: {error}", hint) from error
    finally:
        os.close(fd)
    return Beating(nonce, new=True)


def _spawn(plan: BeatPlan, nonce: str, fd: int) -> None:
    made = nonce if plan.leads else ""
    words = (f"pod.{plan.pod}.{nonce}.", made, plan.seconds, plan.lease, plan.owner, fd)
    groups = os.getgroups()
    process = start_helper(
        PROGRAM,
        plan.directory,
        "beat",
        plan.job,
        *map(str, words),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        pass_fds=[fd],
        extra_groups=[group for group in groups if group != plan.left_group] if plan.left_group in groups else None,
    )
    assert process.stdout is not None
    with process.stdout as said:
        if plan.cgroup:
            try:
                with open(f"{plan.cgroup}/cgroup.procs", "w") as procs:
                    procs.write(str(process.pid))
            except OSError:
                process.kill()  # it would be ended with the run, and count as alive until then
                process.wait()
                raise
        if plan.leads and (why := _why_not_begun(said.fileno())):
            process.kill()
            raise DirectoryUnusable(f"{plan.directory} cannot be used: {why}")
    process.returncode = 0  # it outlives us


def _why_not_begun(fd: int) -> str:
    if not select.select([fd], [], [], SERVER_SECONDS)[0]:
        return f"no answer for {SERVER_SECONDS:g} s"
    told = os.read(fd, 4096).decode(errors="replace").strip()
    return "" if told == "begun" else told or "the process that beats was killed"
