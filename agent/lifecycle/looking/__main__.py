"""Looks at a run's processes in this pod: python -m agent.lifecycle.looking QUESTION

Prints one line of JSON (agent.lifecycle.looking.question.Seen). Threads that hang in the kernel may keep this process
from ending: whoever asked takes the line, and waits no longer.
"""

from __future__ import annotations

import json
import os
import sys

from agent import wire
from agent.lifecycle.looking.look import look
from agent.lifecycle.looking.question import Question


def main(word: str) -> None:
    seen = look(wire.from_json(Question, json.loads(word)))
    print(json.dumps(wire.to_json(seen), separators=(",", ":")), flush=True)
    os.close(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
