"""One pod's part of a bundle: files and readings as a tar.gz on stdout, without the secrets that the pod knows.

It changes nothing, computes on no GPU, asks no process, and needs no agent: whatever is broken here is in it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import stat
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from agent.clinic.doctor.ticket import pod_ticket
from agent.clinic.probes.pod_readings import read_counters, read_host
from agent.commands.pod import agent_start, next_peers, process_environment, read_state
from agent.decide.bundle import MISSING, OF_POD, OF_RESULTS, OF_RUN, SPOOL, TICKET, agent_problem, shares
from agent.decide.masking import Masker
from agent.decide.run_names import run_of
from agent.decide.secret_variables import listed, secret_values
from agent.environment import find_plan, look
from agent.errors import AgentError
from agent.log import utc
from agent.machine.files import dir_size, read_part, read_value
from agent.machine.spool import read_spool, segment_path, segments
from agent.machine.workers import in_time
from agent.paths import RunDir

PART_SECONDS = 40
"""For all of it. The kernel ends the process then, whatever it waits for."""
LISTING_SECONDS = 5.0
DEVICE_SECONDS = 15.0
MOST_READ = 1 << 20
MOST_PARTIAL = 1 << 16
"""Where the end of a file begins inside a line, this line goes: a secret that is cut there cannot be seen."""
MOST_SEGMENTS = 4096


def send(directory: RunDir | None, run: str, results: str, most: int) -> None:
    """Write it to stdout. `directory`: None for a pod that has no agent and never had one; `run`: an id, empty for
    none; `results`: a directory of results, empty for none; `most`: bytes of all files, before they are compressed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PART_SECONDS)
    os.nice(10)  # ranks go first
    masker = Masker(_secrets(directory))
    problems = [agent] if directory and (agent := _agent_problem(directory)) else []
    stdout = sys.stdout.buffer
    with (
        gzip.GzipFile(fileobj=stdout, mode="wb", compresslevel=1) as packed,
        tarfile.open(None, "w", packed) as archive,
    ):
        for name, text in _readings(directory, problems).items() if directory else ():
            most -= _write(archive, name, [text.encode(errors="backslashreplace")], masker)
        found = _found(directory, run, results, problems)
        for path, share in shares({path: size for path, (_, size) in found.items() if size}, most).items():
            _write_end(archive, path, *found[path], share, masker, problems)
            packed.flush()  # what comes next may hang
        lines = "".join(f"{' '.join(each.split())}\n" for each in problems)
        _write(archive, MISSING, [lines.encode(errors="backslashreplace")], masker)


def add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
    archive.addfile(member, io.BytesIO(data))


def _secrets(directory: RunDir | None) -> set[str]:
    """A session of ssh has not the environment of the pod, and the agent may be gone."""
    known: set[str] = set()
    for environ in (agent_start(directory) if directory else {}, process_environment(1), dict(os.environ)):
        known |= secret_values(environ, listed(environ)) | {look(environ)[1].decode(errors="replace").strip()}
    return known


def _agent_problem(directory: RunDir) -> str:
    silent = None
    with suppress(OSError):
        silent = time.time() - os.stat(directory.alive).st_mtime
    words = read_value(directory.lock).split()
    return agent_problem(words[1:2] != [] and os.path.exists(f"/proc/{words[1]}"), silent)


def _readings(directory: RunDir, problems: list[str]) -> dict[str, str]:
    """What `doctor` reads, without what computes; name → text."""
    plan = state = None
    try:
        plan, state = find_plan(directory), read_state(directory)
    except AgentError as error:  # of a damaged file, which is in the bundle as it is
        problems.append(str(error))
    paths = list(dict.fromkeys(["/", "/tmp", directory.path]))
    host = read_host(paths, next_peers(plan, state.index) if plan and state else [])
    counted = read_counters(agent_start(directory) or dict(os.environ), DEVICE_SECONDS)
    log = host.pop("kernel_log", None)
    why = {**counted.get("problems", {}), **host.get("problems", {})}
    problems += [f"{part}: {each}" for part, each in why.items() if part != "xids"]  # "kernel log" says the same
    texts = {
        "nvidia-smi.xml": counted.get("nvidia_smi", ""),
        "nvlink.txt": counted.get("nvlink", ""),
        "kernel.log": "\n".join([*log["records"], ""]) if log else "",
        "readings.json": json.dumps({**host, "counters": counted.get("nics", {})}, indent=1),
        TICKET: pod_ticket(counted, log, time.time(), utc),
    }
    return {name: text for name, text in texts.items() if text}


