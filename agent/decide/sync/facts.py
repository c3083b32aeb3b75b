"""Names and contents of the files in the shared directory.

    .a4-agent/jobs/JOB/                    JOB: the epoch and, inside a run, the run
        pod.INDEX.START.COUNT              a beat: a pod renames its own again and again, COUNT grows
        START/done.NAME.INDEX              facts, in a directory for each start of pod 0
        START/failed.NAME.INDEX

A fact says in itself where it belongs, under a checksum: what was torn, or copied from elsewhere, is none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from agent.wire import from_json, to_json

TOP = ".a4-agent"
DONE, FAILED = "done", "failed"
MOST_NAME = 100
MOST_MESSAGE = 1024
OLD_FLAGS = {"download_complete": "download_complete_flag", "conversion_complete": "conversion_complete_flag"}
"""Facts that the old launchers' scripts look for, and the file that each is for them."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MOST_NAME - 1}}}")
_FACT = re.compile(rf"({DONE}|{FAILED})\.(.+)\.(\d{{1,6}})")
_LONGEST_FOLDER = 200


class Fact(NamedTuple):
    """What one pod says of one name."""

    name: str
    pod: int
    failed: bool = False
    code: int = 0
    """Exit code of what has failed."""
    message: str = ""
    host: str = ""
    time: float = 0.0
    """Unix time on the clock of the pod that wrote it: for people only."""

    @property
    def file(self) -> str:
        return f"{FAILED if self.failed else DONE}.{self.name}.{self.pod}"


class FactPlace(NamedTuple):
    """Where facts are that count together: a job, or a run of it, and one start of its pod 0."""

    job: str
    start: str

    @property
    def directory(self) -> str:
        return f"{self.job}/{self.start}"


def fact_name(text: str) -> str:
    """Raises ValueError with what a name is."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"a name of at most {MOST_NAME} letters, digits, '.', '_' and '-'")
    return text


def job_directory(epoch: str, run: str) -> str:
    """The directory of an epoch's facts or, with `run`, of those that count in that run alone."""
    return f"{TOP}/jobs/{folder(f'{epoch}@{run}' if run else epoch)}"


def folder(text: str) -> str:
    """A name for a directory that is another one for every other text."""
    quoted = re.sub(r"[^A-Za-z0-9._@-]", lambda found: f"%{ord(found[0]):02X}", text)
    if len(quoted) > _LONGEST_FOLDER:
        return hashlib.sha256(text.encode()).hexdigest()
    return re.sub(r"^\.", "%2E", quoted)


def old_flags(name: str, job_id: str, prefix: str) -> list[tuple[str, str]]:
    """(directory, file) of the flags under which old scripts look for a fact of this name.

    job_id, prefix: the pod's JOB_ID and HOSTNAME_PREFIX. Their directory without a job's name belongs to all jobs at
    once and is left alone.
    """
    jobs = dict.fromkeys((job_id, prefix.removesuffix("-workload-")))
    flag = OLD_FLAGS.get(name)
    return [(f"sync_flags_{job}", flag) for job in jobs if flag and re.fullmatch(r"[A-Za-z0-9][\w.-]*", job, re.ASCII)]


def file_prefixes(name: str) -> tuple[str, ...]:
    """With what the files of all facts of this name begin; those of others may, too. Empty for no name."""
    return (f"{DONE}.{name}.", f"{FAILED}.{name}.") if name else ()


def name_of(file: str) -> str:
    """The name of the fact that a file of this name holds; empty for other files."""
    found = _FACT.fullmatch(file)
    return found[2] if found else ""


def pods_of(files: Iterable[str]) -> set[int]:
    """The pods of which there are facts of any name."""
    return {int(found[3]) for found in map(_FACT.fullmatch, files) if found}


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


def write_fact(fact: Fact, place: FactPlace) -> str:
    """The content of its file."""
    return seal({**fact._replace(message=fact.message[:MOST_MESSAGE])._asdict(), **place._asdict()})


def read_fact(file: str, text: str, place: FactPlace) -> Fact:
    """The fact in a file found in `place`. Raises ValueError with why it is none."""
    data = unseal(text)
    fact, of = from_json(Fact, data), from_json(FactPlace, data)
    if of != place or fact.file != file:
        raise ValueError(f"it belongs to {of.directory}/{fact.file}")
    return fact
