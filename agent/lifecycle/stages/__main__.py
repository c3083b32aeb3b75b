"""Carries out a pipeline on this pod: python -m agent.lifecycle.stages PIPELINE

It is the process of the run in this pod. Whatever hangs because the shared storage does hangs here, and not in the
agent. How it ended goes to A4_NOTES_DIR/end.json: {"stage", "code", "what", "hint", "origin"}.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

from agent.decide.pipeline import Pipeline
from agent.decide.pipeline_text import unpack
from agent.errors import AgentError, DirectoryUnusable, Exit
from agent.lifecycle.sharing.background import Background
from agent.lifecycle.stages.meeting import Meeting
from agent.lifecycle.stages.programs import Programs, Signals, Told
from agent.lifecycle.stages.sequence import Failed, carry_out
from agent.lifecycle.stages.site import PodSite
from agent.lifecycle.stages.work import Work
from agent.paths import DOWNLOADERS_DIR, RunDir
from agent.settings import Found, Settings, read_settings


def say(text: str) -> None:
    sys.stderr.write("".join(f"a4-agent: {line}\n" for line in text.splitlines()))
    sys.stderr.flush()


def main(word: str) -> int:
    pipeline = unpack(word)
    notes = os.environ.get("A4_NOTES_DIR", "")
    signals = Signals()
    stage = ""
    try:
        settings, _ = read_settings(os.environ, Found())
        background = Background(
            settings.shared_dir, f"{pipeline.run}, {settings.hostname_prefix}0", settings.lease, say
        )
        programs = Programs(os.environ, f"{notes}/iterations", signals, say)
        site = site_of(pipeline, settings, background, programs)
        try:
            background.open()
            if pipeline.leads:
                site.clear_flags()
            carry_out(pipeline, site, settings.epoch)
            return 0
        finally:
            stage = site.stage
    except Told as told:
        return 128 + told.number
    except Failed as error:
        failed = error
    except AgentError as error:
        failed = Failed(error.code, error.what, error.hint, "agent")
    except OSError as error:
        found = DirectoryUnusable(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        failed = Failed(found.code, found.what, found.hint, "agent")
    except Exception:
        failed = Failed(Exit.BUG, traceback.format_exc(), "please report it", "agent")
    return end(notes, stage, failed)


def site_of(pipeline: Pipeline, settings: Settings, background: Background, programs: Programs) -> PodSite:
    meeting = Meeting(pipeline, RunDir(settings.run_dir).socket, say)
    return PodSite(
        pipeline,
        settings,
        background,
        meeting,
        programs,
        Work(programs, os.environ.get("A4_DOWNLOADERS_DIR") or DOWNLOADERS_DIR, meeting.tell),
        os.environ.get("A4_RECORD", ""),
    )


def end(notes: str, stage: str, failed: Failed) -> int:
    say("\n".join(filter(None, (failed.what, failed.hint))))
    told = {
        "stage": stage,
        "code": int(failed.code),
        "what": failed.what,
        "hint": failed.hint,
        "origin": failed.origin,
    }
    if notes:
        with open(f"{notes}/end.json", "w", encoding="utf-8") as file:
            json.dump(told, file)
    return int(failed.code)


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # at once: a thread may hang in the shared directory
