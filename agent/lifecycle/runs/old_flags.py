"""Flags that scripts set as the old launchers did: sync_flags_<JOB_ID>/download_complete_flag in A4_SHARED_DIR.

Pod 0 alone looks for them, and only by listing: who looks for a file that is not there yet makes NFS, Lustre and FUSE
remember for up to a minute that it is not there. What was there when a run began does not count in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from agent.decide.sync_facts import OLD_FLAGS, Fact, old_flags
from agent.lifecycle.pod.pod import Pod
from agent.lifecycle.runs.facts import Facts
from agent.paths import own_program
from agent.wire import json_object

LOOK_SECONDS = 2.0
ANSWER_SECONDS = 5.0


class OldFlags:
    """Makes facts of the flags that appear while somebody waits for them."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        settings, job_id = pod.settings, pod.job.environ.get("JOB_ID", "")
        self._names = {
            f"{directory}/{flag}": name
            for name in OLD_FLAGS
            for directory, flag in old_flags(name, job_id, settings.hostname_prefix)
            if settings.shared_dir
        }
        """By path below A4_SHARED_DIR; none where there can be none."""
        self._there: Mapping[str, object] = {}
        """Path → which file it is, as it was last seen."""
        self._leads: dict[Facts, int] = {}
        self._watching = False

    def look(self, done: Callable[[], None]) -> None:
        """See what is there now; at once where there can be none."""
        if not self._names:
            done()
            return
        directories = sorted({os.path.dirname(path) for path in self._names})
        argv = own_program("share-files.py", self._pod.settings.shared_dir, "flags", *directories)

        def have(answer: str) -> None:
            if answer:  # else the server hangs, or the directory is gone: what was known stays
                self._there = json_object(answer)
            done()

        # In a process of its own, which may hang with the file server.
        self._pod.machine.ask_process(argv, "/", ANSWER_SECONDS, have)

    def follow(self, facts: Facts, lead: int) -> None:
        """Facts of a run, or of the job, that begins now: what was there at the last look does not count in it. A
        script that sets a flag speaks for pod `lead`."""
        self._leads[facts] = lead
        facts.before = facts.stale = self._there
        facts.wanted = self._watch
        facts.flagged = set(self._names.values())
        facts.look_again = self._look_again

    def over(self, facts: Facts) -> None:
        """That run is over."""
        self._leads.pop(facts, None)

    def _watch(self) -> None:
        if not self._watching and self._are_wanted():
            self._watching = True
            self.look(self._told)

    def _are_wanted(self) -> bool:
        wanted = set(self._names.values())
        return any(name in wanted for facts in self._leads for name in facts.waited_for())

    def _look_again(self, done: Callable[[], None]) -> None:
        def looked() -> None:
            self._tell()
            done()

        self.look(looked)

    def _tell(self) -> None:
        """Make facts of what somebody waits for."""
        for facts, lead in list(self._leads.items()):
            for path, made in self._there.items():
                name, is_new = self._names.get(path, ""), made != facts.before.get(path)
                if is_new and name in facts.waited_for() and not facts.has(name, lead):
                    where = os.path.join(self._pod.settings.shared_dir, path)
                    facts.put(Fact(name, lead, message=f"a script made {where}"))

    def _told(self) -> None:
        self._tell()
        if self._are_wanted():
            self._pod.machine.later(LOOK_SECONDS, lambda: self.look(self._told))
        else:
            self._watching = False
