"""What is said of work that takes long."""

from __future__ import annotations

import pytest

from agent.decide import progress

GIB = 1 << 30


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((10, 0, 5 * GIB, 20 * GIB), "5 GiB of 20 GiB (25 %), 512 MiB/s, 30 s left"),
        ((10, 4 * GIB, 5 * GIB, 20 * GIB), "5 GiB of 20 GiB (25 %), 102.4 MiB/s, 2 min 30 s left"),
        ((10, 0, 5 * GIB, 0), "5 GiB, 512 MiB/s"),
        ((10, 5, 5, 10), "5 B of 10 B (50 %), 0 B/s"),
        ((0, 0, 0, 10), "0 B of 10 B (0 %), 0 B/s"),
        ((10, 0, 30, 20), "30 B of 20 B (100 %), 3 B/s, 0 s left"),
        ((10, 30, 20, 40), "20 B of 40 B (50 %), 0 B/s"),
    ],
)
def test_downloads(figures: tuple[float, int, int, int], words: str) -> None:
    assert progress.download_words(*figures) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (157, "2 min 37 s"), (11520, "3 h 12 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert progress.duration_words(seconds) == words


def test_a_run_that_goes_on() -> None:
    assert progress.run_words("ddp-1f0c9d52", 4, 157.2) == "ddp-1f0c9d52 on 4 pods, 2 min 37 s"
    assert progress.run_words("ddp-1f0c9d52", 1, 5, "sums (2 of 3)") == "ddp-1f0c9d52 on 1 pod, 5 s: sums (2 of 3)"


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (None, "forming the cluster of 4 pods, 12 s"),
        ({}, "forming the cluster of 4 pods, 12 s"),
        ({2: "no DNS name"}, "3 of 4 pods are there, 12 s; waiting for pod 2: no DNS name"),
        ({1: "late", 2: "late", 3: "late"}, "1 of 4 pods are there, 12 s; waiting for pods 1-3: late"),
        ({1: "late", 3: "refused"}, "2 of 4 pods are there, 12 s; waiting for pods 1,3"),
    ],
)
def test_a_cluster_that_forms(missing: dict[int, str] | None, words: str) -> None:
    assert progress.forming_words(4, missing, 12.3) == words


def test_lines_about_progress_among_what_is_printed() -> None:
    first, last = (f"{progress.progress_text('ddp-1f0c9d52', 10.4 * n, f'step: {n} s: x')}\n".encode() for n in (1, 2))
    assert progress.without_progress(b"a\n" + first + b"b\n" + last + b"c") == (b"a\nb\nc", "step: 2 s: x")
    for other in (b"", b"a4-agent: ddp-1f0c9d52 runs on 4 pods\n", b"> " + first, first.rstrip()):
        assert progress.without_progress(other) == (other, "")


def test_what_a_run_is_doing_where_its_lines_are_not_shown() -> None:
    said = f"{progress.progress_text('ddp-1f0c9d52', 10.4, 'step (3 of 7)')}\n".encode()
    doing = progress.Doing(shown=False)
    assert doing.printed(0, said, to_stderr=True) == b""
    assert (doing.printed(1, b"of another pod\n", to_stderr=True), doing.words) == (
        b"of another pod\n",
        "step (3 of 7)",
    )
    assert (doing.printed(0, b"loss 0.1\n", to_stderr=False), doing.words) == (b"loss 0.1\n", "")
    assert (doing.printed(0, said, to_stderr=False), doing.words) == (said, "")  # a program's own
    assert (doing.printed(0, b"a\n" + said, to_stderr=True), doing.words) == (b"a\n", "step (3 of 7)")
    assert (doing.printed(0, b"b\n", to_stderr=True), doing.words) == (b"b\n", "")
    doing = progress.Doing(shown=True)
    assert (doing.printed(0, said, to_stderr=True), doing.words) == (said, "")


def test_room() -> None:
    assert progress.too_little_room("/mnt", 10 * GIB, 4 * GIB, 6 * GIB) == ""
    said = progress.too_little_room("/mnt", 10 * GIB, 4 * GIB, 5 * GIB)
    assert said == "no space on /mnt: 6 GiB are still to be written and 5 GiB are free: 1 GiB are missing"
