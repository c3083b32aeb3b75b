"""What pods say to each other by `a4-agent sync`, and names and contents of files in the directory that they share."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NamedTuple

from agent.wire import to_json

TOP = ".a4-agent"
MOST_NAME = 100
MOST_MESSAGE = 1024
OLD_FLAGS = {"download_complete": "download_complete_flag", "conversion_complete": "conversion_complete_flag"}
"""Facts that the old launchers' scripts set and look for, and the file that each is for them."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_NAME - 1}}}")
_LONGEST_FOLDER = 200


class Fact(NamedTuple):
    """What one pod says of one name."""

    name: str
    pod: int
    failed: bool = False
    code: int = 0
    """Exit code of what has failed."""
    message: str = ""
    time: float = 0.0
    """Unix time on the clock of pod 0, for people."""


def fact_name(text: str) -> str:
    """Raises ValueError with what a name is."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"a name of at most {MOST_NAME} letters, digits, '.', '_' and '-'")
    return text


def folder(text: str) -> str:
    """A name for a directory that is another one for every other text."""
    quoted = re.sub(r"[^A-Za-z0-9._@-]", lambda found: f"%{ord(found[0]):02X}", text)
    if len(quoted) > _LONGEST_FOLDER:
        return hashlib.sha256(text.encode()).hexdigest()
    return re.sub(r"^\.", "%2E", quoted)


def old_flags(name: str, job_id: str, prefix: str) -> list[tuple[str, str]]:
    """(directory, file) of the flags that a fact of this name is for old scripts.

    job_id, prefix: the pod's JOB_ID and HOSTNAME_PREFIX. Their directory without a job's name belongs to all jobs at
    once and is left alone.
    """
    jobs = dict.fromkeys((job_id, prefix.removesuffix("-workload-")))
    flag = OLD_FLAGS.get(name)
    return [(f"sync_flags_{job}", flag) for job in jobs if flag and re.fullmatch(r"[A-Za-z0-9][\w.-]*", job, re.ASCII)]


def seal(data: Any) -> str:
    """A record or a mapping as JSON on a line, and a line with its checksum."""
    line = json.dumps(to_json(data), sort_keys=True)
    return f"{line}\n{hashlib.sha256(line.encode()).hexdigest()}\n"


def unseal(text: str) -> Any:
    """What was sealed. Raises ValueError with what is wrong."""
    line, _, rest = text.partition("\n")
    if not text:
        raise ValueError("it is empty")
    if rest != f"{hashlib.sha256(line.encode(errors='replace')).hexdigest()}\n":
        raise ValueError("its checksum is wrong")
    return json.loads(line)
