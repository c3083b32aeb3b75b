"""A last line on a person's terminal that tells how things go. Elsewhere there is nothing of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from agent.cutting import visible
from agent.output import STDERR, STDOUT, print_inside
from agent.standard_streams import write_fully

CLEAR_REST = "\x1b[K"


def on_terminal() -> bool:
    """Whether a line can be drawn and taken away again: nothing else may write there, as `| tee` would."""
    return os.isatty(STDOUT) and os.isatty(STDERR) and os.environ.get("TERM", "dumb") != "dumb"


class ProgressLine:
    """Draws `text()` every second, from a thread of its own, as long as the `with` block lasts. An empty text is none.

    What is printed meanwhile goes through `printing`, which takes the line away before it. Below a line without its
    end nothing is drawn.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._shown = ""
        self._line_ended = True
        self._over = threading.Event()
        self._lock = threading.RLock()  # what is printed by the handler of a signal may come amid what is printed

    def __enter__(self) -> ProgressLine:
        if on_terminal():
            print_inside(self.printing)
            threading.Thread(target=self._go_on, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._lock:
            self._take_away()
            print_inside()

    @contextmanager
    def printing(self, data: bytes) -> Iterator[None]:
        """What is printed inside ends as `data` does."""
        with self._lock:
            shown = self._take_away()
            yield
            if data:
                self._line_ended = data.endswith(b"\n")
            self._draw(shown)

    def _go_on(self) -> None:
        while not self._over.wait(1.0):
            text = visible(self._text())
            with self._lock:
                self._draw(text)

    def _take_away(self) -> str:
        """Returns what stood there."""
        shown, self._shown = self._shown, ""
        if shown:
            with suppress(OSError):  # the terminal is gone, as what is printed next will tell
                write_fully(STDERR, f"\r{CLEAR_REST}".encode())
        return shown

    def _draw(self, text: str) -> None:
        """Nothing in the background, where a terminal may stop who writes."""
        with suppress(OSError):
            if text and self._line_ended and not self._over.is_set() and os.tcgetpgrp(STDERR) == os.getpgrp():
                self._shown = text
                columns = os.get_terminal_size(STDERR).columns or 80
                write_fully(STDERR, f"\r{text[: columns - 1]}{CLEAR_REST}".encode(errors="backslashreplace"))
