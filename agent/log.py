"""The agent's own log: lines on stderr, each with `[index/count]`, secrets masked.

The logging package is not used: importing it costs every pod 10 ms of CPU.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
_SEVERITY = {"debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR"}
_SECRET_NAME = re.compile(r"token|secret|passw|key|cred", re.IGNORECASE)
# Names that match the pattern but hold nothing secret: paths, public keys, switches.
_NOT_SECRET = re.compile(r"PUBLIC_KEY|_FILE$|_PATH$|_DIR$", re.IGNORECASE)
_LEAST_SECRET = 8


class Log:
    """Writes lines to `stream`. One per agent; made first, given its pod's place when that is known."""

    def __init__(
        self, level: str = "info", form: str = "text", stream: TextIO | None = None, secrets: Iterable[str] = ()
    ) -> None:
        self.level = LEVELS.index(level)
        self.form = form
        self.stream = stream or sys.stderr
        self.secrets = sorted(secrets, key=len, reverse=True)
        self.labels: dict[str, str] = {}

    def debug(self, text: str) -> None:
        self._write("debug", text)

    def info(self, text: str) -> None:
        self._write("info", text)

    def warning(self, text: str) -> None:
        self._write("warning", text)

    def error(self, text: str) -> None:
        self._write("error", text)

    def masked(self, text: str) -> str:
        """`text` with every known secret replaced by `***`."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def _write(self, level: str, text: str) -> None:
        if LEVELS.index(level) < self.level:
            return
        text = self.masked(text)
        try:
            for line in self._lines(level, text):
                self.stream.write(line + "\n")
            self.stream.flush()
        except OSError:
            pass  # nobody reads: a lost log line must not end a job

    def _lines(self, level: str, text: str) -> list[str]:
        if self.form == "json":
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            return [json.dumps({"severity": _SEVERITY[level], "message": text, "time": stamp, **self.labels})]
        clock = time.strftime("%H:%M:%S")
        where = f" [{self.labels['pod']}]" if "pod" in self.labels else ""
        mark = "" if level in ("info", "debug") else f"{level}: "
        return [f"{clock} a4-agent{where} {mark}{line}" for line in text.splitlines()]


def secret_values(environ: Mapping[str, str]) -> set[str]:
    """Values that must never be shown: those of variables whose name says so."""
    return {
        value
        for name, value in environ.items()
        if _SECRET_NAME.search(name) and not _NOT_SECRET.search(name) and len(value) >= _LEAST_SECRET
    }
