"""A link: messages between the coordinator and one worker, each once and in order.

Channels under a link may break and be opened anew. Every message but `hello` and `beat` carries a
`seq`; every message carries the highest `seq` that was received (`seen`), so that the other side
forgets what has arrived and sends again what has not.
"""

from __future__ import annotations

import math
from collections import deque

from agent.decide.messages import Message, line_of
from agent.lifecycle.waits import BEAT_SECONDS
from agent.log import Log
from agent.machine.api import Channel

SILENT_BEATS = 3
"""So many may be missed before a channel counts as broken, and twice as many fit into a lease."""


def beat_seconds(lease: float) -> float:
    """How often both sides say that they live."""
    return min(BEAT_SECONDS, lease / SILENT_BEATS / 2)


class OwnBeats:
    """How late this pod's own beats are.

    An agent that stood still, alone or with its whole machine, has heard nobody meanwhile: what the others said waits
    to be read, and the loop may run timers first. Those seconds do not count as silence of others.
    """

    def __init__(self, seconds: float, log: Log) -> None:
        self._seconds = seconds
        self._log = log
        self._due = math.inf

    def late(self, now: float) -> float:
        """The seconds by which the next beat is overdue."""
        return max(0.0, now - self._due)

    def beat(self, now: float) -> float:
        """Note a beat; the seconds by which it was late."""
        late = self.late(now)
        self._due = now + self._seconds
        if late > SILENT_BEATS * self._seconds:
            self._log.warning(
                f"this agent did not run for {late:.0f} s: it was stopped, or its node froze or had no CPU"
            )
        return late


class Link:
    """One side of the conversation with one peer."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        """None while there is no connection. What is said meanwhile waits for the next one."""
        self.seen = 0
        """The highest `seq` that was received; there are no gaps below it."""
        self.heard = 0.0
        """When the peer was last heard, by this pod's own clock."""
        self._excused = 0.0
        """How many seconds since do not count as silence."""
        self._only_greeted = False
        """Nothing has come since the last `hello`."""
        self._next = 1
        """The `seq` of the next message."""
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        """Each with its `seq`."""

    def attach(self, channel: Channel) -> None:
        """Use a new channel from here on; an older one is closed.

        That a connection came about says nothing of the agent behind it: `heard` stays.
        """
        self.detach()
        self.channel = channel

    def detach(self) -> None:
        """Close the channel, if there is one. What has not arrived is kept for the next."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def say(self, message: Message) -> None:
        """Send a message that must arrive, now or after the next reconnection. Raises AgentError for one that is too
        long for the channel; the others go on."""
        # Encoded first, because a line that is refused must not use up a number: the peer takes nothing after a gap.
        self.say_encoded(line_of(message))

    def say_encoded(self, line: bytes) -> None:
        """The same for what was encoded by `line_of`: once, for many."""
        seq = self._next
        self._next += 1
        self._unacknowledged.append((seq, line))
        self._transmit(line, seq)

    def mention(self, message: Message) -> None:
        """Send what is worth nothing later, such as `hello` or `beat`: it is never repeated."""
        self._transmit(line_of(message))

    def resend(self) -> None:
        """After both sides said hello on a new channel: repeat what has not arrived."""
        for seq, line in self._unacknowledged:
            self._transmit(line, seq)

    def take(self, message: Message, now: float) -> bool:
        """Note a received message; False when it must not be acted on.

        That is a repetition, or one that overtook what was lost with an earlier channel: both sides
        repeat after their hellos, and then it comes in its turn. A peer that gets nothing but its `hello` through,
        connection after connection, counts as heard only the first time.
        """
        greets = message["type"] == "hello"
        if not (greets and self._only_greeted):
            self.heard, self._excused = now, 0.0
        self._only_greeted = greets
        acknowledged = message.get("seen")
        if isinstance(acknowledged, int):
            while self._unacknowledged and self._unacknowledged[0][0] <= acknowledged:
                self._unacknowledged.popleft()
        seq = message.get("seq")
        if not isinstance(seq, int):
            return True
        if seq != self.seen + 1:
            return False
        self.seen = seq
        return True

    def silent(self, now: float) -> float:
        """For how many seconds the peer has been silent while this pod's own agent ran."""
        return now - self.heard - self._excused

    def excuse(self, seconds: float, now: float) -> None:
        """This pod's own agent stood still for so long, up to now: that does not count as silence of the peer. Nor does
        it as credit, when the peer was heard in that time."""
        self._excused = min(self._excused + seconds, now - self.heard)

    def _transmit(self, line: bytes, seq: int = 0) -> None:
        """Send a message that is encoded already, with its number and the `seen` of this moment."""
        if self.channel is not None:
            number = b',"seq":%d' % seq if seq else b""
            # Spliced in, because a message to a thousand peers is encoded once and each link has its own numbers.
            self.channel.send(line[:-2] + number + b',"seen":%d}\n' % self.seen)
