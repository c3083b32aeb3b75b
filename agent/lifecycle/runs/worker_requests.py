"""What commands in a worker's pod ask, and what the coordinator asks it for commands in other pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.decide.messages import Said
from agent.errors import PeerLost, PeersMissing
from agent.lifecycle.channel.questions import Answer, Questions
from agent.lifecycle.pod.pod import Pod

if TYPE_CHECKING:
    from agent.lifecycle.runs.own_parts import Parts


class WorkerRequests:
    """A worker knows what its own programs printed; for everything else it asks the coordinator.

    `parts` gives the pod's parts of runs. It is called when they are needed, for its first call imports all of runs.
    """

    def __init__(self, pod: Pod, parts: Callable[[], Parts], say: Callable[[Said], None]) -> None:
        self._pod = pod
        self._parts = parts
        self.questions = Questions(say)
        self.ends = False
        """The pod is ending: nothing new is passed on, as nobody might hear the answer."""

    def handle(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """A command in this pod asks. Raises AgentError, or KeyError, TypeError and ValueError for what makes no sense.

        Whether a run that has not begun here is going to, only the coordinator knows.
        """
        own = op == "read" and int(fields["pod"]) == self._pod.settings.index
        if own and (self._parts().has(str(fields["run"])) or self._pod.known.plan is None):
            self._parts().read(fields, answer)
        elif self._pod.known.plan is None:
            raise PeersMissing("the cluster is not formed yet", "a4-agent status shows what this pod waits for")
        elif self.ends:
            raise PeerLost("this pod is ending")
        else:
            self.questions.ask(op, fields, answer)

    def read(self, op: str, fields: dict[str, Any], answer: Answer) -> None:
        """The coordinator asks what this pod printed, and nothing else."""
        if op != "read":
            raise ValueError("no such request")
        self._parts().read(fields, answer)
