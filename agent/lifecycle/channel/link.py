"""A link: messages between the coordinator and one worker, each once and in order.

Channels under a link may break and be opened anew. Every message but `hello` and `beat` carries a
`seq`; every message carries the highest `seq` that was received (`seen`), so that the other side
forgets what has arrived and sends again what has not.
"""

from __future__ import annotations

from collections import deque

from agent.decide.messages import Message, encode
from agent.machine.api import Channel


class Link:
    """One side of the conversation with one peer."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.seen = 0
        self.heard = 0.0
        """When the peer was last heard, by this pod's own clock."""
        self._next = 1
        self._unacknowledged: deque[Message] = deque()

    def attach(self, channel: Channel) -> None:
        """Use a new channel from here on; an older one is closed.

        That a connection came about says nothing of the agent behind it: `heard` stays.
        """
        self.detach()
        self.channel = channel

    def detach(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def say(self, message: Message) -> None:
        """Send a message that must arrive, now or after the next reconnection."""
        numbered = {**message, "seq": self._next}
        self._next += 1
        self._unacknowledged.append(numbered)
        self._transmit(numbered)

    def mention(self, message: Message) -> None:
        """Send `hello` or `beat`: worth nothing later, so never repeated."""
        self._transmit(message)

    def resend(self) -> None:
        """After both sides said hello on a new channel: repeat what has not arrived."""
        for message in self._unacknowledged:
            self._transmit(message)

    def take(self, message: Message, now: float) -> bool:
        """Note a received message; False when it must not be acted on.

        That is a repetition, or one that overtook what was lost with an earlier channel: both sides
        repeat after their hellos, and then it comes in its turn.
        """
        self.heard = now
        acknowledged = message.get("seen")
        if isinstance(acknowledged, int):
            while self._unacknowledged and self._unacknowledged[0]["seq"] <= acknowledged:
                self._unacknowledged.popleft()
        seq = message.get("seq")
        if not isinstance(seq, int):
            return True
        if seq != self.seen + 1:
            return False
        self.seen = seq
        return True

    def _transmit(self, message: Message) -> None:
        if self.channel is not None:
            self.channel.send(encode({**message, "seen": self.seen}))
