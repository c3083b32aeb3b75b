"""What is said of work that takes long."""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.decide.subset import ranges
from agent.decide.words import count_text, plural, size_text

_PROGRESS = re.compile(rb"^a4-agent: [\w-]+, \d+ s: (.*)\n", re.MULTILINE)


def download_words(seconds: float, begin: int, now: int, total: int = 0) -> str:
    """12.3 of 61.1 GiB (20 %), 310 MiB/s, 2 min 37 s left

    `seconds`: since it began; `begin`: bytes that were there then; `total`: what it is to have, 0: nobody knows.
    """
    rate = max(0, now - begin) / max(seconds, 0.001)
    parts = [size_text(now)]
    if total:
        parts[0] += f" of {size_text(total)} ({min(100, 100 * now // total)} %)"
    parts.append(f"{size_text(int(rate))}/s")
    if total and rate >= 1:
        parts.append(f"{duration_words(max(0, total - now) / rate)} left")
    return ", ".join(parts)


def progress_text(run: str, seconds: float, doing: str) -> str:
    """The line that a run prints among its output when its programs print nothing."""
    return f"a4-agent: {run}, {seconds:.0f} s: {doing}"


def without_progress(printed: bytes) -> tuple[bytes, str]:
    """What a run has printed without such lines, and what the last of them says is being done."""
    told = _PROGRESS.findall(printed)
    return (_PROGRESS.sub(b"", printed), told[-1].decode(errors="replace")) if told else (printed, "")


class Doing:
    """What a run says in such lines, where they are not `shown` among what it prints."""

    def __init__(self, *, shown: bool) -> None:
        self.words = ""
        self._shown = shown
        self._pod = -1

    def printed(self, pod: int, data: bytes, *, to_stderr: bool) -> bytes:
        """Returns what is left to show. A pod that prints something else is no longer at what it said."""
        if self._shown:
            return data
        rest, words = without_progress(data) if to_stderr else (data, "")
        if words or (rest and pod == self._pod):
            self.words, self._pod = words, pod
        return rest


def run_words(run: str, pods: int, seconds: float, doing: str = "") -> str:
    """ddp-1f0c9d52 on 4 pods, 2 min 37 s: all_reduce, 1 GiB (31 of 120)"""
    words = f"{run} on {count_text(pods, 'pod')}, {duration_words(seconds)}"
    return f"{words}: {doing}" if doing else words


def forming_words(pods: int, missing: Mapping[int, str] | None, seconds: float) -> str:
    """3 of 4 pods are there, 12 s; waiting for pod 2: DNS does not know its name yet."""
    if not missing:
        return f"forming the cluster of {pods} pods, {duration_words(seconds)}"
    whys = set(missing.values())
    why = f": {whys.pop()}" if len(whys) == 1 else ""
    there = f"{pods - len(missing)} of {pods} pods are there, {duration_words(seconds)}"
    return f"{there}; waiting for {plural('pod', missing)} {ranges(missing)}{why}"


def duration_words(seconds: float) -> str:
    """45 s, 2 min 37 s, 3 h 12 min"""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def too_little_room(place: str, total: int, there: int, free: int) -> str:
    """What is said where a download does not fit; empty where it does. there: bytes that are there already."""
    missing = total - there - free
    if missing <= 0:
        return ""
    return (
        f"no space on {place}: {size_text(total - there)} are still to be written and {size_text(free)} are free: "
        f"{size_text(missing)} are missing"
    )