def _found(directory: RunDir | None, run: str, results: str, problems: list[str]) -> dict[str, tuple[str, int]]:
    """Path → name in the bundle, and size, of all files that belong there. A directory that hangs is said."""
    found: dict[str, tuple[str, int]] = {}
    if directory:
        found.update({f"{directory.path}/{name}": (name, _size(f"{directory.path}/{name}")) for name in OF_POD})
        for life in filter(lambda life: run_of(life) == run, _names(directory.runs)):
            above = directory.run(life)
            for name in (SPOOL, *_in(above, ("", "ranks", "why"), OF_RUN.fullmatch)):
                found[f"{above}/{name}"] = f"runs/{life}/{name}", _size(f"{above}/{name}")
    of_results: list[dict[str, tuple[str, int]]] = []

    def look_at_results() -> None:
        names = _in(results, ("", "pod-logs", "evidence"), OF_RESULTS.fullmatch)
        of_results.append({f"{results}/{name}": (f"results/{name}", _size(f"{results}/{name}")) for name in names})

    if results:
        in_time([look_at_results], 1, time.monotonic() + LISTING_SECONDS)
        if not of_results:
            problems.append(f"{results}: it did not answer within {LISTING_SECONDS:g} s")
    return {**found, **dict(chain.from_iterable(each.items() for each in of_results))}


def _in(above: str, folders: Sequence[str], wanted: Callable[[str], object]) -> list[str]:
    names = [os.path.join(folder, name) for folder in folders for name in _names(os.path.join(above, folder))]
    return [name for name in names if wanted(name)]


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _write_end(
    archive: tarfile.TarFile, path: str, name: str, size: int, share: int, masker: Masker, problems: list[str]
) -> None:
    """Write the last `share` of its bytes."""
    is_spool = name.endswith(f"/{SPOOL}")
    name = name.removesuffix(SPOOL) + "output.log" if is_spool else name
    pieces = _spooled(path, share) if is_spool else _end(path, size - share, share)
    written = _write(archive, name, pieces, masker, cut=share < size)
    if share < size:
        problems.append(f"{name}: only {written} of its {size} bytes")
    elif not written:
        problems.append(f"{name}: it cannot be read")


def _size(path: str) -> int:
    """0 for what is not there, or neither a file nor a spool."""
    with suppress(OSError):
        seen = os.lstat(path)
        return seen.st_size if stat.S_ISREG(seen.st_mode) else dir_size(path) if stat.S_ISDIR(seen.st_mode) else 0
    return 0


def _end(path: str, offset: int, most: int) -> Iterator[bytes]:
    while most > 0 and (data := read_part(path, offset, min(most, MOST_READ))):
        yield data
        offset, most = offset + len(data), most - len(data)


def _spooled(directory: str, most: int) -> Iterator[bytes]:
    """The last `most` bytes of what a pod printed, or little less."""
    starts = segments(directory)[-MOST_SEGMENTS:]
    sizes = [_size(segment_path(directory, start)) for start in starts]
    at = next((index for index in range(len(starts)) if sum(sizes[index + 1 :]) < most), 0)
    offset, over = starts[at] if starts else 0, sum(sizes[at:]) - most
    while (piece := read_spool(directory, offset, MOST_READ)) and piece.frames and most > 0:
        data = b"".join(data for _, data in piece.frames)
        over, data = over - len(data), data[max(0, over) :]
        yield data[:most]
        offset, most = piece.next, most - len(data)


def _write(archive: tarfile.TarFile, name: str, pieces: Iterable[bytes], masker: Masker, cut: bool = False) -> int:
    """Write a file without secrets. `cut`: its first line, too, may be the rest of one."""
    stream = masker.stream()
    masked = chain(map(stream.feed, pieces), (stream.finish() for _ in range(1)))
    data = b"".join(_from_line(masked) if cut else masked)
    if data:
        add_file(archive, name, data)
    return len(data)


def _from_line(pieces: Iterable[bytes]) -> Iterator[bytes]:
    dropped = 0
    for data in pieces:
        end = 0
        if dropped < MOST_PARTIAL:
            end = data.find(b"\n") + 1 or min(len(data), MOST_PARTIAL - dropped)
            dropped = MOST_PARTIAL if data[:end].endswith(b"\n") else dropped + end
        yield data[end:]
