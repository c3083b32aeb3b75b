"""Everything that this pod can say of a run that stands still, read side by side, each with a deadline.

python -m agent.clinic.sources.look QUESTION prints it as a line of JSON, a LookAnswer. Threads that hang in the
kernel may keep that process from ending: whoever asked takes the line, and waits no longer.
"""

from __future__ import annotations

import json
import os
import sys

from agent import wire
from agent.clinic.sources.catalogue import SOURCES
from agent.clinic.sources.question import LookAnswer, Question
from agent.clinic.sources.source import ALL_SHARE, Look
from agent.machine.evidence_text import render
from agent.machine.workers import in_time

MOST_AT_ONCE = 32


def look(question: Question) -> LookAnswer:
    """Never takes much longer than `question.seconds`."""
    now = Look(question)
    sources = [source(now) for source in SOURCES]
    in_time([job for source in sources for job in source.jobs()], MOST_AT_ONCE, now.until(ALL_SHARE))
    records, processes = question.pod, list(now.processes)
    for source in sources:
        records, processes = source.add_to(records), list(map(source.described, processes))
    records = records._replace(sources=tuple(now.said()))
    run = question.marks.run
    title = f"processes of {run}" if processes else f"{run} has no processes"
    return LookAnswer(records, *render(title, processes, now.notes))


if __name__ == "__main__":
    seen = look(wire.from_json(Question, json.loads(sys.argv[1])))
    print(json.dumps(wire.to_json(seen), separators=(",", ":")), flush=True)
    # The reader gets its end now, because a thread in state D can hold up even the exit.
    os.close(1)
    os._exit(0)
