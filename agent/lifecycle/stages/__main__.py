"""Carries out a pipeline on this pod: python -m agent.lifecycle.stages PIPELINE

It is the process of the run in this pod. Whatever hangs because the shared storage does hangs here, and not in the
agent. How it ended goes to A4_NOTES_DIR/end.json: {"stage", "code", "what", "hint", "origin"}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import closing, suppress

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

NOTES = os.environ.get("A4_NOTES_DIR", "")


def say(text: str) -> None:
    print("".join(f"a4-agent: {line}\n" for line in text.splitlines()), end="", file=sys.stderr, flush=True)


def fail(failed: Failed, site: PodSite | None) -> int:
    """Say how this process ends, for people and for the agent; the exit code."""
    say("\n".join(filter(None, (failed.what, failed.hint))))
    with suppress(OSError, SystemFault):  # a run directory that is full: what was said must do
        stage = site.failed(failed.code) if site else ""
        told = {"stage": stage, "code": failed.code, "what": failed.what, "hint": failed.hint, "origin": failed.origin}
        if NOTES:
            with open(f"{NOTES}/end.json", "w", encoding="utf-8") as file:
                json.dump(told, file)
    return failed.code


def main(word: str) -> int:
    site = None
    try:
        site = make_site(unpacked(Pipeline, word))
        with closing(site.background):
            site.background.open()
            if site.pipeline.leads:
                site.clear_flags()
            carry_out(site.pipeline, site)
        return 0
    except Told as told:
        return 128 + told.number
    except Failed as failed:
        return fail(failed, site)
    except AgentError as error:
        return fail(Failed(error.code, error.what, error.hint, "agent"), site)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return fail(Failed(Exit.DIRECTORY, what, "", "agent"), site)
    except Exception:
        return fail(Failed(Exit.BUG, traceback.format_exc(), "please report it", "agent"), site)


def make_site(pipeline: Pipeline) -> PodSite:
    """From now on signals end this process. Raises AgentError."""

    def hung(why: str) -> None:
        """The storage hangs, and with it the main thread."""
        os._exit(fail(Failed(Exit.DIRECTORY, why, "check the file server and the node's mounts", "agent"), site))

    signals = Signals()
    settings, _ = read_settings(os.environ, Found())
    by = f"{pipeline.run} of {settings.hostname_prefix}0"
    background = Background(settings.shared_dir, by, settings.lease, say, hung)
    programs = Programs(os.environ, f"{NOTES}/iterations", signals, say, background.looking_at)
    meeting = Meeting(pipeline, RunDir(settings.run_dir).socket, say)
    work = Work(programs, os.environ.get("A4_DOWNLOADERS_DIR") or DOWNLOADERS_DIR, meeting.tell)
    site = PodSite(pipeline, settings, background, meeting, programs, work, os.environ.get("A4_RECORD", ""))
    return site


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # at once: a thread may hang in the shared directory
