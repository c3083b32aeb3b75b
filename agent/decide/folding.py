"""Equal output of many pods shown once, with the pods that it is of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.decide.ending import signal_name
from agent.decide.subset import grouped, pods_text, ranges


def folded(outputs: Mapping[int, bytes]) -> Iterator[bytes]:
    """Output by pod as text for people, that of the smallest index first: `pods: line` where no pod has more than one
    line, else each text under a header. Pods that printed nothing are left out."""
    groups = [(pods, _ended(text)) for text, pods in grouped(outputs).items() if text]
    if all(b"\n" not in text[:-1] for _, text in groups):
        return (b"%s: %s" % (ranges(pods).encode(), text) for pods, text in groups)
    return (b"== %s ==\n%s" % (pods_text(pods).encode(), text) for pods, text in groups)


def _ended(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"


def failures(codes: Mapping[int, int], lost: Mapping[int, str]) -> list[str]:
    """A line for each exit code that is not 0, and for each reason of a loss, with the pods that it is of."""
    failed = grouped({pod: code for pod, code in codes.items() if code and pod not in lost})
    signals = {code: f" ({signal_name(code - 128)})" for code in failed if 128 < code < 128 + 65}
    ended = [f"{pods_text(pods)}: exit code {code}{signals.get(code, '')}" for code, pods in failed.items()]
    return ended + [f"{pods_text(pods)}: lost: {why}" for why, pods in grouped(lost).items()]
