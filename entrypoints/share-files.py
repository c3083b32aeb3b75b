"""Does what is done in a directory that all pods share: when that hangs, only this process does.

    python -I -S share-files.py DIRECTORY
    python -I -S share-files.py DIRECTORY flags FOLDER …

The first takes commands on stdin, a JSON array on each line, and answers each with {"value": …} or {"why": text}:

  ["survey"]                                 the mount that DIRECTORY lies on
  ["try"]                                    write, link and remove a file; the value is whether there are links
  ["look", FOLDER, [BEGINNING, …], [KNOWN, …]]   the names in a folder; of those with such a beginning, KNOWN excepted,
                                             the contents, or why there is none
  ["put", FOLDER, NAME, TEXT, UNTIL]         a whole file; the value is what stands there then
  ["link", FOLDER, NAME, TEXT, UNTIL]        the same where there is none; the value is what stands there then
  ["move", FOLDER, NAME, NAME, UNTIL]        rename
  ["remove", FOLDER, NAME, …]                take files, links and empty folders away
  ["flags", [FOLDER, …]]                     each file in these folders whose name ends with "_flag": by its path,
                                             which file it is, another value each time that it is made or touched

FOLDER is relative to DIRECTORY, and no symbolic link is followed in it. UNTIL is a time of the monotonic clock: when it
has passed nothing is shown to others any more. No name is opened that has not been seen in a listing, for that would
make the kernel remember for a while that it is not there.

The second answers `flags` once, as a JSON object.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # python -I leaves it out
from shared_directory import Shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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


if __name__ == "__main__":
    if sys.argv[2:3] == ["flags"]:
        print(json.dumps(Shared(sys.argv[1]).flags(sys.argv[3:])), flush=True)
    else:
        serve(sys.argv[1])
