"""Does what is done in a directory that all pods share: when that hangs, only this process does.

    python -I -S share-files.py DIRECTORY
    python -I -S share-files.py DIRECTORY beat JOB PREFIX MADE SECONDS LEASE OWNER STATE

The first takes commands on stdin, a JSON array on each line, and answers each with {"value": …} or {"why": text}:

  ["survey"]                                 the mount that DIRECTORY lies on
  ["try"]                                    write, link and remove a file; the value is whether there are links
  ["look", FOLDER, [BEGINNING, …], [KNOWN, …]]   the names in a folder; of those with such a beginning, KNOWN excepted,
                                             the contents, or why there is none
  ["put", FOLDER, NAME, TEXT, UNTIL]         a whole file; the value is what stands there then
  ["link", FOLDER, NAME, TEXT, UNTIL]        the same where there is none; the value is what stands there then
  ["move", FOLDER, NAME, NAME, UNTIL]        rename
  ["remove", FOLDER, NAME, …]                take files, links and empty folders away

FOLDER is relative to DIRECTORY, and no symbolic link is followed in it. UNTIL is a time of the monotonic clock: when it
has passed nothing is shown to others any more. No name is opened that has not been seen in a listing, for that would
make the kernel remember for a while that it is not there.

The second renames the file PREFIX0 in the folder JOB to PREFIX1, PREFIX2 and so on, every SECONDS, until the process
OWNER ends. MADE is a folder to make in JOB before, or empty: then JOB is waited for. When it could not do so for LEASE
seconds others may have given it up: it adds a line with the seconds to the file open as STATE, and ends. Where MADE is
given it says "begun" on stdout, or on stderr why not.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from math import inf
from time import monotonic

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out
from shared_directory import Shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from folders import Folder

OLD_DAYS = 7
JOB = re.compile(r"([A-Za-z0-9_@-]|%[0-9A-F]{2,})([A-Za-z0-9._@-]|%[0-9A-F]{2,})*")
"""What agent.decide.sync.facts.folder makes of an epoch and a run."""
START = re.compile(r"[0-9a-f]{32}")
BEAT = re.compile(r"pod\.\d{1,6}\.[0-9a-f]{32}\.\d{1,18}")
FACT = re.compile(r"(done|failed)\..+\.\d{1,6}")
ASIDE = re.compile(r"\..+\.\d+\.\d+\.\d+\.\d{6}")
"""What a process has left that was killed."""
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
        print(json.dumps(told), flush=True)


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
            shared.move(job, f"{prefix}{count}", f"{prefix}{count + 1}", inf)
            count, last = count + 1, now
        except OSError:
            pass  # the next one may do; who waits for this one sees that it is missing


def begun(shared: Shared, job: str, prefix: str, made: str) -> bool:
    """Try to make the first file, for which others wait until the job's folder is there. Pod 0, which has to make
    something, says how that went. Ends this process when it cannot be."""
    try:
        with shared.walk(f"{job}/{made}" if made else job, make=bool(made)):
            shared.put(job, f"{prefix}0", "", inf)
    except FileNotFoundError:
        return False  # it was made by another just before, and is hidden here for a while
    except OSError as error:
        if made:
            sys.exit(f"{error.strerror or error}")
        return False
    if made:
        os.write(1, b"begun\n")
        clear_old(shared, job, f"{prefix}0")
    return True


def clear_old(shared: Shared, job: str, beat: str) -> None:
    """Take away folders of jobs in which nothing has happened for days, by the server's own clock.

    Whoever may write there could lay something else beside them. So a folder must belong to whom the server gives files
    of this pod, `beat` for one, and look like a job's; and nothing is taken from it but what a job leaves there.
    """
    above, _, own = job.rpartition("/")
    with shared.walk(above) as jobs:
        with jobs.enter(own) as mine:
            owner = mine.stat(beat).st_uid
        now = jobs.stat(own).st_mtime
        for name in jobs.names():
            try:
                if JOB.fullmatch(name) and now - jobs.stat(name).st_mtime > OLD_DAYS * 86400:
                    clear_job(jobs, name, owner)
            except OSError:
                pass  # it is none, or another pod 0 does the same


def clear_job(jobs: Folder, name: str, owner: int) -> None:
    with jobs.enter(name) as job:
        names = job.names()
        beats = [each for each in names if BEAT.fullmatch(each)]
        if os.fstat(job.fd).st_uid != owner or not any(job.stat(beat).st_uid == owner for beat in beats):
            return
        for start in filter(START.fullmatch, names):
            with job.enter(start) as facts:
                if os.fstat(facts.fd).st_uid == owner:
                    clear(facts, (FACT, ASIDE))
            job.remove(start)
        clear(job, (BEAT, ASIDE))
    jobs.remove(name)


def clear(folder: Folder, patterns: tuple[re.Pattern[str], ...]) -> None:
    for name in folder.names():
        if any(pattern.fullmatch(name) for pattern in patterns):
            folder.unlink(name)


if __name__ == "__main__":
    if sys.argv[2:3] == ["beat"]:
        beat(sys.argv[1], *sys.argv[3:])
        os._exit(0)  # at once: the agent counts what a run leaves behind
    else:
        serve(sys.argv[1])
