"""The directory of a run in this pod: what programs find there, and what they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent import wire
from agent.clinic.interface import is_dump
from agent.cutting import cut_at_word
from agent.decide.messages import SaidOfPart, TellSeries
from agent.decide.part_end import PartEnd
from agent.decide.plan import hostfile
from agent.decide.ranks import RankEnd, parse_rank
from agent.decide.secret_variables import storable
from agent.decide.series import MOST_FILE, PodSeries, SeriesReader
from agent.launch import Launch, Started
from agent.lifecycle.pod.pod import Pod
from agent.machine.api import RunMarks, Timer
from agent.wire import finite, json_object
from agent.workloads.base import RunContext, Workload
from agent.workloads.held_rank import invitation, start_script

MOST_ERROR = 64 << 10
MOST_LEFT = 1000
MOST_NOTES = 1 << 20
"""How many bytes at both ends of each file that ranks leave."""
MOST_RECORD = 2 << 20
"""How many characters of the record are sent: a message has a limit."""
SERIES_SECONDS = 30.0
"""A pod that is lost has told its series up to so long before."""
PIECE = 256 << 10
"""Bytes of series that are read at once in the loop: 4,000 records, some 30 ms. What is left comes a second later."""


class PartFiles:
    """Made before a part begins, read when it is over, or while it runs to see how far it is. `say` gets what is new
    meanwhile in what the program writes of itself (A4_SERIES_FILE)."""

    def __init__(self, pod: Pod, workload: Workload, context: RunContext, say: Callable[[SaidOfPart], None]) -> None:
        self._pod = pod
        self._machine = pod.machine
        self._workload = workload
        self._context = context
        self._say = say
        self._series = SeriesReader(len(context.plan.peers))
        self._series_told = 0
        """Bytes of which `say` was told."""
        self._series_timer: Timer | None = None

    def make(self, marks: RunMarks) -> None:
        """Directories, hostfiles, and for ranks under mpirun the marks that they take on. Raises SystemFault."""
        pod, context = self._pod, self._context
        pod.write(context.hostfile, hostfile(context.names, context.per_pod))
        pod.write(context.hostfile_one_per_node, hostfile(context.names, 1))
        for path in (context.ranks_dir, context.notes_dir, context.why_dir):
            pod.make_dir(path, 0o700)
        if context.index == context.holder:
            pod.write(context.start_rank, start_script(context), 0o700)
            pod.write(f"{context.start_rank}.txt", invitation(context), 0o600)
        if self._workload.led:
            pod.write(context.marks_file, f"{marks.group} {marks.cgroup}\n", 0o600)

    def record_so_far(self) -> str:
        """What the rank programs record together, on the lead alone; empty when they have not, or nobody can read it
        now."""
        try:
            return self._record()
        except OSError:
            return ""

    def _record(self) -> str:
        return self._machine.read(self._context.record) or ""

    def _ranks(self) -> dict[int, RankEnd]:
        """How each rank of this pod ended, by its own file: the first thing that counts for the verdict."""
        found = self._machine.read_ends(self._context.ranks_dir, MOST_NOTES)
        return {int(name): parse_rank(text) for name, text in found.items() if name.isdecimal()}

    def is_ending(self, output: str) -> bool:
        """Whether it says so and no rank runs here any more: a rank can print what mpirun prints at its end."""
        try:
            ranks = self._ranks()
        except OSError:
            return False
        if any(rank.code is None for rank in ranks.values()):
            return False
        return self._workload.is_ending(output, self.record_so_far(), ranks)

    def ranks_over(self) -> bool:
        """Whether every rank of this pod has recorded its end, and none is to come."""
        try:
            return self._workload.ranks_over(self._context, self._ranks())
        except OSError:
            return False

    def told(self, end: PartEnd, *, record: bool) -> tuple[PartEnd, Callable[[], PartEnd] | None]:
        """The end with what ranks have left here, with the `record` if that counts, and what reads the rest into it;
        None: there is none. That is for a thread: a thousand logs of NCCL take their time, and so do long series. Both
        raise OSError."""
        self.stop_series()
        versions = json_object(self._left_by_hook("versions.json"))
        if end.code:
            error = cut_at_word(self._machine.read(self._context.torch_error) or "", MOST_ERROR)
            end = end._replace(error=error, dumps=sum(map(is_dump, self._machine.list_dir(self._context.why_dir))))
        end = end._replace(
            record=self._record()[:MOST_RECORD] if record else "",
            ranks=self._ranks(),
            versions={name: one for name, one in versions.items() if isinstance(one, str)},
            collective=end.collective or finite(self._left_by_hook("first-collective").decode(errors="replace")),
        )
        directory, _, name = self._context.series_file.rpartition("/")
        has_notes = bool(self._machine.list_dir(self._context.notes_dir))
        has_series = name in self._machine.list_dir(directory)

        def read_rest() -> PartEnd:
            whole = end._replace(notes=self._notes()) if has_notes else end
            return whole._replace(series=self._whole_series()) if has_series else whole

        return end, read_rest if has_notes or has_series else None

    def begin_series(self) -> None:
        """The part runs: look from time to time."""
        self._series_timer = self._machine.later(SERIES_SECONDS, self._look_at_series)

    def stop_series(self) -> None:
        if self._series_timer is not None:
            self._series_timer.cancel()

    def _look_at_series(self) -> None:
        if self._read_series() == PIECE:
            self._series_timer = self._machine.later(1.0, self._look_at_series)
            return
        self.begin_series()
        if self._series.offset > self._series_told:
            self._series_told = self._series.offset
            self._say(TellSeries(self._context.run_id, self._series.told()))

    def _whole_series(self) -> PodSeries:
        while self._read_series():
            pass
        self._series.finish()
        return self._series.told()._replace(empty=not self._series.offset)

    def _read_series(self) -> int:
        """How many bytes there were."""
        offset = self._series.offset
        data = self._machine.read_part(self._context.series_file, offset, min(PIECE, MOST_FILE - offset))
        self._series.take(data)
        return len(data)

    def _left_by_hook(self, name: str) -> bytes:
        """What a rank has left for the result (entrypoints/hook)."""
        return self._machine.read_part(f"{self._context.why_dir}/{name}", 0, MOST_LEFT)

    def _notes(self) -> Mapping[str, Any]:
        """What the workload finds in this pod's files."""
        files = self._machine.read_ends(self._context.notes_dir, MOST_NOTES)
        found: Mapping[str, Any] = wire.to_json(self._workload.inspect(self._context, files)) or {}
        return found


def described(launch: Launch | None, secret_env: str) -> Started | None:
    """What was started, for result.json."""
    if launch is None:
        return None
    env = storable(launch.env, launch.added, secret_env.split())
    return Started(tuple(launch.argv), launch.cwd, env, tuple(launch.added))
