"""How long pods take to see that another has set what they wait for, through file systems that remember for 10 s.

Each pod is a process, `a4-agent sync wait`, with a FUSE mount of its own whose attributes, names and missing names the
kernel keeps for 10 s. A delay is from the moment in which the fact has its name in the directory behind the mounts to
the end of the waiting process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

from bench.figures import Figure, bare
from tests.shared_mounts import SharedMounts, ended

PODS = 16


def figures(repeats: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as path, SharedMounts(Path(path), PODS, "fuse") as shared:
        beside = bare().wall
        delays = [measure(shared, f"release-{number}") for number in range(repeats)]
    seen = f"release seen by {PODS} pods on shared storage"
    return [
        Figure(f"{seen}, median", statistics.median(delay for one in delays for delay in one), "s", beside),
        Figure(f"{seen}, last pod", max(map(max, delays)), "s", beside),
    ]


def measure(shared: SharedMounts, name: str) -> list[float]:
    """Seconds from one release to the end of each wait for it."""
    shared.sync(0, "set", "begin")
    waiting = [shared.start(index, "wait", name) for index in range(1, shared.pods)]
    for one in waiting:
        assert one.stderr is not None
        one.stderr.readline()  # it has heard pod 0
    ends: list[tuple[float, int]] = []

    def watch(number: int) -> None:
        code = ended(waiting[number])[0]
        ends.append((time.time(), code))

    threads = [Thread(target=watch, args=(number,)) for number in range(len(waiting))]
    for thread in threads:
        thread.start()
    shared.sync(0, "set", name)
    for thread in threads:
        thread.join()
    released = (shared.facts() / f"done.{name}.0").stat().st_ctime
    if codes := {code for _, code in ends if code}:
        sys.exit(f"waits ended with {codes}")
    return [when - released for when, _ in ends]
