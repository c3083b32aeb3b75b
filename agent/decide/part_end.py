"""How one pod's part of a run went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent.decide.ranks import RankEnd
from agent.launch import Started


class PartEnd(NamedTuple):
    """How one pod's part went; travels to the coordinator as `done`."""

    status: int | None
    """Exit status of the process, negative for a signal; None: there was none."""
    code: int = 0
    what: str = ""
    """Why no process could be started; empty when it could, or none was wanted."""
    record: str = ""
    """What the ranks' record says; on the lead."""
    output: str = ""
    """The end of what was printed; on the lead, or where the process failed."""
    error: str = ""
    """Torch's error file of the rank that failed first here."""
    began: float | None = None
    ended: float | None = None
    """When the process was started and had ended, in seconds since 1970."""
    launch: Started | None = None
    """What was started; on the lead."""
    notes: Mapping[str, Any] = {}
    """What the workload found in this pod's files of the run."""
    ranks: Mapping[int, RankEnd] = {}
    stuck: bool = False
