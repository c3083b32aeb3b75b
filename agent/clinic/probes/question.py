"""What a look is about, and what it gives."""

from __future__ import annotations

from typing import NamedTuple

from agent.clinic.why.records import PodRecords
from agent.machine.api import RunMarks

APART_SECONDS = 1.0
"""Between two looks at how far ranks came."""


class Question(NamedTuple):
    """Where to look. Paths are those of this pod."""

    pod: PodRecords
    """This pod, of which nothing has been seen yet."""
    marks: RunMarks
    why_dir: str = ""
    ranks_dir: str = ""
    path: str = ""
    """Search path for py-spy."""
    seconds: float = 9.0
    prepared: bool = True
    """A4_WHY: ranks have sockets."""
    ras: str = ""
    """Where NCCL's RAS of this run listens, and that of no other; empty: nowhere."""


class LookAnswer(NamedTuple):
    """What was found in time."""

    records: PodRecords
    text: str = ""
    """For people, as in agent.machine.evidence_text."""
    summary: str = ""
