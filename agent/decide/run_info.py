"""What the agent answers of a run: `Client` returns these, the coordinator and each pod make them.

Their JSON is that of docs/maintainers/control-channel.md, by the names of the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent import wire
from agent.decide.ending import JobEnd
from agent.decide.run_names import titled


class RunInfo(NamedTuple):
    """A run that the agent knows."""

    id: str
    """What the agent calls it."""
    pods: tuple[int, ...]
    """Completion indices of the pods that take part, in rank order."""
    lead: int
    """The pod with rank 0."""
    outputs: tuple[int, ...]
    """The pods that print: the lead of an MPI run, else all."""
    names: Mapping[int, str] = {}
    """DNS name by completion index."""
    over: bool = False
    """Whether it has ended."""
    slots: int = 1
    """Ranks on each pod."""
    name: str = ""
    """What it can be called in place of its id, with `-2` or the like if another run had that; empty: no name."""
    note: str = ""
    """What people noted about it."""
    command: str = ""
    """Its workload and arguments in one line, secrets masked, cut where it is long."""

    @property
    def title(self) -> str:
        """How messages speak of it."""
        return titled(self.id, self.name)

    @property
    def called(self) -> str:
        """What to type for it: its name, or its id."""
        return self.name or self.id

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunInfo:
        return wire.from_json(cls, {"id": data["run"], **data})

    def to_json(self) -> dict[str, Any]:
        """The answer to `submit` and `find`, in which the id is `run` as in all that is asked of a run."""
        fields = dict(wire.to_json(self))
        return {"run": fields.pop("id"), **fields}


class Output(NamedTuple):
    """A stretch of what one pod printed."""

    frames: tuple[tuple[int, bytes], ...]
    """(stream, bytes) in the order of printing; streams: 1 stdout, 2 stderr, 3 the agent's own lines."""
    next: int
    """Offset to read on from."""
    skipped: int
    """Bytes between the wanted offset and the first frame that are no longer kept."""
    over: bool
    """Nothing will come after this."""
    agent: str = ""
    """Whose output it is: another agent's, in the place of a pod that was lost, begins anew."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Output:
        return wire.from_json(cls, data)


class RunEnd(NamedTuple):
    """How a run ended."""

    end: JobEnd
    """Code and words."""
    text: str = ""
    """The workload's table for people; may be empty."""
    codes: Mapping[int, int] = {}
    """Exit code of each pod's process by index. Pods that were lost or had none are missing."""
    lost: Mapping[int, str] = {}
    """Why pods were lost, by index."""
    results: str = ""
    """Directory on pod 0 with result.json; empty for none."""
    missing: str = ""
    """Which results could not be stored there and why, when the run was told to be over; empty for none."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunEnd:
        return wire.from_json(cls, data)


class CertainEnd(NamedTuple):
    """How a run ends, which nothing changes any more."""

    end: JobEnd
    waits: str = ""
    """What is still waited for before its results are stored; empty for nothing."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CertainEnd:
        return wire.from_json(cls, data)

    def line(self, title: str) -> str:
        """For people; `title` is what the run is called."""
        return f"{title} ended with exit code {self.end.code}: {self.end._replace(why='')}; {self.waits}"
