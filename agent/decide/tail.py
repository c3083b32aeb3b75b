"""What processes printed: the end of it, in whole lines, of one or of every rank; equal output of many pods; and which
rank a line is of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from agent.cutting import cut_at_word
from agent.decide.subset import grouped, pods_text, ranges

_NOT_OF_PROGRAMS = re.compile(
    # mpirun: how often it left one of its notices out, a race that harms nothing (see agent/output.py)
    r"^\[\S+:\d+\] (?:\d+ more process(?:es)? ha(?:s|ve) sent help message|Set MCA parameter).*\n"
    r"|^\[\S+:\d+\] plm:rsh: Warning: setpgid.*\n"
    # torchrun: a notice of each start, its log, the traceback of its own process, its list of failures
    r"|^\*{41}\n|^Setting OMP_NUM_THREADS environment variable .*\n"
    r"|^[IWEF]\d{4} [\d:.]+ \d+ \S*torch/distributed/\S+\] .*\n"
    r"|^Traceback \(most recent call last\):\n(?:  .*\n)+torch\.distributed\.elastic\..*\n"
    r"|^={20,}\n.* FAILED\n-{20,}\n(?:.*\n)*?={20,}\n"
    # torch: frames of C++ below an exception that its watchdog raises
    r"|^(?:\[rank\d+\]: ?)?frame #\d+: .*\n",
    re.MULTILINE,
)

TRACE_LINES, LINES_AFTER_TRACE = 12, 8
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?:\[rank\d+\]: )?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")


class Tail:
    """Keeps the last `limit` bytes of what several streams printed, each line whole: streams do not mix inside one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = bytearray()
        self._begun: dict[int, bytes] = {}
        """Stream → a line of it that has no end yet."""

    def add(self, stream: int, data: bytes) -> None:
        """What a stream printed next."""
        whole, newline, rest = (self._begun.pop(stream, b"") + data).rpartition(b"\n")
        self._lines += whole + newline
        if rest:
            self._begun[stream] = _end(rest, self._limit)
        if len(self._lines) > 2 * self._limit:  # seldom: what stays is copied
            self._lines = bytearray(_end(self._lines, self._limit))

    def text(self) -> str:
        """The end, lines without their end last."""
        end = bytes(self._lines) + b"\n".join(self._begun.values())
        return _end(end, self._limit).decode(errors="replace")


def _end(data: bytes | bytearray, most: int) -> bytes:
    """At most the last `most` bytes, from a line's or at least a word's beginning: the rest of a secret that is cut
    there would not be masked."""
    if len(data) <= most:
        return bytes(data)
    end = bytes(data[-most - 1 :])
    return next((rest for mark in (b"\n", b"\r", b" ") if (rest := end.partition(mark)[2])), end[1:])


def last_lines(text: str, most: int = 20, width: int = 160) -> str:
    """The last lines that are not empty, under a heading; empty when there are none. Where others have printed more
    since the first traceback, its end comes before them: it may be the cause, but it may also have been handled. What
    launchers say themselves, and frames of C++, are left out, unless they are all there is."""
    own = _NOT_OF_PROGRAMS.sub("", f"{text}\n")
    found = [line.rstrip() for line in (own if own.strip() else text).splitlines() if line.strip()]
    end = len(found)
    begin = next((at for at, line in enumerate(found) if line.endswith(_TRACEBACK)), end)
    raised = next((at for at in range(begin, end) if _RAISED.match(found[at])), end)
    shown = [("last lines of its output:", found[-most:])]
    if raised < end - most:
        trace = found[begin : raised + 1][-TRACE_LINES:]
        shown = [("first traceback in its output:", trace), ("last lines of its output:", found[-LINES_AFTER_TRACE:])]
    sections = ("\n  ".join([heading, *(cut_at_word(line, width) for line in lines)]) for heading, lines in shown)
    return "\n".join(sections) if found else ""


MOST_TEXT = 256 * 1024
MOST_LINE = 500


def last_words(outputs: Mapping[str, str], lines: int = 20) -> str:
    """The last lines of each file (relative name → text); empty without files, at most about MOST_TEXT characters.

    mpirun and torchrun, and each of their versions, name these files in their own ways: the name is the label.
    """
    if not outputs:
        return ""
    names = sorted(outputs, key=_natural)
    share = MOST_TEXT // len(names)
    blocks = [_block(name, outputs[name], lines, share) for name in names if outputs[name].strip()]
    silent = [name for name in names if not outputs[name].strip()]
    if silent:
        blocks.append(f"nothing in {', '.join(silent)}"[:MOST_LINE] + "\n")
    return "last output of every rank\n\n" + "\n".join(blocks)


def _natural(name: str) -> list[tuple[int, str]]:
    """rank.2 before rank.10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]


def _block(name: str, text: str, lines: int, most: int) -> str:
    kept: list[str] = []
    left = most - len(name)
    for line in reversed(text.rstrip().split("\n")[-lines:]):
        last = line.rstrip("\r").rpartition("\r")[2]  # as a terminal shows a progress bar: only its last state
        indented = f"  {last if len(last) <= MOST_LINE else f'{last[:MOST_LINE]} …'}\n"
        left -= len(indented)
        if kept and left < 0:
            break
        kept.insert(0, indented)
    return f"{name}:\n{''.join(kept)}"


def folded(outputs: Mapping[int, bytes]) -> Iterator[bytes]:
    """Output by pod as text for people, equal output once, that of the smallest index first: `pods: line` where no pod
    has more than one line, else each text under a header. Pods that printed nothing are left out."""
    groups = [(pods, text.removesuffix(b"\n") + b"\n") for text, pods in grouped(outputs).items() if text]
    if all(b"\n" not in text[:-1] for _, text in groups):
        return (b"%s: %s" % (ranges(pods).encode(), text) for pods, text in groups)
    return (b"== %s ==\n%s" % (pods_text(pods).encode(), text) for pods, text in groups)


MARK = re.compile(rb"\[(?:\S*?\b1,|rank ?)(\d+)\](?:<std(?:out|err)>)?:|\[default(\d+)\]:")
"""What `mpirun --tag-output` and torch's tracebacks put before a line, or `torchrun --tee`, which counts per pod."""


def rank_of(line: bytes, first: int) -> int | None:
    """The rank in the mark at the beginning of a line; None without a mark. `first`: that of the pod's first rank."""
    found = MARK.match(line)
    if found is None:
        return None
    return int(found[1]) if found[1] else first + int(found[2])
