"""Does what is done in a directory that all pods share: when that hangs, only this process does.

    python -I -S share-files.py DIRECTORY
    python -I -S share-files.py DIRECTORY beat JOB PREFIX MADE SECONDS LEASE OWNER STATE

The first takes commands on stdin, a JSON array on each line, and answers each with {"value": …} or {"why": text}:

  ["survey"]                                 the mount that DIRECTORY lies on
  ["try"]                                    write, link and remove a file; the value is whether there are links
  ["look", FOLDER, [BEGINNING, …], [KNOWN, …]]   the names in a folder; of those with such a beginning, KNOWN excepted,
                                             the contents, or why there is none
  ["put", FOLDER, NAME, TEXT, UNTIL]         a whole file, read again when it is there
  ["link", FOLDER, NAME, TEXT, UNTIL]        the same where there is none; the value is what stands there then
  ["move", FOLDER, NAME, NAME, UNTIL]        rename
  ["remove", FOLDER, NAME, …]                take files, links and folders away

FOLDER is relative to DIRECTORY. UNTIL is a time of the monotonic clock: when it has passed nothing is shown to others
any more. No name is opened that has not been seen in a listing, for that would make the kernel remember for a while
that it is not there.

The second renames the file PREFIX0 in the folder JOB to PREFIX1, PREFIX2 and so on, every SECONDS, until the process
OWNER ends. MADE is a folder to make in JOB before, or empty: then JOB is waited for. When it could not do so for LEASE
seconds others may have given it up: it adds a line with the seconds to the file open as STATE, and ends. Where MADE is
given it says "begun" on stdout, or on stderr why not.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
from math import inf
from time import monotonic

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out
from shared_directory import Shared, move

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OLD_DAYS = 7
GONE = "it is not there"


def answer(shared: Shared, verb: str, *args: Any) -> dict[str, Any]:
    """What the method of that name returns; "try" is a word of Python's own."""
    try:
        return {"value": getattr(shared, "try_" if verb == "try" else verb)(*args)}
    except FileNotFoundError:
        return {"why": GONE}
    except (OSError, ValueError) as error:
        return {"why": getattr(error, "strerror", None) or str(error)}


def serve(directory: str) -> None:
    shared: Shared | None = None
    for line in sys.stdin.buffer:
        try:
            shared = shared or Shared(directory)
            told = answer(shared, *json.loads(line))
        except OSError as error:
            told = {"why": error.strerror or str(error)}
        data = json.dumps(told).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


def beat(directory: str, job: str, prefix: str, made: str, *numbers: str) -> None:
    seconds, lease, owner, state = float(numbers[0]), float(numbers[1]), int(numbers[2]), int(numbers[3])
    ended = os.pidfd_open(owner)
    shared = Shared(directory)
    while not begun(shared, job, prefix, made):
        if select.select([ended], [], [], seconds)[0]:
            return
    count, last = 0, monotonic()
    while not select.select([ended], [], [], seconds)[0]:
        now = monotonic()
        if now - last > lease:
            os.write(state, f"{now - last:.0f}\n".encode())
            return
        try:
            move(f"{directory}/{job}", f"{prefix}{count}", f"{prefix}{count + 1}")
            count, last = count + 1, now
        except OSError:
            pass  # the next one may do; who waits for this one sees that it is missing


def begun(shared: Shared, job: str, prefix: str, made: str) -> bool:
    """Try to make the first file, for which others wait until the job's folder is there. Pod 0, which has to make
    something, says how that went. Ends this process when it cannot be."""
    try:
        if made:
            shared.make(f"{job}/{made}")
        elif not shared.reach(job):
            return False
        shared.put(job, f"{prefix}0", "", inf)
    except FileNotFoundError:
        return False  # it was made by another just before, and is hidden here for a while
    except OSError as error:
        if made:
            sys.exit(f"{error.strerror or error}")
        return False
    if made:
        os.write(1, b"begun\n")
        clear_old(shared.path, job)
    return True


def clear_old(directory: str, job: str) -> None:
    """Take away folders of jobs in which nothing has happened for days, by the server's own clock."""
    where = os.path.dirname(f"{directory}/{job}")
    now = os.lstat(f"{directory}/{job}").st_mtime
    for name in os.listdir(where):
        try:
            if now - os.lstat(f"{where}/{name}").st_mtime > OLD_DAYS * 86400:
                shutil.rmtree(f"{where}/{name}", ignore_errors=True)
        except OSError:
            pass  # another pod 0 does the same


if __name__ == "__main__":
    if sys.argv[2:3] == ["beat"]:
        beat(sys.argv[1], *sys.argv[3:])
        os._exit(0)  # at once: the agent counts what a run leaves behind
    else:
        serve(sys.argv[1])
