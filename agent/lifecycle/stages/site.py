"""What the stages of a pipeline find on a pod and do there, in the order of agent.lifecycle.stages.sequence."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent.decide.completeness import (
    TRACKER,
    Checkpoint,
    changed_files,
    is_damaged,
    newest_checkpoint,
    path_of,
    problem,
)
from agent.decide.pipeline import Files, Model, Pipeline, Stage, StageCommand, StageOutput
from agent.decide.progress import too_little_room
from agent.decide.sync_facts import OLD_FLAGS, TOP, folder, old_flags, seal
from agent.decide.words import listed
from agent.errors import DirectoryUnusable, Exit, PeerLost
from agent.lifecycle.sharing.background import Background, Held
from agent.lifecycle.stages import records
from agent.lifecycle.stages.meeting import Meeting
from agent.lifecycle.stages.programs import Programs, note
from agent.lifecycle.stages.work import Begin, Failed, Work
from agent.machine import files, stored
from agent.settings import Settings

MARKS = f"{TOP}/seen"
MOST_NAMED = 10
"""Files of a checkout in one message."""


@dataclass
class PodSite:
    """Shared storage, programs and other pods, as one pod meets them. Tests put a fake in its place."""

    pipeline: Pipeline
    settings: Settings
    background: Background
    meeting: Meeting
    programs: Programs
    worker: Work
    notes: str
    """The file of the run's record, which `status` and result.json are made of."""

    def __post_init__(self) -> None:
        self.epoch = self.settings.epoch
        """The epoch of this attempt of the job."""
        self.run = self.pipeline.run
        """The id of the run, in this life."""
        self._files = stored.StoredFiles(os.environ)
        self._begun = 0.0
        self.say = self.programs.say
        self._stage: Stage | None = None
        """The one that is carried out."""

    # What is there

    def problem(self, output: StageOutput) -> str:
        """Why it is not complete; empty when it is."""
        with self.background.looking_at(output.path):
            return problem(output, self._files)

    def newest(self, output: StageOutput) -> Checkpoint | None:
        with self.background.looking_at(output.path):
            return newest_checkpoint(output.path, self._files)

    def names(self, path: str) -> Sequence[str]:
        """What is in a directory."""
        with self.background.looking_at(path):
            return self._files.names(path)

    def record(self, stage: Stage) -> records.StageRecord | None:
        return records.read_record(self.background.read(records.RECORDS, self._file(stage)))

    def _file(self, stage: Stage) -> str:
        return folder(self._name(stage))

    def _name(self, stage: Stage) -> str:
        return records.record_name(stage, self.settings.shared_dir)

    # Writing: what others see is not done when the claim is lost

    @contextmanager
    def claim(self, stage: Stage) -> Iterator[Held]:
        self.programs.lost = ""
        with self.background.claim(self._name(stage), self.programs.lose) as held:
            yield held

    def prepare(self, stage: Stage, verdict: records.StageVerdict, claimed: Held) -> None:
        """Make the place in which the stage works."""
        place = stage.staging or stage.target
        claimed.until()
        with self.background.looking_at(place):
            if isinstance(stage.work, (Files, Model)) and stage.staging:
                self._take_up(stage, verdict, claimed)
            elif stage.staging:
                stored.make_empty(stage.staging)
            os.makedirs(place, exist_ok=True)
            self.check_room([stage])
            if isinstance(stage.work, StageCommand) and stage.work.copies:
                stored.copy_texts(dict(stage.work.arguments)[stage.work.copies], place)

    def check_room(self, stages: Sequence[Stage]) -> None:
        """Raises DirectoryUnusable where not all that these stages make has room: before the first one is begun."""
        if asked := [stage for stage in stages if stage.space]:
            place = self.settings.shared_dir
            taken_up = [stage.staging for stage in asked if isinstance(stage.work, (Files, Model))]
            with self.background.looking_at(place):
                there, free = sum(map(stored.tree_bytes, taken_up)), stored.free_bytes(asked[0].target)
            if why := too_little_room(place, sum(stage.space for stage in asked), there, free):
                raise DirectoryUnusable(why, f"needed by {listed([stage.name for stage in asked])}: make room there")

    def _take_up(self, stage: Stage, verdict: records.StageVerdict, claimed: Held) -> None:
        """What an earlier attempt has downloaded, or an older launcher, unless it was of something else."""
        mark, inputs = mark_of(stage), json.dumps(dict(stage.inputs), sort_keys=True)
        is_own = isinstance(stage.work, Model) and not verdict.aside and os.path.lexists(stage.target)
        if self._files.read(mark).decode(errors="replace") != inputs:
            stored.remove(stage.staging)
        if is_own and not os.path.lexists(stage.staging):
            self.rename(stage.target, stage.staging, claimed)
        os.makedirs(stage.staging, exist_ok=True)
        files.write(mark, inputs)

    def begin_from(self, stage: Stage, checkpoint: Checkpoint) -> str:
        """A directory from which the training can go on with that checkpoint. Not the checkpoint's own: the script
        copies *.json from there to that one, and cp copies none onto itself."""
        work = stage.work
        assert isinstance(work, StageCommand)
        directory = f"{self.settings.shared_dir}/{TOP}/begin/{self._file(stage)}"
        with self.background.looking_at(directory):
            stored.begin_from(directory, checkpoint.path, dict(work.arguments)[work.resumes])
            files.write(f"{directory}/{TRACKER}", f"{checkpoint.iteration}\n")
        self.say(f"{stage.name}: continues from {checkpoint.path}; the optimizer starts afresh")
        return directory

    def work(self, stage: Stage, begin: Begin) -> str:
        """Why what was made cannot be used although the program ended with 0; empty: nothing says so.

        Raises AgentError and Failed.
        """
        try:
            return self.worker.do(stage, begin)
        except Failed as failed:
            newest = None if begin.repeats_at is None else self.newest(stage.outputs[0])
            if begin.repeats_at is None or (newest is not None and newest.iteration > begin.repeats_at):
                raise
            hint = f"the attempt or life before it has saved no newer checkpoint, either (exit code {failed.code})"
            raise Failed(Exit.WRONG_RESULT, failed.what, hint) from failed

    def keep(self, stage: Stage, claimed: Held, **fields: Any) -> None:
        """Store its record, in which these fields are not as they are for a stage that is done."""
        record = records.StageRecord(stage.inputs, time.time(), self.run, self.epoch, **fields)
        self.background.put(records.RECORDS, self._file(stage), seal(record), claimed.until())

    def rename(self, old: str, new: str, claimed: Held) -> None:
        self._show(new, claimed, lambda: stored.rename(old, new))

    def link(self, old: str, new: str, claimed: Held) -> None:
        self._show(new, claimed, lambda: os.symlink(old, new))

    def restore(self, stage: Stage, claimed: Held) -> str:
        """Make damaged files whole again where that is enough. Returns which, in words; empty for none."""
        restored: list[str] = []
        for output in stage.outputs:
            with self.background.looking_at(output.path):
                damaged = [file for file in changed_files(output, self._files) if is_damaged(file)]
                for submodule in dict.fromkeys(file[0] for file in damaged):
                    claimed.until()
                    try:
                        self._files.restore(
                            output.path, submodule, [file[1] for file in damaged if file[0] == submodule]
                        )
                    except ValueError as error:
                        self.say(f"{output.path} cannot be restored: {error}")
                        return ""
            restored += map(path_of, damaged)
        return f"restored (missing or cut off): {_some(restored)}" if restored else ""

    def edits(self, stage: Stage) -> str:
        """What somebody has changed in complete outputs, in words; empty for nothing."""
        edited: list[str] = []
        for output in stage.outputs:
            with self.background.looking_at(output.path):
                edited += map(path_of, changed_files(output, self._files))
        return f"edited, left as is: {_some(edited)}" if edited else ""

    def set_aside(self, path: str, claimed: Held) -> None:
        """Keep what is there under another name; nothing when nothing is there."""
        with self.background.looking_at(path):
            there = os.path.lexists(path)
        if there:
            aside = records.aside_name(path, time.time())
            self.say(f"{path} does not match what is needed: moved to {aside}")
            self.rename(path, aside, claimed)

    def clear(self, stage: Stage, claimed: Held) -> None:
        """Take away what is left of the place in which it was made."""
        if stage.staging:
            claimed.until()
            with self.background.looking_at(stage.staging):
                stored.remove(stage.staging)
                stored.remove(mark_of(stage))

    def _show(self, path: str, claimed: Held, act: Callable[[], None]) -> None:
        with self.background.looking_at(path):
            until = claimed.until()
            if time.monotonic() > until:
                raise PeerLost("this pod was paused for longer than its lease: another pod may be writing there")
            act()

    # What others hear

    def clear_flags(self) -> None:
        """Take away the flags for old scripts of an earlier run."""
        for fact in OLD_FLAGS:
            for where, flag in self._old_flags(fact):
                self.background.remove(where, flag)

    def leave_mark(self) -> None:
        """Write what other pods must see, if they have the same storage."""
        self.background.put(MARKS, self._job, f"{self.run}\n")

    def find_mark(self) -> None:
        """Raises DirectoryUnusable where this pod has another storage than the lead."""
        # No client of NFS or Lustre keeps what it has read for so long, unless it was told to.
        if not self.background.find(MARKS, self._job, f"{self.run}\n", 40.0):
            what = f"this pod does not see in {self.settings.shared_dir} what pod {self.pipeline.pods[0]} has written"
            raise DirectoryUnusable(what, "every pod must mount the same directory of the same file server there")

    def remove_mark(self) -> None:
        self.background.remove(MARKS, self._job)

    @property
    def _job(self) -> str:
        # The UID of UID.RESTART.RESTART, because all attempts of a job have one mark.
        return folder(self.epoch.rsplit(".", 2)[0])

    def note_made(self, stage: Stage) -> None:
        """For those who look for flags of old launchers."""
        later = self.pipeline.stages[[each.name for each in self.pipeline.stages].index(stage.name) + 1 :]
        for where, flag in self._old_flags(records.flag_of(stage, later)):
            self.background.put(where, flag, f"{self.run}\n")

    def _old_flags(self, fact: str) -> Sequence[tuple[str, str]]:
        return old_flags(fact, os.environ.get("JOB_ID", ""), self.settings.hostname_prefix)

    def meet(self, name: str, says: str = "") -> Mapping[int, str]:
        return self.meeting.arrive(name, says)

    def begun(self, stage: Stage, number: int, of: int) -> None:
        self._stage, self._begun = stage, time.monotonic()
        self._note("begin", stage, number=number, of=of, time=time.time())

    def failed(self, status: int) -> str:
        """The name of the stage that has; empty before the first."""
        if self._stage is None:
            return ""
        self.ended(self._stage, "", status)
        return self._stage.name

    def ended(self, stage: Stage, why: str, status: int = 0) -> None:
        """why: it was passed over; empty when it was carried out."""
        seconds = round(time.monotonic() - self._begun, 3)
        self._note("done", stage, status=status, seconds=seconds, stuck=False, passed_over=why)

    def _note(self, step: str, stage: Stage, **values: Any) -> None:
        if self.notes:
            note(self.notes, json.dumps({"step": step, "name": stage.name, **values}))


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return listed([*names[:MOST_NAMED], *more])


def mark_of(stage: Stage) -> str:
    """The file that says of what inputs the things are that lie where the stage works."""
    return f"{stage.staging}.inputs"
