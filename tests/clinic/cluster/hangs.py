"""Brings all hangs of tests/clinic/hangs.py about, one after the other, in one local cluster of two pods.

python -m tests.clinic.cluster.hangs [NAME ...]    records what was seen, for tests/clinic/test_why_hangs.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent import wire
from agent.clinic.interface import diagnose
from agent.clinic.why.fitting import compact, fit
from agent.clinic.why.records import Collected
from agent.workbench.local.running_command import Running
from tests.clinic.hangs import HANGS, RUNS, Hang, blamed, is_right
from tests.clinic.recordings import HANGS_DIRECTORY
from tests.cluster.conftest import END_SECONDS, Start, Trial, starting
from tests.cluster.work import agent, following, read_until, sleeping
from tests.torch_environment import TORCH, TORCH_PYTHON

CHECKOUT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("programs") / "hangs.py"
RANKS, PODS = 4, 2
MOST_LOOKS = 3
"""A rank may have been looked at right before the call that it hangs in."""
MOST_BYTES = 6 * 1024
"""That are kept of each pod's records."""
ASK = """
import json, sys
from agent import wire
from agent.client import Client
with Client() as client:
    for _ in sys.stdin:
        print(json.dumps(wire.to_json(client.why_records())), flush=True)
"""
RELEASE = "for pid in $(cat /mnt/{}-*); do kill -USR1 $pid; kill -CONT $pid; done 2>/dev/null"
NAMES = {str(TORCH): "/opt/train", str(CHECKOUT): "/opt/a4", sys.base_prefix: "/usr", "/workload/": "/workspace/"}
"""Paths of this machine, and what is kept instead."""


def cluster_of_hangs(start: Start) -> Trial:
    env = {"A4_PYTHON": str(TORCH_PYTHON), "OMP_NUM_THREADS": "1"}
    return sleeping(
        start, PODS, gpus_per_pod=RANKS // PODS, files={"/workload/hangs.py": PROGRAM.read_bytes()}, env=env
    )


def looks(trial: Trial, names: Collection[str]) -> Iterator[tuple[Hang, Callable[[], Collected]]]:
    """Each hang once all its ranks have come to it, and a look at them."""
    with trial.cluster.popen(0, [sys.executable, "-c", ASK]) as asker:
        for hangs in RUNS:
            chosen = [hang for hang in hangs if hang.name in names]
            if chosen:
                yield from _looks(trial, asker, chosen)


def _looks(trial: Trial, asker: Running, hangs: list[Hang]) -> Iterator[tuple[Hang, Callable[[], Collected]]]:
    def look() -> Collected:
        asker.stdin.write(b"\n")
        answer = json.loads(read_until(asker.stdout, b"\n"))
        return wire.from_json(Collected, without_pace(answer))

    with running(trial, hangs):
        for hang in hangs:
            try:
                trial.until(0, " && ".join(f"test -e /mnt/{hang.name}-{rank}" for rank in range(RANKS)))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{json.dumps(compact(look()))}") from None
            yield hang, look
            if hang is not hangs[-1]:
                for pod in range(PODS):
                    trial.cluster.exec(pod, ["bash", "-c", release(hang, pod)])


def release(hang: Hang, pod: int) -> str:
    """Process ids are those of a pod."""
    here = ",".join(str(rank) for rank in range(RANKS) if rank * PODS // RANKS == pod)
    return RELEASE.replace("-*", f"-{{{{{here}}}}}").format(hang.name)


@contextmanager
def running(trial: Trial, hangs: list[Hang]) -> Iterator[None]:
    is_mpi = hangs[0].name.startswith("mpi")
    words = ("mpirun", "--", sys.executable) if is_mpi else ("torchrun", "--")
    with following(trial, 1, *words, "/workload/hangs.py", *[hang.name for hang in hangs]) as (client, run):
        try:
            yield
        finally:
            agent(trial, 0, "cancel", run)
            client.wait(END_SECONDS)


def without_pace(answer: Any) -> Any:
    """Without how often its numbers moved before: hangs that follow each other tell nothing of a run's usual pauses."""
    if isinstance(answer, dict):
        return {name: without_pace(value) for name, value in answer.items() if name not in ("pace", "printed")}
    return [without_pace(value) for value in answer] if isinstance(answer, list) else answer


def judged(hang: Hang, look: Callable[[], Collected]) -> Collected:
    """A look that is judged rightly, or the last one. What blames a healthy rank is not looked at again."""
    for _ in range(MOST_LOOKS):
        seen = look()
        found = diagnose(seen)
        if is_right(hang, found) or hang.judged == "cannot tell" or not blamed(found) <= set(hang.guilty):
            break
    return seen


def record(names: Collection[str]) -> None:
    with starting() as start:
        for hang, look in looks(cluster_of_hangs(start), names):
            seen = judged(hang, look)
            pods = [pod._replace(name=f"train-{pod.pod}", hosts=()) for pod in seen.pods]
            seen = seen._replace(run="r1", pods=tuple(fit(pod, MOST_BYTES) for pod in pods))
            text = json.dumps(compact(seen), separators=(",", ":"), ensure_ascii=False)
            for path, name in NAMES.items():
                text = text.replace(path, name)
            HANGS_DIRECTORY.joinpath(f"{hang.name}.json").write_text(text + "\n")
            found = diagnose(seen)
            print(f"{hang.name}: {'right' if is_right(hang, found) else 'NOT RIGHT'}: {found.sentence}", flush=True)


if __name__ == "__main__":
    record(sys.argv[1:] or [hang.name for hang in HANGS])
