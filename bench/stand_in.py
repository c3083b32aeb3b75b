"""Stand-ins for the agents of many workers, in one process: stand_in.py DIRECTORY ADDRESS...

Each speaks the control channel through the FIFOs of its own run directory, DIRECTORY/INDEX, as a worker's agent does,
and is ready at once for whatever it is asked: no process of a workload is ever started. It prints a line for
each plan and each end that it is told.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from agent import __version__, wire
from agent.decide.facts import Facts
from agent.decide.messages import (
    CHANNEL_VERSION,
    COORDINATOR_SAYS,
    Answer,
    Ask,
    Beat,
    Bye,
    Done,
    End,
    Go,
    Hello,
    Inventory,
    Planned,
    Prepare,
    Prepared,
    Said,
    TellFacts,
    TellPlan,
    TellResult,
    decode,
    heard,
    message,
)
from agent.decide.part_end import PartEnd
from agent.lifecycle.channel.link import Link, beat_seconds
from agent.machine.api import Piece
from agent.machine.fifo import open_fifos
from agent.machine.loop import Loop
from agent.machine.stream import LineStream

LEASE_SECONDS = 30.0
SLOTS = 8


class StandIn:
    """One worker."""

    def __init__(self, loop: Loop, index: int, address: str, channels: str, beat: float) -> None:
        self._loop = loop
        self._seconds = beat
        self._link = Link()
        self._coordinator = ""
        self._nonce = f"{index:032x}"
        place = (f"block-{index // 256}", f"sub-block-{index // 32}", f"host-{index}")
        self._facts = Facts(
            index, self._nonce, __version__, f"node-{index}", address, "lo", SLOTS, SLOTS, {"A4_LOCATION": place}
        )
        open_fifos(loop, channels, self._opened)
        loop.later(beat, self._beat)

    def _opened(self, channel: LineStream) -> None:
        channel.receive(lambda line: self._line(channel, line), lambda reason: self._link.detach())

    def _line(self, channel: LineStream, line: bytes) -> None:
        found = decode(line)
        if found["type"] == "hello":
            self._greet(channel, found)
        elif self._link.take(found, time.monotonic()):
            self._answer(heard(found, COORDINATOR_SAYS))

    def _greet(self, channel: LineStream, found: Mapping[str, Any]) -> None:
        if found["nonce"] != self._coordinator:
            self._coordinator = found["nonce"]
            self._link = Link()
            self._say(TellFacts(self._facts))
        self._link.attach(channel)
        self._link.take({**found, "seen": 0}, time.monotonic())
        self._link.mention(message(Hello(CHANNEL_VERSION, self._nonce, __version__)))
        self._link.resend()

    def _answer(self, said: Said | None) -> None:
        match said:
            case TellPlan():
                self._say(Planned())
                self._say(Inventory({"kernel": os.uname().release}))
                print("plan", flush=True)
            case Prepare(run=run):
                self._say(Prepared(run))
            case Go(run=run):
                self._say(Done(run, PartEnd(0)))
            case Ask(id=number):
                self._say(Answer(number, {"ok": {**wire.to_json(Piece((), 0)), "over": True}}))
            case TellResult():
                self._say(Bye())
                print("end", flush=True)
            case End():
                print("end", flush=True)

    def _say(self, said: Said) -> None:
        self._link.say(message(said))

    def _beat(self) -> None:
        self._link.mention(message(Beat()))
        self._loop.later(self._seconds, self._beat)


def main() -> None:
    directory, *addresses = sys.argv[1:]
    loop = Loop()
    beat = beat_seconds(LEASE_SECONDS)
    for index, address in enumerate(addresses, start=1):
        StandIn(loop, index, address, f"{directory}/{index}/channels", beat)
    print("ready", flush=True)
    loop.run()


if __name__ == "__main__":
    main()
