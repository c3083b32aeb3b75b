"""The record that the programs beside this file write: JSON, one object per line, flushed at each step.

Standard library only: it is imported under the agent's Python and under the workload's.
"""

from __future__ import annotations

import json
import os
import time


class RecordFile:
    """The record file; without a path nothing is written."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "w", encoding="utf-8") if path else None  # noqa: SIM115

    def write(self, step: str, **values: object) -> None:
        if self.file:
            self.file.write(json.dumps({"step": step, **values}) + "\n")
            self.file.flush()

    def doing(self, what: str, number: int = 1, of: int = 1) -> None:
        """Before whatever may take long, or hang."""
        self.write("doing", what=what, number=number, of=of, time=time.time())


def identity(rank: int, **more: object) -> dict[str, object]:
    """What a rank says of itself; the token is that of its pod, and "error" says why it cannot be read."""
    token, problem = "", ""
    try:
        with open(os.environ["A4_TOKEN_FILE"], encoding="utf-8") as file:
            token = file.read().strip()
    except KeyError:
        problem = "A4_TOKEN_FILE is not set"
    except (OSError, ValueError) as error:
        problem = str(error)
    node, pid = os.uname().nodename, os.getpid()
    return {"rank": rank, "token": token, "node": node, "pid": pid, **more, "error": problem}
