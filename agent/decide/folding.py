"""Equal output of many pods shown once, with the pods that it is of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.decide.ending import signal_name
from agent.decide.subset import grouped, pods_text, ranges


class FoldedGroup(NamedTuple):
    """Pods whose output is the same."""

    pods: tuple[int, ...]
    """Completion indices, ascending."""
    text: bytes


def fold(outputs: Mapping[int, bytes]) -> list[FoldedGroup]:
    """Output by pod as groups, that of the smallest index first. Pods that printed nothing are left out."""
    return [FoldedGroup(tuple(pods), text) for text, pods in grouped(outputs).items() if text]


def shown(groups: Sequence[FoldedGroup]) -> Iterator[bytes]:
    """The text for people: `pods: line` where no group has more than one line, else each under a header."""
    if all(b"\n" not in _ended(group.text)[:-1] for group in groups):
        return (b"%s: %s" % (ranges(group.pods).encode(), _ended(group.text)) for group in groups)
    return (b"== %s ==\n%s" % (pods_text(group.pods).encode(), _ended(group.text)) for group in groups)


def _ended(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"


def failures(codes: Mapping[int, int], lost: Mapping[int, str]) -> list[str]:
    """A line for each exit code that is not 0, and for each reason of a loss, with the pods that it is of."""
    failed = grouped({pod: code for pod, code in codes.items() if code and pod not in lost})
    signals = {code: f" ({signal_name(code - 128)})" for code in failed if 128 < code < 128 + 65}
    ended = [f"{pods_text(pods)}: exit code {code}{signals.get(code, '')}" for code, pods in failed.items()]
    return ended + [f"{pods_text(pods)}: lost: {why}" for why, pods in grouped(lost).items()]
