"""Questions that an agent asks another over the control channel, and who waits for which answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.decide import messages
from agent.decide.messages import Said
from agent.decide.os_refusals import refused
from agent.errors import AgentError, ClusterBusy, UsageError

Answer = Callable[[dict[str, Any]], None]
"""Takes the answer: `ok` with what was asked for, or `error` as `refusal` makes it."""
Handle = Callable[[str, dict[str, Any], Answer], None]
"""Op, fields, and where the answer goes, now or later."""


class Questions:
    """Those to one peer, and its own. `say` delivers each message once; a peer that is lost never answers: see
    `give_up`."""

    def __init__(self, say: Callable[[Said], None]) -> None:
        self._say = say
        self._open: dict[int, Answer] = {}
        self._last = 0

    def ask(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """Ask the peer; `answer` is called once. There is no time limit: the client that asked us has one."""
        self._last += 1
        # Before it is noted, because one that is too long raises here, and nobody may wait for its answer.
        self._say(messages.Ask(self._last, op, fields))
        self._open[self._last] = answer

    def heard(self, said: messages.Ask | messages.Answer, handle: Handle) -> None:
        """The peer asks, which `handle` answers, or answers; an answer that nobody waits for any more is no error."""
        if isinstance(said, messages.Ask):
            handled(handle, said.op, dict(said.fields), lambda body: self._answer(said, body))
        elif answer := self._open.pop(said.id, None):
            answer(dict(said.answer))

    def _answer(self, asked: messages.Ask, body: dict[str, Any]) -> None:
        try:
            self._say(messages.Answer(asked.id, body))
        except AgentError as error:  # whoever asked for too much is told, and nobody else
            self._say(messages.Answer(asked.id, refusal(error)))

    def give_up(self, error: dict[str, Any]) -> None:
        """Everybody who waits gets this answer instead."""
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            answer(error)


def handled(handle: Handle, op: str, fields: dict[str, Any], answer: Answer) -> None:
    """Let `handle` answer; what it refuses, or what makes no sense, is an answer as well."""
    try:
        handle(op, fields, answer)
    except AgentError as error:
        answer(refusal(error))
    except OSError as error:
        answer(refusal(refused(f"the agent of this pod does not support the request {op!r}", error)))
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        answer(
            refusal(UsageError(f"the agent does not support the request {op!r}: {error!r}", "is it the same release?"))
        )


def refusal(error: AgentError) -> dict[str, Any]:
    """An error as an answer."""
    busy = {"busy": True} if isinstance(error, ClusterBusy) else {}
    return {"error": {"code": int(error.code), "what": error.what, "hint": error.hint, **busy}}
