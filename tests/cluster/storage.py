"""Results directories on a FUSE file system of the pod's own, as a bucket is mounted, and ways to break it."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from agent.machine.api import SERVER_SECONDS
from tests.cluster.conftest import END_SECONDS, RUN_DIR, Trial

STORE = "/store"
"""What lies behind the mount: to be read also while its server stands still, and when the pod has ended."""
MOUNT = "/gcs"
RESULTS = f"{MOUNT}/out"

_MOUNTED = f"""
mkdir {STORE} {MOUNT} && mount -t tmpfs -o size=64m none {STORE} || exit 71
bindfs -f {STORE} {MOUNT} &
until mountpoint -q {MOUNT}; do kill -0 $! || exit 71; done
eval "$1"
shift
exec "$@"
"""


def on_fuse(before: str = "") -> dict[str, Any]:
    """What `start` needs for pods that mount their results directory, and then do `before`, before the agent starts."""
    return {
        "devices": ("/dev/fuse",),
        "entrypoint": ("tini", "--", "sh", "-c", _MOUNTED, "sh", before, sys.executable, "-m", "agent", "run"),
        "env": {"A4_RESULTS_DIR": RESULTS},
    }


BREAK = {
    "stopped": "pkill -STOP -x bindfs",
    "read-only": f"mount -i -o remount,ro {MOUNT}",
    "gone": f"umount -l {MOUNT}",
}
MEND = {
    "stopped": "pkill -CONT -x bindfs",
    "read-only": f"mount -i -o remount,rw {MOUNT}",
}
REASON = {
    "stopped": f"no answer for {SERVER_SECONDS:g} s",
    "read-only": "Read-only file system",
    "gone": f"nothing is mounted at {MOUNT} any more",
}
"""How the pod's log says it."""


def shell(trial: Trial, index: int, script: str) -> str:
    """Run a line of shell in a pod; its stdout."""
    done = trial.cluster.exec(index, ["sh", "-c", script], timeout=END_SECONDS)
    assert done.returncode == 0, f"pod {index}: {script}: {done.stderr}\n{trial.log()[-4000:]}"
    return done.stdout


def stored(trial: Trial, index: int, name: str) -> str:
    """A file of the results, whatever has become of the mount."""
    return trial.cluster.read(index, f"{STORE}/out/{name}")


def log_name(index: int) -> str:
    """What a pod's log is called."""
    return "coordinator" if index == 0 else f"worker-{index}"


def until_logged(trial: Trial, index: int, text: str) -> None:
    """Wait until this is among the last that a pod keeps of the output of its run, or of what its agent says."""
    last = f"for file in {RUN_DIR}/runs/*/spool/*; do :; done"  # a segment is small, all that was printed may not be
    trial.until(index, f'{{ {last}; grep -qsaF {shlex.quote(text)} "$file"; }}')
