"""Carries out a pipeline on this pod: python -m agent.lifecycle.stages PIPELINE

It is the process of the run in this pod. Whatever hangs because the shared storage does hangs here, and not in the
agent. How it ended goes to A4_NOTES_DIR/end.json: {"stage", "code", "what", "hint", "origin"}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import suppress

from agent.decide.pipeline import Pipeline
from agent.errors import AgentError, Exit, SystemFault
from agent.launch import unpacked
from agent.lifecycle.sharing.background import Background
from agent.lifecycle.stages.meeting import Meeting
from agent.lifecycle.stages.programs import Programs, Signals, Told
from agent.lifecycle.stages.sequence import carry_out
from agent.lifecycle.stages.site import PodSite
from agent.lifecycle.stages.work import Failed, Work
from agent.paths import DOWNLOADERS_DIR, RunDir
from agent.settings import Found, read_settings


def say(text: str) -> None:
    sys.stderr.write("".join(f"a4-agent: {line}\n" for line in text.splitlines()))
    sys.stderr.flush()


class Ending:
    """How this process ends, for people and for the agent."""

    def __init__(self, notes: str) -> None:
        self._notes = notes
        self.site: PodSite | None = None

    def failed(self, failed: Failed) -> int:
        """Say it; the exit code."""
        say("\n".join(filter(None, (failed.what, failed.hint))))
        with suppress(OSError, SystemFault):  # a run directory that is full: what was said must do
            stage = self.site.failed(failed.code) if self.site else ""
            told = {"stage": stage, "code": failed.code, "what": failed.what, "hint": failed.hint}
            if self._notes:
                with open(f"{self._notes}/end.json", "w", encoding="utf-8") as file:
                    json.dump({**told, "origin": failed.origin}, file)
        return failed.code

    def hung(self, why: str) -> None:
        """The storage hangs, and with it the main thread."""
        os._exit(self.failed(Failed(Exit.DIRECTORY, why, "look at the file server, and at the node's mounts", "agent")))


def main(word: str) -> int:
    notes = os.environ.get("A4_NOTES_DIR", "")
    ending = Ending(notes)
    try:
        run(unpacked(Pipeline, word), notes, ending)
        return 0
    except Told as told:
        return 128 + told.number
    except Failed as failed:
        return ending.failed(failed)
    except AgentError as error:
        return ending.failed(Failed(error.code, error.what, error.hint, "agent"))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return ending.failed(Failed(Exit.DIRECTORY, what, "", "agent"))
    except Exception:
        return ending.failed(Failed(Exit.BUG, traceback.format_exc(), "please report it", "agent"))


def run(pipeline: Pipeline, notes: str, ending: Ending) -> None:
    """Raises AgentError, Failed, Told, OSError."""
    signals = Signals()
    settings, _ = read_settings(os.environ, Found())
    by = f"{pipeline.run} of {settings.hostname_prefix}0"
    background = Background(settings.shared_dir, by, settings.lease, say, ending.hung)
    programs = Programs(os.environ, f"{notes}/iterations", signals, say, background.looking_at)
    meeting = Meeting(pipeline, RunDir(settings.run_dir).socket, say)
    work = Work(programs, os.environ.get("A4_DOWNLOADERS_DIR") or DOWNLOADERS_DIR, meeting.tell)
    record = os.environ.get("A4_RECORD", "")
    site = ending.site = PodSite(pipeline, settings, background, meeting, programs, work, record)
    try:
        background.open()
        if pipeline.leads:
            site.clear_flags()
        carry_out(pipeline, site)
    finally:
        background.close()


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # at once: a thread may hang in the shared directory
