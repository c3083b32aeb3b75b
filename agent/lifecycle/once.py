"""Something that happens once, and those who wait for it."""

from __future__ import annotations

from collections.abc import Callable


class Once:
    """Who asks before is called when it happens, who asks later is called at once: nobody has to know which it is."""

    def __init__(self) -> None:
        self.happened = False
        self._waiting: list[Callable[[], None]] = []

    def when(self, action: Callable[[], None]) -> None:
        if self.happened:
            action()
        else:
            self._waiting.append(action)

    def happen(self) -> None:
        """Later calls do nothing."""
        self.happened = True
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()
