"""A world of fake pods: build it, script it, run it to its end, look at what came out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from agent.decide.messages import Message
from tests.fake.clock import Action, Clock, Event
from tests.fake.net import Network
from tests.fake.pod import FakePod
from tests.fake.process import FOREVER, FakeChild

MOST_EVENTS = 300_000
LIMIT_SECONDS = 1500.0


class FakeWorld:
    """Pods that see each other only through the fake network. Everything in it repeats exactly."""

    def __init__(
        self, pods: int = 4, workload: str = "none", env: Mapping[str, str] | None = None, seed: int = 0, **each: Any
    ) -> None:
        """`each`: attributes of every pod."""
        random.seed(seed)  # tenacity draws its jitter there
        self.random = random.Random(seed)
        self.clock = Clock()
        self.net = Network(self.clock)
        self.workload = workload
        self.env = dict(env or {})
        self.pods: list[FakePod] = []
        self.pods.extend(FakePod(self, index) for index in range(pods))
        self.every(**each)
        self.started: Callable[[FakeChild], None] = lambda child: None
        """Told of each process at its start."""
        self._begun = False
        self._events = 0

    @property
    def seconds(self) -> float:
        return self.clock.seconds

    def pod(self, index: int) -> FakePod:
        return self.pods[index]

    def others(self, *indices: int) -> list[FakePod]:
        return [pod for pod in self.pods if pod.index not in indices]

    def every(self, **fields: Any) -> None:
        """Set attributes of every pod."""
        for pod in self.pods:
            for name, value in fields.items():
                assert hasattr(pod, name)
                setattr(pod, name, value)

    def signal(self, number: int = 15) -> None:
        """Tell every pod to end, as when the job is deleted."""
        for pod in self.pods:
            pod.signal(number)

    def at(self, second: float, action: Action) -> Event:
        """Let something happen at a second of this world."""
        return self.clock.after(second - self.seconds, action)

    # Running

    def run(self, limit: float = LIMIT_SECONDS) -> dict[int, int | None]:
        """Until every pod that starts has ended; returns their exit codes."""
        self.until(self._all_over, limit)
        crashes = [pod.machine.crashed for pod in self.pods if pod.machine and pod.machine.crashed]
        if crashes:
            pytest.fail(f"an agent broke while it was ending:\n{crashes[0]}\n{self.dump()}")
        return self.codes()

    def until(self, condition: Callable[[], bool], limit: float = LIMIT_SECONDS) -> None:
        """Until `condition` holds, `limit` seconds of this world at most."""
        self._begin()
        while not condition():
            self._events += 1
            if self._events > MOST_EVENTS or not self.clock.step(limit):
                pytest.fail(f"the world does not come to where it should\n{self.dump()}")

    def until_event(self, event: str, *indices: int) -> None:
        """Until these pods (all, when none is named) have noted this event."""
        pods = [self.pods[index] for index in indices] or self.pods
        self.until(lambda: all(pod.has(event) for pod in pods))

    def ask(self, index: int, op: str, **fields: Any) -> dict[str, Any]:
        """What the agent of a pod answers a command there: `ok` or `error` of it."""
        client = self.pod(index).agent.client()
        number = client.ask(op, **fields)
        self.until(lambda: number in client.answers, self.seconds + LIMIT_SECONDS)
        return client.answers[number]

    def slip_in(self, message: Message, sender: int, receiver: int = 0) -> None:
        """Something that an agent would not say, from one pod to another, of which one is the coordinator."""
        role: Any = self.pod(sender).agent.role
        link = role.coordinator.link if sender else role.roster.peers[receiver].link
        self.pod(sender).agent.post(0, lambda: link.say(message))

    def submit(self, index: int, workload: str, **wish: Any) -> str:
        """Submit a run in a pod; returns its id."""
        answer = self.ask(index, "submit", spec={"workload": workload, "by": f"pod {index}", **wish})
        assert "ok" in answer, answer
        run_id: str = answer["ok"]["run"]
        return run_id

    def asleep(self) -> bool:
        return all(pod.living and pod.has("result-known") and pod.state()["phase"] == "sleeping" for pod in self.pods)

    def wait(self, seconds: float) -> None:
        """Let that much time pass."""
        self._begin()
        end = self.seconds + seconds
        while self.clock.step(end):
            pass
        self.clock.now += end - self.seconds

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        for pod in self.pods:
            self.net.names.setdefault(pod.name, [(pod.starts, pod.address)] if pod.starts is not None else [])
            if pod.starts is not None:
                self.clock.after(pod.starts, pod.start)

    def _all_over(self) -> bool:
        return all(pod.code is not None for pod in self.pods if pod.starts is not None)

    # What came out

    def codes(self) -> dict[int, int | None]:
        return {pod.index: pod.code for pod in self.pods if pod.starts is not None}

    def ends(self) -> dict[int, tuple[int, str, str]]:
        """Code, origin and pod in words of each pod's termination message."""
        return {pod.index: (pod.said()["code"], pod.said()["origin"], pod.said()["where"]) for pod in self.pods}

    def last(self, pods: Iterable[FakePod] = ()) -> float:
        """When the last of these pods (of all that started) had ended."""
        chosen = list(pods) or [pod for pod in self.pods if pod.starts is not None]
        return max(pod.ended_at if pod.ended_at is not None else float("inf") for pod in chosen)

    def dump(self) -> str:
        """Every pod's end and log, for the person who reads a failure."""
        parts = [f"at {self.seconds:.3f} s, isolated: {sorted(self.net.isolated)}, codes: {self.codes()}"]
        for pod in self.pods:
            parts.append(f"--- pod {pod.index}: code {pod.code} at {pod.ended_at}, events {pod.events()}")
            parts.append(pod.log.getvalue()[-6000:])
        return "\n".join(parts)


def first_run(pods: int = 4, env: Mapping[str, str] | None = None, workload: str = "script", **each: Any) -> FakeWorld:
    """Its first run has begun, which goes on for ever unless `each` says otherwise."""
    world = FakeWorld(pods, workload, env, **{"life": FOREVER, **each})
    world.until_event("run-started")
    return world


def all_are(code: int, pods: int = 4) -> dict[int, int | None]:
    return dict.fromkeys(range(pods), code)


USUAL = FakeWorld(1).pod(0).settings
"""Where nothing is set."""
