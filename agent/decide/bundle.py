"""What goes into a bundle for a ticket: which files, how much of each, and what its own pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from agent.decide.result import Result
from agent.decide.result_reader import read_result
from agent.decide.words import count_text, listed

MOST_PART = 50 << 20
MOST_BUNDLE = 500 << 20
ROOM = 1 << 20
"""What the bundle's own pages and headers may take, and how much a part may be larger than what was read for it."""
MOST_FILE = 8 << 20
"""The end of one file: it waits in memory, as the disk of a pod that is bundled may be full."""
AGENT_SILENT = 15.0
"""Seconds; the agent touches a file every 5 s."""
OF_POD = ("facts.json", "plan.json", "state.json", "events.jsonl", "environment.json")
"""In the run directory of a pod."""
OF_RUN = re.compile(
    r"result\.json|evidence\.txt|record\.jsonl|hostfile(-1pernode)?|ranks/\d+|why/[\w.-]+\.(json|groups)|why/ras\.txt"
)
"""In the directory of a run. Left out: what programs wrote themselves, which nobody has masked, sockets and tokens."""
OF_RESULTS = re.compile(
    r"result\.json|report\.html|findings\.json|(failing|passing)_nodes\.txt|nccl-test-results\.txt|[\w-]+\.log"
    r"|pod-logs/[\w.-]+|evidence/[\w.-]+\.txt"
)
"""In a directory of results."""
SPOOL = "spool"
"""What the pod printed during a run, in a form of its own (agent/machine/spool.py)."""
SSH_BROKE = 255
"""How ssh ends when it has no exit code to pass on."""
TICKET, MISSING = "ticket.txt", "missing.txt"
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
README = """\
A bundle of {what}, made by a4-agent {version} on {pod} at {when} for a ticket.

ticket.txt    what a provider asks for: nodes, GPUs with UUID and serial number, XIDs, what was found
missing.txt   what could not be had, and why; long files have only their end
pod-N/        of each pod: facts, plan, state, events and environment of its agent; readings.json, kernel.log and
              nvidia-smi.xml as they were now; runs/RUN/: output.log, result.json and evidence of the run
pod-N/results what that pod has of the run in its results directory

Secrets that the pods knew are replaced by ***. Look through it before you send it: programs print what they like.
"""


def most_part(pods: int) -> int:
    """How many bytes one of so many pods may give, before they are compressed."""
    return min(MOST_PART, MOST_BUNDLE // max(1, pods)) - ROOM // max(1, pods)


def shares(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    """How many bytes of the end of each file are taken: small ones are whole, the others have as much as each other."""
    taken: dict[str, int] = {}
    left = max(0, most)
    for at, name in enumerate(sorted(sizes, key=lambda name: (sizes[name], name))):
        taken[name] = min(sizes[name], MOST_FILE, left // (len(sizes) - at))
        left -= taken[name]
    return taken


def agent_problem(process: bool, silent: float | None) -> str:
    """Why what this pod's agent wrote may be old; empty: it lives. `process`: it is there; `silent`: for how many
    seconds it has not shown life, None: it never has."""
    if not process or silent is None:
        return "no a4-agent runs in this pod: what is here is what it left"
    if silent > AGENT_SILENT:
        return f"the agent of this pod has not shown life for {silent:.0f} s: what is here may be as old"
    return ""


def part_problem(status: int | None, errors: str, whole: bool, seconds: float) -> str:
    """Why a pod's part is not there, or not all of it; empty: it is. `status`: of its process, None: it was late."""
    if status is None:
        return f"it did not answer within {seconds:g} s"
    if not status and whole:
        return ""
    said = " ".join(errors.split())[-300:]
    if status == SSH_BROKE and not said:
        return "its part was not made in time, or the connection broke"
    if status < 0:
        said = f"it was ended by signal {-status}" + (f": {said}" if said else "")
    return said or (f"it ended with {status}" if status else "its part is damaged")


def missing_text(problems: Mapping[str, Iterable[str]]) -> str:
    """Pod → why what is not there; one line each."""
    lines = [f"{pod}: {' '.join(why.split())}\n" for pod, each in problems.items() for why in each]
    return "".join(lines) or "nothing\n"


def summary(pods: int, silent: Iterable[str], why_alone: str) -> str:
    """What a bundle has, for the person who asked for it."""
    without = list(silent)
    why_alone = why_alone or ("no other pod answers" if pods == 1 and without else "")
    alone = f"this pod alone ({why_alone})" if why_alone else ""
    return (alone or count_text(pods, "pod")) + (f", without {listed(without)}" if without else "")


def run_of_result(text: bytes) -> Result | None:
    """What stands in result.json; None where it is of no use."""
    try:
        return read_result(json.loads(text))
    except (ValueError, RecursionError):
        return None
