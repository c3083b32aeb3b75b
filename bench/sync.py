"""How long pods take to see that another has set what they wait for, through file systems that remember for 10 s.

Each pod is a process, `a4-agent sync wait`, with a FUSE mount of its own whose attributes, names and missing names the
kernel keeps for 10 s. Prints a table or, with --json, the same as JSON. A delay is from the moment in which the fact
has its name in the directory behind the mounts to the end of the waiting process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread
from typing import Any

from agent.decide.tables import render
from tests.shared_mounts import SharedMounts, ended


def main() -> int:
    args = parse_args()
    with tempfile.TemporaryDirectory() as path, SharedMounts(Path(path), args.pods, "fuse") as shared:
        delays = [measure(shared, f"release-{number}") for number in range(args.repeats)]
    every = sorted(delay for one in delays for delay in one)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pods": args.pods,
        "repeats": args.repeats,
        "median": round(statistics.median(every), 2),
        "last_pod": [round(max(one), 2) for one in delays],
    }
    print(json.dumps(result, indent=1) if args.json else as_text(result))
    return 0


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=16, help="how many pods, that which sets it among them")
    parser.add_argument("--repeats", type=int, default=3, help="releases that are measured")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    return parser.parse_args()


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


def as_text(result: dict[str, Any]) -> str:
    rows = [[str(result["pods"]), f"{result['median']:.2f}", ", ".join(f"{last:.2f}" for last in result["last_pod"])]]
    return (
        f"seconds from `a4-agent sync set` to the end of the waits of all other pods, {result['repeats']} times\n"
        f"({result['cores']} cores for all pods, Linux {result['kernel']}, Python {result['python']}, FUSE with caches "
        "of 10 s)\n\n" + render(["pods", "median", "last pod"], rows, right=(0, 1))
    )


if __name__ == "__main__":
    sys.exit(main())
