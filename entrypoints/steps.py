"""Run several commands one after the other: steps.py STEPS

STEPS is JSON, packed by zlib and base64, since one argument holds no more than 128 KiB: a list of objects. "names";
"argv", run once for each name, which is in A4_STEP; "env", variables on top of this process's own; "ends", text at the
beginning of a line of stdout after which the command has nothing more to do; "record", a file in which a line with
"step": "end" says the same. Open MPI 5.0.11 on a busy machine sometimes does not end then: it has 10 s, and is ended.
"result" is a JSON file that the command writes, "{step}" in it its name: nccl-tests put their whole environment into
it, with tokens, and so its key "env" is deleted when the command has ended, and the file as a whole when it cannot be
read or the run is ended. "ranks" is the directory in which rank.sh records how the ranks on this pod went: when one
of this step failed though the command ended with 0 or hung, its code counts.

Before each command "# a4-agent: step NAME" goes to stdout, so that what follows can be told apart; all else is passed
on as it comes. The first command that does not end with 0 is the last. Exit status: that of the last command, 128 + n
for signal n; of one that was ended because it hung, 0 unless a rank failed.

The file A4_RECORD gets JSON, one object per line, flushed:

  {"step": "begin", "name": "all_reduce", "number": 2, "of": 3, "time": …}
  {"step": "done", "name": "all_reduce", "status": 0, "seconds": 12.3, "stuck": false}    status negative: a signal

Signals go to the whole process group: this program waits for the command's end and begins no further one.
Standard library and record.py only: started with -ES, not -I, which would hide record.py.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from typing import Any

from record import RecordFile

ENDING_SECONDS = 10.0
MOST_LINE = 4096
"""Bytes of a line that are looked at."""
FOLLOWED = (143, 14)
"""Codes of ranks that went with an mpirun that was ended; see agent/decide/ranks.py."""
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class RunningStep:
    """One command from its start to its end."""

    def __init__(self, step: dict[str, Any]) -> None:
        self.ends = step.get("ends", "").encode()
        self.record = step.get("record", "")
        self.result = step.get("result", "").replace("{step}", step["name"])
        self.name, self.ranks = step["name"], step.get("ranks", "")
        self.line = b""
        self.ended_at: float | None = None
        """When it said that it had nothing more to do."""
        self.stuck = False
        self.failed = False
        """A rank did, and nothing else says so."""
        env = {**os.environ, **step.get("env", {}), "A4_STEP": step["name"]}
        self.process = subprocess.Popen(step["argv"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def wait(self, told: list[int]) -> int:
        """Pass on what it prints, until it has ended; its status. `told`: signals that have come."""
        assert self.process.stdout is not None
        stream = self.process.stdout.fileno()
        while True:
            ready, _, _ = select.select([stream], [], [], 1.0)
            if ready:
                data = os.read(stream, 65536)
                if not data:
                    break
                self.pass_on(data)
            elif self.process.poll() is not None:
                break  # something that it left behind holds its stdout
            self.look()
            if told:
                remove(self.result)  # at once: SIGKILL may follow
        status = self.process.wait()
        remove(self.result) if told else without_environment(self.result)
        return self.counting_ranks(status)

    def counting_ranks(self, status: int) -> int:
        """The code of a rank that failed, where the command's own status says nothing of it."""
        code = failed_rank(self.ranks, self.name, FOLLOWED if self.stuck else ()) if self.stuck or not status else 0
        if code:
            print(f"a4-agent: a rank on this pod ended with {code}", file=sys.stderr)
        self.failed = bool(code)
        return code or status

    def pass_on(self, data: bytes) -> None:
        write(data)
        *lines, rest = (self.line + data).split(b"\n")
        self.line = rest[:MOST_LINE]
        if self.ends and any(line.startswith(self.ends) for line in lines):
            self.ended_at = self.ended_at or time.monotonic()

    def look(self) -> None:
        """One that has said its end, or has lost a rank here, has some time to come to its end."""
        if self.ended_at is None and (
            '"step": "end"' in text_of(self.record) or failed_rank(self.ranks, self.name, ())
        ):
            self.ended_at = time.monotonic()
        if self.ended_at is not None and not self.stuck and time.monotonic() - self.ended_at > ENDING_SECONDS:
            self.stuck = True
            print(f"a4-agent: it was at its end {ENDING_SECONDS:.0f} s ago and hangs: it is ended", file=sys.stderr)
            self.end()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(3.0)
        except subprocess.TimeoutExpired:
            self.process.kill()


def failed_rank(directory: str, step: str, excused: tuple[int, ...]) -> int:
    """Code of the rank of this step that failed first of those recorded here, in files whose names are numbers; 0: none
    did."""
    found, names = [], []
    with suppress(OSError):
        names = os.listdir(directory) if directory else []
    line = re.compile(rf"^ended (\d{{1,3}}) ?(\d+(?:\.\d+)?)? of {re.escape(step)}\n", re.MULTILINE | re.ASCII)
    for name in filter(str.isdigit, names):
        ended = line.search(text_of(f"{directory}/{name}"))
        if ended and int(ended[1]) not in (0, *excused):
            found.append((float(ended[2] or 0), int(ended[1])))
    return min(found, default=(0.0, 0))[1]


def text_of(path: str) -> str:
    """What is in a file; empty for one that cannot be read."""
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def without_environment(path: str) -> None:
    """Write the file anew without its key "env"; one that cannot be read goes."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            data = json.load(file)
        data.pop("env", None)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(data, file)
        os.replace(f"{path}.new", path)
    except (OSError, ValueError, AttributeError, TypeError):
        remove(path)


def remove(path: str) -> None:
    with suppress(OSError):
        os.remove(path)


def write(data: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more
        while data:
            data = data[os.write(1, data) :]


def main() -> int:
    unpacked = json.loads(zlib.decompress(base64.b64decode(sys.argv[1])))
    steps = [{**step, "name": name} for step in unpacked for name in step["names"]]
    told: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: told.append(number))
    record = RecordFile(os.environ.get("A4_RECORD", ""))
    status = 0
    for count, step in enumerate(steps, 1):
        name = step["name"]
        record.write("begin", name=name, number=count, of=len(steps), time=time.time())
        write(f"# a4-agent: step {name}\n".encode())
        begin = time.monotonic()
        command = RunningStep(step)
        status = command.wait(told)
        if command.line:
            write(b"\n")  # the next mark stands at the beginning of a line
        seconds = round(time.monotonic() - begin, 3)
        record.write("done", name=name, status=status, seconds=seconds, stuck=command.stuck)
        if command.stuck and not command.failed:
            status = 0
        if status or told:
            break
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
