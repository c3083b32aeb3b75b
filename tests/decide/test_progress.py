"""What is said of work that takes long."""

from __future__ import annotations

import pytest

from agent.decide.progress import Progress, download_words, duration_words, too_little_room

GIB = 1 << 30


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(10, 0, 5 * GIB, 20 * GIB), "5 GiB of 20 GiB (25 %), 512 MiB/s, 30 s left"),
        (Progress(10, 4 * GIB, 5 * GIB, 20 * GIB), "5 GiB of 20 GiB (25 %), 102.4 MiB/s, 2 min 30 s left"),
        (Progress(10, 0, 5 * GIB), "5 GiB, 512 MiB/s"),
        (Progress(10, 5, 5, 10), "5 B of 10 B (50 %), 0 B/s"),
        (Progress(0, 0, 0, 10), "0 B of 10 B (0 %), 0 B/s"),
        (Progress(10, 0, 30, 20), "30 B of 20 B (100 %), 3 B/s, 0 s left"),
        (Progress(10, 30, 20, 40), "20 B of 40 B (50 %), 0 B/s"),
    ],
)
def test_downloads(progress: Progress, words: str) -> None:
    assert download_words(progress) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (157, "2 min 37 s"), (11520, "3 h 12 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_room() -> None:
    assert too_little_room("/mnt", 10 * GIB, 4 * GIB, 6 * GIB) == ""
    said = too_little_room("/mnt", 10 * GIB, 4 * GIB, 5 * GIB)
    assert said == "no space on /mnt: 6 GiB are still to be written and 5 GiB are free: 1 GiB are missing"
