"""What a Client answers, step by step, as JSON: for a real cluster and for one that pretends, of two pods.

ask_client.py usual|mpirun|exec
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import agent
from agent import wire

FAILS = "echo of $JOB_COMPLETION_INDEX; exit $((3 * JOB_COMPLETION_INDEX))"
RANKS = "echo one rank"
WAITS = "sleep infinity"
LOSE_POD = 'kill -KILL "$(cut -d" " -f2 /run/a4-agent/lock)"; sleep infinity'
"""With its agent."""


class Printed:
    """A sink that keeps what pods print."""

    def __init__(self) -> None:
        self.text: dict[int, str] = {}

    def output(self, pod: int, stream: int, data: bytes) -> None:
        if stream == 1:
            self.text[pod] = self.text.get(pod, "") + data.decode()

    def wants(self, pod: int) -> bool:
        return True

    def over(self, pod: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def idle(self) -> None:
        return None

    def close(self) -> None:
        pass


def ran(client: agent.Client, workload: str, script: str, **more: Any) -> Iterator[Any]:
    run = client.submit(agent.RunSpec(workload, ("sh", "-c", script), by="a test", **more))
    yield run
    printed = Printed()
    end = client.follow(run, printed)
    yield type(end).__name__, end.end, end.codes, end.lost, printed.text, bool(end.results)


def refused(ask: Callable[[], object]) -> Any:
    try:
        return ask()
    except agent.AgentError as error:
        return type(error).__name__, error.code, str(error)


def submitted(client: agent.Client, workload: str, **more: Any) -> Any:
    return refused(lambda: client.submit(agent.RunSpec(workload, by="a test", **more)))


def usual(client: agent.Client) -> Iterator[Any]:
    yield from ran(client, "exec", FAILS, name="fails")
    yield refused(lambda: client.result("fails"))
    yield from ran(client, "mpirun", RANKS, name="ranks", note="a note", timeout=3600.0)
    result = client.result("ranks")
    yield result.verdict, result.args, result.name, result.note, result.limits, result.record, result.slots
    yield [(pod.index, pod.status, pod.lost, sorted(pod.phases)) for pod in result.pods]
    yield client.find("ranks"), refused(lambda: client.find("none-such"))
    for wrong in ({"name": "No Name"}, {"note": "x" * 201}, {"hosts": ("7",)}, {"without": 0}, {"env": {"": "x"}}):
        yield submitted(client, "exec", **wrong)
    yield submitted(client, "no-such"), submitted(client, "connectivity", args=("--no-such",))
    yield submitted(client, "exec", nodes=9), refused(lambda: [*client.file("fails", "no-such")])
    run = client.submit(agent.RunSpec("mpirun", ("sh", "-c", WAITS), by="a test", name="waits"))
    yield submitted(client, "mpirun", args=("true",)), refused(client.release), sorted(client.clocks())
    client.cancel(run, why="it is enough")
    yield client.wait(run).end._replace(why=""), client.find(run).over
    yield client.why(run)._replace(diagnosis=None)


def mpirun_loses(client: agent.Client) -> Iterator[Any]:
    yield from ran(client, "mpirun", f'[ "$OMPI_COMM_WORLD_RANK" != 3 ] && sleep infinity; {LOSE_POD}', name="loses")


def exec_loses(client: agent.Client) -> Iterator[Any]:
    yield from ran(client, "exec", f'[ "$JOB_COMPLETION_INDEX" = 1 ] || exit 0; {LOSE_POD}', name="loses")
    yield submitted(client, "mpirun", args=("true",))


STEPS = {"usual": usual, "mpirun": mpirun_loses, "exec": exec_loses}


def comparable(said: Any) -> str:
    """Without what differs between any two clusters: ids, names of pods, seconds, how a lost pod was noticed, and which
    rank mpirun's signal reached first."""
    text = json.dumps(wire.to_json(said), sort_keys=True, default=sorted)
    text = re.sub(r"\b(none|exec|mpirun)-[0-9a-f]{8}\b", r"\1-ID", text)
    text = re.sub(r"pod (\d), [\w-]+, node [\w-]+", r"pod \1, NAME", text)
    text = re.sub(r'"(\d)": "[\w.-]+"', r'"\1": "NAME"', text)
    text = re.sub(r"for \d+ (s|min)\b", "for SECONDS", text)
    text = re.sub(r"silent for .*? does not answer", "HOW", text)
    return re.sub(r"\\n(rank|failed|started and never).*?(?=\\n|\")", "", text)


def answers(steps: str) -> list[str]:
    with agent.Client() as client:
        return [comparable(said) for said in STEPS[steps](client)]


if __name__ == "__main__":
    print("\n".join(answers(sys.argv[1])))
