"""Questions that an agent asks another over the control channel, and who waits for which answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.decide import messages
from agent.decide.messages import Said
from agent.errors import AgentError, ClusterBusy

Answer = Callable[[dict[str, Any]], None]
"""Takes the answer: `ok` with what was asked for, or `error` as `refusal` makes it."""


class Questions:
    """Towards one peer. `say` delivers each message once; a peer that is lost never answers: see `give_up`."""

    def __init__(self, say: Callable[[Said], None]) -> None:
        self._say = say
        self._open: dict[int, Answer] = {}
        self._last = 0

    def ask(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """Ask the peer; `answer` is called once. There is no time limit: the client that asked us has one."""
        self._last += 1
        asked = {name: value for name, value in fields.items() if name not in ("id", "op")}
        self._say(messages.Ask(self._last, op, asked))
        self._open[self._last] = answer

    def answered(self, told: messages.Answer) -> None:
        """An `answer` has come; one that nobody waits for any more is no error."""
        answer = self._open.pop(told.id, None)
        if answer is not None:
            answer(dict(told.answer))

    def give_up(self, error: dict[str, Any]) -> None:
        """Everybody who waits gets this answer instead."""
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            answer(error)


def refusal(error: AgentError) -> dict[str, Any]:
    """An error as an answer."""
    busy = {"busy": True} if isinstance(error, ClusterBusy) else {}
    return {"error": {"code": int(error.code), "what": error.what, "hint": error.hint, **busy}}
