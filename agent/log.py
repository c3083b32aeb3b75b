"""The agent's own log: lines, each with `[index/count]` or as a JSON object, secrets masked.

The logging package is not used: importing it costs every pod 10 ms of CPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from agent.cutting import visible
from agent.decide.masking import Masker

if TYPE_CHECKING:
    from agent.decide.ending import JobEnd

LEVELS = ("debug", "info", "warning", "error")


def utc(when: float | None = None) -> str:
    """A time in seconds since 1970, or now, as it is written wherever it may be read on another day or elsewhere."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


class Log:
    """Writes lines to `stream`. One per agent; made first, given its pod's place when that is known."""

    def __init__(
        self,
        level: str = "info",
        form: str = "text",
        stream: TextIO | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self.level = LEVELS.index(level)
        self.form = form
        self.stream = stream or sys.stderr
        self.write: Callable[[bytes], None] | None = None
        """Takes the lines instead of `stream`."""
        self.tee: Callable[[str], None] | None = None
        """Gets every line too, as it is written: masked, with its newline."""
        self.masker = Masker(secrets)
        self.labels: dict[str, str] = {}
        """`pod` (index/count), `job`, and `run` while one goes on. Empty ones are not shown."""
        self.place: dict[str, str] = {}
        """`pod_name`, `node` and `epoch`: fields, beside the end's, of a JSON line that tells an error or an end."""

    def debug(self, text: str) -> None:
        self._write("debug", text)

    def info(self, text: str, end: JobEnd | None = None, run: str = "") -> None:
        """`end` of that `run`: the text tells it."""
        self._write("info", text, end, run)

    def warning(self, text: str) -> None:
        self._write("warning", text)

    def error(self, text: str, end: JobEnd | None = None, run: str = "") -> None:
        """`end`: the pod, its job or that `run` ends so; None: nothing ends because of it."""
        self._write("error", text, end, run)

    def masked(self, text: str) -> str:
        """`text` with every known secret replaced by `***`."""
        return self.masker.text(text)

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Mask these too from now on, as when a run brings secrets of its own."""
        self.masker = self.masker.with_more(secrets)

    def _write(self, level: str, text: str, end: JobEnd | None = None, run: str = "") -> None:
        if LEVELS.index(level) < self.level:
            return
        # What came from undecodable bytes is shown as stderr would show it, to everyone.
        text = self.masked(text).encode(errors="backslashreplace").decode()
        lines = [f"{line}\n" for line in self._lines(level, text, end, run)]
        with suppress(OSError):  # nobody reads: a lost log line must not end a job
            if self.write is not None:
                self.write("".join(lines).encode())
            else:
                self.stream.write("".join(lines))
                self.stream.flush()
        if self.tee is not None:
            for line in lines:
                self.tee(line)

    def _lines(self, level: str, text: str, end: JobEnd | None, run: str) -> list[str]:
        labels = {name: label for name, label in self.labels.items() if label}
        if self.form == "json":
            entry: dict[str, Any] = {"severity": level.upper(), "message": text, "time": utc(), **labels}
            if level == "error" or end is not None:
                code, origin = (end.code, end.origin) if end is not None else (None, "agent")
                run = run or self.labels.get("run", "")
                entry |= {"code": code, "origin": origin, "run": run, **self.place}
            return [json.dumps(self.masker.value(entry))]
        stamp = utc()
        where = f" [{labels['pod']}]" if "pod" in labels else ""
        mark = "" if level in ("info", "debug") else f"{level}: "
        return [f"{stamp} a4-agent{where} {mark}{line}" for line in visible(text).splitlines()]
