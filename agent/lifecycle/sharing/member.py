"""This pod in a shared directory, for commands: they do one thing after the other and wait for each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from agent.decide.run_marks import agent_cgroup, group_of, mark_name, own_cgroup
from agent.decide.sync.beats import beat_seconds
from agent.decide.sync.facts import (
    DONE,
    FAILED,
    OLD_FLAGS,
    Fact,
    FactPlace,
    folder,
    job_directory,
    name_of,
    old_flags,
    read_fact,
    write_fact,
)
from agent.decide.sync.waiting import FactWait, WaitOutcome
from agent.errors import Exit, PeerLost, SettingsError
from agent.lifecycle.sharing.directory import SharedDirectory
from agent.lifecycle.sharing.waiting import await_facts
from agent.machine import files
from agent.machine.api import SERVER_SECONDS
from agent.machine.beating import BeatPlan, first_of_run, keep_beating
from agent.machine.shared_files import carry_out, look
from agent.settings import Settings


class Listed(NamedTuple):
    """The facts that count now."""

    start: str
    """The live start of the pod that leads; empty when it is not heard."""
    facts: tuple[Fact, ...] = ()
    problems: Mapping[str, str] = {}
    """What is wrong with files that should be facts."""


class Member(SharedDirectory):
    """One pod of one job or, with `run`, of a run of it. Raises SettingsError without a directory, DirectoryUnusable in
    `open` and later for one that cannot be used."""

    def __init__(self, settings: Settings, run: str, pods: Sequence[int], say: Callable[[str], None]) -> None:
        """`pods`: those that take part, the one that leads first."""
        if not settings.shared_dir:
            hint = (
                "set it to a directory on NFS or Lustre that every pod of the job mounts; PAI_WORKSPACE_ROOT does too"
            )
            raise SettingsError(["A4_SHARED_DIR is not set: the directory that all pods share"], hint)
        super().__init__(settings.shared_dir, f"A4_SHARED_DIR={settings.shared_dir}")
        self._settings = settings
        self.job = job_directory(settings.epoch, run)
        self._run = run
        self._say = say
        self._start = ""
        """The start of the pod that leads: its own, or the one that was heard."""
        self.pod = settings.index
        self.pods = pods
        self.lead = pods[0]

    def beat(self, owner: int = 0) -> None:
        """Let this pod be heard from now on, until the process `owner` ends.

        By default that is the run's first process in this pod or, outside a run, the container's. Raises PeerLost
        when the pod was stopped for so long that others may have given it up.
        """
        settings = self._settings
        files.make_private_dir(settings.run_dir)
        seconds = beat_seconds(settings.lease, len(self.pods), leads=self.pod == self.lead)
        owner = owner or (first_of_run(self._run) if self._run else 1)
        plan = BeatPlan(self.directory, self.job, settings.index, seconds, settings.lease, owner, self.lead)
        if not self._run and (run := os.environ.get("A4_RUN", "")):
            plan = _outliving(plan, run)
        beating = keep_beating(f"{settings.run_dir}/sync", folder(f"{self.directory}/{self.job}"), plan)
        if beating.lost:
            raise PeerLost(
                f"this pod was stopped for {beating.lost:.0f} s, longer than the lease of {settings.lease:g} s: "
                "other pods may have given it up",
                "nothing was written; the next a4-agent sync of this pod begins anew",
            )
        self._start = beating.nonce if plan.leads else ""
        if plan.leads and beating.new:
            for name in OLD_FLAGS:
                self._remove_old_flags(name)  # an earlier start's

    def wait(self, name: str, pods: Collection[int], timeout: float) -> WaitOutcome:
        """Wait for a fact of each of some pods; of none: until the leader is known, for whose start all are written."""
        settings, now = self._settings, time.monotonic()
        wait = FactWait(
            name,
            pods,
            job=self.job,
            lease=settings.lease,
            heard_by=now + min(timeout, settings.peer_timeout),
            ends=now + timeout,
            fresh=bool(self._run),
            start=self._start,
            lead=self.lead,
        )

        outcome = carry_out(await_facts(wait, len(self.pods), self._say), self._files.ask)
        self._start = wait.start
        return outcome

    def put(self, fact: Fact) -> WaitOutcome:
        """Write a fact; and, where old scripts wait for a flag of that name, the flag too, or take it away."""
        found = self.wait("", (), self._settings.peer_timeout)
        if found.code:
            return found
        place = FactPlace(self.job, self._start)
        fact = fact._replace(host=os.uname().nodename, time=time.time())
        until = time.monotonic() + SERVER_SECONDS
        there = self._ask("put", place.directory, fact.file, write_fact(fact, place), until)
        try:
            read_fact(fact.file, there, place)  # another process of this pod may have written it at the same time
        except ValueError as why:
            raise self._unusable(
                f"{place.directory}/{fact.file} reads differently from what was written: {why}"
            ) from None
        if fact.failed:
            self._remove_old_flags(fact.name)
        elif self.pod == self.lead:
            for where, flag in self._old_flags(fact.name):
                self._ask("put", where, flag, f"{place.directory}\n", until)
        return found

    def list(self) -> Listed:
        """The facts that count; none when the leader is not heard now."""
        # The leader has beaten several times by then.
        outcome = self.wait("", (), 5.0)
        if outcome.code == Exit.PEERS_MISSING:
            return Listed("")
        if outcome.code:
            raise PeerLost(outcome.what, outcome.hint)
        place = FactPlace(self.job, self._start)
        found = self._ask(*look(place.directory, (DONE, FAILED)).words)
        facts, problems = [], dict(found["problems"])
        for file, text in found["texts"].items():
            try:
                facts.append(read_fact(file, text, place))
            except ValueError as why:
                problems[file] = str(why)
        return Listed(self._start, tuple(sorted(facts)), problems)

    def clean(self, name: str) -> int:
        """Take away the facts of a name, damaged ones too, and the flags for old scripts; how many facts there were."""
        listed = self.list()
        files = [file for file in (*(fact.file for fact in listed.facts), *listed.problems) if name_of(file) == name]
        if files:
            self._ask("remove", FactPlace(self.job, self._start).directory, *files)
        self._remove_old_flags(name)
        return len(files)

    def _remove_old_flags(self, name: str) -> None:
        for where, flag in self._old_flags(name):
            self._ask("remove", where, flag)

    def _old_flags(self, name: str) -> Sequence[tuple[str, str]]:
        return old_flags(name, os.environ.get("JOB_ID", ""), self._settings.hostname_prefix)


def _outliving(plan: BeatPlan, run: str) -> BeatPlan:
    """Without the marks of a run, by which its processes are found and ended when it is over."""
    name = mark_name(run, plan.pod)
    own = own_cgroup(files.read("/proc/self/mountinfo") or "", files.read("/proc/self/cgroup") or "")
    return plan._replace(left_group=group_of(name), cgroup=agent_cgroup(own, name))
