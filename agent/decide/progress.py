"""What is said of work that takes long."""

from __future__ import annotations

from typing import NamedTuple

from agent.decide.words import size_text

DOWNLOAD_SECONDS = 10.0
QUIET_SECONDS = 60.0
"""Between two lines about work of which nothing else is known than that it goes on."""


class Progress(NamedTuple):
    """How far something is that is to have `total` bytes; 0: nobody knows."""

    seconds: float
    """Since it began."""
    begin: int
    """Bytes that were there when it began."""
    now: int
    total: int = 0


def download_words(progress: Progress) -> str:
    """12.3 of 61.1 GiB (20 %), 310 MiB/s, 2 min 37 s left"""
    rate = max(0, progress.now - progress.begin) / max(progress.seconds, 0.001)
    parts = [size_text(progress.now)]
    if progress.total:
        parts[0] += f" of {size_text(progress.total)} ({min(100, 100 * progress.now // progress.total)} %)"
    parts.append(f"{size_text(int(rate))}/s")
    if progress.total and rate >= 1:
        parts.append(f"{duration_words(max(0, progress.total - progress.now) / rate)} left")
    return ", ".join(parts)


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
